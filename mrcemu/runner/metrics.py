"""What a finished run measured, and the figures that follow from it.

Owns the record a run hands over (`Measurements`) and the definition of every figure of `expect` and of the results:
goodput, efficiency, plane shares, recovery time, Jain's index, percentiles. Refuses files and clocks. Times are integer
nanoseconds since the start of the run; None means "not measured", which is never the same as zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

NS = 10**9
BIN_NS = 10_000_000  # resolution of everything counted over time
INTERVAL_BINS = 5  # bins of a published 50 ms interval
RECOVERY_WINDOW_RTTS = 4
RECOVERY_HORIZON_RTTS = 20
RECOVERY_SHARE = 0.9
RECOVERY_REFERENCE_NS = NS

Bins = tuple[int, ...]


class NotMeasuredError(Exception):
    """A figure the run has no data for; the message says which. Never shown as a number, never a pass."""


@dataclass(frozen=True, slots=True)
class WorkloadMeasurement:
    """One workload. Goodput counts payload bytes newly placed at the receiver, by arrival."""

    id: str
    start_ns: int  # first posting
    end_ns: int  # when goodput stops counting: the last arrival, or the end of its duration
    arrivals: Bins  # bytes newly placed in each bin of BIN_NS, from the start of the run
    messages: int  # completed
    line_payload_bps: float | None  # sum over NIC ports up of rate x mtu / (mtu + 142; ECMP 102), mean over time
    latency_ns: tuple[int, ...] = ()  # of each completed message, posting to completion
    step_ns: tuple[int, ...] = ()  # of each step of a collective
    corrupted_bytes: int | None = None
    retransmitted_packets: int | None = None
    qp_errors: int = 0
    line_steps: tuple[tuple[int, float], ...] = ()  # (from ns, line payload bit/s) as ports came and went, in order

    @property
    def bytes_placed(self) -> int:
        return sum(self.arrivals)


@dataclass(frozen=True, slots=True)
class EvRow:
    """The path table of a QP at the end of the run, one EV."""

    ev: int
    plane: int
    hops: tuple[str, ...]  # node names from source to destination
    srv6: str
    state: str
    sent: int
    marked: int
    trimmed: int
    lost: int
    rtt_ns: int | None
    retired: int  # times taken out of service


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault and what followed; all times ns since the start of the run, None if it did not happen."""

    what: str
    asked_at_ns: int
    done_at_ns: int | None = None
    first_lost_ns: int | None = None  # when the first packet lost to it was sent
    detected_at_ns: int | None = None
    detected_by: str | None = None  # the signal: "carrier", "ev loss", "timeout", "port status" ...
    last_retransmit_ns: int | None = None
    back_at_ns: int | None = None  # EV or port in service again


@dataclass(frozen=True, slots=True)
class FidelityRow:
    """One invariant F1 .. F8: what was measured and "pass", "warn", "fail" or "not_measured"."""

    value: str | None
    verdict: str


