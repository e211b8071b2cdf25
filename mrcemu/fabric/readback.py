"""What the kernel says about links, routes, neighbours and queues, parsed into comparable records.

The reading side of `encode.py` and `tc.py`. Owns the parsing; refuses to judge (`apply.verify`, the tests) or to sum up
(`counters.py`, `tables.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mrcemu.fabric import tc
from mrcemu.fabric.encode import (
    IFF_UP,
    NDA_DST,
    NDA_LLADDR,
    RTA_DST,
    RTA_ENCAP,
    RTA_GATEWAY,
    RTA_MULTIPATH,
    RTA_OIF,
    SEG6_LOCAL_FLAVORS,
)
from mrcemu.fabric.netlink import attributes, pick

IFLA_STATS64, IFLA_OPERSTATE = 23, 16
OPERSTATE_UP = 6
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3
RTNH_F_DEAD = 1

_IFINFO = struct.Struct("=BxHiII")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=8BI")
_RTNEXTHOP = struct.Struct("=HBBi")
_STATS64 = struct.Struct("=8Q")


@dataclass(frozen=True, slots=True)
class LinkState:
    """One interface: admin and operational state, and its totals since it was made."""

    ifindex: int
    admin_up: bool
    oper_up: bool
    rx_packets: int = 0
    tx_packets: int = 0
    rx_bytes: int = 0
    tx_bytes: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """One IPv6 route; `flavour` is the raw seg6local flavour, empty for a plain route.

    `ports` are the interface indexes of a multipath route in ascending order, empty for a route with one.
    """

    table: int
    prefix: bytes
    prefix_bits: int
    kind: int
    ifindex: int
    gateway: bytes
    flavour: bytes
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Neighbour:
    """One neighbour entry with its NUD state."""

    ifindex: int
    address: bytes
    mac: bytes
    state: int


@dataclass(frozen=True, slots=True)
class Qdisc:
    """One queueing discipline: place, kind, raw options, and its totals."""

    ifindex: int
    handle: int
    parent: int
    kind: str
    options: bytes
    sent_bytes: int
    sent_packets: int
    backlog_bytes: int
    backlog_packets: int
    drops: int


@dataclass(frozen=True, slots=True, order=True)
class HtbClass:
    """One HTB class; rates in bytes per second, bursts in 64 ns ticks."""

    ifindex: int
    handle: int
    parent: int
    rate_bytes: int
    ceil_bytes: int
    burst_ticks: int
    cburst_ticks: int
    priority: int


def link_state(body: bytes) -> LinkState:
    """An RTM_NEWLINK body."""
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    found = pick(body, _IFINFO.size, (IFLA_OPERSTATE, IFLA_STATS64))
    operstate = found.get(IFLA_OPERSTATE, b"\0")[0]
    totals = found.get(IFLA_STATS64)
    if totals is None:
        return LinkState(ifindex, bool(flags & IFF_UP), operstate == OPERSTATE_UP)
    rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped = _STATS64.unpack_from(totals)
    return LinkState(
        ifindex, bool(flags & IFF_UP), operstate == OPERSTATE_UP,
        rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped,
    )  # fmt: skip


def route(body: bytes) -> Route:
    """An RTM_NEWROUTE body."""
    fields = _RTMSG.unpack_from(body)
    found = attributes(body, _RTMSG.size)
    flavour = attributes(found.get(RTA_ENCAP, b"")).get(SEG6_LOCAL_FLAVORS, b"")
    ifindex = struct.unpack("=I", found.get(RTA_OIF, b"\0\0\0\0"))[0]
    table, kind, bits = fields[4], fields[7], fields[1]
    ports = _multipath_ports(found[RTA_MULTIPATH]) if RTA_MULTIPATH in found else ()
    return Route(table, found.get(RTA_DST, b""), bits, kind, ifindex, found.get(RTA_GATEWAY, b""), flavour, ports)


def _multipath_ports(raw: bytes) -> tuple[int, ...]:
    """Interface indexes of an RTA_MULTIPATH; a nexthop that the kernel holds for dead is none."""
    ports, offset = [], 0
    while offset + _RTNEXTHOP.size <= len(raw):
        length, flags, _, ifindex = _RTNEXTHOP.unpack_from(raw, offset)
        if not flags & RTNH_F_DEAD:
            ports.append(ifindex)
        offset += max(_RTNEXTHOP.size, -(-length // 4) * 4)
    return tuple(sorted(ports))


def neighbour(body: bytes) -> Neighbour:
    """An RTM_NEWNEIGH body."""
    _, ifindex, state, _, _ = _NDMSG.unpack_from(body)
    found = attributes(body, _NDMSG.size)
    return Neighbour(ifindex, found.get(NDA_DST, b""), found.get(NDA_LLADDR, b""), state)


def qdisc(body: bytes) -> Qdisc:
    """An RTM_NEWQDISC body."""
    _, _, ifindex, handle, parent, _ = tc.TCMSG.unpack_from(body)
    found = pick(body, tc.TCMSG.size, (tc.TCA_KIND, tc.TCA_OPTIONS, tc.TCA_STATS2))
    stats = attributes(found.get(tc.TCA_STATS2, b""))
    sent_bytes, sent_packets = struct.unpack_from("=QI", stats.get(TCA_STATS_BASIC, bytes(12)))
    packets, backlog, drops = struct.unpack_from("=III", stats.get(TCA_STATS_QUEUE, bytes(12)))
    kind = found.get(tc.TCA_KIND, b"").rstrip(b"\0").decode()
    options = found.get(tc.TCA_OPTIONS, b"")
    return Qdisc(ifindex, handle, parent, kind, options, sent_bytes, sent_packets, backlog, packets, drops)


def leaf_limit_bytes(item: Qdisc) -> int:
    """The limit of a bfifo leaf."""
    return int(struct.unpack_from("=I", item.options)[0])


def htb_class(body: bytes) -> HtbClass | None:
    """An RTM_NEWTCLASS body, None if it is not HTB's."""
    _, _, ifindex, handle, parent, _ = tc.TCMSG.unpack_from(body)
    found = attributes(body, tc.TCMSG.size)
    options = attributes(found.get(tc.TCA_OPTIONS, b""))
    if tc.TCA_HTB_PARMS not in options:
        return None
    fields = tc.HTB_OPT.unpack_from(options[tc.TCA_HTB_PARMS])
    rate, ceil, burst, cburst, priority = fields[5], fields[11], fields[12], fields[13], fields[16]
    if tc.TCA_HTB_RATE64 in options:
        rate = struct.unpack("=Q", options[tc.TCA_HTB_RATE64])[0]
    if tc.TCA_HTB_CEIL64 in options:
        ceil = struct.unpack("=Q", options[tc.TCA_HTB_CEIL64])[0]
    return HtbClass(ifindex, handle, parent, rate, ceil, burst, cburst, priority)
