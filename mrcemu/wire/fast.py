"""The hot path: building and reading standard frames in a few microseconds each.

Owns the shortcuts: whatever is the same from packet to packet is made once and kept, so that a data packet costs one
`Struct.pack`, two CRC calls and one join, and an arriving one a single `unpack_from` and one CRC call. Meaning is the
same as in `frame`, which the tests hold it to. Refuses frames with a segment routing header and frames without an outer
IPv6 header. `FrameParser.parse` never raises, whatever the bytes. The layout is in `layout`.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from zlib import crc32

from mrcemu.wire import layout
from mrcemu.wire.ev import ev_from_fields, ev_to_fields
from mrcemu.wire.fast_ext import (
    TIMESTAMP_TYPE,
    aeth_fields,
    data_fields,
    eeth_fields,
    erth_fields,
    immediate,
    nack_fields,
    pack_aeth,
    pack_eeth,
    pack_erth,
    pack_nack,
    pack_peth,
    pack_sack,
    peth_fields,
    sack_fields,
    trimmed_fields,
)
from mrcemu.wire.icrc import MASKED_BYTES, RESIDUE, masked_state
from mrcemu.wire.layout import EXT_OFFSET, FLAG_ACKREQ, FLAG_RTX, FLAG_TS
from mrcemu.wire.opcodes import (
    DATA_OPCODES,
    DEFAULT_DSCP,
    DEFAULT_P_KEY,
    DEFAULT_UDP_PORTS,
    IMMEDIATE_OPCODES,
    ROCE_UDP_PORT,
    DscpMap,
    Ecn,
)
from mrcemu.wire.psn import PSN_MASK

__all__ = [
    "EXT_OFFSET", "FLAG_ACKREQ", "FLAG_RTX", "TRIMMED", "TRIMMED_LASTHOP", "UNTRIMMED", "FrameParser", "FrameTemplate",
    "Received", "aeth_fields", "build_control", "build_data", "data_fields", "eeth_fields", "erth_fields", "immediate",
    "nack_fields", "pack_aeth", "pack_eeth", "pack_erth", "pack_nack", "pack_peth", "pack_sack", "peth_fields",
    "sack_fields", "trimmed_fields",
]  # fmt: skip

# A head is everything a packet shares with others of its kind: its first 107 bytes (to BTH byte 4) and the iCRC state
# after them. A template sees a handful (opcodes x sizes of a message); random sizes must not let it grow for ever.
_HEAD_BYTES = layout.INNER_OFFSET + MASKED_BYTES
_MAX_HEADS = 64
_Head = tuple[bytes, int]

_BTH_HEAD = Struct(">BBHB")
_IPV6 = Struct(">IHBB16s16s")
_UDP = Struct(">HHHH")
_pack_data = Struct(">BHIHHHHQII").pack  # BTH 5-11 (QPN, flags, PSN), METH, TSETH, RETH
_pack_bth_tail = Struct(">BHI").pack
_PAD = (b"", b"\0", b"\0\0", b"\0\0\0")


class FrameTemplate:
    """What all frames of one (path, EV, DSCP class) share; build one for each and keep it.

    MACs are 6 bytes, addresses 16, `ev` 32 bits, `dscp` 0 .. 63 and `ecn` 0 .. 3 for outer and inner header alike
    (control packets pass `Ecn.NOT_ECT`: they are never marked). ValueError on wrong sizes.
    """

    __slots__ = ("_dst", "_ethernet", "_heads", "_hop_limit", "_outer", "_ports", "_src", "_word", "ev")

    def __init__(
        self,
        *,
        dst_mac: bytes,
        src_mac: bytes,
        outer_src: bytes,
        outer_dst: bytes,
        inner_src: bytes,
        inner_dst: bytes,
        ev: int,
        dscp: int,
        ecn: int = Ecn.ECT0,
        udp_dport: int = ROCE_UDP_PORT,
        hop_limit: int = layout.HOP_LIMIT,
    ) -> None:
        if {len(dst_mac), len(src_mac)} != {6} or {*map(len, (outer_src, outer_dst, inner_src, inner_dst))} != {16}:
            raise ValueError("a MAC has 6 bytes, an IPv6 address 16")
        flow_label, sport = ev_to_fields(ev)
        traffic_class = dscp << 2 | ecn
        if not 0 <= traffic_class <= 0xFF:
            raise ValueError(f"DSCP is 0 .. 63 and ECN 0 .. 3, found {dscp} and {ecn}")
        self.ev = ev
        self._ethernet = dst_mac + src_mac + layout.ETHERTYPE_IPV6.to_bytes(2, "big")
        self._word = 6 << 28 | traffic_class << 20 | flow_label
        self._outer = outer_src, outer_dst
        self._src, self._dst = inner_src, inner_dst
        self._ports = sport, udp_dport
        self._hop_limit = hop_limit
        self._heads: dict[int, _Head] = {}

    def _make_head(self, key: int, opcode: int, extension_bytes: int, body_bytes: int) -> _Head:
        """Make and keep the head of packets with this opcode and `body_bytes` of payload."""
        pad = -body_bytes & 3
        udp_bytes = layout.UDP_BYTES + layout.BTH_BYTES + extension_bytes + body_bytes + pad + layout.ICRC_BYTES
        # Outer and inner start with the same word: the flow label of the outer repeats the EV's upper half.
        inner = _IPV6.pack(self._word, udp_bytes, layout.NEXT_HEADER_UDP, self._hop_limit, self._src, self._dst)
        inner += _UDP.pack(*self._ports, udp_bytes, 0) + _BTH_HEAD.pack(opcode, pad << 4, DEFAULT_P_KEY, 0)
        outer_bytes = layout.IPV6_BYTES + udp_bytes
        outer = _IPV6.pack(self._word, outer_bytes, layout.NEXT_HEADER_IPV6, self._hop_limit, *self._outer)
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        head = self._heads[key] = self._ethernet + outer + inner, masked_state(inner)
        return head

    def _data_head(self, key: int, opcode: int, payload_bytes: int, has_immediate: bool) -> _Head:
        if opcode not in DATA_OPCODES or has_immediate != (opcode in IMMEDIATE_OPCODES):
            raise ValueError(f"opcode {opcode:#x} {'with' if has_immediate else 'without'} immediate is no data packet")
        return self._make_head(key, opcode, layout.extension_bytes(opcode, True), payload_bytes)

    def _control_head(self, key: int, opcode: int, extension_bytes: int) -> _Head:
        if opcode in DATA_OPCODES or layout.extension_bytes(opcode, False) != extension_bytes:
            raise ValueError(f"opcode {opcode:#x} has no extension header of {extension_bytes} bytes")
        return self._make_head(key, opcode, extension_bytes, 0)


def build_data(  # noqa: PLR0917 - positional calls are the cheapest
    template: FrameTemplate,
    opcode: int,
    dest_qpn: int,
    psn: int,
    flags: int,
    rqmsn: int,
    msn: int,
    tx_timestamp: int,
    va: int,
    rkey: int,
    dma_bytes: int,
    payload: bytes | bytearray | memoryview,
    imm: int | None = None,
) -> bytes:
    """A whole data frame, Ethernet header to iCRC, always with a TSETH.

    `psn` may be unbounded; `flags` is FLAG_ACKREQ and FLAG_RTX or 0; `rqmsn`, `msn` and `tx_timestamp` are 16 bits
    (unit of the last: 128 ns times the time scale), `va` 64, `rkey`, `dma_bytes` and `imm` 32; `payload` is a flat byte
    buffer of the packet's own bytes. `imm` goes with the ..._IMM opcodes and no others (ValueError). struct.error if a
    value does not fit.
    """
    size = len(payload)
    key = size << 9 | opcode << 1 | (imm is not None)
    head = template._heads.get(key) or template._data_head(key, opcode, size, imm is not None)
    rest = _pack_data(
        dest_qpn >> 16, dest_qpn & 0xFFFF, (flags | FLAG_TS) << 24 | psn & PSN_MASK, rqmsn, msn, tx_timestamp,
        TIMESTAMP_TYPE, va, rkey, dma_bytes,
    )  # fmt: skip
    if imm is not None:
        rest += imm.to_bytes(4, "big")
    crc = crc32(payload, crc32(rest, head[1]))
    if not size & 3:
        return b"".join((head[0], rest, payload, crc.to_bytes(4, "little")))
    pad = _PAD[-size & 3]
    return b"".join((head[0], rest, payload, pad, crc32(pad, crc).to_bytes(4, "little")))


def build_control(  # noqa: PLR0917 - positional calls are the cheapest
    template: FrameTemplate, opcode: int, dest_qpn: int, psn: int, ext: bytes, rtx: bool = False, ackreq: bool = False
) -> bytes:
    """A whole frame without payload: SACK, NACK, acknowledge, probe, endpoint request or response.

    `ext` comes from the matching `pack_*`; its length must be the opcode's (ValueError). `psn` may be unbounded.
    """
    key = -(len(ext) << 8 | opcode)  # negative: never the key of a data head
    head = template._heads.get(key) or template._control_head(key, opcode, len(ext))
    flags = (FLAG_RTX if rtx else 0) | (FLAG_ACKREQ if ackreq else 0)
    rest = _pack_bth_tail(dest_qpn >> 16, dest_qpn & 0xFFFF, flags << 24 | psn & PSN_MASK) + ext
    return head[0] + rest + crc32(rest, head[1]).to_bytes(4, "little")


UNTRIMMED, TRIMMED, TRIMMED_LASTHOP = 0, 1, 2


class Received:
    """One accepted frame. Read-only by convention: it is made once a packet, and freezing doubles its cost.

    opcode       a known one                   dest_qpn  24 bits            psn24    24 bits; `psn.expand` it
    ackreq, rtx  BTH flags                     ev        32 bits            src      inner source address, 16 bytes
    dscp         outer, as it arrived          ecn_ce    outer ECN is CE    trimmed  UNTRIMMED, TRIMMED, TRIMMED_LASTHOP
    frame        the bytes; extension headers start at EXT_OFFSET and are read by the `*_fields` functions
    payload_offset, payload_end   frame[payload_offset:payload_end] is the payload. In a trimmed data frame the same two
                                  numbers describe the original frame, and the payload is not there
    nominal_bytes                 UDP length + 40 of the original packet: the size congestion control counts
    """

    __slots__ = (
        "ackreq", "dest_qpn", "dscp", "ecn_ce", "ev", "frame", "nominal_bytes", "opcode", "payload_end",
        "payload_offset", "psn24", "rtx", "src", "trimmed",
    )  # fmt: skip

    frame: bytes
    opcode: int
    dest_qpn: int
    psn24: int
    ackreq: bool
    rtx: bool
    dscp: int
    ecn_ce: bool
    ev: int
    src: bytes
    payload_offset: int
    payload_end: int
    nominal_bytes: int
    trimmed: int


_new = object.__new__

# Ethertype; outer word, length, next header; inner word, length, next header, source, destination; UDP ports, length;
# BTH opcode, byte 1, bytes 4-7, bytes 8-11.
_unpack_headers = Struct(">12xHIHBx32xIHBx16s16sHHH2xBB2xII").unpack_from

# Index: opcode, plus 256 if BTH.ts is set. Where the payload starts; 0 for an unknown opcode.
_PAYLOAD_OFFSET = tuple(
    EXT_OFFSET + extension_bytes if extension_bytes else 0
    for extension_bytes in (layout.extension_bytes(index & 0xFF, index > 0xFF) for index in range(512))
)
_LAST_DATA_OPCODE = max(DATA_OPCODES)  # and all control opcodes are above it
_TRIMMED_MIN_BYTES = EXT_OFFSET + layout.METH_BYTES

# The names of `layout`, as globals of this module: reading them costs a third.
_ETHERTYPE = layout.ETHERTYPE_IPV6
_NEXT_IPV6 = layout.NEXT_HEADER_IPV6
_NEXT_UDP = layout.NEXT_HEADER_UDP
_IPV6_BYTES = layout.IPV6_BYTES
_INNER = layout.INNER_OFFSET
_INNER_PAYLOAD_TO_ICRC = layout.UDP_OFFSET - layout.ICRC_BYTES

_MAX_STATES = 4096


class FrameParser:
    """Reads the frames arriving at one NIC. `drops` counts refused frames by reason, in the words of `WireError`.

    `address` is the NIC's own inner address (16 bytes), `udp_ports` the destination ports understood. The parser keeps
    the iCRC state of heads it has seen verified; at `_MAX_STATES` it forgets all, so that no sender can make it grow.
    """

    __slots__ = ("_address", "_ports", "_states", "_trim_by_class", "drops")

    def __init__(
        self, address: bytes, udp_ports: Collection[int] = DEFAULT_UDP_PORTS, dscp: DscpMap = DEFAULT_DSCP
    ) -> None:
        if len(address) != 16:
            raise ValueError(f"an IPv6 address has 16 bytes, found {len(address)}")
        self._address = address
        self._ports = frozenset(udp_ports)
        trims = {dscp.trimmed: TRIMMED, dscp.trimmed_lasthop: TRIMMED_LASTHOP}
        self._trim_by_class = bytes(trims.get(traffic_class >> 2, UNTRIMMED) for traffic_class in range(256))
        self._states: dict[bytes, int] = {}
        self.drops: dict[str, int] = {}

    def parse(self, frame: bytes) -> Received | None:
        """The meaning of a whole frame, or None with a reason counted in `drops`. Never raises.

        Checked: layout, versions, next headers, own address, UDP port, all lengths against each other, opcode, pad, and
        the iCRC. A trimmed data packet has no iCRC left: only its lengths can be checked. The P_Key is not looked at.
        """
        size = len(frame)
        if size < EXT_OFFSET:
            self._drop(self._why(frame))
            return None
        (
            ethertype, outer_word, outer_bytes, outer_next, inner_word, inner_bytes, inner_next, src, dst, sport, dport,
            udp_bytes, opcode, bth1, qpn, psn,
        ) = _unpack_headers(frame)  # fmt: skip
        offset = _PAYLOAD_OFFSET[psn >> 20 & 0x100 | opcode]
        end = _INNER_PAYLOAD_TO_ICRC + inner_bytes - (bth1 >> 4 & 3)
        is_data = opcode <= _LAST_DATA_OPCODE
        if (
            dst != self._address or dport not in self._ports or udp_bytes != inner_bytes or size != _INNER + outer_bytes
            or ethertype != _ETHERTYPE or outer_next != _NEXT_IPV6 or inner_next != _NEXT_UDP
            or outer_word >> 28 != 6 or inner_word >> 28 != 6 or not offset or bth1 & 0xF or inner_bytes & 3
            or end < offset or not (is_data or end == offset)
        ):  # fmt: skip
            self._drop(self._why(frame))
            return None
        trimmed = self._trim_by_class[outer_word >> 20 & 0xFF] if is_data else UNTRIMMED
        if trimmed:
            # psn >> 26 & 4: a TSETH's four bytes where BTH.ts says that there is one.
            if outer_bytes > _IPV6_BYTES + inner_bytes or size < _TRIMMED_MIN_BYTES + (psn >> 26 & 4):
                self._drop("bad_length")
                return None
        elif outer_bytes != _IPV6_BYTES + inner_bytes:
            self._drop("bad_length")
            return None
        elif not self._is_intact(frame):
            self._drop("icrc")
            return None
        received: Received = _new(Received)
        received.frame = frame
        received.opcode = opcode
        received.dest_qpn = qpn & 0xFFFFFF
        received.psn24 = psn & PSN_MASK
        received.ackreq = psn & 0x80000000 != 0
        received.rtx = psn & 0x20000000 != 0
        received.dscp = outer_word >> 22 & 0x3F
        received.ecn_ce = outer_word & 0x300000 == 0x300000
        received.ev = ev_from_fields(inner_word, sport)
        received.src = src
        received.payload_offset = offset
        received.payload_end = end
        received.nominal_bytes = udp_bytes + _IPV6_BYTES
        received.trimmed = trimmed
        return received

    def _is_intact(self, frame: bytes) -> bool:
        head = frame[_INNER:_HEAD_BYTES]
        state = self._states.get(head)
        if state is not None:
            return crc32(memoryview(frame)[_HEAD_BYTES:], state) == RESIDUE
        state = masked_state(head)
        if crc32(memoryview(frame)[_HEAD_BYTES:], state) != RESIDUE:
            return False
        if len(self._states) >= _MAX_STATES:
            self._states.clear()
        self._states[head] = state
        return True

    def _drop(self, reason: str) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + 1

    def _why(self, frame: bytes) -> str:
        """The reason for a refusal already decided: the first thing wrong, from the outside in."""
        size = len(frame)
        (
            ethertype, outer_word, outer_bytes, outer_next, inner_word, inner_bytes, inner_next, _, dst, _, dport,
            _, opcode, bth1, _, psn,
        ) = _unpack_headers(frame.ljust(EXT_OFFSET, b"\0"))  # fmt: skip
        ladder = (
            (size < layout.ETHERNET_BYTES, "truncated"),
            (ethertype != _ETHERTYPE, "not_ipv6"),
            (size > 14 and outer_word >> 28 != 6, "not_ipv6"),
            (size > 20 and outer_next != _NEXT_IPV6, "not_srv6"),
            (size < EXT_OFFSET, "truncated"),
            (inner_word >> 28 != 6 or inner_next != _NEXT_UDP, "not_udp"),
            (dst != self._address, "not_mine"),
            (dport not in self._ports, "bad_udp_port"),
            (not _PAYLOAD_OFFSET[psn >> 20 & 0x100 | opcode], "unknown_opcode"),
            (bth1 & 0xF != 0, "bad_version"),
            (size < _INNER + outer_bytes, "truncated"),
            (inner_bytes & 3 != 0, "bad_pad"),
        )
        return next((reason for is_wrong, reason in ladder if is_wrong), "bad_length")
