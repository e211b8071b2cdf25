"""Building standard frames: one `Struct.pack`, two CRC calls and one join for a data packet.

Owns the shortcut: whatever is the same from packet to packet is made once and kept in a template. Refuses checks that
`struct` or a first use of a template does not make anyway. Use through `fast`.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from mrcemu.wire import layout
from mrcemu.wire.ev import ev_to_ecmp_fields, ev_to_fields
from mrcemu.wire.fast_ext import TIMESTAMP_TYPE
from mrcemu.wire.icrc import masked_state
from mrcemu.wire.layout import FLAG_ACKREQ, FLAG_RTX, FLAG_TS
from mrcemu.wire.opcodes import DATA_OPCODES, DEFAULT_P_KEY, IMMEDIATE_OPCODES, ROCE_UDP_PORT, Ecn
from mrcemu.wire.psn import PSN_MASK

# A head is everything a packet shares with others of its kind: its bytes up to BTH byte 4 (107, plain 67) and the iCRC
# state after them. A template sees a handful (opcodes x sizes of a message); random sizes must not let it grow forever.
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
    (control packets pass `Ecn.NOT_ECT`: they are never marked). Without `outer_src` and `outer_dst` frames are plain
    ones of ECMP mode (see `plain`), whose `ev` has 16 bits. ValueError on wrong sizes.
    """

    __slots__ = ("_dst", "_ethernet", "_heads", "_hop_limit", "_outer", "_ports", "_src", "_word", "ev")

    def __init__(
        self,
        *,
        dst_mac: bytes,
        src_mac: bytes,
        outer_src: bytes | None = None,
        outer_dst: bytes | None = None,
        inner_src: bytes,
        inner_dst: bytes,
        ev: int,
        dscp: int,
        ecn: int = Ecn.ECT0,
        udp_dport: int = ROCE_UDP_PORT,
        hop_limit: int = layout.HOP_LIMIT,
    ) -> None:
        if (outer_src is None) != (outer_dst is None):
            raise ValueError("an outer header has two addresses")
        outer = () if outer_src is None or outer_dst is None else (outer_src, outer_dst)
        if {len(dst_mac), len(src_mac)} != {6} or {*map(len, (*outer, inner_src, inner_dst))} != {16}:
            raise ValueError("a MAC has 6 bytes, an IPv6 address 16")
        flow_label, sport = ev_to_fields(ev) if outer else ev_to_ecmp_fields(ev)
        traffic_class = dscp << 2 | ecn
        if not 0 <= traffic_class <= 0xFF:
            raise ValueError(f"DSCP is 0 .. 63 and ECN 0 .. 3, found {dscp} and {ecn}")
        self.ev = ev
        self._ethernet = dst_mac + src_mac + layout.ETHERTYPE_IPV6.to_bytes(2, "big")
        self._word = 6 << 28 | traffic_class << 20 | flow_label
        self._outer = outer
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
        outer = b""
        if self._outer:
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


def build_data(
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


def build_control(
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
