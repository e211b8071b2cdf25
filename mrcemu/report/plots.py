"""The figures of a report: goodput, planes, losses, shares. Drawn once, written as PNG and as SVG.

Owns the drawing. Each figure is drawn in three marker colours for text, lines and paper; the PNG keeps them (light),
the SVG replaces them by the page's CSS variables, so that one drawing serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

INK, RULE, PAPER = "#1d2431", "#d5d9e1", "#fefefe"  # replaced in SVG by the page's variables
FAULT = "#d1495b"
# Distinct from each other and legible on light and dark paper; planes above eight repeat them.
PALETTE = ("#3b7dd8", "#e0862d", "#2f9e6e", "#c64d8f", "#8a63c9", "#9a7b2f", "#2a9db0", "#7d8794")
SERIES = {"lost": "#d1495b", "retransmitted": "#3b7dd8", "trimmed": "#e0862d", "marked": "#8a63c9"}
MEGABIT = 1e6
NS = 1e9
MAX_LABELLED_FAULTS = 16  # more marks than this are drawn as lines only: numbers would overlap
_STYLE: Any = {  # matplotlib types the keys as a literal of all 300 names
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,  # a name with a $ in it is a name, not a formula
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "mrcemu",
}


def figures(result: Mapping[str, Any]) -> dict[str, Figure]:
    """Figures by name, those for which the result holds data."""
    series = result.get("series") or {}
    drawn: dict[str, Figure] = {}
    with mpl.rc_context(_STYLE):
        if any(series.get("goodput_bps", {}).values()):
            drawn["goodput"] = _goodput(result)
        if any(series.get("plane_bits", [])):
            drawn["planes"] = _planes(result)
            if any(sum(bits) for bits in series["plane_bits"]):
                drawn["shares"] = _shares(series["plane_bits"])
        if any(isinstance(series.get(name), list) for name in SERIES):
            drawn["losses"] = _losses(result)
    return drawn


def to_png(figure: Figure) -> bytes:
    """The figure as a light PNG at 144 dots an inch, the same bytes for the same data."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element to put inline; `name` keeps its ids apart from other figures'."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 class="plot" role="img"', text, count=1)
    for marker, variable in ((INK, "--ink"), (RULE, "--rule"), (PAPER, "--card")):
        text = text.replace(marker, f"var({variable})")
    return re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", text)


def _times(count: int, interval_s: float) -> list[float]:
    return [(i + 0.5) * interval_s for i in range(count)]


def _mark_faults(axes: Axes, faults: Sequence[Mapping[str, Any]], *, numbered: bool) -> None:
    """A vertical line where each fault was done; its number is its row in the table of faults."""
    for number, fault in enumerate(faults, start=1):
        at = fault.get("done_at_ns") or fault.get("asked_at_ns")
        if at is None or at / NS > axes.get_xlim()[1]:
            continue
        axes.axvline(at / NS, color=FAULT, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        if numbered and len(faults) <= MAX_LABELLED_FAULTS:
            axes.annotate(
                str(number), (at / NS, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="center", color=FAULT, fontsize=8,
            )  # fmt: skip


def _finish(axes: Axes, length_s: float, ylabel: str) -> None:
    axes.set_xlim(0, length_s)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(ylabel)
    axes.margins(x=0)
    axes.grid(visible=False, axis="x")


def _goodput(result: Mapping[str, Any]) -> Figure:
    series, workloads = result["series"], result.get("workloads", {})
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    axes = figure.add_subplot()
    interval = series["interval_s"]
    curves = {name: values for name, values in series["goodput_bps"].items() if values}
    top = 0.0
    for index, (name, values) in enumerate(curves.items()):
        colour, rates = PALETTE[index % len(PALETTE)], [value / MEGABIT for value in values]
        axes.plot(_times(len(rates), interval), rates, color=colour, linewidth=1.5, label=name)
        if len(curves) == 1:
            axes.fill_between(_times(len(rates), interval), rates, color=colour, alpha=0.14, linewidth=0)
        top = max([top, *rates])
    line = max((w["line_payload_bps"] for w in workloads.values() if _is_number(w.get("line_payload_bps"))), default=0)
    if line:
        axes.axhline(line / MEGABIT, color=INK, linewidth=0.9, linestyle=":", label="line payload rate, mean")
    _finish(axes, max(len(values) for values in curves.values()) * interval, "goodput, Mbit/s")
    _mark_faults(axes, result.get("faults", []), numbered=True)
    axes.set_ylim(0, max(top, line / MEGABIT) * 1.08 or 1)
    axes.set_xlabel("time, s")
    axes.legend(loc="lower right", ncols=4)
    return figure


def _planes(result: Mapping[str, Any]) -> Figure:
    series = result["series"]
    interval, planes = series["interval_s"], series["plane_bits"]
    columns = min(4, len(planes))
    rows = -(-len(planes) // columns)
    figure = Figure(figsize=(9.6, 0.5 + 1.25 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for plane, bits in enumerate(planes):
        axes, colour = grid[plane // columns][plane % columns], PALETTE[plane % len(PALETTE)]
        rates = [value / interval / MEGABIT for value in bits]
        axes.fill_between(_times(len(rates), interval), rates, color=colour, alpha=0.25, linewidth=0)
        axes.plot(_times(len(rates), interval), rates, color=colour, linewidth=1.1)
        axes.set_title(f"plane {plane}", pad=3)
        _finish(axes, len(bits) * interval, "")
        _mark_faults(axes, result.get("faults", []), numbered=False)
    for spare in range(len(planes), rows * columns):
        grid[spare // columns][spare % columns].set_visible(False)
    figure.supylabel("arrived, Mbit/s", fontsize=9, color=INK)
    figure.supxlabel("time, s", fontsize=9, color=INK)
    return figure


def _losses(result: Mapping[str, Any]) -> Figure:
    series = result["series"]
    figure = Figure(figsize=(9.6, 2.7), layout="constrained")
    axes = figure.add_subplot()
    length = 0
    for name, colour in SERIES.items():
        values = series.get(name)
        if isinstance(values, list) and values:
            length = max(length, len(values))
            axes.step(
                _times(len(values), series["interval_s"]), values, where="mid", color=colour, linewidth=1.3, label=name
            )
    _finish(axes, max(length, 1) * series["interval_s"], f"packets in {series['interval_s'] * 1000:g} ms")
    _mark_faults(axes, result.get("faults", []), numbered=True)
    if axes.get_ylim()[1] < 4:
        axes.set_ylim(0, 4)
    axes.set_xlabel("time, s")
    axes.legend(loc="upper right", ncols=4)
    return figure


def _shares(planes: Sequence[Sequence[int]]) -> Figure:
    totals = [sum(bits) for bits in planes]
    shares = [total / sum(totals) for total in totals]
    figure = Figure(figsize=(9.6, 0.75 + 0.24 * len(planes)), layout="constrained")
    axes = figure.add_subplot()
    colours = [PALETTE[plane % len(PALETTE)] for plane in range(len(planes))]
    axes.barh(range(len(planes)), shares, color=colours, height=0.66)
    for plane, share in enumerate(shares):
        axes.annotate(
            f"{share:.2%}",
            (max(share, 1 / len(planes)), plane),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
    axes.axvline(1 / len(planes), color=INK, linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(planes)), [f"plane {plane}" for plane in range(len(planes))])
    axes.invert_yaxis()
    axes.set_xlim(0, max(shares) * 1.12)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=False, axis="y")
    return figure


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
