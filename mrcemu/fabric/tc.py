"""The queue of one port as traffic-control messages: HTB at link rate, a control and a data class, DSCP filters.

    1:   HTB root, default class 1:20, empty size table
    1:1    link rate R
    1:10     control, trimmed, ACK:  0.99 R, ceil R, prio 0, bfifo
    1:20     data:                   0.01 R, ceil R, prio 1, bfifo

Owns handles and numbers. The classes are chosen by the outer DSCP, because a socket's priority is lost at the first
router. Sources: include/uapi/linux/pkt_sched.h, pkt_cls.h; the shares and the burst are measured
(docs/architecture.md).
"""

from __future__ import annotations

import socket
import struct

from mrcemu.fabric.netlink import NLM_F_CREATE, NLM_F_EXCL, attr, attr_text, attr_u32, message
from mrcemu.fabric.ops import QueueLimits
from mrcemu.wire.opcodes import DEFAULT_DSCP

RTM_NEWQDISC, RTM_GETQDISC, RTM_NEWTCLASS, RTM_GETTCLASS, RTM_NEWTFILTER = 36, 38, 40, 42, 44
TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCA_STAB = 1, 2, 7, 8
TCA_STAB_BASE = 1
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 6, 7
TCA_U32_CLASSID, TCA_U32_SEL = 1, 5
TC_H_ROOT = 0xFFFFFFFF
LINKLAYER_ETHERNET = 1
# HTB's time unit in messages: 64 ns (PSCHED_SHIFT 6).
TICK_NS = 64

ROOT, LINK_CLASS, CONTROL_CLASS, DATA_CLASS = 0x10000, 0x10001, 0x10010, 0x10020
CONTROL_LEAF, DATA_LEAF = 0x100000, 0x200000
# Percent of the link rate guaranteed to data; both classes may borrow up to the whole link, control first.
DATA_SHARE_PERCENT = 1
QUANTUM_BYTES = 9000
# DSCP of control packets, trimmed packets and packets trimmed at the last hop. Source: docs/protocol.md.
CONTROL_DSCPS = (DEFAULT_DSCP.control, DEFAULT_DSCP.trimmed, DEFAULT_DSCP.trimmed_lasthop)

TCMSG = struct.Struct("=BxHiIII")
HTB_OPT = struct.Struct("=BBHhHI BBHhHI IIIII")
_SIZESPEC = struct.Struct("=BBhiIIII")
_RATE_MAX = 0xFFFFFFFF


def tcmsg(ifindex: int, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
    return TCMSG.pack(socket.AF_UNSPEC, 0, ifindex, handle, parent, info)


def queue_messages(ifindex: int, limits: QueueLimits) -> list[bytes]:
    """Everything that makes a bare port shaped and classified, in order; refused by the kernel if a root exists."""
    rate = limits.rate_bps // 8
    data_rate = max(1, rate * DATA_SHARE_PERCENT // 100)
    return [
        _root(ifindex),
        _class(ifindex, ROOT, LINK_CLASS, rate, rate, limits.burst_bytes, 0),
        _class(ifindex, LINK_CLASS, CONTROL_CLASS, rate - data_rate, rate, limits.burst_bytes, 0),
        _class(ifindex, LINK_CLASS, DATA_CLASS, data_rate, rate, limits.burst_bytes, 1),
        _leaf(ifindex, CONTROL_CLASS, CONTROL_LEAF, limits.control_limit_bytes),
        _leaf(ifindex, DATA_CLASS, DATA_LEAF, limits.data_limit_bytes),
        *(_dscp_filter(ifindex, dscp) for dscp in CONTROL_DSCPS),
    ]


def ticks(size_bytes: int, rate_bytes: int) -> int:
    """Time to send `size_bytes` at `rate_bytes` per second, in HTB's 64 ns ticks, rounded up."""
    return -(-size_bytes * 10**9 // (rate_bytes * TICK_NS))


def _new(kind: int, body: bytes) -> bytes:
    return message(kind, NLM_F_CREATE | NLM_F_EXCL, body)


def _root(ifindex: int) -> bytes:
    """HTB root. The empty size table makes it charge a trimmed packet its new length, not the one before the cut."""
    glob = attr(TCA_HTB_INIT, struct.pack("=5I", 3, 10, DATA_CLASS & 0xFFFF, 0, 0))
    table = attr(TCA_STAB_BASE, _SIZESPEC.pack(0, 0, 0, 0, LINKLAYER_ETHERNET, 0, 0, 0))
    body = tcmsg(ifindex, ROOT, TC_H_ROOT) + attr_text(TCA_KIND, "htb") + attr(TCA_OPTIONS, glob)
    return _new(RTM_NEWQDISC, body + attr(TCA_STAB, table))


def _class(ifindex: int, parent: int, handle: int, rate: int, ceil: int, burst_bytes: int, priority: int) -> bytes:
    """An HTB class; rates in bytes per second, wider than 32 bits through their own attributes."""
    options = attr(
        TCA_HTB_PARMS,
        HTB_OPT.pack(
            0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, _RATE_MAX),
            0, LINKLAYER_ETHERNET, 0, 0, 0, min(ceil, _RATE_MAX),
            ticks(burst_bytes, rate), ticks(burst_bytes, ceil), QUANTUM_BYTES, 0, priority,
        ),
    )  # fmt: skip
    if ceil > _RATE_MAX:
        options += attr(TCA_HTB_RATE64, struct.pack("=Q", rate)) + attr(TCA_HTB_CEIL64, struct.pack("=Q", ceil))
    return _new(RTM_NEWTCLASS, tcmsg(ifindex, handle, parent) + attr_text(TCA_KIND, "htb") + attr(TCA_OPTIONS, options))


def _leaf(ifindex: int, parent: int, handle: int, limit_bytes: int) -> bytes:
    """A byte-limited FIFO below a class."""
    body = tcmsg(ifindex, handle, parent) + attr_text(TCA_KIND, "bfifo")
    return _new(RTM_NEWQDISC, body + attr_u32(TCA_OPTIONS, limit_bytes))


def _dscp_filter(ifindex: int, dscp: int) -> bytes:
    """u32 on the first word of the IPv6 header: version 4 bits, traffic class 8 (DSCP 6, ECN 2), flow label 20."""
    key = struct.pack("!II", 0x3F << 22, dscp << 22) + struct.pack("=ii", 0, 0)
    selector = struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0) + key  # flag 1: terminal; one key
    options = attr_u32(TCA_U32_CLASSID, CONTROL_CLASS) + attr(TCA_U32_SEL, selector)
    info = 1 << 16 | socket.htons(0x86DD)  # priority 1, IPv6
    return _new(RTM_NEWTFILTER, tcmsg(ifindex, 0, ROOT, info) + attr_text(TCA_KIND, "u32") + attr(TCA_OPTIONS, options))
