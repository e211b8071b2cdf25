"""Bytes to meaning and back for a whole frame: for decoding, tests and anything that is not in a hurry.

Owns the order in which a frame is checked and the words for what is wrong with it; `fast.FrameParser` refuses the same
frames for the same reasons. Unlike it, this module also reads frames with a segment routing header. Refuses VLAN tags,
extension headers inside, and IPv4. The record is in `packet`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NoReturn

from mrcemu.errors import WireError
from mrcemu.wire import icrc, layout
from mrcemu.wire.ethernet import Ethernet
from mrcemu.wire.headers import Aeth, Bth, Eeth, Erth, Meth, Neth, Peth, Seth, Tseth
from mrcemu.wire.ipv6 import Ipv6, Udp
from mrcemu.wire.opcodes import (
    DATA_OPCODES,
    DEFAULT_DSCP,
    DEFAULT_UDP_PORTS,
    KNOWN_OPCODES,
    TRIMMED,
    TRIMMED_LASTHOP,
    UNTRIMMED,
    DscpMap,
    Opcode,
)
from mrcemu.wire.packet import Extension, Packet, Request
from mrcemu.wire.srv6 import SegmentRoutingHeader
from mrcemu.wire.summary import summary

__all__ = ["Packet", "Request", "emit_frame", "parse_frame", "sized", "summary"]

_CONTROL_HEADERS: dict[int, type[Seth | Neth | Peth | Erth | Eeth | Aeth]] = {
    Opcode.ACKNOWLEDGE: Aeth,
    Opcode.ENDPOINT_REQUEST: Erth,
    Opcode.ENDPOINT_RESPONSE: Eeth,
    Opcode.SACK: Seth,
    Opcode.NACK: Neth,
    Opcode.PROBE_REQUEST: Peth,
}


def _bad(reason: str, detail: str = "") -> NoReturn:
    raise WireError(reason, detail)


def _ipv6(frame: bytes, offset: int, reason: str) -> Ipv6:
    if len(frame) > offset and frame[offset] >> 4 != 6:
        _bad(reason, f"version {frame[offset] >> 4}")
    return Ipv6.parse(frame, offset)


def _addresses(frame: bytes) -> tuple[Ipv6 | None, SegmentRoutingHeader | None, Ipv6, int]:
    """(outer, segment routing header, inner, offset of inner); "not_srv6" when neither IPv6 nor UDP follows."""
    first = _ipv6(frame, layout.OUTER_OFFSET, "not_ipv6")
    if first.next_header == layout.NEXT_HEADER_UDP:
        return None, None, first, layout.OUTER_OFFSET
    srh, offset, following = None, layout.INNER_OFFSET, first.next_header
    if following == layout.NEXT_HEADER_ROUTING:
        srh, size = SegmentRoutingHeader.parse(frame, offset)
        offset, following = offset + size, srh.next_header
    if following != layout.NEXT_HEADER_IPV6:
        _bad("not_srv6", f"next header {following}")
    inner = _ipv6(frame, offset, "not_udp")
    if inner.next_header != layout.NEXT_HEADER_UDP:
        _bad("not_udp", f"next header {inner.next_header}")
    return first, srh, inner, offset


def _check_bth(bth: Bth) -> None:
    if bth.opcode not in KNOWN_OPCODES:
        _bad("unknown_opcode", f"{bth.opcode:#04x}")
    if bth.version:
        _bad("bad_version", f"transport version {bth.version}")


def _trim_state(carrier: Ipv6, bth: Bth, dscp: DscpMap) -> int:
    """Only data is trimmed: another packet in a trimmed class is whole, and its iCRC says so."""
    states = {dscp.trimmed: TRIMMED, dscp.trimmed_lasthop: TRIMMED_LASTHOP}
    return states.get(carrier.dscp, UNTRIMMED) if bth.opcode in DATA_OPCODES else UNTRIMMED


def _check_ends(frame: bytes, carrier_end: int, inner_end: int, inner_bytes: int, udp: Udp, trimmed: int) -> None:
    """The lengths of frame, outer, inner and UDP against each other."""
    if len(frame) < carrier_end:
        _bad("truncated", f"{carrier_end} bytes announced, {len(frame)} there")
    if inner_bytes % 4:
        _bad("bad_pad", f"inner payload of {inner_bytes} bytes is no multiple of 4")
    if len(frame) != carrier_end or udp.length_bytes != inner_bytes:
        _bad("bad_length", f"frame {len(frame)}/{carrier_end}, UDP {udp.length_bytes}/{inner_bytes}")
    if carrier_end > inner_end or (carrier_end < inner_end and not trimmed):
        _bad("bad_length", f"outer ends at {carrier_end}, inner at {inner_end}")


def parse_frame(
    frame: bytes,
    *,
    udp_ports: Collection[int] = DEFAULT_UDP_PORTS,
    dscp: DscpMap = DEFAULT_DSCP,
    check_icrc: bool = True,
) -> Packet:
    """The meaning of a whole Ethernet frame, without trailing bytes.

    WireError with one of these reasons: truncated, not_ipv6, not_srv6, bad_srh, not_udp, bad_udp_port, unknown_opcode,
    bad_version, bad_pad, bad_length, icrc. With `check_icrc` off a wrong iCRC is only reported in `Packet.icrc_ok`.
    """
    ethernet = Ethernet.parse(frame)
    if ethernet.ethertype != layout.ETHERTYPE_IPV6:
        _bad("not_ipv6", f"EtherType {ethernet.ethertype:#06x}")
    outer, srh, inner, offset = _addresses(frame)
    udp = Udp.parse(frame, offset + Ipv6.SIZE)
    bth = Bth.parse(frame, offset + Ipv6.SIZE + Udp.SIZE)
    if udp.destination_port not in udp_ports:
        _bad("bad_udp_port", str(udp.destination_port))
    _check_bth(bth)
    carrier = outer or inner
    trimmed = _trim_state(carrier, bth, dscp)
    # Without an outer header switches cut the only length there is; UDP's still says how long the packet was.
    inner_bytes = udp.length_bytes if outer is None else inner.payload_bytes
    inner_end = offset + Ipv6.SIZE + inner_bytes
    _check_ends(frame, layout.INNER_OFFSET + carrier.payload_bytes, inner_end, inner_bytes, udp, trimmed)

    ext_offset = offset + Ipv6.SIZE + Udp.SIZE + Bth.SIZE
    start = ext_offset + layout.extension_bytes(bth.opcode, bth.ts)
    end = inner_end - layout.ICRC_BYTES - bth.pad
    if end < start or (end > start and bth.opcode in _CONTROL_HEADERS):
        _bad("bad_length", f"payload of {end - start} bytes")
    ext = _extension(frame, ext_offset, bth, trimmed)
    icrc_ok = None if trimmed else icrc.verify(frame[offset:])
    if icrc_ok is False and check_icrc:
        _bad("icrc")
    return Packet(ethernet, outer, inner, udp, bth, ext, frame[start:end], end - start, trimmed, icrc_ok, srh)


def _extension(frame: bytes, offset: int, bth: Bth, trimmed: int) -> Extension:
    if bth.opcode in DATA_OPCODES:
        if trimmed and len(frame) < offset + Meth.SIZE + (Tseth.SIZE if bth.ts else 0):
            _bad("bad_length", "trimmed before its message number")
        return Request.parse(frame, offset, bth, trimmed != UNTRIMMED)
    return _CONTROL_HEADERS[bth.opcode].parse(frame, offset)


def sized(packet: Packet) -> Packet:
    """The same untrimmed packet with pad, BTH.ts and all lengths computed from what it holds."""
    has_tseth = isinstance(packet.ext, Request) and packet.ext.tseth is not None
    bth = replace(packet.bth, pad=-len(packet.payload) & 3, ts=has_tseth)
    body_bytes = len(packet.ext.emit()) + len(packet.payload) + bth.pad
    udp_bytes = Udp.SIZE + Bth.SIZE + body_bytes + layout.ICRC_BYTES
    srh_bytes = packet.srh.size_bytes if packet.srh else 0
    outer = packet.outer and replace(packet.outer, payload_bytes=srh_bytes + Ipv6.SIZE + udp_bytes)
    return replace(
        packet,
        outer=outer,
        inner=replace(packet.inner, payload_bytes=udp_bytes),
        udp=replace(packet.udp, length_bytes=udp_bytes),
        bth=bth,
        original_payload_bytes=len(packet.payload),
    )


def emit_frame(packet: Packet) -> bytes:
    """The frame of a packet, its headers as they are (see `sized`); pad and a right iCRC are added unless trimmed.

    ValueError names a field whose value does not fit.
    """
    inner = packet.inner.emit() + packet.udp.emit() + packet.bth.emit() + packet.ext.emit() + packet.payload
    if not packet.trimmed:
        inner += bytes(packet.bth.pad)
        inner += icrc.icrc_of(inner)
    carried = (packet.ethernet, packet.outer, packet.srh)
    return b"".join(header.emit() for header in carried if header is not None) + inner
