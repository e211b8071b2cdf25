"""`result.json` holds exactly the promised keys, is strict JSON, and never turns "not measured" into a number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mrcemu.runner.expect import Outcome
from mrcemu.runner.metrics import BIN_NS, NS, EvRow, FaultRow, FidelityRow, Measurements, WorkloadMeasurement
from mrcemu.runner.results import RESULT_KEYS, build_result, exit_code_of, verdict_of

PASSED = Outcome("qp_errors == 0", 0.0, 0.0, True, "1")
FAILED = Outcome("recovery_time(w, 3s) <= 20ms", "never", 20e6, False, "ns")


def measured(**more: Any) -> Measurements:
    w = WorkloadMeasurement("w", 0, NS, (125_000,) * 100, 7, 200e6, latency_ns=(1, 2, 3), corrupted_bytes=0)
    values: dict[str, Any] = {"plane_bits": ((10,) * 100, (30,) * 100), "base_rtt_computed_ns": 21_700_000, **more}
    return Measurements(NS, {"w": w}, **values)


def result(m: Measurements, *outcomes: Outcome, **more: Any) -> dict[str, Any]:
    inputs = {"file": "a.yaml"}
    return build_result(
        m, outcomes, scenario="s", transport="mrc", seed=1, versions={"mrcemu": "1"}, inputs=inputs, **more
    )


def test_keys_are_exactly_the_promised_ones_and_the_whole_is_strict_json() -> None:
    rows = {"q": [EvRow(17, 1, ("h0", "p1-t0-0", "h3"), "::1", "GOOD", 9, 0, 0, 0, None, 0)]}
    m = measured(evs=rows, faults=[FaultRow("switch down p0-t1-0", 3)], ports={"h0:p0": {"tx_packets": 3}})
    data = json.loads(json.dumps(result(m, PASSED, FAILED), allow_nan=False))
    assert tuple(data) == RESULT_KEYS
    assert data["expectations"][1] == {
        "text": FAILED.text, "measured": "never", "bound": 20e6, "pass": False, "unit": "ns",
    }  # fmt: skip
    assert data["evs"]["q"][0]["hops"] == ["h0", "p1-t0-0", "h3"]
    assert data["faults"][0] == {
        "what": "switch down p0-t1-0", "asked_at_ns": 3, "done_at_ns": None, "first_lost_ns": None,
        "detected_at_ns": None, "detected_by": None, "last_retransmit_ns": None, "back_at_ns": None,
    }  # fmt: skip


def test_a_workload_has_its_totals() -> None:
    w = result(measured())["workloads"]["w"]
    assert w["bytes"] == 12_500_000
    assert w["goodput_bps"] == pytest.approx(100e6)
    assert w["efficiency"] == pytest.approx(0.5)
    assert (w["latency_ns"]["p50"], w["messages"], w["qp_errors"]) == (2, 7, 0)
    assert w["retransmitted_packets"] == "not_measured"


def test_series_are_50_ms_intervals_of_equal_length() -> None:
    series = result(measured(lost=(1,) * 100, marked=(2,) * 7))["series"]
    assert series["interval_s"] == 0.05
    assert series["goodput_bps"]["w"] == pytest.approx([100e6] * 20)
    assert series["plane_bits"] == [[50] * 20, [150] * 20]
    assert series["lost"] == [5] * 20
    assert series["marked"] == [10, 4] + [0] * 18
    assert series["trimmed"] == "not_measured"


def test_a_run_shorter_than_a_whole_interval_keeps_its_last_bins() -> None:
    m = Measurements(7 * BIN_NS, {}, ((1,) * 7,), base_rtt_computed_ns=1)
    assert result(m)["series"]["plane_bits"] == [[5, 2]]


def test_invariants_that_were_not_measured_are_said_so() -> None:
    fidelity = result(measured(fidelity={"F4": FidelityRow("p99 1 ms", "pass")}))["fidelity"]
    assert list(fidelity) == [f"F{n}" for n in range(1, 9)]
    assert fidelity["F4"] == {"value": "p99 1 ms", "verdict": "pass"}
    assert all(fidelity[f"F{n}"] == {"value": None, "verdict": "not_measured"} for n in (1, 2, 3, 5, 6, 7, 8))


def test_base_rtt_is_the_measured_one_if_there_is_one() -> None:
    assert result(measured())["base_rtt_ns"] == 21_700_000
    both = result(measured(base_rtt_measured_ns=22_000_000))
    assert (both["base_rtt_ns"], both["inputs"]["base_rtt_computed_ns"]) == (22_000_000, 21_700_000)


@pytest.mark.parametrize(
    ("more", "outcomes", "verdict", "code"),
    [
        ({}, [PASSED], "pass", 0),
        ({}, [], "pass", 0),
        ({}, [PASSED, FAILED], "fail", 1),
        ({"fidelity": {"F2": FidelityRow("5 %", "warn")}}, [PASSED], "pass", 0),
        ({"fidelity": {"F2": FidelityRow("9 %", "fail")}}, [PASSED], "untrustworthy", 4),
        ({"fidelity": {"F2": FidelityRow("9 %", "fail")}}, [FAILED], "untrustworthy", 4),
        ({"fidelity": {"F2": FidelityRow("9 %", "fail")}, "interrupted": True}, [PASSED], "partial", 130),
    ],
)
def test_verdict_and_exit_code(more: dict[str, Any], outcomes: list[Outcome], verdict: str, code: int) -> None:
    m = measured(**more)
    assert verdict_of(m, outcomes) == verdict == result(m, *outcomes)["verdict"]
    assert exit_code_of(verdict) == code


def test_unfaithful_may_be_allowed_but_expectations_still_count() -> None:
    m = measured(fidelity={"F2": FidelityRow("9 %", "fail")})
    assert verdict_of(m, [PASSED], allow_unfaithful=True) == "pass"
    assert verdict_of(m, [FAILED], allow_unfaithful=True) == "fail"
