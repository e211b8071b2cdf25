"""Reading standard frames: one dictionary look-up, one CRC call and one small `unpack_from` for an arriving packet.

Owns a shortcut and the ladder it shortens. The ladder checks a frame from the outside in. What it found is kept under
the frame's first 107 bytes, up to BTH byte 4: they decide everything but QPN, flags, PSN and what follows. The next
frame that starts alike needs its rest checked only, and that is the iCRC, which takes no masking any more: a CRC is
linear, so of all frames with the same first 107 bytes and the same length exactly the intact ones have the same plain
CRC-32 from first to last byte. Whatever does not pass the shortcut climbs the ladder.

Plain frames of ECMP mode get an outer header first (`plain`); they are told apart only where the shortcut has failed,
so the others pay nothing for them. Refuses frames with a segment routing header. `FrameParser.parse` never raises,
whatever the bytes. Use through `fast`.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from zlib import crc32

from mrcemu.wire import layout
from mrcemu.wire.ev import ev_from_fields
from mrcemu.wire.icrc import MASKED_BYTES, verify
from mrcemu.wire.layout import EXT_OFFSET, FLAG_TS
from mrcemu.wire.opcodes import (
    DATA_OPCODES,
    DEFAULT_DSCP,
    DEFAULT_UDP_PORTS,
    KNOWN_OPCODES,
    TRIMMED,
    TRIMMED_LASTHOP,
    UNTRIMMED,
    DscpMap,
    Ecn,
)
from mrcemu.wire.plain import IS_PLAIN, NEXT_HEADER_OFFSET, encapsulated
from mrcemu.wire.psn import PSN_MASK

_HEAD_BYTES = layout.INNER_OFFSET + MASKED_BYTES
_FLAGS = layout.BTH_OFFSET + 8


class Received:
    """One accepted frame. Read-only by convention: it is made once a packet, and freezing doubles its cost.

    opcode       a known one                   dest_qpn  24 bits            psn24    24 bits; `psn.expand` it
    ackreq, rtx  BTH flags                     ev        32 bits            src      inner source address, 16 bytes
    dscp         outer, as it arrived          ecn_ce    outer ECN is CE    trimmed  UNTRIMMED, TRIMMED, TRIMMED_LASTHOP
    frame        the bytes, of a plain frame as `plain.encapsulated` makes them; extension headers start at EXT_OFFSET
                 and are read by the `*_fields` functions
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
_unpack_qpn_psn = Struct(">106xII").unpack_from  # BTH bytes 4-7 and 8-11

# Ethertype; outer word, length, next header; inner word, length, next header, source, destination; UDP ports, length;
# BTH opcode, byte 1, byte 8.
_unpack_headers = Struct(">12xHIHBx32xIHBx16s16sHHH2xBB6xB").unpack_from

_TRIMMED_MIN_BYTES = EXT_OFFSET + layout.METH_BYTES
# Starts differ by path, EV, opcode, size and CE mark: some thousands where 16 hosts talk all to all. About 0.5 KB each.
_MAX_KNOWN = 16384

# What is kept of an accepted frame: its length, plain CRC-32 (None if trimmed: nothing to check) and FLAG_TS bit; then
# what `Received` repeats.
_Known = tuple[int, int | None, int, int, bytes, int, int, bool, int, int, int, int]


