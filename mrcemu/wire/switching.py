"""What a switch does to the bytes of a standard frame, as functions on bytes: forward, mark, trim.

The reference for the kernel's routes and the trimming program, and the switch of a simulation. Only the outer header is
touched: inner lengths keep their size, so a receiver knows how much was cut, and the inner traffic class stays as sent.
Refuses decisions (when to mark or trim belongs to a queue).
"""

from __future__ import annotations

from mrcemu.wire import srv6
from mrcemu.wire.layout import INNER_OFFSET, IPV6_BYTES, OUTER_OFFSET
from mrcemu.wire.opcodes import Ecn

# IP bytes a trimmed packet keeps: 124 hold everything to the RETH (40 + 40 + 8 + 12 + 4 + 4 + 16), rounded up.
DEFAULT_TRIM_BYTES = 128
# Below this a receiver could not name the packet: outer and inner IPv6, UDP, BTH, METH, TSETH.
MIN_TRIM_BYTES = 2 * IPV6_BYTES + 28

_LENGTH = slice(OUTER_OFFSET + 4, OUTER_OFFSET + 6)
_HOP_LIMIT = OUTER_OFFSET + 7
_DESTINATION = slice(OUTER_OFFSET + 24, OUTER_OFFSET + 40)


def forward(frame: bytes) -> bytes | None:
    """The frame behind a switch that owned its first uSID: list shifted, hop limit less one; None when that ran out."""
    if frame[_HOP_LIMIT] <= 1:
        return None
    changed = bytearray(frame)
    changed[_HOP_LIMIT] -= 1
    changed[_DESTINATION] = srv6.shift(frame[_DESTINATION])
    return bytes(changed)


def _set_traffic_class(frame: bytearray, traffic_class: int) -> None:
    """The class lies across two bytes: the low half of the first, the high half of the second."""
    frame[OUTER_OFFSET] = frame[OUTER_OFFSET] & 0xF0 | traffic_class >> 4
    frame[OUTER_OFFSET + 1] = frame[OUTER_OFFSET + 1] & 0x0F | (traffic_class & 0xF) << 4


def _traffic_class(frame: bytes) -> int:
    return (frame[OUTER_OFFSET] & 0xF) << 4 | frame[OUTER_OFFSET + 1] >> 4


def mark_ce(frame: bytes) -> bytes:
    """The frame with congestion experienced; unchanged when its sender is not ECN-capable."""
    traffic_class = _traffic_class(frame)
    if traffic_class & 3 == Ecn.NOT_ECT:
        return frame
    changed = bytearray(frame)
    _set_traffic_class(changed, traffic_class | Ecn.CE)
    return bytes(changed)


def trim(frame: bytes, dscp: int, keep_bytes: int = DEFAULT_TRIM_BYTES) -> bytes:
    """The frame cut to `keep_bytes` of IP packet, its outer length and DSCP rewritten, its ECN bits kept.

    A packet not longer than `keep_bytes` only changes its class. ValueError below `MIN_TRIM_BYTES`.
    """
    if keep_bytes < MIN_TRIM_BYTES:
        raise ValueError(f"a trimmed packet keeps at least {MIN_TRIM_BYTES} bytes, found {keep_bytes}")
    changed = bytearray(frame[: OUTER_OFFSET + keep_bytes])
    changed[_LENGTH] = (len(changed) - INNER_OFFSET).to_bytes(2, "big")
    _set_traffic_class(changed, dscp << 2 | _traffic_class(frame) & 3)
    return bytes(changed)
