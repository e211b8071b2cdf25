"""Reading standard frames: one `unpack_from`, one chain of comparisons and one CRC call for an arriving packet.

Refuses frames with a segment routing header and frames without an outer IPv6 header. `FrameParser.parse` never raises,
whatever the bytes. Use through `fast`.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from zlib import crc32

from mrcemu.wire import layout
from mrcemu.wire.ev import ev_from_fields
from mrcemu.wire.icrc import MASKED_BYTES, RESIDUE, masked_state
from mrcemu.wire.layout import EXT_OFFSET
from mrcemu.wire.opcodes import (
    DATA_OPCODES,
    DEFAULT_DSCP,
    DEFAULT_UDP_PORTS,
    TRIMMED,
    TRIMMED_LASTHOP,
    UNTRIMMED,
    DscpMap,
)
from mrcemu.wire.psn import PSN_MASK

_HEAD_BYTES = layout.INNER_OFFSET + MASKED_BYTES


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
