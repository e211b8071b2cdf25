"""Payload that is a function of QP, message and offset, so that every byte can be checked where it lands.

A pseudo-random block of prime length is read cyclically from a start that depends on QP number and MSN. A prime period
shares no factor with any packet or message size, so a payload placed at a wrong offset, from a wrong packet or message,
does not match.
"""

from __future__ import annotations

import hashlib

from mrcemu.protocol.memory import MemoryRegion

PERIOD_BYTES = 65521  # the largest prime below 2^16
_MAX_READ_BYTES = 1 << 16
_BLOCK = hashlib.shake_256(b"mrcemu payload").digest(PERIOD_BYTES)
_BYTES = (_BLOCK * 3)[: PERIOD_BYTES + _MAX_READ_BYTES]
_VIEW = memoryview(_BYTES)


def start_of(qpn: int, msn: int) -> int:
    """Where in the block a message begins."""
    return (qpn * 15485863 + msn * 32452843) % PERIOD_BYTES


class PatternSource:
    """The payload of one message, computed instead of stored: a `PayloadSource` of any length."""

    __slots__ = ("_start",)

    def __init__(self, qpn: int, msn: int) -> None:
        self._start = start_of(qpn, msn)

    def read(self, offset: int, length: int) -> memoryview:
        """At most 64 KiB at a time: packets are smaller."""
        at = (self._start + offset) % PERIOD_BYTES
        return _VIEW[at : at + length]


def expected(qpn: int, msn: int, offset: int, length: int) -> bytes:
    """The bytes a message has at an offset; `length` up to 64 KiB."""
    at = (start_of(qpn, msn) + offset) % PERIOD_BYTES
    return _BYTES[at : at + length]


class PatternCheck:
    """Checks one QP's target region: `depth` slots of `size_bytes`, message m in slot m % depth.

    Every payload is compared as it is placed (`on_placed` is the region's observer), and the region at the end.
    """

    def __init__(self, qpn: int, size_bytes: int, depth: int, base: int = 0) -> None:
        self.qpn = qpn
        self._size = size_bytes
        self._depth = depth
        self._base = base  # of this QP's slots in the region
        self.corrupted_bytes = 0
        self.checked_bytes = 0

    def on_placed(self, qpn: int, msn: int, offset: int, payload: bytes) -> None:
        """Compare one placed payload with what the sender's message has there."""
        in_message = offset - self._base - msn % self._depth * self._size
        self.checked_bytes += len(payload)
        if not 0 <= in_message < max(1, self._size):
            self.corrupted_bytes += len(payload)
        elif payload != expected(self.qpn, msn, in_message, len(payload)):
            self.corrupted_bytes += _differing(payload, expected(self.qpn, msn, in_message, len(payload)))

    def check_region(self, region: MemoryRegion, messages: int) -> int:
        """Compare all slots with the last complete message each holds; bytes that differ. `messages` arrived in all."""
        wrong = 0
        for msn in range(max(0, messages - self._depth), messages):
            start = self._base + msn % self._depth * self._size
            for at in range(0, self._size, _MAX_READ_BYTES):
                length = min(_MAX_READ_BYTES, self._size - at)
                found = bytes(region.view[start + at : start + at + length])
                if found != (want := expected(self.qpn, msn, at, length)):
                    wrong += _differing(found, want)
        return wrong


def _differing(a: bytes, b: bytes) -> int:
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))
