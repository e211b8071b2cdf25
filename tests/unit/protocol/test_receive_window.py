"""The receive window against a set of PSNs: the same answers, for any order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrcemu.protocol.window import SACK_BITS, Arrival, ReceiveWindow
from mrcemu.rng import Rng


class NaiveWindow:
    """The window as a set: slow, obvious."""

    def __init__(self, first_psn: int, mpr_psns: int) -> None:
        self.first, self.mpr = first_psn, mpr_psns
        self.arrived: set[int] = set()

    @property
    def cack(self) -> int:
        psn = self.first
        while psn in self.arrived:
            psn += 1
        return psn - 1

    def classify(self, psn: int) -> Arrival:
        cack = self.cack
        if psn <= cack:
            return Arrival.DUPLICATE
        if psn > cack + self.mpr:
            return Arrival.BEYOND
        return Arrival.DUPLICATE_ABOVE if psn in self.arrived else Arrival.NEW

    @property
    def held(self) -> set[int]:
        return {psn for psn in self.arrived if psn > self.cack}


def check_report(window: ReceiveWindow, naive: NaiveWindow) -> set[int]:
    """A report tells the truth about every PSN it covers; the covered PSNs."""
    offset, bitmap = window.report()
    base = naive.cack + offset
    assert 0 <= bitmap < 1 << SACK_BITS
    assert -0x8000 <= offset <= 0x7FFF
    for bit in range(SACK_BITS):
        psn = base + bit
        is_received = psn <= naive.cack or psn in naive.arrived
        assert bool(bitmap >> bit & 1) == is_received, (psn, base, naive.cack)
    return set(range(base, base + SACK_BITS))


# A walk of steps relative to ePSN: below (duplicates), inside, and beyond the window.
STEPS = st.lists(st.integers(-20, 300), max_size=150)


@settings(max_examples=120, deadline=None)
@given(
    first=st.sampled_from([0, 1, (1 << 24) - 40, 1 << 30]), mpr=st.sampled_from([1, 3, 64, 65, 128, 256]), steps=STEPS
)
def test_classification_cumulative_point_and_counts_match_a_set(first: int, mpr: int, steps: list[int]) -> None:
    window, naive = ReceiveWindow(first, mpr), NaiveWindow(first, mpr)
    for step in steps:
        psn = naive.cack + 1 + step
        arrival = window.classify(psn)
        assert arrival is naive.classify(psn)
        if arrival is Arrival.NEW:
            before = naive.cack
            naive.arrived.add(psn)
            assert window.mark(psn) is (naive.cack > before)
        assert window.cack == naive.cack
        assert window.expected == naive.cack + 1
        assert window.ooo_count == len(naive.held)
        assert window.highest == max(naive.arrived, default=first - 1)


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(range(40)), gap=st.sets(st.integers(0, 39), max_size=10))
def test_a_report_after_each_arrival_is_true(order: list[int], gap: set[int]) -> None:
    window, naive = ReceiveWindow(5, 128), NaiveWindow(5, 128)
    for position in order:
        if position in gap:
            continue
        naive.arrived.add(5 + 3 * position)
        window.mark(5 + 3 * position)
        check_report(window, naive)


@settings(max_examples=60, deadline=None)
@given(held=st.sets(st.integers(1, 1023), min_size=1, max_size=200))
def test_reports_in_a_row_walk_over_everything_held(held: set[int]) -> None:
    """With a spread wider than one bitmap, a bounded number of reports covers every PSN from ePSN to the highest."""
    window, naive = ReceiveWindow(0, 1024), NaiveWindow(0, 1024)
    for psn in held:
        naive.arrived.add(psn)
        window.mark(psn)
    spread = max(held)
    reports = -(-(spread + 1) // SACK_BITS) + 1
    covered: set[int] = set()
    for _ in range(reports):
        covered |= check_report(window, naive)
    assert covered >= set(range(spread + 1))


def test_the_walk_starts_over_and_keeps_covering() -> None:
    window, naive = ReceiveWindow(0, 1024), NaiveWindow(0, 1024)
    for psn in range(1, 700):
        naive.arrived.add(psn)
        window.mark(psn)
    for _ in range(3):
        covered: set[int] = set()
        for _ in range(-(-700 // SACK_BITS)):
            covered |= check_report(window, naive)
        assert covered >= set(range(700))


@pytest.mark.parametrize("seed", range(3))
def test_a_full_window_in_random_order_closes_exactly(seed: int) -> None:
    window, naive = ReceiveWindow(0, 1024), NaiveWindow(0, 1024)
    order = list(range(1024))
    Rng(seed).shuffle(order)
    for count, psn in enumerate(order, 1):
        assert window.classify(psn) is Arrival.NEW
        naive.arrived.add(psn)
        window.mark(psn)
        assert window.classify(psn) in (Arrival.DUPLICATE, Arrival.DUPLICATE_ABOVE)
        if count % 64 == 0:
            check_report(window, naive)
    assert (window.cack, window.ooo_count, window.highest) == (1023, 0, 1023)


def test_the_window_slides_and_its_edges_move_with_it() -> None:
    window = ReceiveWindow(10, 128)
    assert window.classify(10 + 127) is Arrival.NEW
    assert window.classify(10 + 128) is Arrival.BEYOND
    window.mark(10)
    assert window.classify(10) is Arrival.DUPLICATE
    assert window.classify(10 + 128) is Arrival.NEW
    assert window.classify(10 + 129) is Arrival.BEYOND
    assert window.classify(10 - (1 << 23)) is Arrival.DUPLICATE


def test_the_worked_example_of_the_sources() -> None:
    """PSN 0 .. 11 sent, 5 and 8 lost: cack 4, bitmap 0b1110110 from PSN 5 (sources 1.5)."""
    window = ReceiveWindow(0, 1024)
    for psn in (0, 1, 2, 3, 4, 6, 7, 9, 10, 11):
        window.mark(psn)
    assert window.cack == 4
    assert window.report() == (1, 0x76)
