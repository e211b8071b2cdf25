"""The functions of `expect`: name, arguments, unit, bin and meaning in one table that parser, evaluator and docs share.

Owns `FUNCTIONS`. Refuses syntax (expect.py) and definitions (metrics.py computes the figures).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mrcemu.runner import metrics
from mrcemu.runner.metrics import Measurements, NotMeasuredError, WorkloadMeasurement

# Dimensions; values are in base units: ratio and count 1, time ns, rate bit/s, size bytes.
RATIO, TIME, RATE, SIZE = "ratio", "time", "rate", "size"

GOODPUT_STATISTICS = ("min", "max", "p50", "p99")
_PERCENTILE = re.compile(r"p(100|[0-9]{1,2})(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call after checking; what a function does not take stays empty."""

    workloads: tuple[str, ...] = ()
    from_ns: int | None = None
    to_ns: int | None = None
    statistic: str | None = None
    plane: int | None = None
    time_ns: int | None = None


Evaluate = Callable[[Measurements, Arguments], float]


@dataclass(frozen=True, slots=True)
class Function:
    """One row of the table. `usage`, `unit`, `bin` and `about` are for people, the rest for the parser."""

    name: str
    usage: str
    dimension: str
    unit: str
    bin: str
    about: str
    evaluate: Evaluate
    workloads: tuple[int, int] = (0, 0)  # fewest and most workload ids
    takes_range: bool = False
    statistics: str = ""  # "", "goodput" (optional, of 50 ms intervals) or "percentile" (required)
    takes_plane: bool = False
    takes_time: bool = False

    def accepts_statistic(self, word: str) -> bool:
        """Whether a word is a statistic this function knows."""
        if self.statistics == "goodput":
            return word in GOODPUT_STATISTICS
        return self.statistics == "percentile" and is_statistic(word)


def is_statistic(word: str) -> bool:
    """min, max, mean, or p0 .. p100."""
    return word in ("min", "max", "mean") or _PERCENTILE.fullmatch(word) is not None


def _workload(m: Measurements, a: Arguments) -> WorkloadMeasurement:
    return m.workloads[a.workloads[0]]


def _goodput(m: Measurements, a: Arguments) -> float:
    if a.statistic is not None:
        return metrics.goodput_statistic_bps(_workload(m, a), a.statistic, a.from_ns, a.to_ns)
    return metrics.goodput_bps(_workload(m, a), a.from_ns, a.to_ns)


def _efficiency(m: Measurements, a: Arguments) -> float:
    return metrics.efficiency(_workload(m, a), a.from_ns, a.to_ns)


def _plane_share(m: Measurements, a: Arguments) -> float:
    return metrics.plane_share(m, a.plane or 0, a.from_ns, a.to_ns)


def _recovery(m: Measurements, a: Arguments) -> float:
    return metrics.recovery_time_ns(_workload(m, a), a.time_ns or 0, m.base_rtt_ns)


def _jain(m: Measurements, a: Arguments) -> float:
    ids = a.workloads or tuple(m.workloads)
    return metrics.jain([metrics.goodput_bps(m.workloads[w], a.from_ns, a.to_ns) for w in ids])


def _latency(m: Measurements, a: Arguments) -> float:
    return metrics.statistic_of(_workload(m, a).latency_ns, a.statistic or "p50", "latency")


def _step_time(m: Measurements, a: Arguments) -> float:
    return metrics.statistic_of(_workload(m, a).step_ns, a.statistic or "p50", "step time")


def _series(name: str, what: str) -> Evaluate:
    def evaluate(m: Measurements, a: Arguments) -> float:
        return metrics.count(getattr(m, name), what, a.from_ns, a.to_ns)

    return evaluate


def _total(name: str, what: str) -> Evaluate:
    def evaluate(m: Measurements, _a: Arguments) -> float:
        value: int | None = getattr(m, name)
        if value is None:
            raise NotMeasuredError(what)
        return float(value)

    return evaluate


