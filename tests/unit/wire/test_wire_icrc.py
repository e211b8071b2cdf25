"""The iCRC: against a bit-by-bit reference, against scapy's RoCE, and what it does and does not cover."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from wire_kit import data_frame, packets, slow_icrc

from mrcemu.wire.frame import Packet, emit_frame
from mrcemu.wire.icrc import icrc_of, verify
from mrcemu.wire.layout import INNER_OFFSET

FRAME = data_frame(bytes(range(256)))
INNER = FRAME[INNER_OFFSET:]


@given(packets())
def test_icrc_is_that_of_the_rule_worked_bit_by_bit(packet: Packet) -> None:
    inner = emit_frame(packet)[INNER_OFFSET:]
    assert inner[-4:] == slow_icrc(inner[:-4]) == icrc_of(inner[:-4])
    assert verify(inner)


def test_icrc_is_that_of_an_independent_roce_implementation() -> None:
    body = bytes(range(100))
    roce = IPv6(src="fd4d:5243::1", dst="fd4d:5243::6", tc=0x22, fl=0x1234, hlim=64)
    roce /= UDP(sport=0x5678, dport=4791, chksum=0) / BTH(opcode=0xC7, dqpn=0x4D, psn=0x123456, ackreq=1) / body
    assert bytes(roce)[-4:] == icrc_of(bytes(roce)[:-4])


def flipped(frame: bytes, offset: int, mask: int = 0xFF) -> bytes:
    return frame[:offset] + bytes([frame[offset] ^ mask]) + frame[offset + 1 :]


@pytest.mark.parametrize(
    ("what", "offset", "mask"),
    [
        ("high half of the traffic class", 0, 0x0F),
        ("low half of the traffic class, ECN", 1, 0xF0),
        ("flow label", 1, 0x0F),
        ("flow label", 3, 0xFF),
        ("hop limit", 7, 0xFF),
        ("UDP checksum", 46, 0xFF),
        ("UDP checksum", 47, 0xFF),
        ("BTH byte 4", 52, 0xFF),
    ],
)
def test_what_may_change_on_the_way_is_not_covered(what: str, offset: int, mask: int) -> None:
    assert verify(flipped(INNER, offset, mask)), what


def test_each_bit_of_everything_else_is_covered() -> None:
    masked = {1, 2, 3, 7, 46, 47, 52}
    for offset in range(len(INNER)):
        for bit in range(4, 8) if offset == 0 else range(8):
            if offset not in masked:
                assert not verify(flipped(INNER, offset, 1 << bit)), (offset, bit)


@pytest.mark.parametrize("changes", [{"ev": 0x0001_0004}, {"udp_dport": 4971}])
def test_another_source_or_destination_port_needs_another_icrc(changes: dict[str, int]) -> None:
    assert data_frame(bytes(64), **changes)[-4:] != data_frame(bytes(64))[-4:]


def test_an_ev_that_differs_in_the_flow_label_alone_has_the_same_icrc() -> None:
    assert data_frame(bytes(64), ev=0x0002_0003)[-4:] == data_frame(bytes(64), ev=0x0001_0003)[-4:]


@given(st.integers(0, 63))
def test_too_little_to_have_an_icrc_is_not_intact(size: int) -> None:
    assert not verify(INNER[:size])


def test_icrc_of_less_than_the_headers_is_refused() -> None:
    with pytest.raises(ValueError, match="IPv6, UDP and BTH"):
        icrc_of(INNER[:59])
