"""Endpoints on demand for a standing fabric: `bw`, `trace`, `probe` and the path tables of what runs.

Owns one endpoint group per keeper, started with the first request that needs it, and the numbering of QPs and keys.
Every request leaves its QPs behind only as long as it runs. Refuses scenarios: those are the runner's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mrcemu.endpoint.group import EndpointGroup
from mrcemu.errors import UsageError
from mrcemu.keeper.keeper import Keeper
from mrcemu.keeper.places import host_place
from mrcemu.keeper.protocol import Request
from mrcemu.keeper.verbs import Emit
from mrcemu.topology import timing
from mrcemu.topology.addressing import Path, path_for_ev, usid
from mrcemu.topology.model import Tier, Topology

DEFAULT_SEED = 1
FIRST_QPN = 16
POLL_S = 0.1
DRAIN_LIMIT_S = 30.0
MAX_DEPTH = 1024
PROBES_PER_HOP = 3


@dataclass(frozen=True, slots=True)
class BwOrder:
    """A checked `bw` request. Sizes in bytes, duration in ns; `iterations` (per QP) replaces the duration if given."""

    src: int
    dst: int
    size_bytes: int
    depth: int
    qps: int
    duration_ns: int
    iterations: int | None


def bw_order(topology: Topology, args: Mapping[str, Any]) -> BwOrder:
    """Check the arguments of `bw`; UsageError names what is allowed."""
    src, dst = topology.host_index(str(args.get("src"))), topology.host_index(str(args.get("dst")))
    if src == dst:
        raise UsageError("source and destination are the same host")
    order = BwOrder(
        src,
        dst,
        int(args.get("size", 1 << 20)),
        int(args.get("depth", 16)),
        int(args.get("qps", 1)),
        int(args.get("duration_ns", 5 * timing.NS)),
        None if args.get("iterations") is None else int(args["iterations"]),
    )
    limits = (
        ("size", order.size_bytes, 1, 1 << 30),
        ("depth", order.depth, 1, MAX_DEPTH),
        ("qps", order.qps, 1, 64),
        ("iterations", order.iterations or 1, 1, 1 << 24),
    )
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise UsageError(f"{name} is {low} .. {high}, found {value}")
    if order.size_bytes * order.depth * order.qps > 4 << 30:
        raise UsageError("size x depth x qps is the target memory: at most 4GiB")
    return order


class EndpointService:
    """The endpoint verbs of one keeper; `attach` registers them."""

    def __init__(self, keeper: Keeper) -> None:
        self._net = keeper.net
        self._topology = keeper.net.topology
        self._group: EndpointGroup | None = None
        self._lock = asyncio.Lock()
        self._next_qpn = FIRST_QPN
        self._running: dict[int, tuple[int, int]] = {}  # QPN -> (source, destination) of what runs now
        for verb, handler in (("bw", self._bw), ("trace", self._trace), ("connections", self._connections)):
            keeper.register(verb, handler)

    async def stop(self) -> None:
        """End all endpoint processes."""
        if self._group is not None:
            await self._group.stop()
            self._group = None

    async def _endpoints(self, *hosts: int) -> EndpointGroup:
        """The group, with these hosts running."""
        async with self._lock:
            if self._group is None:
                self._group = EndpointGroup(self._topology, DEFAULT_SEED, time.monotonic_ns())
            missing = [host for host in dict.fromkeys(hosts) if host not in self._group.hosts]
            if missing:
                known = set(self._group.pids)
                await self._group.start([host_place(self._net, host) for host in missing])
                for pid in set(self._group.pids) - known:
                    self._net.journal.add_process(pid)
            return self._group

    # -- bw -------------------------------------------------------------------------------------------------------

    async def _bw(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        order = bw_order(self._topology, request.args)
        group = await self._endpoints(order.src, order.dst)
        qpns = list(range(self._next_qpn, self._next_qpn + order.qps))
        self._next_qpn += order.qps
        workload = f"bw{qpns[0]}"
        try:
            for qpn in qpns:
                await group.connect(order.src, order.dst, qpn)
                self._running[qpn] = (order.src, order.dst)
            return await self._transfer(group, order, qpns, workload, emit)
        finally:
            for qpn in qpns:
                self._running.pop(qpn, None)
            await asyncio.shield(self._forget(group, order, qpns, workload))

    @staticmethod
    async def _forget(group: EndpointGroup, order: BwOrder, qpns: list[int], workload: str) -> None:
        for host in (order.src, order.dst):
            await group.ask(host, "forget", workload=workload, qpns=qpns)

    async def _transfer(
        self, group: EndpointGroup, order: BwOrder, qpns: list[int], workload: str, emit: Emit
    ) -> Mapping[str, Any]:
        shape = {"workload": workload, "qpns": qpns, "size": order.size_bytes, "depth": order.depth, "rkey": qpns[0]}
        await group.ask(order.dst, "receive", **shape)
        now = time.monotonic_ns() - group.epoch_ns
        far = now + (1 << 62) if order.iterations else now + order.duration_ns
        await group.ask(order.src, "send", **shape, start_ns=now, stop_ns=far, count=order.iterations)
        await self._follow(group, order, workload, emit)
        sent = await group.ask(order.src, "workload_report", workload=workload, qpns=qpns)
        got = await group.ask(order.dst, "workload_report", workload=workload, qpns=qpns)
        return self._bw_result(order, sent, got)

    async def _follow(self, group: EndpointGroup, order: BwOrder, workload: str, emit: Emit) -> None:
        """Emit progress once a second until everything posted has completed or failed."""
        started, deadline = time.monotonic(), order.duration_ns / timing.NS + DRAIN_LIMIT_S
        placed_before, second = 0, 1
        while True:
            await asyncio.sleep(POLL_S)
            sender = (await group.ask(order.src, "progress"))[str(order.src)]["senders"][workload]
            elapsed = time.monotonic() - started
            if elapsed >= second:
                placed = (await group.ask(order.dst, "progress"))[str(order.dst)]["placed"][workload]
                emit({"second": second, "bits": (placed - placed_before) * 8})
                placed_before, second = placed, second + 1
            if sender["done"] or (order.iterations is None and elapsed > deadline):
                return

    def _bw_result(self, order: BwOrder, sent: Mapping[str, Any], got: Mapping[str, Any]) -> Mapping[str, Any]:
        duration_ns = max(1, got["last_ns"] - got["first_ns"])
        goodput = got["bytes"] * 8 * timing.NS / duration_ns
        line = timing.line_payload_bps(self._topology, min(sent["ports_up"], got["ports_up"]))
        return {
            "src": f"h{order.src}",
            "dst": f"h{order.dst}",
            "size_bytes": order.size_bytes,
            "qps": order.qps,
            "depth": order.depth,
            "messages": sent["completed"],
            "bytes": got["bytes"],
            "duration_ns": duration_ns,
            "goodput_bps": goodput,
            "line_payload_bps": line,
            "efficiency": goodput / line if line else None,
            "corrupted_bytes": got["corrupted_bytes"],
            "lost_packets": sent["lost"],
            "retransmitted_packets": sent["retransmitted"],
            "evs_retired": sent["evs_retired"],
            "qp_errors": sent["qp_errors"] + got["qp_errors"],
        }

    # -- trace ----------------------------------------------------------------------------------------------------

    async def _trace(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """Probe along one path hop by hop: each switch turns it back by its uSID list, then the far NIC answers."""
        args = request.args
        src, dst = self._topology.host_index(str(args.get("src"))), self._topology.host_index(str(args.get("dst")))
        if src == dst:
            raise UsageError("source and destination are the same host")
        try:
            path = path_for_ev(self._topology, src, dst, int(args.get("ev", 0)))
        except ValueError as error:
            raise UsageError(str(error)) from None
        group = await self._endpoints(src, dst)
        hops = []
        for number, node in enumerate(path.nodes[1:], start=1):
            row = await self._trace_hop(group, src, dst, path, number)
            hops.append({"hop": number, "node": node, **row})
            emit(hops[-1])
        return {"ev": path.ev, "plane": path.plane, "srv6": path.srv6, "hops": hops, "ended_at": _ended_at(hops)}

    async def _trace_hop(self, group: EndpointGroup, src: int, dst: int, path: Path, number: int) -> dict[str, Any]:
        last = number == len(path.nodes) - 1
        rtts = []
        for _ in range(PROBES_PER_HOP):
            if last:
                answer = await group.ask(src, "probe", peer=dst, ev=path.ev)
            else:
                answer = await group.ask(
                    src, "self_probe", ev=path.ev, usids=_turn_back(self._topology, src, path, number)
                )
            if answer["rtt_ns"] is not None:
                rtts.append(answer["rtt_ns"])
        return {"answered": len(rtts), "sent": PROBES_PER_HOP, "rtt_ns": min(rtts, default=None)}

    # -- what runs ------------------------------------------------------------------------------------------------

    async def _connections(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """Path tables of the QPs that run now."""
        rows = []
        if self._group is not None:
            for qpn, (src, dst) in self._running.items():
                paths = await self._group.ask(src, "paths", qpn=qpn)
                rows.append({"qpn": qpn, "src": f"h{src}", "dst": f"h{dst}", "paths": paths})
        return {"connections": rows}


def _turn_back(topology: Topology, src: int, path: Path, number: int) -> list[int]:
    """The uSID list that goes `number` hops along a path and returns to the sender: T0; T0 T1 T0; T0 T1 T0' T1 T0."""
    home = usid(Tier.HOST, path.plane, topology.downlink_of_host(src))
    out = list(path.usids[:number])
    return [*out, *out[-2::-1], home]


def _ended_at(hops: list[dict[str, Any]]) -> str | None:
    """The first node that did not answer, or None."""
    return next((hop["node"] for hop in hops if not hop["answered"]), None)
