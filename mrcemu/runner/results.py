"""`result.json`: what a run hands to people, scripts and the report, as one plain dict.

Owns the keys of the results folder's main file, the verdict of a run and its exit code. Refuses files: callers write.
Whatever was not measured is the word "not_measured", never a zero and never a pass. Times are ns since the run's start.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mrcemu.errors import ExpectationFailedError, UntrustworthyRunError
from mrcemu.runner import metrics
from mrcemu.runner.expect import NOT_MEASURED, Outcome
from mrcemu.runner.metrics import (
    BIN_NS,
    FIDELITY,
    INTERVAL_BINS,
    NOT_MEASURED_ROW,
    NS,
    Bins,
    Measurements,
    NotMeasuredError,
    WorkloadMeasurement,
)

RESULT_KEYS = (
    "scenario",
    "transport",
    "seed",
    "verdict",
    "expectations",
    "workloads",
    "series",
    "evs",
    "faults",
    "ports",
    "fidelity",
    "base_rtt_ns",
    "versions",
    "inputs",
)
VERDICTS = ("pass", "fail", "untrustworthy", "partial")
INTERRUPTED_EXIT_CODE = 130
LATENCY_STATISTICS = ("min", "p50", "p90", "p99", "max")


def verdict_of(m: Measurements, outcomes: Sequence[Outcome], *, allow_unfaithful: bool = False) -> str:
    """One of VERDICTS. An interrupted run is partial whatever it showed; a broken invariant outranks expectations."""
    if m.interrupted:
        return "partial"
    if not allow_unfaithful and any(row.verdict == "fail" for row in m.fidelity.values()):
        return "untrustworthy"
    return "pass" if all(outcome.passed for outcome in outcomes) else "fail"


def exit_code_of(verdict: str) -> int:
    """The command line's exit code of a verdict."""
    codes = {
        "pass": 0,
        "fail": ExpectationFailedError.exit_code,
        "untrustworthy": UntrustworthyRunError.exit_code,
        "partial": INTERRUPTED_EXIT_CODE,
    }
    return codes[verdict]


def build_result(
    m: Measurements,
    outcomes: Sequence[Outcome],
    *,
    scenario: str,
    transport: str,
    seed: int,
    versions: Mapping[str, str],
    inputs: Mapping[str, Any],
    allow_unfaithful: bool = False,
) -> dict[str, Any]:
    """The dict of `result.json`, with exactly RESULT_KEYS, ready for `json.dumps(..., allow_nan=False)`.

    `inputs` is whatever reproduces the run (scenario as read, topology, command line); `versions` names what ran.
    """
    return {
        "scenario": scenario,
        "transport": transport,
        "seed": seed,
        "verdict": verdict_of(m, outcomes, allow_unfaithful=allow_unfaithful),
        "expectations": [_expectation(outcome) for outcome in outcomes],
        "workloads": {name: _workload(w) for name, w in m.workloads.items()},
        "series": _series(m),
        "evs": {qp: [dataclasses.asdict(row) for row in rows] for qp, rows in m.evs.items()},
        "faults": [dataclasses.asdict(row) for row in m.faults],
        "ports": {name: dict(counters) for name, counters in m.ports.items()},
        "fidelity": {name: dataclasses.asdict(m.fidelity.get(name, NOT_MEASURED_ROW)) for name in FIDELITY},
        "base_rtt_ns": m.base_rtt_ns,
        "versions": dict(versions),
        "inputs": {**inputs, "base_rtt_computed_ns": m.base_rtt_computed_ns},
    }


def _expectation(outcome: Outcome) -> dict[str, Any]:
    return {
        "text": outcome.text,
        "measured": outcome.measured,
        "bound": outcome.bound,
        "pass": outcome.passed,
        "unit": outcome.unit,
    }


def _workload(w: WorkloadMeasurement) -> dict[str, Any]:
    return {
        "bytes": w.bytes_placed,
        "goodput_bps": _or_not_measured(partial(metrics.goodput_bps, w)),
        "line_payload_bps": NOT_MEASURED if w.line_payload_bps is None else w.line_payload_bps,
        "efficiency": _or_not_measured(partial(metrics.efficiency, w)),
        "messages": w.messages,
        "latency_ns": {
            name: _or_not_measured(partial(metrics.statistic_of, w.latency_ns, name, "latency"))
            for name in LATENCY_STATISTICS
        },
        "corrupted_bytes": NOT_MEASURED if w.corrupted_bytes is None else w.corrupted_bytes,
        "retransmitted_packets": NOT_MEASURED if w.retransmitted_packets is None else w.retransmitted_packets,
        "qp_errors": w.qp_errors,
    }


def _or_not_measured(compute: Callable[[], float]) -> float | str:
    try:
        return compute()
    except NotMeasuredError:
        return NOT_MEASURED


def _series(m: Measurements) -> dict[str, Any]:
    """Arrays of 50 ms intervals from the start of the run; the last one may be cut short by its end."""
    step_s = INTERVAL_BINS * BIN_NS / NS
    intervals = math.ceil(m.duration_ns / (INTERVAL_BINS * BIN_NS))
    return {
        "interval_s": step_s,
        "goodput_bps": {
            name: [value * 8 / step_s for value in _intervals(w.arrivals, intervals)] for name, w in m.workloads.items()
        },
        "plane_bits": [_intervals(bins, intervals) for bins in m.plane_bits],
        "lost": _counted(m.lost, intervals),
        "trimmed": _counted(m.trimmed, intervals),
        "marked": _counted(m.marked, intervals),
        "retransmitted": _counted(m.retransmitted, intervals),
    }


def _counted(bins: Bins | None, intervals: int) -> list[int] | str:
    return NOT_MEASURED if bins is None else _intervals(bins, intervals)


def _intervals(bins: Bins, intervals: int) -> list[int]:
    """Sums of five bins each, padded with zeros, so that every series of a run has the same length."""
    return [sum(bins[i * INTERVAL_BINS : (i + 1) * INTERVAL_BINS]) for i in range(intervals)]
