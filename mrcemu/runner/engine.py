"""One run: build the fabric, start endpoints, calibrate, let workloads and timeline go, collect, tear down.

Owns the order of a run and its clean-up: whatever ends it, nothing stays. Hosts the keeper itself, so that `status`,
`link flap` or `capture` in a second terminal work on a run in progress. Refuses figures (measure.py) and files
(results.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mrcemu.capture.session import CaptureSession
from mrcemu.capture.targets import taps_for
from mrcemu.endpoint.group import EndpointError, EndpointGroup
from mrcemu.errors import MrcEmuError
from mrcemu.fabric.journal import list_standing
from mrcemu.fabric.net import MrcNet
from mrcemu.keeper.endpoints import EndpointService
from mrcemu.keeper.keeper import Keeper
from mrcemu.keeper.places import host_place
from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.runner.interrupts import Interrupts
from mrcemu.runner.scenario import Scenario
from mrcemu.runner.timeline import FaultAction
from mrcemu.runner.workloads import WRITE_LAT, WorkloadSpec
from mrcemu.topology.model import Topology
from mrcemu.topology.selection import select_evs

NS = 10**9
BIN_NS = 10_000_000  # the run's zero lies on a bin of the endpoints' clock
LEAD_NS = 200_000_000  # between the last preparation and the run's zero
CALIBRATION_PACKETS = 16
CALIBRATION_QPN = 3
FIRST_QPN = 8
FOREVER_NS = 1 << 62
DRAIN_LIMIT_S = 20.0
INTERRUPTED_DRAIN_LIMIT_S = 1.0  # somebody waits; `down` kills after 3 s
POLL_S = 0.2
GIVE_UP_AFTER = 3  # signals; an endpoint that does not answer would be waited for for a minute

# progress(elapsed ns, whole duration ns, bytes placed so far): called a few times a second
Progress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line adds to a scenario."""

    seed: int
    keep: bool = False
    # With `keep`: called when the run is over and the fabric still stands, in a thread of its own.
    on_kept: Callable[[RunRecord], None] | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    progress: Progress | None = None
    build_progress: Callable[[int, int, str], None] | None = None


@dataclass(frozen=True, slots=True)
class FaultDone:
    """A timeline action as carried out; times ns since the run's zero."""

    action: FaultAction
    asked_at_ns: int
    done_at_ns: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """One QP of a workload."""

    workload: WorkloadSpec
    qpn: int
    src: int
    dst: int


@dataclass(slots=True)
class RunRecord:
    """Everything raw that a run produced; `zero_ns` is the run's start on the endpoints' clock."""

    scenario: Scenario
    seed: int
    config: TransportConfig
    zero_ns: int = 0
    end_ns: int = 0  # when the run stopped, since zero
    interrupted: bool = False
    connections: list[Connection] = field(default_factory=list)
    faults: list[FaultDone] = field(default_factory=list)
    calibration_rtts_ns: list[int] = field(default_factory=list)
    hosts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    ports_before: Mapping[str, Any] = field(default_factory=dict)
    ports_after: Mapping[str, Any] = field(default_factory=dict)
    softnet_drops: int = 0
    captures: list[dict[str, Any]] = field(default_factory=list)
    drained: bool = True


def execute(scenario: Scenario, folder: Path, options: RunOptions) -> RunRecord:
    """Run one scenario to its end, or to the first signal `options.interrupts` catches.

    The fabric is gone when it returns. The first signal stops the traffic and the record is marked interrupted; a
    second one does not wait for what is outstanding; before the traffic began, KeyboardInterrupt is raised instead.
    With `keep` the fabric stands until a signal that then only ends the keeping.
    """
    interrupts = options.interrupts
    net = MrcNet(scenario.topology, name=_free_name(scenario.name))

    def building(done: int, total: int, what: str) -> None:
        interrupts.raise_if_any()
        if options.build_progress is not None:
            options.build_progress(done, total, what)

    try:
        net.build(progress=building)
        return asyncio.run(_Run(scenario, net, folder, options).run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        net.stop()


def _free_name(wanted: str) -> str:
    """The scenario's name in the letters a fabric may have; numbered if one of that name stands already."""
    base = "".join(c if c.isalnum() else "-" for c in wanted.lower()).strip("-")[:24].strip("-") or "run"
    taken = {standing.name for standing in list_standing()}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1000))) if name not in taken)


def softnet_drops() -> int:
    """Packets the kernel dropped because a CPU's input queue was full, over all CPUs since boot."""
    lines = Path("/proc/net/softnet_stat").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


