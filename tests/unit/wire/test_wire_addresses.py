"""Entropy placement, uSID lists, the segment routing header, DSCP classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_kit import OUTER_DST, uints

from mrcemu.errors import WireError
from mrcemu.wire import srv6
from mrcemu.wire.ev import ev_from_ecmp_fields, ev_from_fields, ev_to_ecmp_fields, ev_to_fields
from mrcemu.wire.opcodes import DATA_OPCODES, FIRST_OPCODES, IMMEDIATE_OPCODES, LAST_OPCODES, WRITE_OPCODE, DscpMap


def test_low_half_of_an_ev_is_the_udp_source_port() -> None:
    assert ev_to_fields(0xABCD1234) == (0xABCD, 0x1234)


@given(uints(32), uints(4))
def test_an_ev_survives_whatever_the_top_of_the_flow_label(ev: int, top: int) -> None:
    flow_label, sport = ev_to_fields(ev)
    assert ev_from_fields(top << 16 | flow_label, sport) == ev


def test_in_ecmp_mode_only_the_port_carries_entropy() -> None:
    assert ev_to_ecmp_fields(0x1234) == (0, 0x1234)
    assert ev_from_ecmp_fields(0x1234) == 0x1234
    with pytest.raises(ValueError, match="0x10000"):
        ev_to_ecmp_fields(0x10000)


def test_a_switch_drops_the_first_usid_and_fills_with_zeros() -> None:
    assert srv6.usids(OUTER_DST) == (0x4400, 0x8403, 0x4401, 0x4401)
    shifted = srv6.shift(OUTER_DST)
    assert shifted == bytes.fromhex("fcbbbbbb840344014401" + "00" * 6)
    assert srv6.usids(shifted) == (0x8403, 0x4401, 0x4401)


@given(st.binary(min_size=4, max_size=4), st.lists(st.integers(1, 0xFFFF), max_size=6))
def test_shifting_walks_a_list_to_its_end(block: bytes, usids: list[int]) -> None:
    destination = block + b"".join(usid.to_bytes(2, "big") for usid in usids).ljust(12, b"\0")
    for start in range(len(usids) + 1):
        assert srv6.usids(destination) == tuple(usids[start:])
        destination = srv6.shift(destination)
        assert destination[:4] == block
        assert len(destination) == 16


def test_segment_routing_header_layout_and_optional_tlvs() -> None:
    header = srv6.SegmentRoutingHeader(41, 1, (bytes(16), bytes(range(16))), flags=2, tag=0x0304)
    assert header.emit() == bytes.fromhex("29 04 04 01 01 02 0304") + bytes(16) + bytes(range(16))
    assert srv6.SegmentRoutingHeader.parse(header.emit()) == (header, 40)
    with_tlv = header.emit()[:1] + b"\x05" + header.emit()[2:] + b"\x04\x06" + bytes(6)
    assert srv6.SegmentRoutingHeader.parse(b"xx" + with_tlv, 2) == (header, 48)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("29 04 04 01 01", "truncated"),
        ("29 02 04 00 00 00 0000" + "00" * 15, "truncated"),
        ("29 02 03 00 00 00 0000" + "00" * 16, "bad_srh"),  # another routing type
        ("29 02 04 00 01 00 0000" + "00" * 16, "bad_srh"),  # two segments in room for one
        ("29 02 04 01 00 00 0000" + "00" * 16, "bad_srh"),  # more left than there are
    ],
)
def test_a_broken_segment_routing_header_is_refused(text: str, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        srv6.SegmentRoutingHeader.parse(bytes.fromhex(text))
    assert caught.value.reason == reason


@pytest.mark.parametrize("segments", [(), (b"short",), (bytes(16),) * 128])
def test_a_segment_routing_header_that_cannot_be_written_is_refused(segments: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="1 to 127 segments of 16 bytes"):
        srv6.SegmentRoutingHeader(41, 0, segments).emit()


def test_the_tables_of_write_opcodes_agree() -> None:
    assert set(WRITE_OPCODE.values()) == DATA_OPCODES
    for (is_first, is_last, has_immediate), opcode in WRITE_OPCODE.items():
        assert (opcode in FIRST_OPCODES, opcode in LAST_OPCODES) == (is_first, is_last)
        assert (opcode in IMMEDIATE_OPCODES) == has_immediate


def test_dscp_classes_must_be_six_different_codepoints() -> None:
    assert DscpMap(trimmed=20).trimmed == 20
    with pytest.raises(ValueError, match="must differ"):
        DscpMap(trimmed=8)
    with pytest.raises(ValueError, match=r"0 \.\. 63"):
        DscpMap(control=64)
