"""Quantities as people write them ("25mbit", "1.2ms", "1MiB", "1%") to plain numbers in base units, and back.

Base units: nanoseconds, bytes, bits per second, fractions. A number without its unit is refused: guessing is how a
millisecond becomes a second.
"""

from __future__ import annotations

import re

TIME_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
SIZE_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip
RATE_BPS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]+)\s*\Z")


def _parse(text: object, units: dict[str, int], what: str, example: str) -> int:
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    scale = units.get(match.group(2)) if match else None
    if match is None or scale is None:
        raise ValueError(f"{what} with a unit ({', '.join(units)}), e.g. {example}")
    whole, _, decimals = match.group(1).partition(".")
    return int(whole) * scale + (int(decimals) * scale // 10 ** len(decimals) if decimals else 0)


def parse_time_ns(text: object) -> int:
    """A duration such as "200ms" in nanoseconds; ValueError says what is allowed."""
    return _parse(text, TIME_NS, "a time", "200ms")


def parse_size_bytes(text: object) -> int:
    """A size such as "1MiB" in bytes; ValueError says what is allowed."""
    return _parse(text, SIZE_BYTES, "a size", "1MiB")


def parse_rate_bps(text: object) -> int:
    """A rate such as "25mbit" in bits per second; ValueError says what is allowed."""
    return _parse(text, RATE_BPS, "a rate", "25mbit")


def parse_fraction(text: object) -> float:
    """A share such as "2%" as a number in 0 .. 1; ValueError says what is allowed."""
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None or match.group(2) != "%" or float(match.group(1)) > 100:
        raise ValueError("a percentage from 0% to 100%, e.g. 2%")
    return float(match.group(1)) / 100


def _format(value: float, steps: list[tuple[float, str]]) -> str:
    for scale, unit in steps:
        if abs(value) >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}{steps[-1][1]}"


def format_time(ns: float) -> str:
    """Nanoseconds for people: "21.7ms"."""
    return _format(ns, [(10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")])


def format_rate(bps: float) -> str:
    """Bits per second for people: "193.3mbit"."""
    return _format(bps, [(10**9, "gbit"), (10**6, "mbit"), (10**3, "kbit"), (1, "bit")])


def format_size(size_bytes: float) -> str:
    """Bytes for people: "1MiB"."""
    return _format(size_bytes, [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
