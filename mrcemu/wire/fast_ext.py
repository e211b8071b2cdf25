"""Extension headers of standard frames as plain numbers: the packing and reading half of `fast`.

`pack_*` give the bytes that `fast.build_control` sends; `*_fields` read a frame that `fast.FrameParser` has accepted as
that opcode (anything else is a programming error and may raise struct.error). PSNs read here are 24 bits wide:
`psn.expand` them. Reserved fields are written 0 and not read. spdcid and dpdcid are 16-bit diagnostics: QPs are told
apart by BTH.
"""

from __future__ import annotations

from struct import Struct

from mrcemu.wire.layout import BTH_OFFSET, EXT_OFFSET, FLAG_TS
from mrcemu.wire.psn import PSN_MASK

# TSETH and PETH/ERTH second half: ftype 1 = a timestamp is present; tsr 1 = its unit is the implementation's own, here
# 128 ns times the topology's time scale (tsr 0 would promise real 128 ns units, which wrap within one emulated RTT).
TIMESTAMP_TYPE = 0x8001

_METH_TSETH_RETH = Struct(">HHHHQII")
_METH_RETH = Struct(">HHQII")
_METH_TS = Struct(">HHH")
_METH = Struct(">HH")
_SETH = Struct(">HHIHHIBBHQHHI")
_NETH = Struct(">HBBIHHIBBH")
_PETH = Struct(">HBBHHHHHH")
_ERTH = Struct(">HBBIIHH")
_EETH = Struct(">H26xH6x")
_U32 = Struct(">I")

_unpack_data_ts = _METH_TSETH_RETH.unpack_from
_unpack_data = _METH_RETH.unpack_from
_unpack_seth = _SETH.unpack_from


def data_fields(frame: bytes) -> tuple[int, int, int | None, int, int, int]:
    """(rqmsn, msn, tx timestamp or None, virtual address, R_Key, DMA length) of an untrimmed data frame."""
    if frame[BTH_OFFSET + 8] & FLAG_TS:
        rqmsn, msn, timestamp, _, va, rkey, dma_bytes = _unpack_data_ts(frame, EXT_OFFSET)
        return rqmsn, msn, timestamp, va, rkey, dma_bytes
    rqmsn, msn, va, rkey, dma_bytes = _unpack_data(frame, EXT_OFFSET)
    return rqmsn, msn, None, va, rkey, dma_bytes


def trimmed_fields(frame: bytes) -> tuple[int, int, int | None]:
    """(rqmsn, msn, tx timestamp or None) of a trimmed data frame: all that every trim size leaves."""
    if frame[BTH_OFFSET + 8] & FLAG_TS:
        rqmsn, msn, timestamp = _METH_TS.unpack_from(frame, EXT_OFFSET)
        return rqmsn, msn, timestamp
    rqmsn, msn = _METH.unpack_from(frame, EXT_OFFSET)
    return rqmsn, msn, None


def immediate(frame: bytes, payload_offset: int) -> int:
    """The 32-bit immediate of an untrimmed ..._IMM data frame whose payload starts at `payload_offset`."""
    return int(_U32.unpack_from(frame, payload_offset - 4)[0])


def pack_sack(
    *,
    mark: int,
    ack_psn_offset: int,
    entropy: int,
    cack_psn: int,
    sack_offset: int,
    bitmap: int,
    tx_timestamp: int,
    ooo_count: int,
    rcvd_units: int,
    mpr_units: int = 0,
    rcv_cwnd_pen: int = 0,
    restore_cwnd: bool = False,
    probe_id: int | None = None,
    spdcid: int = 0,
    dpdcid: int = 0,
) -> bytes:
    """SETH and CC_STATE, 36 bytes.

    `ack_psn_offset` and `sack_offset` are signed 16-bit distances from `cack_psn` (any int; cut to 24 bits); bit i of
    the 64-bit `bitmap` stands for PSN cack_psn + sack_offset + i. `entropy` is the EV of the packet that triggered this
    SACK. `rcvd_units` counts 256 bytes (cut to 24 bits), `mpr_units` 128 PSNs (0: static MPR). A SACK that answers a
    probe (pr = 1) carries `probe_id` where the others carry `ack_psn_offset`. struct.error if a value does not fit.
    """
    word, second = mark << 5, ack_psn_offset & 0xFFFF
    if probe_id is not None:
        word, second = word | 2, probe_id
    return _SETH.pack(
        word, second, entropy, spdcid, dpdcid, cack_psn & PSN_MASK, 0, mpr_units, sack_offset & 0xFFFF, bitmap,
        tx_timestamp, ooo_count, restore_cwnd << 31 | rcv_cwnd_pen << 24 | rcvd_units & 0xFFFFFF,
    )  # fmt: skip


