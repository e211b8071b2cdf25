"""Operations to netlink messages; the only place that knows both.

Owns link, neighbour and route messages (queues are in `tc.py`). `encode` covers what runs inside a node's
namespace; `veth` needs descriptors of two namespaces and is apart. Adding twice is refused by the kernel while
building (`restore=False`) and harmless while healing (`restore=True`).
Sources: rtnetlink(7), include/uapi/linux/{if_link,rtnetlink,seg6_local}.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from mrcemu.fabric import ops
from mrcemu.fabric.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    attr,
    attr_text,
    attr_u32,
    message,
    nest,
)
from mrcemu.fabric.tc import queue_messages

RTM_NEWLINK, RTM_GETLINK, RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 16, 18, 24, 25, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
IFF_UP = 1
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_NET_NS_FD, IFLA_EXT_MASK = 1, 3, 4, 18, 28, 29
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES = 31, 32
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
RTEXT_FILTER_SKIP_STATS = 8
NDA_DST, NDA_LLADDR, NUD_PERMANENT = 1, 2, 0x80
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH, RTA_ENCAP_TYPE, RTA_ENCAP = 1, 4, 5, 6, 9, 21, 22
RT_TABLE_MAIN, RT_TABLE_LOCAL, RTPROT_STATIC, RTN_UNICAST, RTN_LOCAL, RTN_BLACKHOLE = 254, 255, 4, 1, 2, 6
# Behind every route through a port: the kernel gives those 1,024 (IP6_RT_PRIO_USER).
LAST_RESORT_METRIC = 4096
LWTUNNEL_ENCAP_SEG6_LOCAL = 7
SEG6_LOCAL_ACTION, SEG6_LOCAL_FLAVORS, SEG6_LOCAL_ACTION_END = 1, 11, 1
FLV_OPERATION, FLV_LCBLOCK_BITS, FLV_LCNODE_FN_BITS, FLV_OP_NEXT_CSID = 1, 2, 3, 4
LOOPBACK_IFINDEX = 1
USID_PREFIX_BITS, BLOCK_BITS, USID_BITS = 48, 32, 16

# Whoever is at the other end of a port; no node has this address, the permanent neighbour entry stands for it.
PEER_ADDRESS = socket.inet_pton(socket.AF_INET6, "fe80::1")

_IFINFO = struct.Struct("=BxHiII")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=8BI")


def veth(operation: ops.CreateVeth, lower_ns_fd: int, upper_ns_fd: int) -> bytes:
    """A veth pair made in place: both ends in their namespaces, with their indexes, names and MACs."""
    peer = attr(VETH_INFO_PEER, _veth_end(operation.upper, upper_ns_fd, operation.mtu_bytes))
    info = attr(IFLA_LINKINFO, attr_text(IFLA_INFO_KIND, "veth") + attr(IFLA_INFO_DATA, peer))
    body = _veth_end(operation.lower, lower_ns_fd, operation.mtu_bytes) + info
    return message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def _veth_end(spec: ops.PortSpec, ns_fd: int, mtu_bytes: int) -> bytes:
    """One end. A single queue, asked for outright: left to itself the kernel makes one a CPU and takes all but one
    back, which costs a grace period a port (0.1 s of a 256-link fabric)."""
    return (
        _IFINFO.pack(0, 0, spec.ifindex, 0, 0)
        + attr_text(IFLA_IFNAME, spec.port.ifname)
        + attr(IFLA_ADDRESS, spec.mac)
        + attr_u32(IFLA_MTU, mtu_bytes)
        + attr_u32(IFLA_NUM_TX_QUEUES, 1)
        + attr_u32(IFLA_NUM_RX_QUEUES, 1)
        + attr_u32(IFLA_NET_NS_FD, ns_fd)
    )


def link_flags(ifindex: int, up: bool) -> bytes:
    """Admin up or down."""
    return message(RTM_NEWLINK, 0, _IFINFO.pack(0, 0, ifindex, IFF_UP if up else 0, IFF_UP))


def get_link(ifindex: int) -> bytes:
    """Ask for one interface. Not a dump on purpose: only this form settles the operational state at once."""
    return message(RTM_GETLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, 0) + attr_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS))


def _add_flags(restore: bool) -> int:
    return NLM_F_CREATE | (NLM_F_REPLACE if restore else NLM_F_EXCL)


def _neighbour(operation: ops.AddNeighbour, restore: bool) -> bytes:
    body = _NDMSG.pack(socket.AF_INET6, operation.port.ifindex, NUD_PERMANENT, 0, 0)
    body += attr(NDA_DST, PEER_ADDRESS) + attr(NDA_LLADDR, operation.mac)
    return message(RTM_NEWNEIGH, _add_flags(restore), body)


def _rtmsg(table: int, kind: int, prefix_bits: int = USID_PREFIX_BITS) -> bytes:
    return _RTMSG.pack(socket.AF_INET6, prefix_bits, 0, 0, table, RTPROT_STATIC, 0, kind, 0)


def _through(port: ops.PortSpec, prefix: bytes, prefix_bits: int) -> bytes:
    body = _rtmsg(RT_TABLE_MAIN, RTN_UNICAST, prefix_bits) + attr(RTA_DST, prefix)
    return body + attr(RTA_GATEWAY, PEER_ADDRESS) + attr_u32(RTA_OIF, port.ifindex)


def _route(operation: ops.AddRoute, restore: bool) -> bytes:
    body = _through(operation.port, operation.prefix, USID_PREFIX_BITS)
    return message(RTM_NEWROUTE, _add_flags(restore), body)


def _host_route(operation: ops.AddHostRoute, restore: bool) -> bytes:
    body = _through(operation.port, operation.prefix, operation.prefix_bits)
    return message(RTM_NEWROUTE, _add_flags(restore), body)


def _nexthop(operation: ops.AddNexthop, _restore: bool) -> bytes:
    """Without EXCL or REPLACE the kernel adds a port to those of the same prefix; one it has is EEXIST."""
    body = _through(operation.port, operation.prefix, operation.prefix_bits)
    return message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, body)


def _blackhole(operation: ops.AddBlackhole, restore: bool) -> bytes:
    body = _rtmsg(RT_TABLE_MAIN, RTN_BLACKHOLE, operation.prefix_bits) + attr(RTA_DST, operation.prefix)
    body += attr_u32(RTA_PRIORITY, LAST_RESORT_METRIC) + attr_u32(RTA_OIF, LOOPBACK_IFINDEX)
    return message(RTM_NEWROUTE, _add_flags(restore), body)


def next_csid_flavour() -> bytes:
    """The End behaviour with NEXT-CSID as it is sent, and as it must be read back (an old kernel drops it silently)."""
    return nest(
        SEG6_LOCAL_FLAVORS,
        attr_u32(FLV_OPERATION, 1 << FLV_OP_NEXT_CSID),
        attr(FLV_LCBLOCK_BITS, bytes([BLOCK_BITS])),
        attr(FLV_LCNODE_FN_BITS, bytes([USID_BITS])),
    )


def _sid_route(operation: ops.AddSidRoute, restore: bool) -> bytes:
    """`local` on `lo`: plain `dev lo` would be a reject route, and a route on a port would die with the port."""
    body = _rtmsg(RT_TABLE_LOCAL, RTN_LOCAL) + attr(RTA_DST, operation.prefix) + attr_u32(RTA_OIF, LOOPBACK_IFINDEX)
    body += attr(RTA_ENCAP_TYPE, struct.pack("=H", LWTUNNEL_ENCAP_SEG6_LOCAL))
    body += nest(RTA_ENCAP, attr_u32(SEG6_LOCAL_ACTION, SEG6_LOCAL_ACTION_END), next_csid_flavour())
    return message(RTM_NEWROUTE, _add_flags(restore), body)


def _sid_removal(operation: ops.DeleteSidRoute) -> bytes:
    body = _rtmsg(RT_TABLE_LOCAL, RTN_LOCAL) + attr(RTA_DST, operation.prefix) + attr_u32(RTA_OIF, LOOPBACK_IFINDEX)
    return message(RTM_DELROUTE, 0, body)


def encode(operation: ops.Operation, restore: bool = False) -> list[bytes]:
    """The messages of one operation inside its node's namespace; TypeError for one that is not of that kind."""
    if isinstance(operation, ops.AddQueue):
        return queue_messages(operation.port.ifindex, operation.limits)
    return [_encode_one(operation, restore)]


