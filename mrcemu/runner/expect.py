"""Expectations of a scenario: parsed when it is loaded, judged on what a run measured.

Owns evaluation and the verdict of one expectation; what was not measured never passes. Refuses syntax (grammar.py) and
the meaning of the functions (functions.py, metrics.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

from mrcemu.runner.functions import RATE, SIZE, TIME
from mrcemu.runner.grammar import ZERO, Call, ExpectError, Node, Number, Scope, is_measured, parse_comparison
from mrcemu.runner.metrics import Measurements, NotMeasuredError

NOT_MEASURED = "not_measured"
NEVER = "never"  # a time that did not come before the data ended
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_MIRROR = {">=": "<=", "<=": ">=", "==": "==", ">": "<", "<": ">"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A judged expectation. `measured` and `bound` are in `unit`; words where there is no number."""

    text: str
    measured: float | str
    bound: float | str
    passed: bool
    unit: str  # "ns", "bit/s", "bytes" or "1"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A parsed comparison: the side that is measured, how it must compare, and the bound."""

    text: str
    measured: Node
    comparison: str
    bound: Node

    def judge(self, m: Measurements) -> Outcome:
        """Evaluate on a finished run. What was not measured fails, and says so."""
        measured, bound = _value(self.measured, m), _value(self.bound, m)
        passed = measured is not None and bound is not None and _COMPARE[self.comparison](measured, bound)
        dimension = self.measured.dimension if self.measured.dimension != ZERO else self.bound.dimension
        unit = {TIME: "ns", RATE: "bit/s", SIZE: "bytes"}.get(dimension, "1")
        return Outcome(self.text, _shown(measured), _shown(bound), passed, unit)


def _value(node: Node, m: Measurements) -> float | None:
    try:
        value = _evaluate(node, m)
    except (NotMeasuredError, ZeroDivisionError):
        return None
    return None if math.isnan(value) else value


def _shown(value: float | None) -> float | str:
    if value is None:
        return NOT_MEASURED
    return value if math.isfinite(value) else NEVER


def _evaluate(node: Node, m: Measurements) -> float:
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Call):
        return node.function.evaluate(m, node.arguments)
    left, right = _evaluate(node.left, m), _evaluate(node.right, m)
    if node.sign == "+":
        return left + right
    if node.sign == "-":
        return left - right
    return left * right if node.sign == "*" else left / right


def parse_expectation(text: str, scope: Scope) -> Expectation:
    """One comparison as written in a scenario; ExpectError says what is allowed instead."""
    left, comparison, right = parse_comparison(text, scope)
    if is_measured(left):
        return Expectation(text, left, comparison, right)
    if is_measured(right):
        return Expectation(text, right, _MIRROR[comparison], left)
    raise ExpectError("a comparison with something that is measured, e.g. goodput(w) >= 10mbit")
