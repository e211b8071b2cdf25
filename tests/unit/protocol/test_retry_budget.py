"""The two-stage retry schedule (protocol sources 2.9), interval by interval."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transport_kit import EIGHT

from mrcemu.protocol.config import RETRY_FOREVER, for_topology, timeout_code_for
from mrcemu.protocol.retry import RetryBudget

BASE = for_topology(EIGHT)


def schedule(linear: int, exponential: int, charges: int) -> tuple[list[int], list[bool]]:
    """Intervals in units of T before each charge, and whether each charge was within the budget."""
    config = replace(BASE, timeout_code=10, linear_retries=linear, exp_retries=exponential)
    budget = RetryBudget(config)
    intervals, within, now = [], [], 5
    budget.progress(now)
    for _ in range(charges):
        interval = budget.deadline_ns() - now
        assert interval % config.rto_ns == 0
        intervals.append(interval // config.rto_ns)
        now = budget.deadline_ns()
        within.append(budget.charge(now))
    return intervals, within


def test_linear_stage_is_fixed_then_each_retry_doubles() -> None:
    intervals, within = schedule(3, 4, 8)
    assert intervals == [1, 1, 1, 1, 2, 4, 8, 16]
    assert within == [True] * 7 + [False]


def test_the_defaults_of_the_companion_samples() -> None:
    intervals, within = schedule(7, 5, 13)
    assert intervals == [1] * 8 + [2, 4, 8, 16, 32]
    assert within == [True] * 12 + [False]


def test_no_retries_at_all_fails_at_the_first_charge() -> None:
    assert schedule(0, 0, 1) == ([1], [False])


def test_without_a_linear_stage_the_first_retry_already_doubles() -> None:
    assert schedule(0, 3, 4) == ([1, 2, 4, 8], [True, True, True, False])


def test_for_ever_never_runs_out_and_stops_doubling_at_2_to_the_24() -> None:
    intervals, within = schedule(2, RETRY_FOREVER, 60)
    assert all(within)
    assert intervals[:5] == [1, 1, 1, 2, 4]
    assert intervals[26:28] == [1 << 24, 1 << 24]
    assert intervals[-1] == 1 << 24


def test_progress_gives_the_whole_budget_back() -> None:
    budget = RetryBudget(replace(BASE, linear_retries=1, exp_retries=1))
    budget.progress(0)
    assert budget.charge(1)
    assert budget.charge(2)
    budget.progress(1000)
    assert (budget.attempts, budget.deadline_ns()) == (0, 1000 + BASE.rto_ns)
    assert budget.charge(1001)
    assert budget.charge(1002)
    assert not budget.charge(1003)


@pytest.mark.parametrize(("base_rtt_ns", "code"), [(1, 0), (256, 0), (257, 1), (21_698_560, 17), (1 << 62, 24)])
def test_the_timer_is_the_smallest_power_of_two_of_1024_ns_over_four_base_rtts(base_rtt_ns: int, code: int) -> None:
    assert timeout_code_for(base_rtt_ns) == code