def _encode_one(operation: ops.Operation, restore: bool) -> bytes:
    adding = _ADDING.get(type(operation))
    if adding is not None:
        return adding(operation, restore)
    plain = _PLAIN.get(type(operation))
    if plain is None:
        raise TypeError(f"{type(operation).__name__} is not done inside one namespace")
    return plain(operation)


# Operations that create something may run over what is already there; the others are harmless anyway.
_ADDING: dict[type, Callable[[Any, bool], bytes]] = {
    ops.AddNeighbour: _neighbour,
    ops.AddRoute: _route,
    ops.AddHostRoute: _host_route,
    ops.AddNexthop: _nexthop,
    ops.AddBlackhole: _blackhole,
    ops.AddSidRoute: _sid_route,
}
_PLAIN: dict[type, Callable[[Any], bytes]] = {
    ops.LinkUp: lambda operation: link_flags(operation.port.ifindex, True),
    ops.LinkDown: lambda operation: link_flags(operation.port.ifindex, False),
    ops.LoopbackUp: lambda _: link_flags(LOOPBACK_IFINDEX, True),
    ops.DeleteSidRoute: _sid_removal,
    ops.SyncOperstate: lambda operation: get_link(operation.port.ifindex),
}


def encode_all(operations: Sequence[ops.Operation], restore: bool = False) -> tuple[list[bytes], list[ops.Operation]]:
    """All messages, and for each the operation it belongs to."""
    messages: list[bytes] = []
    owners: list[ops.Operation] = []
    for operation in operations:
        encoded = encode(operation, restore)
        messages += encoded
        owners += [operation] * len(encoded)
    return messages, owners
