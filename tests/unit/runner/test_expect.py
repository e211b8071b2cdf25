"""The language of `expect`: what it computes, what it refuses at load, and that nothing unmeasured passes."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.runner.expect import Outcome, parse_expectation
from mrcemu.runner.functions import FUNCTIONS, functions_table
from mrcemu.runner.grammar import ExpectError, Scope
from mrcemu.runner.metrics import NS, Measurements, WorkloadMeasurement

SECONDS = 12
SCOPE = Scope({"w": (0, SECONDS * NS), "v": (0, SECONDS * NS)}, planes=2, duration_ns=SECONDS * NS)


def workload(name: str, per_bin: int, **more: object) -> WorkloadMeasurement:
    values: dict[str, object] = {"latency_ns": (1_000_000, 2_000_000, 30_000_000), "corrupted_bytes": 0, **more}
    arrivals = tuple([per_bin] * (SECONDS * 100))
    return WorkloadMeasurement(name, 0, SECONDS * NS, arrivals, 3, 100e6, **values)  # type: ignore[arg-type]


def measured(**more: object) -> Measurements:
    values: dict[str, object] = {
        "workloads": {"w": workload("w", 100_000), "v": workload("v", 50_000)},
        "plane_bits": ((6,) * SECONDS * 100, (2,) * SECONDS * 100),
        "base_rtt_computed_ns": 20_000_000,
        "lost": (1,) * SECONDS * 100,
        "retransmitted": (2,) * SECONDS * 100,
        "timeouts": 4,
        **more,
    }
    return Measurements(SECONDS * NS, **values)  # type: ignore[arg-type]


def judge(text: str, **more: object) -> Outcome:
    return parse_expectation(text, SCOPE).judge(measured(**more))


def refused(text: str) -> str:
    with pytest.raises(ExpectError) as caught:
        parse_expectation(text, SCOPE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("goodput(w) >= 0", 80e6, "bit/s"),
        ("goodput(w, 4s..8s) >= 0.97 * goodput(w, 1s..3s)", 80e6, "bit/s"),
        ("goodput(w, 4s..8s, min) >= 1mbit", 80e6, "bit/s"),
        ("min(goodput(w, 4s..8s)) >= 1mbit", 80e6, "bit/s"),
        ("goodput(w) / goodput(v) == 2", 2.0, "1"),
        ("goodput(w) + goodput(v) <= 120mbit", 120e6, "bit/s"),
        ("efficiency(v) >= 40%", 0.4, "1"),
        ("plane_share(0) == 3 * plane_share(1)", 0.75, "1"),
        ("plane_share(1, 1s..2s) == 25%", 0.25, "1"),
        ("recovery_time(w, 3s) <= 20 * base_rtt", 0.0, "ns"),
        ("jain(w, v) == 0.9", 0.9, "1"),
        ("jain() <= 0.9", 0.9, "1"),
        ("latency(w, p99) <= 30ms", 30e6, "ns"),
        ("latency(w, min) < latency(w, p50)", 1e6, "ns"),
        ("corrupted_bytes == 0", 0.0, "bytes"),
        ("corrupted_bytes(w) <= 10B", 0.0, "bytes"),
        ("qp_errors == 0", 0.0, "1"),
        ("lost_packets(1s..2s) == 100", 100.0, "1"),
        ("retransmitted == 2 * lost_packets", 2400.0, "1"),
        ("timeouts < 5", 4.0, "1"),
        ("base_rtt == 20ms", 20e6, "ns"),
        ("-goodput(w) < 0", -80e6, "bit/s"),
        ("(goodput(w) - goodput(v)) * 2 == 80mbit", 80e6, "bit/s"),
    ],
)
def test_true_statements_pass_with_the_measured_value_and_its_unit(text: str, value: float, unit: str) -> None:
    outcome = judge(text)
    assert outcome.measured == pytest.approx(value)
    assert (outcome.unit, outcome.text) == (unit, text)
    assert outcome.passed


@pytest.mark.parametrize(
    "text", ["goodput(w) >= 81mbit", "timeouts == 0", "lost_packets < 1200", "base_rtt > 20ms", "efficiency(w) <= 79%"]
)
def test_false_statements_fail(text: str) -> None:
    assert not judge(text).passed


def test_a_bound_on_the_left_is_mirrored() -> None:
    outcome = judge("5 > timeouts")
    assert (outcome.measured, outcome.bound, outcome.passed) == (4.0, 5.0, True)
    assert not judge("3 > timeouts").passed


def test_both_sides_are_reported() -> None:
    outcome = judge("goodput(v) >= 0.97 * goodput(w)")
    assert outcome.measured == pytest.approx(40e6)
    assert outcome.bound == pytest.approx(77.6e6)
    assert not outcome.passed


@pytest.mark.parametrize(
    "text",
    ["trims == 0", "marks >= 0", "evs_retired == 0", "step_time(w, p99) <= 1s", "0 <= trims", "trims < 1 * marks"],
)
def test_what_was_not_measured_never_passes(text: str) -> None:
    outcome = judge(text)
    assert (outcome.measured, outcome.passed) == ("not_measured", False)


def test_corrupted_bytes_not_checked_is_no_zero() -> None:
    unchecked = {"w": workload("w", 1, corrupted_bytes=None)}
    assert not judge("corrupted_bytes == 0", workloads=unchecked).passed


def test_a_flow_that_never_recovers_is_said_so_and_fails() -> None:
    bins = (100_000,) * 300 + (0,) * 900
    dead = {"w": WorkloadMeasurement("w", 0, SECONDS * NS, bins, 1, 1.0)}
    outcome = judge("recovery_time(w, 3s) <= 20 * base_rtt", workloads=dead)
    assert (outcome.measured, outcome.passed) == ("never", False)


def test_dividing_by_nothing_is_not_measured() -> None:
    assert judge("lost_packets / retransmitted <= 1", retransmitted=(0,)).measured == "not_measured"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("goodput(x) >= 1mbit", "workloads: "),
        ("goodputt(w) >= 1mbit", "nearest: goodput"),
        ("latenzy(w, p99) <= 1ms", "nearest: latency"),
        ("goodput(w) >= 100", "a unit of rate, e.g. 100mbit"),
        ("recovery_time(w, 3s) <= 20", "a unit of time, e.g. 20ms"),
        ("recovery_time(w, 3) <= 20ms", "times with a unit"),
        ("corrupted_bytes <= 20", "a unit of size"),
        ("base_rtt <= 20mbit", "a unit of time"),
        ("goodput(w) * goodput(w) >= 1mbit", "a factor is a plain number"),
        ("base_rtt / goodput(w) >= 1", "a quotient of like kinds"),
        ("goodput(w, 4..8) >= 1mbit", "times with a unit"),
        ("goodput(w, 8s..4s) >= 1mbit", "a range from..to inside the run, 0s..12s"),
        ("goodput(w, 4s..13s) >= 1mbit", "a range from..to inside the run, 0s..12s"),
        ("goodput(w, 4s..) >= 1mbit", "times with a unit"),
        ("goodput() >= 1mbit", "all arguments of goodput(w"),
        ("goodput >= 1mbit", "all arguments of goodput(w"),
        ("goodput(w, v) >= 1mbit", "goodput(w[, from..to]"),
        ("goodput(w, p98) >= 1mbit", "min|max|p50|p99"),
        ("latency(w) <= 1ms", "all arguments of latency(w"),
        ("recovery_time(w) <= 1ms", "all arguments of recovery_time(w, t)"),
        ("recovery_time(w, 500ms) <= 1s", "a time from 1s"),
        ("recovery_time(w, 12s) <= 1s", "to below 12s"),
        ("plane_share(2) >= 10%", "a plane from 0 to 1"),
        ("plane_share(0.5) >= 10%", "a plane from 0 to 1"),
        ("plane_share >= 10%", "all arguments of plane_share(p"),
        ("timeouts(w) == 0", "timeouts"),
        ("min(efficiency(w)) >= 1", "min(goodput("),
        ("goodput(w)", "a comparison: one of >= <= == > <"),
        ("goodput(w) >= ", "a number, or one of the functions"),
        ("goodput(w) >= 1mbit 2", "nothing behind it"),
        ("goodput(w) >= 1mbit >= 0", "nothing behind it"),
        ("(goodput(w) >= 1mbit", "a closing )"),
        ("goodput(w) >= 1mb", "one of the units"),
        ("goodput(w) != 0", "not '!'"),
        ("1 < 2", "something that is measured"),
        ("__import__('os') == 0", "numbers, names and operators"),
        ("", "a number, or one of the functions"),
        ("timeouts == " + "0 + " * 200 + "0", "at most 500 characters"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    assert allowed in refused(text)


def test_every_function_of_the_table_says_its_unit_bin_and_meaning() -> None:
    assert len(functions_table()) == len(FUNCTIONS) == 16
    assert all(all(row.values()) for row in functions_table())


@given(st.text(alphabet="w v0.9()*+-/<>=,smbit%goodputjain", max_size=40))
def test_random_text_is_refused_by_our_own_error_or_judged(text: str) -> None:
    try:
        expectation = parse_expectation(text, SCOPE)
    except ExpectError:
        return
    assert expectation.judge(measured()).text == text


OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NESTED = st.recursive(
    st.integers(1, 50).map(lambda n: (str(n), float(n))),
    lambda inner: st.tuples(inner, st.sampled_from(sorted(OPERATORS)), inner).map(
        lambda t: (f"({t[0][0]} {t[1]} {t[2][0]})", OPERATORS[t[1]](t[0][1], t[2][1]))
    ),
    max_leaves=12,
)


@given(NESTED)
def test_arithmetic_agrees_with_python(expression: tuple[str, float]) -> None:
    text, value = expression
    assert judge(f"timeouts == {text}").bound == pytest.approx(value)


@given(st.lists(st.tuples(st.sampled_from(["+", "-", "*"]), st.integers(1, 9)), min_size=1, max_size=10))
def test_precedence_and_left_association_agree_with_python(terms: list[tuple[str, int]]) -> None:
    text = "3" + "".join(f" {sign} {number}" for sign, number in terms)
    assert judge(f"timeouts == {text}").bound == pytest.approx(eval(text))
