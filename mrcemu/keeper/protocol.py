"""The keeper's wire: one request a connection, JSON lines both ways, over a Unix socket only root can open.

    ask      {"do": VERB, "targets": [NAME or glob ...], "args": {...}}
    replies  {"event": {...}} any number of times, then {"ok": true, "result": {...}}
             or {"ok": false, "error": {"message": ..., "exit_code": ..., "near": [...]}}

Closing the connection before the last reply takes the request back: a flap ends with its links up. Ours, no source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrcemu.errors import MrcEmuError, UsageError

SOCKET_NAME = "keeper.sock"
LOG_NAME = "keeper.log"  # what the keeper's process writes to stderr, beside its socket
MAX_LINE_BYTES = 64 << 20  # ours: the status of a 1,024-port fabric takes about 1 MB


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a verb such as "link down", its targets as typed, its arguments."""

    verb: str
    targets: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)


class RemoteError(MrcEmuError):
    """An error of the keeper, raised at the asking side with the exit code it had there."""

    def __init__(self, message: str, exit_code: int, near: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.near = tuple(near)


def emit_line(document: Mapping[str, Any]) -> bytes:
    """One message as it goes over the socket."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def emit_request(request: Request) -> bytes:
    return emit_line({"do": request.verb, "targets": list(request.targets), "args": dict(request.args)})


def parse_request(line: bytes) -> Request:
    """UsageError if the line is no request."""
    try:
        document = json.loads(line)
        verb, targets, args = document["do"], document.get("targets", []), document.get("args", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError('not a request: expected {"do": VERB, "targets": [...], "args": {...}}') from None
    if not isinstance(verb, str) or not isinstance(args, dict) or not isinstance(targets, list):
        raise UsageError("not a request: do is a string, targets a list of names, args an object")
    if not all(isinstance(target, str) for target in targets):
        raise UsageError("not a request: every target is a name")
    return Request(verb, tuple(targets), args)


def error_reply(error: Exception) -> dict[str, Any]:
    """The last reply to a request that failed; an error nobody planned for has exit code 1 and names its kind."""
    planned = isinstance(error, (MrcEmuError, OSError))
    message = str(error) if planned else f"{type(error).__name__}: {error}"
    code = error.exit_code if isinstance(error, MrcEmuError) else 3 if isinstance(error, OSError) else 1
    return {"ok": False, "error": {"message": message, "exit_code": code, "near": list(getattr(error, "near", ()))}}


def raise_remote(error: Mapping[str, Any]) -> None:
    """Raise what an error reply says."""
    raise RemoteError(str(error["message"]), int(error["exit_code"]), error.get("near", ()))
