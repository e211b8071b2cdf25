"""What a traffic request asks for, checked: sizes in bytes, times in ns; UsageError names what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mrcemu.errors import UsageError
from mrcemu.topology.model import Topology

MAX_DEPTH = 1024
MAX_QPS = 64
MAX_SIZE_BYTES = 1 << 30
MAX_ITERATIONS = 1 << 24
MAX_MEMORY_BYTES = 4 << 30
MAX_DURATION_NS = 24 * 3600 * 10**9
MAX_PROBES = 1000
DEFAULT_DURATION_NS = 5 * 10**9


@dataclass(frozen=True, slots=True)
class BwOrder:
    """`bw`: post for `duration_ns`, or `iterations` messages per QP if given; in both directions if bidirectional."""

    src: int
    dst: int
    size_bytes: int
    depth: int
    qps: int
    duration_ns: int
    iterations: int | None
    bidirectional: bool

    @property
    def directions(self) -> tuple[tuple[int, int], ...]:
        forward = (self.src, self.dst)
        return (forward, forward[::-1]) if self.bidirectional else (forward,)


@dataclass(frozen=True, slots=True)
class LatOrder:
    """`lat`: begin exchanges for `duration_ns`, at most `iterations`; one of them may be None."""

    src: int
    dst: int
    size_bytes: int
    iterations: int | None
    duration_ns: int | None


def pair_of(topology: Topology, args: Mapping[str, Any]) -> tuple[int, int]:
    """The two different hosts of a request."""
    src, dst = topology.host_index(str(args.get("src"))), topology.host_index(str(args.get("dst")))
    if src == dst:
        raise UsageError("source and destination are the same host")
    return src, dst


def bw_order(topology: Topology, args: Mapping[str, Any]) -> BwOrder:
    """Check the arguments of `bw`."""
    src, dst = pair_of(topology, args)
    order = BwOrder(
        src,
        dst,
        _whole(args, "size", 1, MAX_SIZE_BYTES, 1 << 20),
        _whole(args, "depth", 1, MAX_DEPTH, 16),
        _whole(args, "qps", 1, MAX_QPS, 1),
        _whole(args, "duration_ns", 1, MAX_DURATION_NS, DEFAULT_DURATION_NS),
        _whole_or_none(args, "iterations", 1, MAX_ITERATIONS),
        bool(args.get("bidirectional", False)),
    )
    if order.size_bytes * order.depth * order.qps > MAX_MEMORY_BYTES:
        raise UsageError("size x depth x qps is the target memory: at most 4GiB")
    return order


def lat_order(topology: Topology, args: Mapping[str, Any]) -> LatOrder:
    """Check the arguments of `lat`."""
    src, dst = pair_of(topology, args)
    order = LatOrder(
        src,
        dst,
        _whole(args, "size", 1, MAX_SIZE_BYTES, 2),
        _whole_or_none(args, "iterations", 1, MAX_ITERATIONS),
        _whole_or_none(args, "duration_ns", 1, MAX_DURATION_NS),
    )
    if order.iterations is None and order.duration_ns is None:
        raise UsageError("lat needs a number of iterations or a duration")
    return order


def probe_count(args: Mapping[str, Any]) -> int:
    """How many probes each path gets."""
    return _whole(args, "count", 1, MAX_PROBES, 3)


def _whole_or_none(args: Mapping[str, Any], key: str, low: int, high: int) -> int | None:
    return None if args.get(key) is None else _whole(args, key, low, high, low)


def _whole(args: Mapping[str, Any], key: str, low: int, high: int, default: int) -> int:
    value = args.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{key.removesuffix('_ns')} is {low} .. {high}{' ns' * key.endswith('_ns')}, found {value!r}")
    return value
