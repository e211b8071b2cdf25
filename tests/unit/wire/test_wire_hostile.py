"""Bytes nobody promised anything about: nothing but a counted drop or a WireError may come of them."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire_kit import DST, data_frame, packets, sack_frame

from mrcemu.errors import WireError
from mrcemu.wire import fast, icrc, switching
from mrcemu.wire.frame import Packet, Request, emit_frame, parse_frame, sized, summary
from mrcemu.wire.layout import EXT_OFFSET, INNER_OFFSET
from mrcemu.wire.opcodes import DATA_OPCODES, Opcode

READERS = {
    Opcode.SACK: fast.sack_fields,
    Opcode.NACK: fast.nack_fields,
    Opcode.ACKNOWLEDGE: fast.aeth_fields,
    Opcode.PROBE_REQUEST: fast.peth_fields,
    Opcode.ENDPOINT_REQUEST: fast.erth_fields,
    Opcode.ENDPOINT_RESPONSE: fast.eeth_fields,
}


def hot(frame: bytes, *earlier: bytes) -> str:
    """The reason for which the hot path refuses a frame, empty when it accepts it and its readers work.

    A parser that has read `earlier` frames must judge like a new one.
    """
    verdict = judged_by(fast.FrameParser(DST), frame)
    parser = fast.FrameParser(DST)
    for known in earlier:
        assert parser.parse(known) is not None
    parser.drops.clear()
    assert judged_by(parser, frame) == verdict
    return verdict


def judged_by(parser: fast.FrameParser, frame: bytes) -> str:
    received = parser.parse(frame)
    if received is None:
        assert sum(parser.drops.values()) == 1
        return next(iter(parser.drops))
    assert parser.drops == {}
    assert EXT_OFFSET <= received.payload_offset <= received.payload_end
    if received.opcode not in DATA_OPCODES:
        READERS[Opcode(received.opcode)](frame)
    elif received.trimmed:
        fast.trimmed_fields(frame)
    else:
        assert received.payload_end <= len(frame) - 4
        fast.data_fields(frame)
    return ""


def cold(frame: bytes) -> str:
    try:
        summary(parse_frame(frame))
    except WireError as error:
        return error.reason
    return ""


def agree(frame: bytes, *earlier: bytes) -> None:
    """Both paths judge alike, wherever both can: long enough, an outer header, our own address."""
    verdicts = hot(frame, *earlier), cold(frame)
    if len(frame) >= EXT_OFFSET and verdicts[0] not in {"not_srv6", "not_mine"}:
        assert verdicts[0] == verdicts[1]
    elif verdicts[0] == "":
        raise AssertionError("the hot path accepted what it should refuse")


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A good frame; and it, or its trimmed form, damaged: bytes changed, cut, longer, perhaps with a new iCRC."""
    good = frame = emit_frame(draw(packets()))
    if draw(st.booleans()):
        frame = switching.trim(frame, draw(st.sampled_from([8, 16, 18])), draw(st.integers(108, 140)))
    changed = bytearray(frame)
    interesting = st.sampled_from([14, 18, 19, 20, 54, 58, 59, 60, 98, 99, 102, 103, 110, 114])
    for offset in draw(st.lists(interesting | st.integers(0, len(changed) - 1), max_size=3)):
        changed[offset] = draw(st.integers(0, 255))
    if draw(st.booleans()) and len(changed) >= 118:
        changed[-4:] = icrc.icrc_of(bytes(changed[INNER_OFFSET:-4]))
    if draw(st.booleans()):
        changed = changed[: draw(st.integers(0, len(changed)))] + draw(st.binary(max_size=8))
    return good, bytes(changed)


@given(mutated())
def test_damaged_frames_are_judged_alike_by_both_paths(frames: tuple[bytes, bytes]) -> None:
    good, damaged = frames
    agree(damaged)
    agree(damaged, *(frame for frame in (good, switching.trim(good, 16)) if hot(frame) == ""))


def test_a_parser_that_knows_a_frame_still_sees_each_damaged_bit() -> None:
    good = data_frame(bytes(40))
    for position in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << position % 8
        agree(bytes(damaged), good)


@pytest.mark.parametrize("keep", [108, 128])
def test_a_parser_that_knows_a_trimmed_frame_judges_each_damaged_bit_like_a_new_one(keep: int) -> None:
    good = switching.trim(data_frame(), 16, keep)
    for position in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << position % 8
        agree(bytes(damaged), good)
    for size in range(len(good)):
        agree(good[:size], good)


def forged(start: bytes, crc: int) -> bytes:
    """`start` and four bytes behind it that give the whole any plain CRC-32: its register run backwards."""
    register = crc ^ 0xFFFFFFFF
    for _ in range(32):
        register = (register ^ 0xEDB88320) << 1 | 1 if register >> 31 else register << 1
    return start + (register ^ crc32(start) ^ 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_a_longer_frame_forged_to_the_crc_of_a_known_one_is_refused(extra: bytes) -> None:
    good = data_frame(bytes(40))
    longer = forged(good + extra, crc32(good))
    assert crc32(longer) == crc32(good)
    assert hot(longer, good) == "bad_length"


def test_a_changed_start_forged_to_the_crc_of_a_known_frame_gains_nothing() -> None:
    good = data_frame(bytes(40))
    for offset in range(114):
        changed = bytearray(good[:-4])
        changed[offset] ^= 1
        agree(forged(bytes(changed), crc32(good)), good)


def test_two_frames_that_start_alike_may_differ_in_having_a_timestamp() -> None:
    """Four bytes of payload more and no TSETH: the same opcode, lengths and first 107 bytes."""
    with_tseth = data_frame(bytes(range(60)))
    packet = parse_frame(with_tseth)
    assert isinstance(packet.ext, Request)
    plain = replace(packet, payload=bytes(range(64)), ext=replace(packet.ext, tseth=None))
    without = emit_frame(sized(plain))
    assert without[:107] == with_tseth[:107]
    assert len(without) == len(with_tseth)
    parser = fast.FrameParser(DST)
    for frame, offset in ((with_tseth, 138), (without, 134), (with_tseth, 138), (without, 134)):
        received = parser.parse(frame)
        assert received is not None
        assert received.payload_offset == offset


@given(st.binary(max_size=400))
@example(b"")
def test_noise_is_refused(frame: bytes) -> None:
    assert hot(frame) != ""
    assert cold(frame) != ""


@given(packets(standard=False), st.data())
def test_the_cold_path_raises_nothing_but_wire_errors(packet: Packet, data: st.DataObject) -> None:
    frame = bytearray(emit_frame(packet))
    for offset in data.draw(st.lists(st.integers(0, min(len(frame), 200) - 1), max_size=4)):
        frame[offset] = data.draw(st.integers(0, 255))
    cold(bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    cold(bytes(frame))


def test_every_prefix_of_a_frame_is_refused() -> None:
    for frame in (data_frame(bytes(64)), sack_frame(), switching.trim(data_frame(), 16)):
        for size in range(len(frame)):
            assert hot(frame[:size]) == cold(frame[:size]) == "truncated"


def test_any_single_byte_of_the_headers_may_have_any_value() -> None:
    for frame in (data_frame(bytes(8)), switching.trim(data_frame(), 16)):
        for offset in range(min(len(frame), 142)):
            for value in (0, 1, 0x29, 0x2B, 0x60, 0x80, 0xC9, 0xDC, 0xFF, frame[offset] ^ 1):
                agree(frame[:offset] + bytes([value]) + frame[offset + 1 :])
