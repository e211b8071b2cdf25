"""Small pieces of HTML: escaped text, tables, badges, and numbers as people read them.

Everything that came from a file is escaped here; a scenario's name is text, never markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mrcemu.units import format_rate, format_size, format_time

DASH = "–"
_KINDS = {
    "pass": "pass", "fail": "fail", "warn": "warn", "untrustworthy": "fail", "partial": "warn", "GOOD": "pass",
    "ASSUMED_BAD": "fail", "DENIED": "warn", "SKIP": "warn",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already and is not escaped again."""

    text: str


Cell = str | int | float | None | Markup


def escape(value: object) -> str:
    return html.escape(str(value), quote=True)


def show(cell: Cell) -> str:
    """A cell as HTML: markup as it is, None as a dash, the rest escaped."""
    if isinstance(cell, Markup):
        return cell.text
    return DASH if cell is None else escape(words(cell))


def words(value: object) -> str:
    """ "not_measured" as "not measured"; anything else as text."""
    return str(value).replace("not_measured", "not measured")


def badge(word: str, *, big: bool = False) -> Markup:
    """A coloured word; words that are no verdict are grey."""
    kind = _KINDS.get(word, "none")
    return Markup(f'<span class="badge {kind}{" big" if big else ""}">{escape(words(word))}</span>')


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], numeric: Sequence[int] = ()) -> str:
    """An HTML table; `numeric` are the columns to align right."""

    def kind(column: int) -> str:
        return ' class="n"' if column in numeric else ""

    head = "".join(f"<th{kind(i)}>{escape(text)}</th>" for i, text in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(i)}>{show(cell)}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def section(title: str, *parts: str, about: str = "") -> str:
    """A titled box; empty if it has no content."""
    content = "".join(parts)
    note = f'<p class="soft">{about}</p>' if about else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>" if content else ""


def fold(summary: str, content: str, *, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{content}</details>"


def quantity(value: object, unit: str) -> str:
    """A number in base units as people read it ("ns", "bit/s", "bytes", "1"); words stay words."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return DASH if value is None else words(value)
    if unit == "ns":
        return format_time(value)
    if unit == "bit/s":
        return format_rate(value)
    if unit == "bytes":
        return format_size(value)
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def instant(ns: object) -> str:
    """A time since the start of the run, in seconds to the tenth of a millisecond."""
    return f"{ns / 1e9:.4f} s" if isinstance(ns, int | float) else DASH


def share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else quantity(value, "1")
