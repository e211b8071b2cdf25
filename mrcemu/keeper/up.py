"""Leave a fabric standing: start a keeper in the background, wait until it is ready, or report why it is not.

Owns the starting side of the conversation with `__main__.py`. The keeper builds and, on any failure or if this side
goes away before it is ready, removes everything again; this side only relays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import journal
from mrcemu.keeper.protocol import raise_remote
from mrcemu.topology.loader import dump_topology
from mrcemu.topology.model import Topology

# Called with (done, total, what) as building goes on.
Progress = Callable[[int, int, str], None]


def clear_remains(name: str) -> bool:
    """Remove what a killed run left of a fabric of this name, so that `up` right after a kill works.

    Returns whether there was something; a fabric whose owner lives is not touched.
    """
    dead = any(found.name == name and not found.owner_alive for found in journal.list_standing())
    if dead:
        journal.down(name)
    return dead


def start_keeper(topology: Topology, name: str, topology_text: str = "", progress: Progress | None = None) -> int:
    """Build `topology` as the standing fabric `name` and return its keeper's pid.

    Raises what the building raised (UsageError for a taken name, UnfitEnvironmentError for a missing feature, as
    RemoteError with their exit codes). Interrupting it removes what was built.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "mrcemu.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in this terminal, or closing it, is not for the keeper
        cwd="/",
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    order = {"topology": dump_topology(topology), "name": name, "topology_text": topology_text}
    try:
        return _converse(child, json.dumps(order).encode(), progress)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    finally:
        _close_pipes(child)


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _converse(child: subprocess.Popen[bytes], order: bytes, progress: Progress | None) -> int:
    assert child.stdin is not None  # asked for above, as are the other two
    assert child.stdout is not None
    assert child.stderr is not None
    with suppress(BrokenPipeError):  # it died at once; why stands on its stderr
        child.stdin.write(order + b"\n")
        child.stdin.close()
    for line in child.stdout:
        if (pid := _take(json.loads(line), progress)) is not None:
            return pid
    last = child.stderr.read().decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
    raise UnfitEnvironmentError(f"the keeper did not start: {last[0]}", "run mrcemu doctor")


def _take(message: Mapping[str, Any], progress: Progress | None) -> int | None:
    """Handle one line of the keeper; its pid once it is ready."""
    if "error" in message:
        raise_remote(message["error"])
    if "progress" in message and progress is not None:
        progress(*message["progress"])
    return int(message["ready"]) if "ready" in message else None