def _per_workload(name: str, what: str) -> Evaluate:
    def evaluate(m: Measurements, a: Arguments) -> float:
        values = [getattr(m.workloads[w], name) for w in a.workloads or m.workloads]
        if None in values:
            raise NotMeasuredError(what)
        return float(sum(values))

    return evaluate


_COUNTS = (
    ("lost_packets", "lost", "packets that never arrived and were not trimmed"),
    ("retransmitted", "retransmitted", "packets sent again"),
    ("trims", "trimmed", "packets a switch trimmed"),
    ("marks", "marked", "packets that arrived with a congestion mark"),
)
_TABLE = (
    Function(
        "goodput", "goodput(w[, from..to][, min|max|p50|p99])", RATE, "bit/s",
        "10 ms; statistics over whole intervals of 50 ms",
        "payload newly placed at the receiver, by arrival; a statistic may also be written min(goodput(w))",
        _goodput, workloads=(1, 1), takes_range=True, statistics="goodput",
    ),
    Function(
        "efficiency", "efficiency(w[, from..to])", RATIO, "1", "10 ms",
        "goodput over the payload rate of the NIC ports that are up", _efficiency, workloads=(1, 1), takes_range=True,
    ),
    Function(
        "plane_share", "plane_share(p[, from..to])", RATIO, "1", "10 ms",
        "share of plane p in all bits that arrived", _plane_share, takes_range=True, takes_plane=True,
    ),
    Function(
        "recovery_time", "recovery_time(w, t)", TIME, "ns", "10 ms, linear inside a bin",
        "smallest d >= 0 after which goodput over every window of 4 base RTT within the next 20 is >= 0.9 x the mean "
        "of the second before t", _recovery, workloads=(1, 1), takes_time=True,
    ),
    Function(
        "jain", "jain([w, ...][, from..to])", RATIO, "1", "10 ms",
        "Jain's fairness index of the workloads' goodputs, by default of all", _jain, workloads=(0, 64),
        takes_range=True,
    ),
    Function(
        "latency", "latency(w, min|max|mean|pN)", TIME, "ns", "none: every message",
        "posting to completion of a message (write_lat: half an exchange's round trip), nearest rank", _latency,
        workloads=(1, 1), statistics="percentile",
    ),
    Function(
        "step_time", "step_time(w, min|max|mean|pN)", TIME, "ns", "none: every step",
        "duration of a collective's step, nearest rank", _step_time, workloads=(1, 1), statistics="percentile",
    ),
    *(
        Function(
            name, f"{name}[(from..to)]", RATIO, "packets", "none; with a range 10 ms", about, _series(series, name),
            takes_range=True,
        )
        for name, series, about in _COUNTS
    ),
    Function(
        "timeouts", "timeouts", RATIO, "timeouts", "none", "retransmission timers that ran out",
        _total("timeouts", "timeouts"),
    ),
    Function(
        "evs_retired", "evs_retired", RATIO, "paths", "none", "times a path was taken out of service",
        _total("evs_retired", "evs_retired"),
    ),
    Function(
        "corrupted_bytes", "corrupted_bytes[(w)]", SIZE, "bytes", "none",
        "bytes of target memory that differ from what was sent", _per_workload("corrupted_bytes", "corrupted_bytes"),
        workloads=(0, 1),
    ),
    Function(
        "qp_errors", "qp_errors[(w)]", RATIO, "QPs", "none", "QPs that ended in the error state",
        _per_workload("qp_errors", "qp_errors"), workloads=(0, 1),
    ),
    Function(
        "base_rtt", "base_rtt", TIME, "ns", "none",
        "unloaded round trip of the longest path: measured, or else computed", lambda m, _a: float(m.base_rtt_ns),
    ),
)  # fmt: skip
FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}


def functions_table() -> list[dict[str, str]]:
    """The table for documentation: usage, unit, bin and meaning of every function."""
    return [{"function": f.usage, "unit": f.unit, "bin": f.bin, "meaning": f.about} for f in _TABLE]
