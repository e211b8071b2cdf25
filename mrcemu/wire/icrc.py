"""The invariant CRC at the end of every packet: IBTA's rule for RoCEv2 over IPv6, on the inner packet only.

CRC-32 (Ethernet polynomial) as if eight bytes of ones came first, with the fields that may change on the way read as
ones: IPv6 traffic class, flow label, hop limit, UDP checksum, BTH byte 4. Appended little-endian. The outer header is
gone before a NIC checks, so nothing in it is covered; the UDP source port is, so the iCRC depends on the EV, and BTH
byte 8 is, so a retransmission needs its own. Source: IBTA annex A17; MRC sources only say "IBTA rules".
"""

from __future__ import annotations

from zlib import crc32

from mrcemu.wire.layout import BTH_BYTES, ICRC_BYTES, IPV6_BYTES, UDP_BYTES

# Register state after a message followed by its own CRC, little-endian: the same for every message.
RESIDUE = 0x2144DF1C

_ONES = b"\xff"
_SEED_STATE = crc32(_ONES * 8)  # the eight bytes that stand for the link header
_BTH = IPV6_BYTES + UDP_BYTES
# Inner bytes up to and including BTH byte 4, the last masked one: after it a packet is hashed as it is.
MASKED_BYTES = _BTH + 5


def masked_state(inner: bytes) -> int:
    """CRC state after the first `MASKED_BYTES` (53) bytes of an inner packet, masks applied.

    `crc32(packet[53:], state)` continues it: over a packet without iCRC it gives the iCRC, over one with it `RESIDUE`.
    """
    state = crc32(bytes((inner[0] | 0x0F, 0xFF, 0xFF, 0xFF)), _SEED_STATE)  # version; traffic class, flow label
    state = crc32(inner[4:7], state)  # payload length, next header
    state = crc32(_ONES + inner[8 : IPV6_BYTES + 6], state)  # hop limit; addresses, UDP ports and length
    return crc32(b"\xff\xff" + inner[_BTH : _BTH + 4] + _ONES, state)  # UDP checksum; BTH 0-3; BTH 4


def icrc_of(inner_packet: bytes) -> bytes:
    """The four iCRC bytes of an inner packet that has none yet (IPv6 header to pad, at least 60 bytes: ValueError)."""
    if len(inner_packet) < _BTH + BTH_BYTES:
        raise ValueError("an inner packet has IPv6, UDP and BTH headers")
    return crc32(memoryview(inner_packet)[MASKED_BYTES:], masked_state(inner_packet)).to_bytes(ICRC_BYTES, "little")


def verify(inner_packet: bytes) -> bool:
    """Whether an inner packet with its iCRC (IPv6 header to iCRC) is intact; False also when it is too short."""
    if len(inner_packet) < _BTH + BTH_BYTES + ICRC_BYTES:
        return False
    return crc32(memoryview(inner_packet)[MASKED_BYTES:], masked_state(inner_packet)) == RESIDUE
