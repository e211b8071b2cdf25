"""PSN arithmetic across the 24-bit wrap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.wire.psn import expand, expand16, fits_signed16, signed16, wrap

HALF = 1 << 23


@given(st.integers(-(1 << 40), 1 << 40), st.integers(-HALF, HALF - 1))
def test_a_psn_within_half_a_circle_of_the_reference_survives_the_wire(reference: int, distance: int) -> None:
    psn = reference + distance
    assert 0 <= wrap(psn) < 1 << 24
    assert expand(wrap(psn), reference) == psn


@given(st.integers(-(1 << 30), 1 << 30), st.integers(-(1 << 15), (1 << 15) - 1))
def test_a_msn_within_half_a_circle_of_the_reference_survives_the_wire(reference: int, distance: int) -> None:
    assert expand16((reference + distance) & 0xFFFF, reference) == reference + distance


@pytest.mark.parametrize(
    ("psn24", "reference", "expected"),
    [
        (0, 0, 0),
        (0xFFFFFF, 0, -1),  # before the first PSN
        (0, 0xFFFFFF, 0x1000000),  # the wrap
        (5, 0x3000002, 0x3000005),
        (0x800000, 0, -0x800000),  # exactly half a circle: behind
        (0x7FFFFF, 0, 0x7FFFFF),
    ],
)
def test_expansion_takes_the_nearest_psn(psn24: int, reference: int, expected: int) -> None:
    assert expand(psn24, reference) == expected


def test_signed_offsets() -> None:
    assert [signed16(raw) for raw in (0, 1, 0x7FFF, 0x8000, 0xFFFF)] == [0, 1, 32767, -32768, -1]
    assert [fits_signed16(offset) for offset in (-32769, -32768, 32767, 32768)] == [False, True, True, False]
