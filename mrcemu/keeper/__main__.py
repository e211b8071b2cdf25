"""The background process of a standing fabric: build, say "ready", keep, and tear down when told to end.

Started by `up.py` with one JSON line on stdin {"topology", "name", "topology_text"}; answers with JSON lines
{"progress": [done, total, what]}, then {"ready": PID} or {"error": {...}}. SIGTERM or SIGINT ends it and removes the
fabric. Killed with SIGKILL, it leaves the record by which `mrcemu down` removes everything.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mrcemu.fabric.net import MrcNet
from mrcemu.fabric.requirements import require
from mrcemu.keeper.endpoints import EndpointService
from mrcemu.keeper.keeper import Keeper
from mrcemu.keeper.protocol import LOG_NAME, emit_line, error_reply
from mrcemu.topology.loader import topology_from_dict

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _ToldToEndError(BaseException):
    """A signal that came while building; not an Exception, so that no handler on the way swallows it."""


def _raise(_number: int, _frame: object) -> None:
    raise _ToldToEndError


def _say(message: Mapping[str, Any]) -> None:
    os.write(1, emit_line(message))


def _progress(done: int, total: int, what: str) -> None:
    _say({"progress": [done, total, what]})


def _leave_terminal(log: str) -> None:
    """From now on nobody reads: input from nowhere, output and errors into the log."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nowhere, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(nowhere)
    os.close(file)


async def _keep(net: MrcNet) -> None:
    """Serve until a signal ends it."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in ENDING:
        loop.add_signal_handler(number, ending.set)
    keeper = Keeper(net)
    service = EndpointService(keeper)
    await keeper.start()
    try:
        _say({"ready": os.getpid()})
        _leave_terminal(str(net.journal.directory / LOG_NAME))
        await ending.wait()
    finally:
        await service.stop()
        await keeper.stop()


def _build_and_keep(order: Mapping[str, Any]) -> None:
    require()
    net = MrcNet(topology_from_dict(order["topology"]), name=order["name"], topology_text=order["topology_text"])
    try:
        net.build(progress=_progress)
        asyncio.run(_keep(net))
    finally:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # tearing down is finished, whoever is impatient
        net.stop()


def main() -> int:
    """Run one keeper from build to teardown; the exit status is 0 if it was told to end."""

    for number in ENDING:
        signal.signal(number, _raise)
    try:
        _build_and_keep(json.loads(sys.stdin.buffer.readline()))
    except (_ToldToEndError, BrokenPipeError):
        return 0  # told to end, or nobody waits for this fabric any more
    except Exception as error:
        with suppress(BrokenPipeError):
            _say(error_reply(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
