"""The pcapng file format, as much as a capture of a fabric needs: a writer, and a reader of what it writes.

Owns bytes only: takes a binary stream, knows no interfaces and no clock. Section header, one interface description per
tap with nanosecond stamps, enhanced packets with their direction, interface statistics with drops at the end.
Source: draft-ietf-opsawg-pcapng; block and option numbers carry their names there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from mrcemu.capture.ring import CapturedFrame
from mrcemu.errors import WireError

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION = 1
INTERFACE_STATISTICS = 5
ENHANCED_PACKET = 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D
LINKTYPE_ETHERNET = 1

SHB_USERAPPL = 4
IF_NAME = 2
IF_DESCRIPTION = 3
IF_SPEED = 8
IF_TSRESOL = 9
EPB_FLAGS = 2
ISB_IFRECV = 4
ISB_IFDROP = 5
_INBOUND, _OUTBOUND = 1, 2  # epb_flags bits 0 and 1
_NANOSECONDS = b"\x09"

_BLOCK = struct.Struct("<II")
_EPB = struct.Struct("<IIIII")  # tap, time high and low, captured and original length
_EPB_HEAD = struct.Struct("<IIIIIII")  # the same behind block type and length
_EPB_TAIL = struct.Struct("<HHIHHI")  # the flags option, the end of options, the block length again
_EPB_FIXED_BYTES = _EPB_HEAD.size + _EPB_TAIL.size
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


@dataclass(frozen=True, slots=True)
class TapInfo:
    """What a file says of one tap: its name, and its rate in bits per second if known."""

    name: str
    rate_bps: int | None = None


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _options(items: Sequence[tuple[int, bytes]]) -> bytes:
    body = b"".join(struct.pack("<HH", code, len(value)) + _padded(value) for code, value in items)
    return body + bytes(4) if items else b""


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return _BLOCK.pack(kind, length) + body + struct.pack("<I", length)


class PcapngWriter:
    """Writes one section with the given taps; frames then name their tap by its number in `taps`."""

    def __init__(self, stream: BinaryIO, taps: Sequence[TapInfo], *, snaplen: int, application: str) -> None:
        self._stream = stream
        header = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
        parts = [_block(SECTION_HEADER, header + _options([(SHB_USERAPPL, application.encode())]))]
        for tap in taps:
            options = [(IF_NAME, tap.name.encode()), (IF_TSRESOL, _NANOSECONDS)]
            if tap.rate_bps is not None:
                options.append((IF_SPEED, struct.pack("<Q", tap.rate_bps)))
            body = struct.pack("<HHI", LINKTYPE_ETHERNET, 0, snaplen)
            parts.append(_block(INTERFACE_DESCRIPTION, body + _options(options)))
        stream.write(b"".join(parts))

    def write_frames(self, frames: Sequence[tuple[int, CapturedFrame]]) -> None:
        """Append (tap number, frame) pairs in the order given, in one write: a reader never meets half a block."""
        self._stream.write(b"".join([_packet(tap, frame) for tap, frame in frames]))

    def write_statistics(self, tap: int, time_ns: int, *, received: int, dropped: int) -> None:
        """The closing figures of one tap: frames that passed it, and those the capture lost."""
        body = struct.pack("<III", tap, time_ns >> 32, time_ns & 0xFFFFFFFF)
        counts = [(ISB_IFRECV, struct.pack("<Q", received)), (ISB_IFDROP, struct.pack("<Q", dropped))]
        self._stream.write(_block(INTERFACE_STATISTICS, body + _options(counts)))


def _packet(tap: int, frame: CapturedFrame) -> bytes:
    time_ns, data, original, outgoing = frame
    captured = len(data)
    padding = _PADDING[-captured % 4]
    length = _EPB_FIXED_BYTES + captured + len(padding)
    head = _EPB_HEAD.pack(ENHANCED_PACKET, length, tap, time_ns >> 32, time_ns & 0xFFFFFFFF, captured, original)
    direction = _OUTBOUND if outgoing else _INBOUND
    return b"".join((head, data, padding, _EPB_TAIL.pack(EPB_FLAGS, 4, direction, 0, 0, length)))


@dataclass(slots=True)
class Capture:
    """A file read back: taps, (tap number, frame) pairs in file order, and (received, dropped) by tap number."""

    taps: list[TapInfo] = field(default_factory=list)
    frames: list[tuple[int, CapturedFrame]] = field(default_factory=list)
    statistics: dict[int, tuple[int, int]] = field(default_factory=dict)


def read_pcapng(data: bytes) -> Capture:
    """Read a file written by `PcapngWriter`; WireError where it is not one. Unknown block types are skipped."""
    capture = Capture()
    for position, (kind, body) in enumerate(_blocks(data)):
        if position == 0 and kind != SECTION_HEADER:
            raise WireError("pcapng", "the file does not start with a section header")
        try:
            _take(capture, kind, body)
        except (struct.error, IndexError) as error:
            raise WireError("pcapng", f"block {position} is shorter than its fields") from error
    return capture


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            raise WireError("pcapng", f"{len(data) - at} stray bytes at {at}")
        kind, length = _BLOCK.unpack_from(data, at)
        if length < 12 or length % 4 or at + length > len(data):
            raise WireError("pcapng", f"the block at {at} claims {length} bytes")
        yield kind, data[at + 8 : at + length - 4]
        at += length


def _take(capture: Capture, kind: int, body: bytes) -> None:
    if kind == SECTION_HEADER:
        if struct.unpack_from("<I", body)[0] != BYTE_ORDER_MAGIC:
            raise WireError("pcapng", "a big-endian section; this reader takes little-endian files")
    elif kind == INTERFACE_DESCRIPTION:
        options = dict(_read_options(body[8:]))
        if options.get(IF_TSRESOL) != _NANOSECONDS:
            raise WireError("pcapng", "an interface without nanosecond stamps")
        speed = options.get(IF_SPEED)
        rate_bps = struct.unpack("<Q", speed)[0] if speed is not None else None
        capture.taps.append(TapInfo(options.get(IF_NAME, b"").decode(errors="replace"), rate_bps))
    elif kind == ENHANCED_PACKET:
        capture.frames.append(_read_packet(body))
    elif kind == INTERFACE_STATISTICS:
        options = dict(_read_options(body[12:]))
        received, dropped = (struct.unpack("<Q", options.get(code, bytes(8)))[0] for code in (ISB_IFRECV, ISB_IFDROP))
        capture.statistics[struct.unpack_from("<I", body)[0]] = (received, dropped)


def _read_packet(body: bytes) -> tuple[int, CapturedFrame]:
    tap, high, low, captured, length = _EPB.unpack_from(body)
    data = body[20 : 20 + captured]
    if len(data) != captured:
        raise WireError("pcapng", f"a packet of {captured} bytes in a block of {len(body)}")
    flags = dict(_read_options(body[20 + captured + -captured % 4 :])).get(EPB_FLAGS, bytes(4))
    outgoing = struct.unpack("<I", flags)[0] & 3 == _OUTBOUND
    return tap, CapturedFrame(high << 32 | low, data, length, outgoing)


def _read_options(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