class FrameParser:
    """Reads the frames arriving at one NIC. `drops` counts refused frames by reason, in the words of `WireError`.

    `address` is the NIC's own inner address (16 bytes), `udp_ports` the destination ports understood. At `_MAX_KNOWN`
    kept starts of frames it forgets all, so that no sender can make it grow.
    """

    __slots__ = ("_address", "_known", "_ports", "_trim_by_class", "drops")

    def __init__(
        self, address: bytes, udp_ports: Collection[int] = DEFAULT_UDP_PORTS, dscp: DscpMap = DEFAULT_DSCP
    ) -> None:
        if len(address) != 16:
            raise ValueError(f"an IPv6 address has 16 bytes, found {len(address)}")
        self._address = address
        self._ports = frozenset(udp_ports)
        self._trim_by_class = {dscp.trimmed: TRIMMED, dscp.trimmed_lasthop: TRIMMED_LASTHOP}
        self._known: dict[bytes, _Known] = {}
        self.drops: dict[str, int] = {}

    def parse(self, frame: bytes) -> Received | None:
        """The meaning of a whole frame, or None with a reason counted in `drops`. Never raises.

        Checked: layout, versions, next headers, own address, UDP port, all lengths against each other, opcode, pad, and
        the iCRC. A trimmed data packet has no iCRC left: only its lengths can be checked. The P_Key is not looked at.
        """
        known = self._known.get(frame[:_HEAD_BYTES])
        if (
            known is None
            or len(frame) != known[0]
            or (known[1] is not None and crc32(frame) != known[1])
            or frame[_FLAGS] & FLAG_TS != known[2]
        ):
            if frame[NEXT_HEADER_OFFSET : NEXT_HEADER_OFFSET + 1] == IS_PLAIN:
                return self.parse(encapsulated(frame))  # once: that one is not plain
            known = self._climb(frame)
            if known is None:
                return None
        qpn, psn = _unpack_qpn_psn(frame)
        received: Received = _new(Received)
        received.frame = frame
        received.dest_qpn = qpn & 0xFFFFFF
        received.psn24 = psn & PSN_MASK
        received.ackreq = psn & 0x80000000 != 0
        received.rtx = psn & 0x20000000 != 0
        (
            _, _, _, received.opcode, received.src, received.ev, received.dscp, received.ecn_ce,
            received.payload_offset, received.payload_end, received.nominal_bytes, received.trimmed,
        ) = known  # fmt: skip
        return received

    def _climb(self, frame: bytes) -> _Known | None:
        """Check everything; count the first thing wrong and return None, or what is known of the frame, and keep it."""
        size = len(frame)
        (
            ethertype, outer_word, outer_bytes, outer_next, inner_word, inner_bytes, inner_next, src, dst, sport, dport,
            udp_bytes, opcode, bth1, flags,
        ) = _unpack_headers(frame.ljust(EXT_OFFSET, b"\0"))  # fmt: skip
        is_data = opcode in DATA_OPCODES
        ts = flags & FLAG_TS
        offset = EXT_OFFSET + layout.extension_bytes(opcode, ts != 0)
        end = layout.UDP_OFFSET + inner_bytes - layout.ICRC_BYTES - (bth1 >> 4 & 3)
        cut_bytes = layout.IPV6_BYTES + inner_bytes - outer_bytes
        trimmed = self._trim_by_class.get(outer_word >> 22 & 0x3F, UNTRIMMED) if is_data else UNTRIMMED
        min_bytes = _TRIMMED_MIN_BYTES + (layout.TSETH_BYTES if ts else 0)
        ladder = (
            (size < layout.ETHERNET_BYTES, "truncated"),
            (ethertype != layout.ETHERTYPE_IPV6, "not_ipv6"),
            (size > layout.OUTER_OFFSET and outer_word >> 28 != 6, "not_ipv6"),
            (size > layout.OUTER_OFFSET + 6 and outer_next != layout.NEXT_HEADER_IPV6, "not_srv6"),
            (size < EXT_OFFSET, "truncated"),
            (inner_word >> 28 != 6 or inner_next != layout.NEXT_HEADER_UDP, "not_udp"),
            (dst != self._address, "not_mine"),
            (dport not in self._ports, "bad_udp_port"),
            (opcode not in KNOWN_OPCODES, "unknown_opcode"),
            (bth1 & 0xF != 0, "bad_version"),
            (size < layout.INNER_OFFSET + outer_bytes, "truncated"),
            (inner_bytes & 3 != 0, "bad_pad"),
            (size > layout.INNER_OFFSET + outer_bytes or udp_bytes != inner_bytes, "bad_length"),
            (end < offset or (end > offset and not is_data), "bad_length"),
            (cut_bytes < 0 or (cut_bytes > 0 and not trimmed) or (trimmed and size < min_bytes), "bad_length"),
        )
        reason = next((reason for is_wrong, reason in ladder if is_wrong), "")
        if not reason and not trimmed and not verify(frame[layout.INNER_OFFSET :]):
            reason = "icrc"
        if reason:
            self.drops[reason] = self.drops.get(reason, 0) + 1
            return None
        known = (
            size, None if trimmed else crc32(frame), ts, opcode, src, ev_from_fields(inner_word, sport),
            outer_word >> 22 & 0x3F, outer_word >> 20 & 3 == Ecn.CE, offset, end, udp_bytes + layout.IPV6_BYTES,
            trimmed,
        )  # fmt: skip
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[frame[:_HEAD_BYTES]] = known
        return known
