"""Every header against bytes worked out by hand from the bit tables, and against itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_kit import HEADERS, headers

from mrcemu.errors import WireError
from mrcemu.wire.bits import Header
from mrcemu.wire.ethernet import Ethernet
from mrcemu.wire.headers import Aeth, Bth, Eeth, Erth, ImmDt, Meth, Neth, Peth, Reth, Seth, Tseth
from mrcemu.wire.ipv6 import Ipv6, Udp

# PSNs 0 .. 11 were sent, 5 and 8 are missing: cumulative 4, base 5, bits for 5 .. 11 are 0 1 1 0 1 1 1.
WORKED_SACK = Seth(
    mark=1, ack_psn_offset=7, entropy=0x00010003, cack_psn=4, mpr_units=8, sack_offset=1, bitmap=0x76,
    tx_timestamp=0x1234, ooo_count=5, restore_cwnd=True, rcv_cwnd_pen=0x40, rcvd_units=0xA5,
)  # fmt: skip

GOLDEN: list[tuple[Header, str]] = [
    (
        Bth(0xC7, 0x012345, 0xABCDEF, ackreq=True, rtx=True, ts=True, pad=2, solicited=True),
        "c7 a0 ffff 00 012345 b0 abcdef",
    ),
    (Bth(0xDC, 3, 4, migreq=True, version=5, p_key=0x8001), "dc 45 8001 00 000003 00 000004"),
    (Meth(rqmsn=0x0102, msn=0xA0B0), "0102 a0b0"),
    (Tseth(0x1234), "1234 8001"),
    (Tseth(0x1234, tsr=False), "1234 0001"),
    (Reth(0x0123456789ABCDEF, 0xCAFEF00D, 0x00100000), "0123456789abcdef cafef00d 00100000"),
    (ImmDt(0xDEADBEEF), "deadbeef"),
    (WORKED_SACK, "0020 0007 00010003 0000 0000 00 000004 00 08 0001 0000000000000076 1234 0005 c0 0000a5"),
    (
        Seth(-3, 0xFFFFFFFF, 0x100, -64, 1 << 63, mark=2, cc_type=3, cc_fl=4, spdcid=0x1122, dpdcid=0x3344),
        "0040 fffd ffffffff 1122 3344 00 000100 34 00 ffc0 8000000000000000 0000 0000 00 000000",
    ),
    (
        Seth(-0x4111, 0x10, 9, 1, 0, probe=True, ooo_count=0x7FFF),
        "0002 beef 00000010 0000 0000 00 000009 00 00 0001 0000000000000000 0000 7fff 00 000000",
    ),
    (
        Neth(0x01, 0x00010003, 0xABCDEF, 0x5678, vendor_info=7, spdcid=0x1122, dpdcid=0x3344),
        "0000 01 07 00010003 1122 3344 00 abcdef 20 00 5678",
    ),
    (Peth(9, 0x1234, vendor_info=5, spdcid=0x1122, dpdcid=0x3344), "000000 05 0009 0000 1122 3344 1234 8001"),
    (Erth(1, 0x1FE, 0x1234, vendor_info=6), "0001 00 06 000001fe 00000000 1234 8001"),
    (Eeth(1, 0x1234), "0004" + "00" * 26 + "1234" + "00" * 6),
    (Aeth(0x1F, 0x010203), "1f 010203"),
    (
        Ipv6(bytes(range(16)), bytes(range(16, 32)), 46, 3, 0x54321, 0x1020, 41, 63),
        "6bb54321 1020 29 3f 000102030405060708090a0b0c0d0e0f 101112131415161718191a1b1c1d1e1f",
    ),
    (Udp(0x1234, 4791, 0x3C), "1234 12b7 003c 0000"),
    (Ethernet(b"\x02" * 6, b"\x04" * 6), "020202020202 040404040404 86dd"),
]


@pytest.mark.parametrize(("header", "expected"), GOLDEN, ids=lambda value: type(value).__name__)
def test_header_is_laid_out_as_specified(header: Header, expected: str) -> None:
    assert header.emit() == bytes.fromhex(expected)
    assert type(header).parse(bytes.fromhex(expected)) == header


def test_sizes_are_those_of_the_specification() -> None:
    sizes = {"Bth": 12, "Meth": 4, "Tseth": 4, "Reth": 16, "ImmDt": 4, "Seth": 36, "Neth": 20, "Peth": 16}
    sizes |= {"Erth": 16, "Eeth": 36, "Aeth": 4, "Ipv6": 40, "Udp": 8, "Ethernet": 14}
    assert {header.__name__: header.SIZE for header in HEADERS} == sizes


@given(st.data())
@pytest.mark.parametrize("header", HEADERS)
def test_any_header_survives_the_wire(header: type[Header], data: st.DataObject) -> None:
    value, before = data.draw(headers(header)), data.draw(st.binary(max_size=5))
    assert header.parse(before + value.emit() + b"more", len(before)) == value


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_cut_short_is_truncated(header: type[Header]) -> None:
    for size in range(header.SIZE):
        with pytest.raises(WireError) as caught:
            header.parse(bytes(2 + size), 2)
        assert caught.value.reason == "truncated"


@pytest.mark.parametrize("header", [Bth, Seth, Neth, Peth, Erth, Eeth, Tseth])
def test_reserved_bits_are_ignored_when_read_and_zero_when_written(header: type[Header]) -> None:
    all_ones = header.parse(b"\xff" * header.SIZE)
    written = int.from_bytes(all_ones.emit(), "big")
    reserved_bits = sum(bits.width for bits in header.LAYOUT if not bits.name)
    assert reserved_bits > 0
    assert written.bit_count() == header.SIZE * 8 - reserved_bits
    assert header.parse(all_ones.emit()) == all_ones


@pytest.mark.parametrize(
    ("header", "field"),
    [
        (Bth(0xC7, 1 << 24, 0), "Bth.dest_qpn"),
        (Bth(0xC7, 0, -1), "Bth.psn"),
        (Bth(0xC7, 0, 0, pad=4), "Bth.pad"),
        (Seth(0x8000, 0, 0, 0, 0), "Seth.ack_psn_offset"),
        (Seth(0, 0, 0, -0x8001, 0), "Seth.sack_offset"),
        (Seth(0, 0, 0, 0, 0, mark=4), "Seth.mark"),
        (Ipv6(b"short", bytes(16)), "Ipv6.source"),
    ],
)
def test_a_value_that_does_not_fit_names_its_field(header: Header, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        header.emit()


def test_probe_id_replaces_the_offset_only_in_an_answer() -> None:
    assert Seth.parse(bytes.fromhex("0002beef") + bytes(32)).probe_id == 0xBEEF
    assert WORKED_SACK.probe_id is None


def test_emit_into_writes_in_place_and_refuses_to_grow_the_buffer() -> None:
    buffer = bytearray(8)
    assert Meth(1, 2).emit_into(buffer, 3) == 7
    assert buffer == bytes.fromhex("000000 00010002 00")
    with pytest.raises(ValueError, match="ends at 9"):
        Meth(1, 2).emit_into(buffer, 5)
    assert len(buffer) == 8
