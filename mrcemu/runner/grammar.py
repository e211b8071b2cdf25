"""The grammar of `expect`: one comparison of two expressions, parsed and checked when a scenario is loaded.

    comparison := sum (">=" | "<=" | "==" | ">" | "<") sum
    sum        := product (("+" | "-") product)*
    product    := factor (("*" | "/") factor)*
    factor     := "-" factor | "(" sum ")" | number[unit] | name ["(" argument ("," argument)* ")"]
    argument   := workload | from".."to | statistic | plane | time

Owns syntax, names and dimensions: a time is never compared with a rate, nor with a bare number. Refuses Python's `eval`
and any name that is not in `functions.FUNCTIONS`. Evaluation is in expect.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mrcemu.runner.functions import FUNCTIONS, GOODPUT_STATISTICS, RATE, RATIO, SIZE, TIME, Arguments, Function
from mrcemu.runner.metrics import RECOVERY_REFERENCE_NS
from mrcemu.schema import nearest
from mrcemu.units import RATE_BPS, SIZE_BYTES, TIME_NS

MAX_TEXT = 500  # characters; longer than any expectation a person reads
COMPARISONS = (">=", "<=", "==", ">", "<")
ZERO = "zero"  # the dimension of a bare 0, which compares with everything

_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?)([A-Za-z]+|%)?|([A-Za-z_][A-Za-z0-9_]*)|(\.\.|>=|<=|==|[-+*/()<>,]))")
_UNITS = {
    **{unit: (scale, TIME) for unit, scale in TIME_NS.items()},
    **{unit: (scale, SIZE) for unit, scale in SIZE_BYTES.items()},
    **{unit: (scale, RATE) for unit, scale in RATE_BPS.items()},
    "%": (0.01, RATIO),
}
_UNIT_HINT = {
    TIME: "a unit of time, e.g. 20ms",
    RATE: "a unit of rate, e.g. 100mbit",
    SIZE: "a unit of size, e.g. 1MiB",
}


class ExpectError(ValueError):
    """An expectation that cannot be understood; the message says what is allowed at that place."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expectation may name: workloads with their (start, end) ns, planes, and how long the run is."""

    workloads: Mapping[str, tuple[int, int]]
    planes: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    dimension: str


@dataclass(frozen=True, slots=True)
class Call:
    function: Function
    arguments: Arguments

    @property
    def dimension(self) -> str:
        return self.function.dimension


@dataclass(frozen=True, slots=True)
class Binary:
    sign: str
    left: Node
    right: Node
    dimension: str


Node = Number | Call | Binary


def parse_comparison(text: str, scope: Scope) -> tuple[Node, str, Node]:
    """(left, comparison, right), names, ranges and dimensions checked; ExpectError says what is allowed instead."""
    if len(text) > MAX_TEXT:
        raise ExpectError(f"at most {MAX_TEXT} characters")
    parser = _Parser(list(_tokens(text)), scope)
    left = parser.sum()
    comparison = parser.take_sign(*COMPARISONS)
    if not comparison:
        raise parser.error("a comparison: one of " + " ".join(COMPARISONS))
    right = parser.sum()
    if parser.token is not None:
        raise parser.error("one comparison, and nothing behind it")
    _same_dimension(left, right)
    return left, comparison, right


def is_measured(node: Node) -> bool:
    """Whether anything in an expression comes from the run."""
    if isinstance(node, Binary):
        return is_measured(node.left) or is_measured(node.right)
    return isinstance(node, Call)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    number: float | None = None
    unit: str = ""
    name: str = ""


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpectError(f"numbers, names and operators, not {text[position:].strip()[:1]!r}")
        number, unit, name, _ = match.groups()
        yield _Token(match.group(0).strip(), float(number) if number else None, unit or "", name or "")
        position = match.end()


