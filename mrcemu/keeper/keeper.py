"""The keeper of one fabric: the only writer to the kernel after `up`, behind a Unix socket and in-process alike.

Owns the order of changes (everything runs on one event loop), the watch over links that someone else changed, and the
request socket. `run` makes a `Keeper` for the fabric it built itself; `up` leaves one in a process of its own
(`__main__.py`). Refuses building and tearing down: whoever made the net does that.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrcemu.errors import UsageError
from mrcemu.keeper import verbs
from mrcemu.keeper.protocol import MAX_LINE_BYTES, SOCKET_NAME, Request, emit_line, error_reply, parse_request
from mrcemu.keeper.status import status_of
from mrcemu.keeper.verbs import FLAP, REBOOT, Emit

if TYPE_CHECKING:
    from mrcemu.fabric.net import MrcNet

# A verb of someone else's: gets the request and a function for intermediate replies, returns the result.
Handler = Callable[[Request, Emit], Awaitable[Mapping[str, Any]]]


def _discard(_event: Mapping[str, Any]) -> None:
    """Intermediate replies of in-process callers go nowhere."""


class Keeper:
    """Keeps a built `net`, listening on keeper.sock in its state directory between `start` and `stop`.

    One event loop, no threads: a request that does not wait is atomic.
    """

    def __init__(self, net: MrcNet, directory: Path | None = None) -> None:
        self.net = net
        self._socket_path = (directory or net.journal.directory) / SOCKET_NAME
        self._handlers: dict[str, Handler] = {"status": self._status, "ping": self._ping}
        self._server: asyncio.Server | None = None
        self._watched: list[int] = []
        self._connections: set[asyncio.Task[None]] = set()
        # Timed verbs in progress by name of link or switch: two must not fight over one.
        self._busy: dict[str, asyncio.Task[int]] = {}

    def register(self, verb: str, handler: Handler) -> None:
        """Add a verb, e.g. one that starts endpoints on demand; ValueError if the verb exists."""
        if verb in self._handlers or verb in verbs.VERBS or verb in (FLAP, REBOOT):
            raise ValueError(f"the verb {verb!r} exists")
        self._handlers[verb] = handler

    async def start(self) -> None:
        """Watch the links and listen. The socket is for root alone."""
        loop = asyncio.get_running_loop()
        for fd in self.net.event_fds():
            loop.add_reader(fd, self.net.handle_event, fd)
            self._watched.append(fd)
        self._socket_path.unlink(missing_ok=True)
        previous = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._socket_path, limit=MAX_LINE_BYTES)
        finally:
            os.umask(previous)

    async def stop(self) -> None:
        """End timed verbs (their links come up), connections and the watch; the fabric stands on."""
        await _end([*self._busy.values(), *self._connections])
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        self._socket_path.unlink(missing_ok=True)
        for fd in self._watched:
            asyncio.get_running_loop().remove_reader(fd)
        self._watched.clear()

    async def perform(
        self, verb: str, targets: Sequence[str], args: Mapping[str, Any] | None = None, emit: Emit = _discard
    ) -> int:
        """Do a fault verb and return when the kernel had done it, in CLOCK_MONOTONIC nanoseconds.

        `targets` are names or globs. A flap (`period_ns`, `duty`, `count`) and a reboot (`for_ns`) return at their end.
        UsageError for what does not exist, or what a running flap or reboot holds.
        """
        names = verbs.expand_targets(self.net.topology, verb, targets)
        if verb == "link reset":
            await _end({self._busy[name] for name in names if name in self._busy})
        self._refuse_busy(names)
        if verb == FLAP:
            return await self._hold(names, verbs.flap(self.net, names, verbs.flap_plan(args or {}), emit))
        if verb == REBOOT:
            return await self._hold(names, verbs.reboot(self.net, names, verbs.reboot_time_ns(args or {})))
        return verbs.act(self.net, verb, names)

    def _refuse_busy(self, names: Sequence[str]) -> None:
        held = [name for name in names if name in self._busy]
        if held:
            raise UsageError(
                f"{held[0]} is flapping or rebooting; end that first (`mrcemu link reset`, or Ctrl-C there)"
            )

    async def _hold(self, names: Sequence[str], work: Any) -> int:
        task: asyncio.Task[int] = asyncio.ensure_future(work)
        self._busy.update(dict.fromkeys(names, task))
        try:
            return await task
        finally:
            for name in names:
                self._busy.pop(name, None)

    async def answer(self, request: Request, emit: Emit = _discard) -> Mapping[str, Any]:
        """The result of one request, as the socket gives it."""
        handler = self._handlers.get(request.verb)
        if handler is not None:
            return await handler(request, emit)
        done_at_ns = await self.perform(request.verb, request.targets, request.args, emit)
        names = verbs.expand_targets(self.net.topology, request.verb, request.targets)
        return {"done_at_ns": done_at_ns, "names": list(names)}

    async def _status(self, _request: Request, _emit: Emit) -> Mapping[str, Any]:
        return status_of(self.net)

    async def _ping(self, _request: Request, _emit: Emit) -> Mapping[str, Any]:
        return {"pid": os.getpid()}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio runs every connection in a task
        self._connections.add(task)
        try:
            await self._serve_request(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the asking side went away, or the keeper stops
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:
            return
        work = asyncio.ensure_future(self._reply_to(line, lambda event: writer.write(emit_line({"event": event}))))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                await _end([work])
        ended = UsageError("ended before it was done, by a reset or by whoever asked")
        reply = error_reply(ended) if work.cancelled() else work.result()
        writer.write(emit_line(reply))
        await writer.drain()

    async def _reply_to(self, line: bytes, emit: Emit) -> Mapping[str, Any]:
        try:
            return {"ok": True, "result": await self.answer(parse_request(line), emit)}
        except Exception as error:
            return error_reply(error)


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until their clean-up has run."""
    waiting = [task for task in tasks if task is not asyncio.current_task()]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