NOT_MEASURED_ROW = FidelityRow(None, "not_measured")
FIDELITY = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8")


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything a run measured. Series share bins of BIN_NS that start with the run."""

    duration_ns: int
    workloads: Mapping[str, WorkloadMeasurement]
    plane_bits: tuple[Bins, ...]  # per plane: bits of frames that arrived at NIC ports
    base_rtt_computed_ns: int  # of the longest path in use, from the topology
    base_rtt_measured_ns: int | None = None
    lost: Bins | None = None
    trimmed: Bins | None = None
    marked: Bins | None = None
    retransmitted: Bins | None = None
    timeouts: int | None = None
    evs_retired: int | None = None
    evs: Mapping[str, Sequence[EvRow]] = field(default_factory=dict)  # by QP name, e.g. "w/h0-h12/0"
    faults: Sequence[FaultRow] = ()
    ports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # counters by port name
    fidelity: Mapping[str, FidelityRow] = field(default_factory=dict)  # those measured; the rest are not_measured
    interrupted: bool = False

    @property
    def base_rtt_ns(self) -> int:
        """The measured base RTT, or the computed one where none was measured."""
        return self.base_rtt_computed_ns if self.base_rtt_measured_ns is None else self.base_rtt_measured_ns


class Curve:
    """Cumulative amount over time from bins, linear inside a bin; so any window has a value, not only whole bins."""

    __slots__ = ("_sums",)

    def __init__(self, bins: Sequence[int]) -> None:
        self._sums = (0, *accumulate(bins))

    def at(self, time_ns: float) -> float:
        """Amount up to a time; flat before the first and after the last bin."""
        position = min(max(time_ns / BIN_NS, 0.0), len(self._sums) - 1.0)
        index = min(int(position), len(self._sums) - 2)
        if index < 0:
            return 0.0
        return self._sums[index] + (position - index) * (self._sums[index + 1] - self._sums[index])

    def between(self, from_ns: float, to_ns: float) -> float:
        return self.at(to_ns) - self.at(from_ns)


def goodput_bps(w: WorkloadMeasurement, from_ns: int | None = None, to_ns: int | None = None) -> float:
    """Mean goodput in bits per second over a range, by default from the first posting to the end of the workload."""
    start, end = w.start_ns if from_ns is None else from_ns, w.end_ns if to_ns is None else to_ns
    if end <= start:
        raise NotMeasuredError(f"goodput of {w.id}: it ran for no time")
    return Curve(w.arrivals).between(start, end) * 8 * NS / (end - start)


def goodput_statistic_bps(w: WorkloadMeasurement, statistic: str, from_ns: int | None, to_ns: int | None) -> float:
    """`min`, `max`, `p50` or `p99` of goodput over whole intervals of 50 ms, counted from the start of the range.

    The last interval counts only if it lies inside the range. p99: 99 % of the intervals stay at or below it.
    """
    start, end = w.start_ns if from_ns is None else from_ns, w.end_ns if to_ns is None else to_ns
    curve, step = Curve(w.arrivals), INTERVAL_BINS * BIN_NS
    values = [curve.between(t, t + step) * 8 * NS / step for t in range(start, end - step + 1, step)]
    return statistic_of(values, statistic, f"goodput of {w.id}")


def statistic_of(values: Sequence[float], statistic: str, what: str) -> float:
    """`min`, `max`, `mean` or a percentile `p0` .. `p100` (nearest rank) of some values."""
    if not values:
        raise NotMeasuredError(f"{what}: no values")
    ordered = sorted(values)
    if statistic in ("min", "max"):
        return ordered[0] if statistic == "min" else ordered[-1]
    if statistic == "mean":
        return sum(ordered) / len(ordered)
    rank = math.ceil(float(statistic.removeprefix("p")) / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


def mean_of_steps(steps: Sequence[tuple[int, float]], from_ns: int, to_ns: int) -> float:
    """Time average over a range of a value that changes in steps of (from ns, value); 0 before the first."""
    ends = ([at for at, _ in steps[1:]] + [to_ns])[: len(steps)]
    area = sum(value * max(0, min(end, to_ns) - max(at, from_ns)) for (at, value), end in zip(steps, ends, strict=True))
    return area / (to_ns - from_ns)


def efficiency(w: WorkloadMeasurement, from_ns: int | None = None, to_ns: int | None = None) -> float:
    """Goodput as a share of what the NIC ports that were up in the range could carry as payload."""
    line_bps = w.line_payload_bps
    if w.line_steps and from_ns is not None and to_ns is not None and to_ns > from_ns:
        line_bps = mean_of_steps(w.line_steps, from_ns, to_ns)
    if not line_bps:
        raise NotMeasuredError(f"line payload rate of {w.id}")
    return goodput_bps(w, from_ns, to_ns) / line_bps


def plane_share(m: Measurements, plane: int, from_ns: int | None = None, to_ns: int | None = None) -> float:
    """Share of a plane in all bits that arrived, over the run or a range."""
    start, end = from_ns or 0, m.duration_ns if to_ns is None else to_ns
    amounts = [Curve(bins).between(start, end) for bins in m.plane_bits]
    if not sum(amounts):
        raise NotMeasuredError(f"share of plane {plane}: nothing arrived")
    return amounts[plane] / sum(amounts)


def count(bins: Bins | None, what: str, from_ns: int | None = None, to_ns: int | None = None) -> float:
    """Sum of a counted series over the run, or over a range (whole bins exactly, parts of a bin in proportion)."""
    if bins is None:
        raise NotMeasuredError(what)
    if from_ns is None or to_ns is None:
        return float(sum(bins))
    return Curve(bins).between(from_ns, to_ns)


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    if not squares:
        raise NotMeasuredError("jain: nothing arrived")
    return sum(values) ** 2 / (len(values) * squares)


def recovery_time_ns(w: WorkloadMeasurement, at_ns: int, base_rtt_ns: int) -> float:
    """How long after `at_ns` goodput took to come back for good; infinity if it did not before the data end.

    The smallest d >= 0 after which goodput over every sliding window of 4 base RTT within the next 20 is at least 0.9
    times the mean of the second before `at_ns`. Windows slide continuously over the arrival curve, which is linear
    inside a bin of 10 ms, so the answer is exact for that curve.
    """
    curve, window = Curve(w.arrivals), RECOVERY_WINDOW_RTTS * base_rtt_ns
    reference = curve.between(at_ns - RECOVERY_REFERENCE_NS, at_ns) / RECOVERY_REFERENCE_NS
    if reference <= 0:
        raise NotMeasuredError(f"recovery time of {w.id}: nothing arrived in the second before")
    needed = RECOVERY_SHARE * reference * window
    span = (RECOVERY_HORIZON_RTTS - RECOVERY_WINDOW_RTTS) * base_rtt_ns
    last_start = w.end_ns - window
    good_since: float | None = float(at_ns)
    for low_from, low_to in _low_stretches(curve, at_ns, last_start, window, needed):
        if good_since is not None and low_from >= good_since + span:
            break
        good_since = low_to if low_to < last_start else None
    if good_since is None or good_since + span > last_start:
        return math.inf
    return good_since - at_ns


def _low_stretches(curve: Curve, from_ns: int, to_ns: int, window_ns: int, needed: float) -> list[tuple[float, float]]:
    """Stretches of window starts for which less than `needed` arrived in the window, in order."""
    knots = {from_ns, to_ns}
    for offset in (0, window_ns):
        first = (from_ns + offset) // BIN_NS
        knots.update(k * BIN_NS - offset for k in range(first, (to_ns + offset) // BIN_NS + 1))
    starts = sorted(k for k in knots if from_ns <= k <= to_ns)
    tolerance = needed * 1e-9  # sums of floats: a window exactly at the bound is not below it
    surplus = [curve.between(s, s + window_ns) - needed + tolerance for s in starts]
    stretches: list[tuple[float, float]] = []
    for (s0, g0), (s1, g1) in pairwise(zip(starts, surplus, strict=True)):
        if g0 >= 0 and g1 >= 0:
            continue
        low_from = s0 if g0 < 0 else s0 + (s1 - s0) * g0 / (g0 - g1)
        low_to = s1 if g1 < 0 else s0 + (s1 - s0) * g0 / (g0 - g1)
        if stretches and low_from <= stretches[-1][1]:
            low_from = stretches.pop()[0]
        stretches.append((low_from, low_to))
    return stretches
