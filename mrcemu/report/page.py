"""The page of a report: sections in the order a reader asks, from the verdict down to the inputs.

Owns the page's structure and words. Refuses arithmetic beyond differences of two times: figures come from the result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mrcemu.report.markup import (
    DASH,
    Cell,
    Markup,
    badge,
    escape,
    fold,
    instant,
    quantity,
    section,
    share,
    show,
    table,
)
from mrcemu.report.style import CSS

Result = Mapping[str, Any]

MAX_EVENTS = 300  # rows of the event list; the file has all of them
INVARIANTS = {
    "F1": "gaps between packets of a busy link",
    "F2": "rate of a busy link",
    "F3": "one-way delay of an idle path",
    "F4": "timer lag of the endpoints",
    "F5": "processor steal and pressure",
    "F6": "unplanned drops",
    "F7": "every packet accounted for",
    "F8": "faults happened when asked",
}
VERDICT_WORDS = {
    "pass": "Every expectation held.",
    "fail": "An expectation failed.",
    "untrustworthy": "The machine was not faithful to the fabric: these figures say nothing about the network.",
    "partial": "The run was interrupted: the figures cover what happened until then.",
}


def render_page(result: Result, events: Sequence[Mapping[str, Any]], plots: Mapping[str, str]) -> str:
    """The whole HTML document. `plots` are inline SVG by figure name (see `plots.figures`)."""
    body = [
        _header(result),
        _cards(result),
        _expectations(result),
        section("Goodput", plots.get("goodput", ""), about=_goodput_note(result)),
        _faults(result),
        section("Planes over time", plots.get("planes", "")),
        section(
            "Share of each plane", plots.get("shares", ""), about="Of all bits that arrived; dotted: equal shares."
        ),
        section("Losses and what followed", plots.get("losses", ""), about=_unmeasured_series(result)),
        _workloads(result),
        _paths(result),
        _fidelity(result),
        _events(events),
        _ports(result),
        _captures(result),
        _inputs(result),
    ]
    title = f"{result.get('scenario', 'run')}: {result['verdict']}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _header(result: Result) -> str:
    verdict = str(result["verdict"])
    inputs = result.get("inputs", {})
    about = (inputs.get("scenario") or {}).get("about") if isinstance(inputs.get("scenario"), dict) else None
    facts = [
        f"transport {show(result.get('transport'))}",
        f"seed {show(result.get('seed'))}",
        f"base RTT {quantity(result.get('base_rtt_ns'), 'ns')}",
        *_scale(inputs.get("topology")),
    ]
    lead = f"<p>{escape(about)}</p>" if about else ""
    return (
        f"<header><div><h1>{escape(result.get('scenario', 'run'))}</h1>{lead}"
        f'<p class="soft">{" · ".join(facts)}</p><p class="soft">{VERDICT_WORDS.get(verdict, "")}</p></div>'
        f"{badge(verdict, big=True).text}</header>"
    )


def _scale(topology: object) -> list[str]:
    """Topology and rate as built and as it stands for, if the inputs hold a topology."""
    if not isinstance(topology, dict) or not {"name", "planes", "nic_rate_bps", "scale"} <= topology.keys():
        return []
    rate, scale = topology["nic_rate_bps"], topology["scale"]
    stands_for = quantity(rate * scale, "bit/s")
    return [
        f"{escape(topology['name'])}, {escape(topology['planes'])} planes",
        f"{quantity(rate, 'bit/s')} a port stands for {stands_for} (1:{scale})",
    ]


def _cards(result: Result) -> str:
    cards: list[tuple[str, str]] = []
    for name, w in result.get("workloads", {}).items():
        cards.append((quantity(w.get("goodput_bps"), "bit/s"), f"goodput of {name}"))
        cards.append((share(w.get("efficiency")), f"of the line rate, {name}"))
    held = sum(1 for e in result.get("expectations", []) if e.get("pass"))
    cards.append((f"{held} of {len(result.get('expectations', []))}", "expectations held"))
    series = result.get("series", {})
    for key, label in (("lost", "packets lost"), ("retransmitted", "packets retransmitted")):
        if isinstance(series.get(key), list):
            cards.append((f"{sum(series[key]):,}", label))
    body = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>' for value, label in cards
    )
    return f'<div class="cards">{body}</div>'


def _expectations(result: Result) -> str:
    rows = [
        (
            badge("pass" if e["pass"] else "fail"),
            Markup(f"<code>{escape(e['text'])}</code>"),
            quantity(e["measured"], e.get("unit", "1")),
            quantity(e["bound"], e.get("unit", "1")),
        )
        for e in result.get("expectations", [])
    ]
    if not rows:
        return section("Expectations", "<p>The scenario expects nothing.</p>")
    return section("Expectations", table(("", "expectation", "measured", "bound"), rows, numeric=(2, 3)))


def _goodput_note(result: Result) -> str:
    faults = len(result.get("faults", []))
    marks = " Dashed red: faults, numbered as in the table below." if faults else ""
    interval = result.get("series", {}).get("interval_s", 0)
    return f"Payload newly placed at the receiver, in intervals of {interval * 1000:g} ms.{marks}"


def _after(at: object, then: object) -> str:
    """A later time as the difference to a fault."""
    if not isinstance(at, int | float) or not isinstance(then, int | float):
        return DASH
    return f"+{quantity(then - at, 'ns')}" if then >= at else f"−{quantity(at - then, 'ns')}"


def _faults(result: Result) -> str:
    rows: list[tuple[Cell, ...]] = []
    for number, f in enumerate(result.get("faults", []), start=1):
        done = f.get("done_at_ns") if f.get("done_at_ns") is not None else f.get("asked_at_ns")
        rows.append(
            (
                number,
                Markup(f"<code>{escape(f.get('what'))}</code>"),
                instant(f.get("asked_at_ns")),
                _after(f.get("asked_at_ns"), f.get("done_at_ns")),
                _after(done, f.get("first_lost_ns")),
                _after(done, f.get("detected_at_ns")),
                f.get("detected_by"),
                _after(done, f.get("last_retransmit_ns")),
                _after(done, f.get("back_at_ns")),
            )
        )
    heads = ("#", "fault", "asked at", "done", "first loss", "detected", "by", "last retransmit", "path or port back")
    note = "“Done” counts from when the fault was asked for, the rest from when it was done."
    return section("Faults and recovery", table(heads, rows, numeric=(2, 3, 4, 5, 7, 8)) if rows else "", about=note)


def _unmeasured_series(result: Result) -> str:
    series = result.get("series", {})
    missing = [name for name in ("lost", "retransmitted", "trimmed", "marked") if series.get(name) == "not_measured"]
    return f"Not measured in this run: {', '.join(missing)}." if missing else ""


def _workloads(result: Result) -> str:
    rows = []
    for name, w in result.get("workloads", {}).items():
        latency = w.get("latency_ns") or {}
        rows.append(
            (
                name,
                quantity(w.get("bytes"), "bytes"),
                quantity(w.get("goodput_bps"), "bit/s"),
                quantity(w.get("line_payload_bps"), "bit/s"),
                share(w.get("efficiency")),
                quantity(w.get("messages"), "1"),
                quantity(latency.get("p50"), "ns"),
                quantity(latency.get("p99"), "ns"),
                quantity(w.get("retransmitted_packets"), "1"),
                quantity(w.get("corrupted_bytes"), "1"),
                quantity(w.get("qp_errors"), "1"),
            )
        )
    heads = (
        "workload", "placed", "goodput", "line payload", "efficiency", "messages", "latency p50", "p99",
        "retransmitted", "corrupted bytes", "QP errors",
    )  # fmt: skip
    return section("Workloads", table(heads, rows, numeric=range(1, len(heads))) if rows else "")


def _paths(result: Result) -> str:
    parts = []
    for qp, rows in result.get("evs", {}).items():
        states = Counter(str(row.get("state")) for row in rows)
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        heads = (
            "EV",
            "plane",
            "path",
            "SRv6 destination",
            "state",
            "sent",
            "marked",
            "trimmed",
            "lost",
            "RTT",
            "retired",
        )
        cells = [_path_row(row) for row in rows]
        parts.append(
            fold(f"{qp}: {len(rows)} paths ({counted})", table(heads, cells, numeric=(0, 1, 5, 6, 7, 8, 9, 10)))
        )
    return section("Paths", *parts, about="The path table of every QP as the run ended.")


def _path_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    hops = row.get("hops")
    nodes = " → ".join(hops[1:-1]) if isinstance(hops, list) else DASH
    counts = [quantity(row.get(key), "1") for key in ("sent", "marked", "trimmed", "lost")]
    return (
        row.get("ev"),
        row.get("plane"),
        Markup(f'<span class="line">{escape(nodes)}</span>'),
        Markup(f"<code>{escape(row.get('srv6', ''))}</code>"),
        badge(str(row.get("state"))),
        *counts,
        quantity(row.get("rtt_ns"), "ns"),
        row.get("retired"),
    )


def _fidelity(result: Result) -> str:
    rows = [
        (name, INVARIANTS.get(name, ""), row.get("value"), badge(str(row.get("verdict"))))
        for name, row in result.get("fidelity", {}).items()
    ]
    note = "Whether the machine kept up with the fabric it pretended to be."
    return section("Fidelity", table(("", "invariant", "measured", ""), rows) if rows else "", about=note)


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    if not events:
        return ""
    listed = "\n".join(json.dumps(event, ensure_ascii=False) for event in events[:MAX_EVENTS])
    more = f"\n… {len(events) - MAX_EVENTS:,} more in events.jsonl" if len(events) > MAX_EVENTS else ""
    return section("Events", fold(f"{len(events):,} events", f"<pre>{escape(listed + more)}</pre>"))


def _ports(result: Result) -> str:
    ports = result.get("ports", {})
    if not ports:
        return ""
    heads = list(dict.fromkeys(key for counters in ports.values() for key in counters))
    rows = [(name, *(_scalar(counters.get(key)) for key in heads)) for name, counters in ports.items()]
    shown = table(("port", *(head.replace("_", " ") for head in heads)), rows, numeric=range(1, len(heads) + 1))
    return section("Ports", fold(f"{len(ports)} ports", shown))


def _captures(result: Result) -> str:
    captures = result.get("captures") or []
    heads = list(dict.fromkeys(key for capture in captures for key in capture))
    rows = [[_scalar(capture.get(key)) for key in heads] for capture in captures]
    return section("Captures", table([head.replace("_", " ") for head in heads], rows) if rows else "")


def _scalar(value: object) -> Cell:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return None if value is None else str(value)


def _inputs(result: Result) -> str:
    versions = table(("what", "version"), [(name, text) for name, text in result.get("versions", {}).items()])
    inputs = json.dumps(result.get("inputs", {}), indent=2, ensure_ascii=False, default=str)
    return section(
        "Inputs and versions", versions, fold("everything this run was given", f"<pre>{escape(inputs)}</pre>")
    )
