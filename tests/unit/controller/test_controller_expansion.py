"""Expansion of EVs: the worked results of the companion samples, the checks, the way back, and generated EVs."""

from errno import E2BIG, EINVAL

import pytest
from controller_kit import refused
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.controller.expansion import EvField, check_fields, compress, expand, generate, generated_count
from mrcemu.controller.formats import EvFmtMode, EvFormat

TWO = EvFormat(EvFmtMode.STEV, (16, 16))
USIDS = EvFormat(EvFmtMode.SRV6, (32, 16, 16, 16, 16))

GOLDEN = [
    (TWO, (EvField(16, 0x0100, 1, 0xF, 0xF), EvField(16, 0x0200, 1, 0xF, 0xF)), "a4", "010a0204"),
    (TWO, (EvField(16, 0x1000, 1, 0xFF, 0x0F0F), EvField(16, 0x2000, 1, 0xFF, 0x0F0F)), "3312", "13032102"),
    (
        USIDS,
        (EvField(32, 0x13131313), *(EvField(16, hop << 8, 1, 0xF, 0xF) for hop in range(1, 5))),
        "9b79",
        "131313130109020b03070409",
    ),
]


def padded(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal).ljust(32, b"\0")


@pytest.mark.parametrize(("fmt", "fields", "ev", "wire"), GOLDEN)
def test_the_samples_of_the_companion_repository_expand_as_they_print(fmt, fields, ev, wire):
    check_fields(fields, fmt)
    assert expand(fields, fmt, padded(ev)) == padded(wire)
    assert compress(fields, fmt, padded(wire)) == padded(ev)


def test_a_field_narrower_than_its_format_field_is_padded_on_the_left():
    fmt = EvFormat(EvFmtMode.STEV, (16, 16))
    assert expand((EvField(4, 0, 0, 0, 0xF), EvField(8, 0xAB)), fmt, padded("90")) == padded("000900ab")


def test_format_fields_without_an_ev_field_stay_zero():
    assert expand((EvField(16, 0xBEEF),), TWO, bytes(32)) == padded("beef0000")


def test_masked_bits_of_the_initial_value_are_overwritten():
    assert expand((EvField(8, 0xFF, 0, 0, 0x3C),), EvFormat(EvFmtMode.STEV, (8,)), padded("60")) == padded("db")


@pytest.mark.parametrize("ev", ["a401", "a4" + "00" * 30 + "01"])
def test_an_ev_with_bits_that_no_field_takes_is_refused(ev):
    with refused(EINVAL, "ev"):
        expand(GOLDEN[0][1], TWO, bytes.fromhex(ev))


@pytest.mark.parametrize(
    ("wire", "key"),
    [
        ("110a0204", "field 0"),  # a fixed bit differs
        ("010a0304", "field 1"),
        ("010a020401", "ev"),  # bits behind the last field
    ],
)
def test_what_no_ev_expands_to_is_not_compressed(wire, key):
    with refused(EINVAL, key):
        compress(GOLDEN[0][1], TWO, padded(wire))


def test_padding_in_a_format_field_wider_than_its_field_must_be_zero():
    with refused(EINVAL, "field 0"):
        compress((EvField(4, 0, 0, 0, 0xF),), EvFormat(EvFmtMode.STEV, (16,)), padded("0019"))


@pytest.mark.parametrize(
    ("fields", "errno", "key"),
    [
        ((), EINVAL, "field count"),
        ((EvField(8), EvField(8), EvField(8)), E2BIG, "field count"),
        ((EvField(32), EvField(1)), E2BIG, "field widths"),
        ((EvField(17), EvField(8)), EINVAL, "field 0 width"),
        ((EvField(0),), EINVAL, "field 0 width"),
        ((EvField(33),), EINVAL, "field 0 width"),
        ((EvField(16), EvField(8, 0x100)), EINVAL, "field 1 init_val"),
        ((EvField(8, -1),), EINVAL, "init_val"),
        ((EvField(8, 0, 0, 0, 0x100),), EINVAL, "mask"),
        ((EvField(8, 0, 0, 4, 0x03),), EINVAL, "max_val"),
        ((EvField(8, 5, 0, 1, 0),), EINVAL, "max_val"),  # a fixed field has mask, min and max 0
        ((EvField(8, 0, 3, 2, 0x0F),), EINVAL, "min_val"),
        ((EvField(True),), EINVAL, "width"),
    ],
)
def test_impossible_fields_are_refused_by_name(fields, errno, key):
    with refused(errno, key):
        check_fields(fields, TWO)


@st.composite
def masked_fields(draw):
    """A format, fields that fit it, and an EV that uses no more bits than they take."""
    fields, widths = [], []
    for _ in range(draw(st.integers(1, 6))):
        width = draw(st.integers(1, 32))
        init, mask = (draw(st.integers(0, (1 << width) - 1)) for _ in range(2))
        fields.append(EvField(width, init, 0, 0, mask))
        widths.append(draw(st.integers(width, 40)))
    bits = sum(field.mask.bit_count() for field in fields)
    ev = draw(st.integers(0, (1 << bits) - 1)) << 256 - bits
    return EvFormat(EvFmtMode.SRV6, tuple(widths)), tuple(fields), ev.to_bytes(32, "big")


@given(masked_fields())
def test_compressing_an_expanded_ev_gives_it_back(case):
    fmt, fields, ev = case
    check_fields(fields, fmt)
    wire = expand(fields, fmt, ev)
    assert compress(fields, fmt, wire) == ev
    # A second opinion on the layout: every field as text, bit by bit.
    bits = iter(f"{int.from_bytes(ev, 'big'):0256b}")
    text = ""
    for field, width in zip(fields, fmt.widths, strict=True):
        own, over = f"{field.init_val:0{width}b}", f"{field.mask:0{width}b}"
        text += "".join(next(bits) if masked == "1" else bit for bit, masked in zip(own, over, strict=True))
    assert f"{int.from_bytes(wire, 'big'):0256b}" == text.ljust(256, "0")


def test_generated_evs_run_through_the_bounds_with_the_last_field_fastest():
    fields = (EvField(8, 0, 2, 3, 0x0F), EvField(8, 0xFF), EvField(8, 0, 1, 3, 0x03))
    assert generated_count(fields) == 6
    assert [ev[:1].hex() for ev in generate(fields, 100)] == ["24", "28", "2c", "34", "38", "3c"]
    assert [ev[:1].hex() for ev in generate(fields, 2)] == ["24", "28"]


def test_a_mask_without_bounds_generates_all_its_values_as_the_samples_do():
    assert generated_count((EvField(32, 0, 0, 0, 0xFFFFFFFF),)) == 1 << 32
    assert [ev[:4].hex() for ev in generate((EvField(32, 0, 0, 0, 0xFFFFFFFF),), 2)] == ["00000000", "00000001"]


def test_fields_without_a_mask_generate_one_ev():
    assert list(generate((EvField(8, 7),), 5)) == [bytes(32)]
