"""The endpoints of a run or a standing fabric: worker processes, and requests to the hosts in them.

Owns starting workers (by exec, so nothing is inherited), spreading hosts over them, and ending them. Up to four hosts
get a process each; more are packed into as many processes as there are cores. Runs on the asyncio loop of its owner.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrcemu.errors import MrcEmuError, UnfitEnvironmentError
from mrcemu.topology.loader import dump_topology
from mrcemu.topology.model import Topology

OWN_PROCESS_HOSTS = 4
START_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
# Told of each event a worker pushes: a row of `control.EventTap`.
EventSink = Callable[[Mapping[str, Any]], None]
_LIMIT_BYTES = 1 << 30  # of one answer: the collected results of a long run


@dataclass(frozen=True, slots=True)
class HostPlace:
    """What a worker must know of a host: number, namespace path, MACs per plane (own port, T0 facing it)."""

    host: int
    netns_path: str
    port_macs: tuple[bytes, ...]
    gateway_macs: tuple[bytes, ...]

    def as_request(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "netns": self.netns_path,
            "port_macs": [mac.hex() for mac in self.port_macs],
            "gateway_macs": [mac.hex() for mac in self.gateway_macs],
        }


def _ignore(_event: Mapping[str, Any]) -> None:
    """Nobody watches."""


class EndpointError(MrcEmuError):
    """A worker refused a request or died."""


class _WorkerProcess:
    """One worker: its process, its channel, the requests without an answer yet."""

    def __init__(self, on_event: EventSink = _ignore) -> None:
        ours, theirs = socket.socketpair()
        self._on_event = on_event
        self._socket = ours
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mrcemu.endpoint.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a scheduling group of its own, so that its priority counts
            )
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=_LIMIT_BYTES)
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await self._next_line(reader):
            answer = json.loads(line)
            if "event" in answer:
                self._on_event(answer["event"])
                continue
            waiting = self._waiting.pop(answer["id"], None)
            if waiting is None or waiting.done():
                continue
            if answer["ok"]:
                waiting.set_result(answer["result"])
            else:
                waiting.set_exception(EndpointError(answer["error"]))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EndpointError(f"endpoint process {self.process.pid} ended"))
        self._waiting.clear()

    @staticmethod
    async def _next_line(reader: asyncio.StreamReader) -> bytes:
        """The next answer; empty when the process is gone, however it went."""
        try:
            return await reader.readline()
        except ConnectionError:
            return b""

    async def request(self, verb: str, arguments: Mapping[str, Any], timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Ask and wait; EndpointError if the worker refuses, dies or does not answer in time."""
        if self._writer is None or self._reading is None or self._reading.done():
            raise EndpointError(f"endpoint process {self.process.pid} is gone")
        self._next_id += 1
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = waiting
        self._writer.write(json.dumps({"id": self._next_id, "do": verb, **arguments}).encode() + b"\n")
        try:
            # Not wait_for: up to Python 3.11 it swallows a cancellation that comes together with the answer.
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            raise EndpointError(f"endpoint process {self.process.pid} did not answer {verb!r}") from None

    async def stop(self) -> None:
        """End the process: ask, then insist."""
        if self._writer is not None:
            self._writer.close()  # the worker ends when its channel closes
        else:
            self._socket.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self.process.wait), STOP_TIMEOUT_S)
        except TimeoutError:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)


def spread(hosts: Sequence[int], cores: int) -> list[list[int]]:
    """Which hosts share a process: one each up to four, else round robin over as many processes as cores."""
    if len(hosts) <= OWN_PROCESS_HOSTS:
        return [[host] for host in hosts]
    workers = max(1, min(cores, len(hosts)))
    return [list(hosts[index::workers]) for index in range(workers)]


class EndpointGroup:
    """All endpoints of one run; see the module docstring."""

    def __init__(self, topology: Topology, seed: int, epoch_ns: int, config: Mapping[str, Any] | None = None) -> None:
        self.topology = topology
        self.epoch_ns = epoch_ns
        self._seed = seed
        self._config = dict(config or {})
        self._workers: list[_WorkerProcess] = []
        self._by_host: dict[int, _WorkerProcess] = {}
        self.base_rtt_ns = 0
        self._watch_level = 0
        self._settled = asyncio.Event()
        self.on_event: EventSink = _ignore

    @property
    def hosts(self) -> list[int]:
        return sorted(self._by_host)

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    async def start(self, places: Iterable[HostPlace]) -> None:
        """Start workers and open every host; UnfitEnvironmentError if one fails to. May be called again for more."""
        by_host = {place.host: place for place in places}
        groups = spread(sorted(by_host), os.cpu_count() or 1)
        workers = [_WorkerProcess(self._hand_on) for _ in groups]
        self._workers.extend(workers)
        await asyncio.gather(
            *(
                self._open(worker, [by_host[host] for host in group])
                for worker, group in zip(workers, groups, strict=True)
            )
        )
        self._settled.set()

    async def settled(self) -> None:
        """Wait until the first hosts are open, or it is clear that none will be."""
        await self._settled.wait()

    async def _open(self, worker: _WorkerProcess, places: Sequence[HostPlace]) -> None:
        await worker.connect()
        arguments = {
            "topology": dump_topology(self.topology),
            "epoch_ns": self.epoch_ns,
            "seed": self._seed,
            "config": self._config,
            "level": self._watch_level,
            "hosts": [place.as_request() for place in places],
        }
        try:
            opened = await worker.request("open", arguments, START_TIMEOUT_S)
        except EndpointError as error:
            raise UnfitEnvironmentError(
                f"an endpoint process did not start ({error})", "see its message above"
            ) from error
        self.base_rtt_ns = opened["base_rtt_ns"]
        self._by_host.update(dict.fromkeys((place.host for place in places), worker))
        if arguments["level"] != self._watch_level:  # somebody began or ended watching meanwhile
            await worker.request("watch", {"level": self._watch_level})

    async def ask(self, host: int, verb: str, **arguments: Any) -> Any:
        """One request to the worker that runs `host`; EndpointError if it is refused."""
        worker = self._by_host.get(host)
        if worker is None:
            raise EndpointError(f"h{host} has no endpoint")
        return await worker.request(verb, {"host": host, **arguments})

    async def ask_all(self, verb: str, **arguments: Any) -> list[Any]:
        """One request to every worker whose hosts are open, answers in worker order."""
        workers = dict.fromkeys(self._by_host.values())
        return list(await asyncio.gather(*(worker.request(verb, arguments) for worker in workers)))

    def _hand_on(self, event: Mapping[str, Any]) -> None:
        self.on_event(event)

    async def watch(self, level: int) -> None:
        """Have events of a `control.WatchLevel` handed to `on_event`, by workers of now and of later."""
        self._watch_level = level
        await self.ask_all("watch", level=level)

    async def connect(self, src: int, dst: int, qpn: int, **arguments: Any) -> None:
        """Create QP number `qpn` at both ends."""
        await asyncio.gather(
            self.ask(src, "create_qp", peer=dst, qpn=qpn, **arguments),
            self.ask(dst, "create_qp", peer=src, qpn=qpn, **arguments),
        )

    async def stop(self) -> None:
        """End every worker; nothing is left running."""
        self._settled.set()
        await asyncio.gather(*(worker.stop() for worker in self._workers), return_exceptions=True)
        self._workers.clear()
        self._by_host.clear()