class _Run:
    """The state of one run in progress."""

    def __init__(self, scenario: Scenario, net: MrcNet, folder: Path, options: RunOptions) -> None:
        self._scenario = scenario
        self._topology: Topology = scenario.topology
        self._net = net
        self._folder = folder
        self._options = options
        self._keeper = Keeper(net)
        self._group = EndpointGroup(
            self._topology, options.seed, time.monotonic_ns(), dict(scenario.transport.settings)
        )
        config = for_topology(self._topology)
        self._record = RunRecord(scenario, options.seed, config)
        self._captures: list[tuple[str, CaptureSession]] = []
        self._interrupts = options.interrupts
        self._ending = asyncio.Event()
        self._over = False  # the traffic ended by itself: a signal can only hurry what follows
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> RunRecord:
        """The whole run; errors of the environment are raised after clean-up."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            self._interrupts.forward_to(partial(loop.call_soon_threadsafe, self._interrupt))
            stack.callback(self._interrupts.forward_to, None)
            await self._keeper.start()
            stack.push_async_callback(self._keeper.stop)
            stack.push_async_callback(EndpointService(self._keeper, self._group).stop)
            try:
                await self._traffic()
            finally:
                self._task = None  # from here on nothing is cut short
            if self._options.keep and not self._record.interrupted:
                await self._keep()
        return self._record

    async def _traffic(self) -> None:
        """Endpoints and captures from start to stop."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._group.stop)
            stack.push_async_callback(self._stop_captures)
            await self._prepare()
            self._interrupts.raise_if_any()
            await self._play()
            self._over = True
            await self._collect()
            self._task = None

    async def _keep(self) -> None:
        """Let the fabric stand, with its record judged and written, until a signal."""
        if self._options.on_kept is not None:
            await asyncio.to_thread(self._options.on_kept, self._record)
        await self._ending.wait()
        self._interrupts.clear()

    def _interrupt(self) -> None:
        """Once: stop the traffic. Twice: do not wait for what is outstanding. Three times: give the run up."""
        self._record.interrupted |= not self._over
        self._ending.set()
        if self._interrupts.count >= GIVE_UP_AFTER and self._task is not None:
            self._task.cancel()

    # -- before ---------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        topology = self._topology
        pairs = [(topology.host_index(w.src), topology.host_index(w.dst)) for w in self._scenario.workload]
        hosts = sorted({host for pair in pairs for host in pair})
        await self._group.start([host_place(self._net, host) for host in hosts])
        for pid in self._group.pids:
            self._net.journal.add_process(pid)
        await self._calibrate(*self._longest_pair(pairs))
        self._start_captures()
        await self._connect(pairs)

    def _longest_pair(self, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return next((pair for pair in pairs if not self._topology.is_t0_local(*pair)), pairs[0])

    async def _calibrate(self, src: int, dst: int) -> None:
        """Measure base RTT with single full packets on the idle fabric, each on another path."""
        group, qpn = self._group, CALIBRATION_QPN
        shape = {"workload": "calibration", "qpns": [qpn], "size": self._topology.mtu_bytes, "depth": 1, "rkey": qpn}
        await group.connect(src, dst, qpn)
        await group.ask(dst, "receive", **shape)
        await group.ask(src, "send", **shape, stop_ns=1 << 62, count=CALIBRATION_PACKETS)
        deadline = time.monotonic() + 2 + 3 * CALIBRATION_PACKETS * self._record.config.base_rtt_ns / NS
        while time.monotonic() < deadline and not self._ending.is_set():
            await asyncio.sleep(0.05)
            progress = await group.ask(src, "progress")
            if progress[str(src)]["senders"]["calibration"]["done"]:
                break
        self._record.calibration_rtts_ns = await group.ask(src, "rtt_samples", qpn=qpn)
        for host in (src, dst):
            await group.ask(host, "forget", workload="calibration", qpns=[qpn])

    def _start_captures(self) -> None:
        if not self._scenario.capture:
            return
        taps = taps_for(self._topology, list(self._scenario.capture), self._net.netns_path)
        path = self._folder / "capture.pcapng"
        session = CaptureSession(taps, path)
        session.start()
        self._captures.append((path.name, session))

    async def _connect(self, pairs: Sequence[tuple[int, int]]) -> None:
        qpn, transport = FIRST_QPN, self._scenario.transport
        for spec, (src, dst) in zip(self._scenario.workload, pairs, strict=True):
            evs = {
                host: select_evs(self._topology, host, peer, transport.evs, transport.forwarding)
                for host, peer in ((src, dst), (dst, src))
            }
            for _ in range(1 if spec.kind == WRITE_LAT else transport.qps):
                for host, peer in ((src, dst), (dst, src)):
                    await self._group.ask(host, "create_qp", peer=peer, qpn=qpn, evs=evs[host])
                self._record.connections.append(Connection(spec, qpn, src, dst))
                qpn += 1

    # -- during ---------------------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        """Endpoint clock."""
        return time.monotonic_ns() - self._group.epoch_ns

    async def _play(self) -> None:
        record, scenario = self._record, self._scenario
        record.zero_ns = -(-(self._now_ns() + LEAD_NS) // BIN_NS) * BIN_NS
        record.ports_before = self._net.counters()
        record.softnet_drops = softnet_drops()
        for number, spec in enumerate(scenario.workload):
            await self._launch(spec, rkey=FIRST_QPN + number)
        timeline = asyncio.create_task(self._play_timeline())
        try:
            await self._wait_until(record.zero_ns + scenario.duration_ns)
        finally:
            timeline.cancel()
            with suppress(asyncio.CancelledError):
                await timeline
        record.end_ns = max(0, min(self._now_ns() - record.zero_ns, scenario.duration_ns))
        await self._drain()

    async def _launch(self, spec: WorkloadSpec, rkey: int) -> None:
        mine = [connection for connection in self._record.connections if connection.workload is spec]
        src, dst, zero = mine[0].src, mine[0].dst, self._record.zero_ns
        shape = {"workload": spec.id, "size": spec.size_bytes, "rkey": rkey}
        target = {**shape, "qpns": [connection.qpn for connection in mine], "depth": spec.depth}
        stop_ns = zero + spec.end_ns if spec.count is None else FOREVER_NS
        span = {"start_ns": zero + spec.start_ns, "stop_ns": stop_ns, "count": spec.count}
        await self._group.ask(dst, "receive", **target)
        if spec.kind == WRITE_LAT:
            await self._group.ask(src, "receive", **target)
            await self._group.ask(dst, "ping_pong", **shape, qpn=mine[0].qpn, begins=False, stop_ns=FOREVER_NS)
            await self._group.ask(src, "ping_pong", **shape, qpn=mine[0].qpn, begins=True, **span)
        else:
            await self._group.ask(src, "send", **target, **span)

    async def _wait_until(self, when_ns: int) -> None:
        """Wait, showing progress, until a time of the endpoints' clock or the first interrupt."""
        while (left := when_ns - self._now_ns()) > 0 and not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), min(POLL_S, left / NS))
            if self._options.progress is not None:
                await self._show_progress(self._options.progress)

    async def _show_progress(self, show: Progress) -> None:
        placed = 0
        for answer in await self._group.ask_all("progress"):
            placed += sum(
                host["placed"].get(spec.id, 0) for host in answer.values() for spec in self._scenario.workload
            )
        elapsed = max(0, self._now_ns() - self._record.zero_ns)
        show(min(elapsed, self._scenario.duration_ns), self._scenario.duration_ns, placed)

    async def _play_timeline(self) -> None:
        zero = self._record.zero_ns
        for action in self._scenario.timeline:
            await asyncio.sleep(max(0, zero + action.at_ns - self._now_ns()) / NS)
            try:
                done = await self._keeper.perform(action.verb, action.targets)
                row = FaultDone(action, action.at_ns, done - self._group.epoch_ns - zero)
            except MrcEmuError as error:
                row = FaultDone(action, action.at_ns, None, str(error))
            self._record.faults.append(row)

    async def _drain(self) -> None:
        """Post nothing more and let what is outstanding complete, for a bounded time, a signal less.

        A workload that counts its messages goes on to the last one, unless the run was interrupted. Traffic that others
        started on these endpoints (`mrcemu bw` on a run in progress) is not waited for.
        """
        ours = {spec.id for spec in self._scenario.workload}
        ended = [spec for spec in self._scenario.workload if spec.count is None or self._record.interrupted]
        for spec in ended:
            await self._group.ask(self._topology.host_index(spec.src), "stop_sending", workload=spec.id)
        signals = self._interrupts.count
        deadline = time.monotonic() + (INTERRUPTED_DRAIN_LIMIT_S if signals else DRAIN_LIMIT_S)
        while time.monotonic() < deadline and self._interrupts.count == signals:
            answers = await self._group.ask_all("progress")
            senders = [item for answer in answers for host in answer.values() for item in host["senders"].items()]
            if all(sender["done"] for name, sender in senders if name in ours):
                return
            await asyncio.sleep(0.05)
        self._record.drained = False

    # -- after ----------------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        record = self._record
        with suppress(EndpointError):
            for answer in await self._group.ask_all("collect"):
                record.hosts.update({int(host): report for host, report in answer["hosts"].items()})
        record.ports_after = self._net.counters()
        record.softnet_drops = softnet_drops() - record.softnet_drops

    async def _stop_captures(self) -> None:
        for name, session in self._captures:
            summaries = await asyncio.to_thread(session.stop)
            self._record.captures.extend(
                {"file": name, "tap": s.label, "frames": s.frames, "dropped": s.dropped} for s in summaries
            )
        self._captures.clear()


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
