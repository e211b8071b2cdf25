"""One line about a packet, for `decode`, logs and failing tests.

    trimmable CE WRITE_MIDDLE qp 77 psn 5 ev 0x00000031 via 4400>8403>4401>c401, 4096 B, msn 1, va 0x1000, ackreq
    control SACK qp 64 psn 100 ev 0x00000010 via 8401>4400>c400, cack 100, ack +3, base +1, bitmap 0x76, echo 0x00000031

Owns words, no meaning. `via` lists the uSIDs still to visit; "hash" is a frame of ECMP mode, whose switches choose.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from mrcemu.wire.headers import Aeth, Eeth, Erth, Neth, Peth, Seth
from mrcemu.wire.opcodes import (
    DEFAULT_DSCP,
    UNTRIMMED,
    AethSyndrome,
    DscpMap,
    Ecn,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)
from mrcemu.wire.packet import Packet, Request


def _name(value: int, codes: type[IntEnum]) -> str:
    return codes(value).name if value in set(codes) else f"{value:#04x}"


def _request(ext: Request) -> list[str]:
    words = [f"msn {ext.meth.msn}"]
    if ext.reth:
        words.append(f"va {ext.reth.va:#x}")
    if ext.imm:
        words.append(f"rqmsn {ext.meth.rqmsn}, imm {ext.imm.immediate:#x}")
    return words


def _sack(ext: Seth) -> list[str]:
    first = f"answers probe {ext.probe_id}" if ext.probe else f"ack {ext.ack_psn_offset:+}"
    words = [f"cack {ext.cack_psn}", first, f"base {ext.sack_offset:+}", f"bitmap {ext.bitmap:#x}"]
    words.append(f"echo {ext.entropy:#010x}")
    if ext.mark:
        words.append(f"mark {_name(ext.mark, SackMark)}")
    if ext.ooo_count:
        words.append(f"ooo {ext.ooo_count}")
    return words


def _nack(ext: Neth) -> list[str]:
    return [_name(ext.reason, NackReason), f"refused psn {ext.nack_psn}", f"echo {ext.entropy:#010x}"]


def _endpoint_request(ext: Erth) -> list[str]:
    return [_name(ext.op, EndpointOp), f"ports {ext.port_status_mask:#x}"]


_DETAILS: dict[type, Callable[[Any], list[str]]] = {
    Request: _request,
    Seth: _sack,
    Neth: _nack,
    Aeth: lambda ext: [_name(ext.syndrome, AethSyndrome), f"msn {ext.msn}"],
    Peth: lambda ext: [f"probe {ext.probe_id}"],
    Erth: _endpoint_request,
    Eeth: lambda ext: [_name(ext.op, EndpointOp)],
}


def _payload(packet: Packet) -> list[str]:
    if packet.trimmed != UNTRIMMED:
        return [f"{packet.original_payload_bytes} B cut off"]
    return [f"{len(packet.payload)} B"] if isinstance(packet.ext, Request) else []


def _flags(packet: Packet) -> list[str]:
    flags = {"ackreq": packet.bth.ackreq, "rtx": packet.bth.rtx, "bad iCRC": packet.icrc_ok is False}
    return [name for name, is_set in flags.items() if is_set]


def _carrier_class(packet: Packet, dscp: DscpMap) -> str:
    names = {getattr(dscp, name): name for name in DscpMap.__dataclass_fields__}
    name = names.get(packet.carrier.dscp, f"dscp {packet.carrier.dscp}")
    return f"{name} CE" if packet.carrier.ecn == Ecn.CE else name


def summary(packet: Packet, dscp: DscpMap = DEFAULT_DSCP) -> str:
    """One line for people, in the form shown at the top of this module; `dscp` gives the class names."""
    bth = packet.bth
    via = ">".join(f"{usid:04x}" for usid in packet.usids) or ("none" if packet.outer else "hash")
    start = f"{_carrier_class(packet, dscp)} {_name(bth.opcode, Opcode)} qp {bth.dest_qpn} psn {bth.psn}"
    details = _payload(packet) + _DETAILS[type(packet.ext)](packet.ext) + _flags(packet)
    return ", ".join([f"{start} ev {packet.ev:#010x} via {via}", *details])
