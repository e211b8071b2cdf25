"""Bytes nobody promised anything about: nothing but a counted drop or a WireError may come of them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_kit import DST, data_frame, packets, relaxed, sack_frame

from mrcemu.errors import WireError
from mrcemu.wire import fast, icrc, switching
from mrcemu.wire.frame import Packet, emit_frame, parse_frame, summary
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


def hot(frame: bytes) -> str:
    """ "" when the hot path accepts the frame and every reader of its headers works, else the reason."""
    parser = fast.FrameParser(DST)
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


def agree(frame: bytes) -> None:
    """Both paths judge alike, wherever both can: long enough, an outer header, our own address."""
    verdicts = hot(frame), cold(frame)
    if len(frame) >= EXT_OFFSET and verdicts[0] not in {"not_srv6", "not_mine"}:
        assert verdicts[0] == verdicts[1]
    elif verdicts[0] == "":
        raise AssertionError("the hot path accepted what it should refuse")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good or trimmed frame with a few header bytes changed, perhaps cut or lengthened, perhaps with a new iCRC."""
    frame = emit_frame(draw(packets()))
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
    return bytes(changed)


@settings(deadline=None, max_examples=500)
@given(mutated())
def test_damaged_frames_are_judged_alike_by_both_paths(frame: bytes) -> None:
    agree(frame)


@relaxed
@given(st.binary(max_size=400))
@example(b"")
def test_noise_is_refused(frame: bytes) -> None:
    assert hot(frame) != ""
    assert cold(frame) != ""


@relaxed
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
