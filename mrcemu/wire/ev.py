"""Where the 32 bits of an entropy value travel in a packet.

EV[15:0] is the inner UDP source port, EV[31:16] the low 16 bits of the inner IPv6 flow label, whose top four bits stay
zero. In ECMP mode the flow label is 0 and the EV has 16 bits. Sources disagree on which half goes where; this order
keeps the meaningful half when only the UDP port survives (ECMP and IPv4). Nobody else in the project places an EV.
"""

from __future__ import annotations

EV_BITS = 32
EV_MASK = (1 << EV_BITS) - 1


def ev_to_fields(ev: int) -> tuple[int, int]:
    """(flow label, UDP source port) carrying a 32-bit EV."""
    return ev >> 16 & 0xFFFF, ev & 0xFFFF


def ev_from_fields(flow_label: int, udp_source_port: int) -> int:
    """The EV a received packet carries; flow label bits above 16 are no part of it."""
    return (flow_label & 0xFFFF) << 16 | udp_source_port


def ev_to_ecmp_fields(ev: int) -> tuple[int, int]:
    """(flow label, UDP source port) where only the port carries entropy: the EV must fit in 16 bits (ValueError)."""
    if not 0 <= ev <= 0xFFFF:
        raise ValueError(f"an EV in ECMP mode has 16 bits, found {ev:#x}")
    return 0, ev


def ev_from_ecmp_fields(udp_source_port: int) -> int:
    """The 16-bit EV of a packet whose flow label is not ours to read."""
    return udp_source_port
