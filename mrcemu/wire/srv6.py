"""Micro-SID lists in a destination address, and the segment routing header we read but never send.

A destination is a 32-bit block and up to six 16-bit uSIDs; 0 ends the list. A switch that finds its own uSID first
drops it by shifting the rest left (uN behaviour, NEXT-CSID with lblen 32 and nflen 16; RFC 9800).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mrcemu.errors import WireError
from mrcemu.wire.bits import Buffer

BLOCK_BYTES = 4
USID_BYTES = 2
MAX_USIDS = 6

_ROUTING_TYPE_SEGMENT = 4  # RFC 8754
_FIXED_BYTES = 8
_SEGMENT_BYTES = 16


def shift(destination: bytes) -> bytes:
    """The 16-byte destination after a switch consumed its first uSID, filled up with zeros."""
    return destination[:BLOCK_BYTES] + destination[BLOCK_BYTES + USID_BYTES :] + bytes(USID_BYTES)


def usids(destination: bytes) -> tuple[int, ...]:
    """The uSIDs still to visit, in order; none after the first 0."""
    found = []
    for start in range(BLOCK_BYTES, len(destination), USID_BYTES):
        value = int.from_bytes(destination[start : start + USID_BYTES], "big")
        if value == 0:
            break
        found.append(value)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SegmentRoutingHeader:
    """RFC 8754 without its optional TLVs, which are skipped: `segments` as they stand, the last to visit first."""

    next_header: int
    segments_left: int
    segments: tuple[bytes, ...]
    flags: int = 0
    tag: int = 0

    @property
    def size_bytes(self) -> int:
        return _FIXED_BYTES + _SEGMENT_BYTES * len(self.segments)

    @classmethod
    def parse(cls, buf: Buffer, offset: int = 0) -> tuple[Self, int]:
        """(header, its length in bytes with TLVs); WireError "truncated" or "bad_srh"."""
        raw = bytes(buf[offset : offset + _FIXED_BYTES])
        size = _FIXED_BYTES + 8 * raw[1] if len(raw) == _FIXED_BYTES else _FIXED_BYTES
        if len(buf) - offset < size:
            raise WireError("truncated", f"segment routing header needs {size} bytes")
        segments_end = _FIXED_BYTES + _SEGMENT_BYTES * (raw[4] + 1)
        if raw[2] != _ROUTING_TYPE_SEGMENT or segments_end > size or raw[3] > raw[4]:
            raise WireError("bad_srh", f"routing type {raw[2]}, {raw[4] + 1} segments in {size} bytes")
        body = bytes(buf[offset : offset + segments_end])
        segments = tuple(body[at : at + _SEGMENT_BYTES] for at in range(_FIXED_BYTES, segments_end, _SEGMENT_BYTES))
        return cls(raw[0], raw[3], segments, raw[5], int.from_bytes(raw[6:8], "big")), size

    def emit(self) -> bytes:
        """The header without TLVs; ValueError when there is no segment, more than 127, or a wrong size or number."""
        if not 0 < len(self.segments) < 128 or any(len(segment) != _SEGMENT_BYTES for segment in self.segments):
            raise ValueError("1 to 127 segments of 16 bytes")
        fixed = (self.next_header, 2 * len(self.segments), _ROUTING_TYPE_SEGMENT, self.segments_left)
        return (
            bytes((*fixed, len(self.segments) - 1, self.flags)) + self.tag.to_bytes(2, "big") + b"".join(self.segments)
        )
