"""Ask the keeper of a standing fabric, from another process; blocking, for the command line.

Owns finding the socket and telling a dead keeper from a missing one. Refuses to act in a dead keeper's place: only
`down` may, by the record.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.keeper.protocol import LOG_NAME, SOCKET_NAME, Request, emit_request, raise_remote

TAKE_BACK_S = 2.0  # ours: raising a link takes the keeper 0.1 ms


def ask(
    directory: Path,
    verb: str,
    targets: Sequence[str] = (),
    args: Mapping[str, Any] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The result of one request to the keeper whose state is in `directory` (/run/mrcemu/NAME).

    `on_event` gets intermediate replies. Interrupting the call takes the request back. RemoteError carries what the
    keeper refused; UnfitEnvironmentError says that it does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(directory / SOCKET_NAME))
            connection.sendall(emit_request(Request(verb, tuple(targets), args or {})))
            try:
                return _receive(connection, on_event, directory)
            except KeyboardInterrupt:
                _take_back(connection)
                raise
        except PermissionError as error:
            raise UnfitEnvironmentError("talking to a keeper needs root", "run it with sudo", error.errno) from error
        except (ConnectionError, FileNotFoundError) as error:
            raise _dead(directory, error) from error
        except TimeoutError:
            raise UnfitEnvironmentError(
                f"the keeper of {directory.name} does not answer within {timeout_s:g} s",
                f"mrcemu down {directory.name}",
            ) from None


def _take_back(connection: socket.socket) -> None:
    """Tell the keeper that nobody wants this any more, and wait until it has undone it."""
    deadline = time.monotonic() + TAKE_BACK_S
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                return


def _receive(
    connection: socket.socket, on_event: Callable[[Mapping[str, Any]], None] | None, directory: Path
) -> dict[str, Any]:
    with connection.makefile("rb") as replies:
        for line in replies:
            reply = json.loads(line)
            if "event" not in reply:
                if not reply["ok"]:
                    raise_remote(reply["error"])
                return dict(reply["result"])
            if on_event is not None:
                on_event(reply["event"])
    raise _dead(directory, None)


def _dead(directory: Path, error: OSError | None) -> UnfitEnvironmentError:
    code = error.errno if error is not None else None
    log = directory / LOG_NAME
    words = f" (its last words: {log})" if log.is_file() and log.stat().st_size else ""
    return UnfitEnvironmentError(
        f"the keeper of {directory.name} is not running{words}", f"mrcemu down {directory.name}, then up again", code
    )