def sack_fields(frame: bytes) -> tuple[int, bool, int, int, int, int, int, int, int, int, int, bool, int]:
    """What a SACK says, in the order: mark, answers a probe, ack_psn_offset (signed; the probe id when it answers one),
    entropy, cack_psn (24 bits), sack_offset (signed), bitmap, tx_timestamp (reflected), ooo_count, rcvd_units,
    rcv_cwnd_pen, restore_cwnd, mpr_units.
    """
    word, second, entropy, _, _, cack, _, mpr, offset, bitmap, timestamp, ooo, state = _unpack_seth(frame, EXT_OFFSET)
    probe = word & 2 != 0
    if second & 0x8000 and not probe:
        second -= 0x10000
    if offset & 0x8000:
        offset -= 0x10000
    return (
        word >> 5 & 3, probe, second, entropy, cack & PSN_MASK, offset, bitmap, timestamp, ooo & 0x7FFF,
        state & 0xFFFFFF, state >> 24 & 0x7F, state >> 31 != 0, mpr,
    )  # fmt: skip


def pack_nack(
    *,
    reason: int,
    entropy: int,
    nack_psn: int,
    tx_timestamp: int,
    vendor_info: int = 0,
    spdcid: int = 0,
    dpdcid: int = 0,
) -> bytes:
    """NETH, 20 bytes, with cc_type 2; `entropy` and `tx_timestamp` are those of the packet refused."""
    return _NETH.pack(0, reason, vendor_info, entropy, spdcid, dpdcid, nack_psn & PSN_MASK, 0x20, 0, tx_timestamp)


def nack_fields(frame: bytes) -> tuple[int, int, int, int]:
    """(reason, entropy, nack_psn (24 bits), reflected tx timestamp) of a NACK."""
    _, reason, _, entropy, _, _, psn, _, _, timestamp = _NETH.unpack_from(frame, EXT_OFFSET)
    return reason, entropy, psn & PSN_MASK, timestamp


def pack_aeth(syndrome: int, msn: int) -> bytes:
    """AETH, 4 bytes: syndrome byte and 24-bit MSN (any int; cut to 24 bits)."""
    return _U32.pack(syndrome << 24 | msn & 0xFFFFFF)


def aeth_fields(frame: bytes) -> tuple[int, int]:
    """(syndrome, 24-bit MSN) of a transport acknowledge."""
    word = _U32.unpack_from(frame, EXT_OFFSET)[0]
    return word >> 24, word & 0xFFFFFF


def pack_peth(probe_id: int, tx_timestamp: int, spdcid: int = 0, dpdcid: int = 0) -> bytes:
    """PETH, 16 bytes: a reliability probe."""
    return _PETH.pack(0, 0, 0, probe_id, 0, spdcid, dpdcid, tx_timestamp, TIMESTAMP_TYPE)


def peth_fields(frame: bytes) -> tuple[int, int]:
    """(probe id, tx timestamp) of a reliability probe."""
    _, _, _, probe_id, _, _, _, timestamp, _ = _PETH.unpack_from(frame, EXT_OFFSET)
    return probe_id, timestamp


def pack_erth(op: int, port_status_mask: int, tx_timestamp: int) -> bytes:
    """ERTH, 16 bytes: an endpoint request; bit N of the 32-bit mask is port N, counted from 1, set = reachable."""
    return _ERTH.pack(op, 0, 0, port_status_mask, 0, tx_timestamp, TIMESTAMP_TYPE)


def erth_fields(frame: bytes) -> tuple[int, int, int]:
    """(op, port status mask, tx timestamp) of an endpoint request."""
    word, _, _, mask, _, timestamp, _ = _ERTH.unpack_from(frame, EXT_OFFSET)
    return word & 3, mask, timestamp


def pack_eeth(op: int, tx_timestamp: int) -> bytes:
    """EETH, 36 bytes: an endpoint response reflecting the request's timestamp."""
    return _EETH.pack(op << 2, tx_timestamp)


def eeth_fields(frame: bytes) -> tuple[int, int]:
    """(op, reflected tx timestamp) of an endpoint response."""
    word, timestamp = _EETH.unpack_from(frame, EXT_OFFSET)
    return word >> 2 & 3, timestamp