class _Parser:
    """Recursive descent over the tokens; every method returns a node whose dimension is already checked."""

    def __init__(self, tokens: list[_Token], scope: Scope) -> None:
        self._tokens = tokens
        self._next = 0
        self._scope = scope

    @property
    def token(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def error(self, allowed: str) -> ExpectError:
        """What is allowed where the parser stands, and what stands there."""
        found = self.token.text if self.token else "the end"
        return ExpectError(f"{allowed} (at {found!r})")

    def take_sign(self, *signs: str) -> str:
        """Consume and return one of the signs, or "" if another token comes next."""
        token = self.token
        if token is None or token.text not in signs:
            return ""
        self._next += 1
        return token.text

    def sum(self) -> Node:
        node = self._product()
        while sign := self.take_sign("+", "-"):
            right = self._product()
            node = Binary(sign, node, right, _same_dimension(node, right))
        return node

    def _product(self) -> Node:
        node = self._factor()
        while sign := self.take_sign("*", "/"):
            right = self._factor()
            node = Binary(sign, node, right, _product_dimension(sign, node, right))
        return node

    def _factor(self) -> Node:
        if self.take_sign("-"):
            inner = self._factor()
            return Binary("-", Number(0.0, inner.dimension), inner, inner.dimension)
        if self.take_sign("("):
            node = self.sum()
            if not self.take_sign(")"):
                raise self.error("a closing )")
            return node
        token = self.token
        if token is not None and token.number is not None:
            return self._number()
        if token is not None and token.name:
            return self._call()
        raise self.error("a number, or one of the functions " + ", ".join(FUNCTIONS))

    def _number(self) -> Number:
        token = self._tokens[self._next]
        assert token.number is not None
        if not token.unit:
            self._next += 1
            return Number(token.number, RATIO if token.number else ZERO)
        if token.unit not in _UNITS:
            raise self.error("one of the units " + ", ".join(_UNITS))
        self._next += 1
        scale, dimension = _UNITS[token.unit]
        return Number(token.number * scale, dimension)

    def _call(self) -> Call:
        name = self._tokens[self._next].name
        if name in GOODPUT_STATISTICS:
            return self._statistic_of_goodput(name)
        if name not in FUNCTIONS:
            raise self.error("a function; nearest: " + ", ".join(nearest(name, list(FUNCTIONS))))
        self._next += 1
        function = FUNCTIONS[name]
        arguments = Arguments()
        if self.take_sign("(") and not self.take_sign(")"):
            arguments = self._arguments(function)
        _check_complete(function, arguments, self._scope)
        return Call(function, arguments)

    def _statistic_of_goodput(self, statistic: str) -> Call:
        """`min(goodput(w))`, the other way to write `goodput(w, min)`."""
        self._next += 1
        inner = self._factor() if self.take_sign("(") else None
        if not isinstance(inner, Call) or inner.function.name != "goodput" or inner.arguments.statistic is not None:
            raise ExpectError(f"{statistic}(goodput(w[, from..to])): of nothing else")
        if not self.take_sign(")"):
            raise self.error("a closing )")
        return Call(inner.function, replace(inner.arguments, statistic=statistic))

    def _arguments(self, function: Function) -> Arguments:
        arguments = Arguments()
        while True:
            arguments = self._argument(function, arguments)
            if self.take_sign(")"):
                return arguments
            if not self.take_sign(","):
                raise self.error(f"a comma or ): {function.usage}")

    def _argument(self, function: Function, so_far: Arguments) -> Arguments:
        token = self.token
        if token is not None and token.number is not None:
            return self._numeric_argument(function, so_far)
        if token is None or not token.name:
            raise self.error(function.usage)
        word = token.name
        if word in self._scope.workloads and len(so_far.workloads) < function.workloads[1]:
            self._next += 1
            return replace(so_far, workloads=(*so_far.workloads, word))
        if function.accepts_statistic(word) and so_far.statistic is None:
            self._next += 1
            return replace(so_far, statistic=word)
        known = ", ".join(nearest(word, list(self._scope.workloads)))
        raise self.error(f"{function.usage}; workloads: {known}")

    def _numeric_argument(self, function: Function, so_far: Arguments) -> Arguments:
        first = self._number()
        if self.take_sign(".."):
            token = self.token
            last = self._number() if token is not None and token.number is not None else None
            if not function.takes_range or so_far.to_ns is not None:
                raise ExpectError(f"no range here: {function.usage}")
            return replace(so_far, from_ns=_time(first, function), to_ns=_time(last, function))
        if function.takes_plane and so_far.plane is None and first.dimension in (RATIO, ZERO):
            return replace(so_far, plane=_plane(first, self._scope))
        if function.takes_time and so_far.time_ns is None:
            return replace(so_far, time_ns=_time(first, function))
        raise ExpectError(function.usage)


def _time(number: Number | None, function: Function) -> int:
    if number is None or (number.dimension != TIME and number.value != 0):
        raise ExpectError(f"times with a unit, e.g. 4s..8s: {function.usage}")
    return round(number.value)


def _plane(number: Number, scope: Scope) -> int:
    if number.value != int(number.value) or number.value >= scope.planes:
        raise ExpectError(f"a plane from 0 to {scope.planes - 1}")
    return int(number.value)


def _check_complete(function: Function, arguments: Arguments, scope: Scope) -> None:
    complete = (
        len(arguments.workloads) >= function.workloads[0]
        and (arguments.plane is not None or not function.takes_plane)
        and (arguments.time_ns is not None or not function.takes_time)
        and (arguments.statistic is not None or function.statistics != "percentile")
    )
    if not complete:
        raise ExpectError(f"all arguments of {function.usage}")
    if arguments.to_ns is not None and arguments.from_ns is not None:
        _check_range(arguments.from_ns, arguments.to_ns, scope)
    if arguments.time_ns is not None:
        _check_instant(arguments.time_ns, scope.workloads[arguments.workloads[0]])


def _check_range(from_ns: int, to_ns: int, scope: Scope) -> None:
    if not from_ns < to_ns <= scope.duration_ns:
        raise ExpectError(f"a range from..to inside the run, 0s..{scope.duration_ns / 10**9:g}s, that is not empty")


def _check_instant(at_ns: int, span: tuple[int, int]) -> None:
    first = span[0] + RECOVERY_REFERENCE_NS
    if not first <= at_ns < span[1]:
        raise ExpectError(
            f"a time from {first / 10**9:g}s (a second of the workload before it is the reference) to below "
            f"{span[1] / 10**9:g}s"
        )


def _same_dimension(left: Node, right: Node) -> str:
    if ZERO in (left.dimension, right.dimension):
        return right.dimension if left.dimension == ZERO else left.dimension
    if left.dimension != right.dimension:
        united = left.dimension if left.dimension in _UNIT_HINT else right.dimension
        raise ExpectError(f"the same kind of quantity on both sides: {_UNIT_HINT[united]}")
    return left.dimension


def _product_dimension(sign: str, left: Node, right: Node) -> str:
    if right.dimension in (RATIO, ZERO):
        return left.dimension
    if sign == "*" and left.dimension in (RATIO, ZERO):
        return right.dimension
    if sign == "/" and left.dimension == right.dimension:
        return RATIO
    raise ExpectError(
        f"no {left.dimension} {sign} {right.dimension}: a factor is a plain number, a quotient of like kinds"
    )
