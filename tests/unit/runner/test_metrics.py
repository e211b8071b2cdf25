"""Figures of a run, checked against arrival curves whose answer is known by construction."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.runner import metrics
from mrcemu.runner.metrics import BIN_NS, NS, Measurements, NotMeasuredError, WorkloadMeasurement

MS = 10**6
PER_BIN = 100_000  # bytes of a steady bin: 80 Mbit/s


def workload(bins: list[int], **more: object) -> WorkloadMeasurement:
    values: dict[str, object] = {"messages": 1, "line_payload_bps": 100e6, **more}
    return WorkloadMeasurement("w", 0, len(bins) * BIN_NS, tuple(bins), **values)  # type: ignore[arg-type]


def dip(at_ms: int, for_ms: int, level: float = 0.0, total_ms: int = 6000) -> WorkloadMeasurement:
    """Steady arrivals with `level` of them during a dip; all times multiples of 10 ms."""
    bins = [PER_BIN] * (total_ms // 10)
    for index in range(at_ms // 10, (at_ms + for_ms) // 10):
        bins[index] = round(PER_BIN * level)
    return workload(bins)


def test_goodput_is_bits_over_time() -> None:
    w = dip(1000, 500, total_ms=2000)
    assert metrics.goodput_bps(w) == pytest.approx(60e6)
    assert metrics.goodput_bps(w, 0, NS) == pytest.approx(80e6)
    assert metrics.goodput_bps(w, 1000 * MS, 1500 * MS) == 0
    assert metrics.goodput_bps(w, 1495 * MS, 1505 * MS) == pytest.approx(40e6)


def test_bytes_are_the_sum_of_the_bins() -> None:
    assert workload([1, 2, 3]).bytes_placed == 6


def test_statistics_use_whole_intervals_of_50_ms() -> None:
    w = dip(1000, 50, total_ms=2000)
    assert metrics.goodput_statistic_bps(w, "min", None, None) == 0
    assert metrics.goodput_statistic_bps(w, "max", None, None) == pytest.approx(80e6)
    assert metrics.goodput_statistic_bps(w, "p50", None, None) == pytest.approx(80e6)
    with pytest.raises(NotMeasuredError):
        metrics.goodput_statistic_bps(w, "min", 0, 49 * MS)


def test_percentiles_are_nearest_rank() -> None:
    values = [float(v) for v in range(1, 101)]
    assert metrics.statistic_of(values, "p99", "x") == 99
    assert metrics.statistic_of(values, "p50", "x") == 50
    assert metrics.statistic_of(values, "p100", "x") == 100
    assert metrics.statistic_of([7.0], "p1", "x") == 7
    assert metrics.statistic_of(values, "mean", "x") == 50.5


def test_efficiency_is_a_share_of_the_line_and_needs_one() -> None:
    assert metrics.efficiency(dip(0, 0)) == pytest.approx(0.8)
    with pytest.raises(NotMeasuredError):
        metrics.efficiency(workload([1], line_payload_bps=None))


def test_efficiency_of_a_range_counts_the_ports_that_were_up_in_it() -> None:
    steps = ((0, 100e6), (1000 * MS, 80e6), (2000 * MS, 100e6))
    w = workload([PER_BIN] * 300, line_steps=steps, line_payload_bps=280e6 / 3)
    assert metrics.efficiency(w, 0, 1000 * MS) == pytest.approx(0.8)
    assert metrics.efficiency(w, 1000 * MS, 2000 * MS) == pytest.approx(1.0)
    assert metrics.efficiency(w, 500 * MS, 1500 * MS) == pytest.approx(80 / 90)
    assert metrics.efficiency(w) == pytest.approx(80 * 3 / 280)


def test_the_mean_of_steps_is_over_time_and_zero_before_the_first() -> None:
    assert metrics.mean_of_steps(((10, 4.0), (20, 8.0)), 0, 40) == pytest.approx((10 * 4 + 20 * 8) / 40)
    assert metrics.mean_of_steps(((10, 4.0), (20, 8.0)), 25, 30) == 8
    assert metrics.mean_of_steps((), 0, 10) == 0


def test_plane_shares_of_a_range() -> None:
    m = Measurements(4 * BIN_NS, {}, ((10, 10, 0, 0), (10, 10, 20, 20)), base_rtt_computed_ns=1)
    assert metrics.plane_share(m, 0) == pytest.approx(0.25)
    assert metrics.plane_share(m, 0, 0, 2 * BIN_NS) == 0.5
    assert metrics.plane_share(m, 1, 2 * BIN_NS, 4 * BIN_NS) == 1.0


def test_a_series_that_was_not_measured_is_no_zero() -> None:
    assert metrics.count((1, 2, 3), "lost") == 6
    assert metrics.count((1, 2, 3), "lost", BIN_NS, 2 * BIN_NS) == 2
    with pytest.raises(NotMeasuredError, match="trims"):
        metrics.count(None, "trims")


def test_jain_is_one_for_equals_and_one_nth_for_a_monopoly() -> None:
    assert metrics.jain([5.0, 5.0, 5.0]) == pytest.approx(1)
    assert metrics.jain([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    with pytest.raises(NotMeasuredError):
        metrics.jain([0.0, 0.0])


RTT = 20 * MS  # window 80 ms, horizon 400 ms


def test_no_dip_recovers_at_once() -> None:
    assert metrics.recovery_time_ns(dip(0, 0), 2 * NS, RTT) == 0


def test_a_shallow_dip_is_no_outage() -> None:
    assert metrics.recovery_time_ns(dip(2000, 500, level=0.9), 2 * NS, RTT) == 0


def test_after_an_outage_a_tenth_of_a_window_may_still_be_missing() -> None:
    """Outage of 200 ms: windows that start 8 ms (a tenth of 80) before its end hold 0.9 of the reference."""
    assert metrics.recovery_time_ns(dip(2000, 200), 2 * NS, RTT) == pytest.approx(192 * MS)


def test_an_outage_that_begins_inside_the_horizon_counts_and_one_behind_it_does_not() -> None:
    near, far = dip(2300, 100), dip(2500, 100)
    assert metrics.recovery_time_ns(near, 2 * NS, RTT) == pytest.approx(392 * MS)
    assert metrics.recovery_time_ns(far, 2 * NS, RTT) == 0


def test_two_outages_within_a_horizon_end_with_the_second() -> None:
    bins = list(dip(2000, 100).arrivals)
    bins[230:240] = [0] * 10
    assert metrics.recovery_time_ns(workload(bins), 2 * NS, RTT) == pytest.approx(392 * MS)


def test_a_flow_that_stays_low_never_recovers() -> None:
    assert metrics.recovery_time_ns(dip(2000, 4000, level=0.8), 2 * NS, RTT) == math.inf


def test_recovery_needs_the_whole_horizon_inside_the_data() -> None:
    w = dip(5000, 700, total_ms=6000)
    assert metrics.recovery_time_ns(w, 5 * NS, RTT) == math.inf


def test_recovery_without_a_reference_is_not_measured() -> None:
    with pytest.raises(NotMeasuredError):
        metrics.recovery_time_ns(dip(0, 3000), 2 * NS, RTT)


@given(start=st.integers(0, 30), length=st.integers(0, 60), level=st.floats(0, 0.89))
def test_recovery_agrees_with_a_direct_search_on_a_fine_grid(start: int, length: int, level: float) -> None:
    w = dip(2000 + 10 * start, 10 * length, level=level, total_ms=4000)
    found = metrics.recovery_time_ns(w, 2 * NS, RTT)
    curve = metrics.Curve(w.arrivals)
    grid = range(2 * NS, 4 * NS - 80 * MS + 1, MS)
    needed = 0.9 * PER_BIN / BIN_NS * 80 * MS * (1 - 1e-9)
    low = [curve.between(s, s + 80 * MS) < needed for s in grid]
    span = 320
    direct = next((d for d in range(len(low) - span) if not any(low[d : d + span + 1])), None)
    if direct is None:
        assert found > 2 * NS - 480 * MS
    else:
        assert abs(found - direct * MS) <= 1.01 * MS
