"""`bw` and `lat` on a fabric: connect two hosts, let a workload run, add up both sides, leave nothing behind.

Owns the numbering of QPs and the figures of both commands. QP numbers (and keys, which are the same numbers) start far
above those of scenarios, so that both may run on one NIC at a time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from mrcemu.endpoint.group import EndpointError
from mrcemu.keeper.hosts import Hosts
from mrcemu.keeper.orders import BwOrder, LatOrder, bw_order, lat_order
from mrcemu.keeper.protocol import Request
from mrcemu.keeper.verbs import Emit
from mrcemu.topology import timing

FIRST_QPN = 0x10000
POLL_S = 0.1
DRAIN_LIMIT_S = 30.0  # beside twice the time that what is outstanding takes at line rate
FOREVER_NS = 1 << 62
Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Link:
    """The QPs of one request and the name of its workload (no scenario can use it: a hyphen is no letter of ids)."""

    workload: str
    qpns: tuple[int, ...]


class Transfers:
    """The traffic verbs of one keeper."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._topology = hosts.topology
        self._next_qpn = FIRST_QPN

    @asynccontextmanager
    async def _connected(self, kind: str, src: int, dst: int, qps: int = 1) -> AsyncIterator[_Link]:
        """QPs between two hosts; they and all that ran on them are forgotten afterwards, whatever happens."""
        first = self._next_qpn
        self._next_qpn += qps
        link = _Link(f"{kind}-{first}", tuple(range(first, first + qps)))
        await self._hosts.start(src, dst)
        try:
            for qpn in link.qpns:
                await self._hosts.connect(src, dst, qpn)
            yield link
        finally:
            await asyncio.shield(self._forget(link, (src, dst)))

    async def _forget(self, link: _Link, hosts: Sequence[int]) -> None:
        for host in hosts:
            with suppress(EndpointError):  # its process ended meanwhile, and the QPs with it
                await self._hosts.ask(host, "forget", workload=link.workload, qpns=link.qpns)

    async def _reports(self, link: _Link, *hosts: int) -> list[Report]:
        return [
            await self._hosts.ask(host, "workload_report", workload=link.workload, qpns=link.qpns) for host in hosts
        ]

    # -- bw -------------------------------------------------------------------------------------------------------

    async def bw(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """RDMA Writes one way or both ways; events {"second", "bits"} meanwhile."""
        order = bw_order(self._topology, request.args)
        async with self._connected("bw", order.src, order.dst, order.qps) as link:
            started_ns = await self._start_bw(order, link)
            complete = await self._follow(order, link, emit)
            src, dst = await self._reports(link, order.src, order.dst)
        rows = [self._direction(order.src, order.dst, src, dst, started_ns)]
        if order.bidirectional:
            rows.append(self._direction(order.dst, order.src, dst, src, started_ns))
        return _bw_result(order, rows, complete)

    async def _start_bw(self, order: BwOrder, link: _Link) -> int:
        ask = self._hosts.ask
        shape = {
            "workload": link.workload,
            "qpns": link.qpns,
            "size": order.size_bytes,
            "depth": order.depth,
            "rkey": link.qpns[0],
        }
        for _, receiver in order.directions:
            await ask(receiver, "receive", **shape)
        now = self._hosts.now_ns()
        stop = FOREVER_NS if order.iterations else now + order.duration_ns
        span = {"start_ns": now, "stop_ns": stop, "count": order.iterations}
        await asyncio.gather(*(ask(sender, "send", **shape, **span) for sender, _ in order.directions))
        return now

    async def _follow(self, order: BwOrder, link: _Link, emit: Emit) -> bool:
        """Emit progress once a second until everything posted is acknowledged or failed; False if that never came."""
        outstanding = order.size_bytes * order.depth * order.qps * 8
        drain_s = DRAIN_LIMIT_S + 2 * outstanding / timing.line_payload_bps(self._topology, 1)
        started, limit_s = time.monotonic(), order.duration_ns / timing.NS + drain_s
        placed_before, second = 0, 1
        while True:
            await asyncio.sleep(POLL_S)
            elapsed = time.monotonic() - started
            sides = {host: await self._hosts.progress(host) for host in (order.src, order.dst)}
            if elapsed >= second:
                placed = sum(sides[receiver]["placed"][link.workload] for _, receiver in order.directions)
                emit({"second": second, "bits": (placed - placed_before) * 8})
                placed_before, second = placed, second + 1
            if all(sides[sender]["senders"][link.workload]["done"] for sender, _ in order.directions):
                return True
            if order.iterations is None and elapsed > limit_s:
                return False

    def _direction(self, src: int, dst: int, sent: Report, got: Report, started_ns: int) -> dict[str, Any]:
        """One direction; its time is from the first posting to the last arrival."""
        duration_ns = max(1, got["last_ns"] - started_ns)
        goodput = got["bytes"] * 8 * timing.NS / duration_ns if got["bytes"] else 0.0
        return {
            "src": f"h{src}",
            "dst": f"h{dst}",
            "messages": sent["completed"],
            "bytes": got["bytes"],
            "duration_ns": duration_ns if got["bytes"] else 0,
            "goodput_bps": goodput,
            "peak_bps": max(goodput, got["peak_bps"]),
            "line_payload_bps": timing.line_payload_bps(self._topology, min(sent["ports_up"], got["ports_up"])),
            "corrupted_bytes": got["corrupted_bytes"],
            "lost_packets": sent["lost"],
            "retransmitted_packets": sent["retransmitted"],
            "evs_retired": sent["evs_retired"],
            "qp_errors": sent["qp_errors"] + got["qp_errors"],
        }

    # -- lat ------------------------------------------------------------------------------------------------------

    async def lat(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """A ping-pong of writes; half of each round trip."""
        order = lat_order(self._topology, request.args)
        async with self._connected("lat", order.src, order.dst) as link:
            await self._start_lat(order, link)
            complete = await self._await_lat(order, link)
            latencies = await self._hosts.ask(order.src, "latencies", workload=link.workload)
            sides = await self._reports(link, order.src, order.dst)
        return {
            "src": f"h{order.src}",
            "dst": f"h{order.dst}",
            "size_bytes": order.size_bytes,
            "iterations": sides[0]["completed"],
            "latency_ns": latency_summary(latencies),
            "corrupted_bytes": sum(side["corrupted_bytes"] for side in sides),
            "lost_packets": sum(side["lost"] for side in sides),
            "retransmitted_packets": sum(side["retransmitted"] for side in sides),
            "qp_errors": sum(side["qp_errors"] for side in sides),
            "complete": complete,
            "scale": self._topology.scale,
        }

    async def _start_lat(self, order: LatOrder, link: _Link) -> None:
        ask, qpn = self._hosts.ask, link.qpns[0]
        shape = {"workload": link.workload, "size": order.size_bytes, "rkey": qpn}
        for host in (order.src, order.dst):
            await ask(host, "receive", **shape, qpns=link.qpns, depth=1)
        await ask(order.dst, "ping_pong", **shape, qpn=qpn, begins=False, stop_ns=FOREVER_NS)
        now = self._hosts.now_ns()
        stop = FOREVER_NS if order.duration_ns is None else now + order.duration_ns
        await ask(order.src, "ping_pong", **shape, qpn=qpn, begins=True, stop_ns=stop, count=order.iterations)

    async def _await_lat(self, order: LatOrder, link: _Link) -> bool:
        """Until the last answer is there; False if a QP failed first, or the answer to the last message never came."""
        exchange_s = 4 * order.size_bytes * 8 / timing.line_payload_bps(self._topology, 1)
        limit_s = None if order.duration_ns is None else order.duration_ns / timing.NS + DRAIN_LIMIT_S + exchange_s
        started = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            asking, answering = [
                (await self._hosts.progress(host))["senders"][link.workload] for host in (order.src, order.dst)
            ]
            if asking["failed"] or answering["failed"]:
                return False
            if asking["done"]:
                return True
            if limit_s is not None and time.monotonic() - started > limit_s:
                return False


def _bw_result(order: BwOrder, rows: list[dict[str, Any]], complete: bool) -> dict[str, Any]:
    """Sums over the directions, as ib_write_bw -b gives them, and each direction by itself."""

    def total(key: str) -> Any:
        return sum(row[key] for row in rows)

    line = total("line_payload_bps")
    added = ("messages", "bytes", "goodput_bps", "peak_bps", "line_payload_bps", "corrupted_bytes", "lost_packets")
    return {
        "src": f"h{order.src}",
        "dst": f"h{order.dst}",
        "bidirectional": order.bidirectional,
        "size_bytes": order.size_bytes,
        "qps": order.qps,
        "depth": order.depth,
        **{key: total(key) for key in (*added, "retransmitted_packets", "evs_retired", "qp_errors")},
        "duration_ns": max(row["duration_ns"] for row in rows),
        "efficiency": total("goodput_bps") / line if line else None,
        "message_rate_per_s": sum(row["messages"] * timing.NS / max(1, row["duration_ns"]) for row in rows),
        "complete": complete,
        "directions": rows,
    }


def latency_summary(latencies: Sequence[int]) -> dict[str, float] | None:
    """The figures of ib_write_lat in ns (typical: the median; percentiles by nearest rank); None without any."""
    if not latencies:
        return None
    ordered = sorted(latencies)

    def rank(share: float) -> int:
        return ordered[max(1, math.ceil(share * len(ordered))) - 1]

    return {
        "min": ordered[0],
        "max": ordered[-1],
        "typical": rank(0.5),
        "avg": fmean(ordered),
        "stdev": pstdev(ordered),
        "p99": rank(0.99),
        "p99_9": rank(0.999),
    }
