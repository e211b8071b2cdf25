"""What followed each fault: first lost packet, when and by which signal it was noticed, last retransmission, return.

Owns the attribution of transport events to faults: an event belongs to a fault if its EV's path crosses the fault's
target (or its port is the target) and it lies between the fault and the next action on the same target. Times are ns
since the run's zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from mrcemu.runner.engine import FaultDone, RunRecord
from mrcemu.runner.metrics import FaultRow

_DOWN_TO_UP = {"link down": "link up", "port down": "port up", "switch down": "switch up",
               "switch reboot-begin": "switch reboot-end"}  # fmt: skip

Event = Mapping[str, Any]


def fault_rows(record: RunRecord) -> list[FaultRow]:
    """One row per action of the timeline, in time order."""
    return [_row(record, number, fault) for number, fault in enumerate(record.faults)]


def _row(record: RunRecord, number: int, fault: FaultDone) -> FaultRow:
    what = f"{fault.action.verb} {' '.join(fault.action.targets)}"
    if fault.done_at_ns is None:
        return FaultRow(what=f"{what} ({fault.error})", asked_at_ns=fault.asked_at_ns)
    takes_down = fault.action.verb in _DOWN_TO_UP
    found = _trace_down(record, number, fault) if takes_down else {"back_at_ns": _back_at(record, fault)}
    return FaultRow(what=what, asked_at_ns=fault.asked_at_ns, done_at_ns=fault.done_at_ns, **found)


def _trace_down(record: RunRecord, number: int, fault: FaultDone) -> dict[str, Any]:
    until = _undone_at(record, number, fault)
    # The kernel acts between asked and done: on a busy machine events may come before the caller hears "done".
    events = [event for event in _events_on(record, fault) if event["t_ns"] >= fault.asked_at_ns]
    lost = [e for e in events if e["kind"] == "PacketLost" and e["t_ns"] < until + _tail_ns(record)]
    psns = {(e["host"], e["qpn"], e["psn"]) for e in lost}
    detected = next((e for e in events if e["t_ns"] < until and _is_detection(e)), None)
    resent = [
        e["t_ns"]
        for e in _all_events(record)
        if e["kind"] == "Retransmitted" and (e["host"], e["qpn"], e["psn"]) in psns
    ]
    return {
        "first_lost_ns": min((e["sent_ns"] for e in lost), default=None),
        "detected_at_ns": detected["t_ns"] if detected else None,
        "detected_by": _signal_of(detected) if detected else None,
        "last_retransmit_ns": max(resent, default=None),
        "back_at_ns": None,
    }


def _tail_ns(record: RunRecord) -> int:
    """How long after the repair a loss may still be noticed: one timer."""
    return record.config.rto_ns


def _undone_at(record: RunRecord, number: int, fault: FaultDone) -> int:
    """When the fault's target came back, or the end of the run."""
    up = _DOWN_TO_UP.get(fault.action.verb)
    for later in record.faults[number + 1 :]:
        if later.action.verb == up and set(later.action.targets) & set(fault.action.targets):
            return later.done_at_ns if later.done_at_ns is not None else later.asked_at_ns
    return record.end_ns


def _is_detection(event: Event) -> bool:
    if event["kind"] == "EvChanged":
        return bool(event["new"] == "ASSUMED_BAD")
    return event["kind"] == "PortChanged" and not event["up"]


def _signal_of(event: Event) -> str:
    return "carrier" if event["kind"] == "PortChanged" else str(event["signal"])


def _back_at(record: RunRecord, fault: FaultDone) -> int | None:
    """When the first EV over the target, or the port itself, was in service again."""
    for event in _events_on(record, fault):
        if event["t_ns"] < fault.asked_at_ns:
            continue
        came_back = event["kind"] == "EvChanged" and event["old"] == "ASSUMED_BAD" and event["new"] in ("GOOD", "SKIP")
        if came_back or (event["kind"] == "PortChanged" and event["up"]):
            return int(event["t_ns"])
    return None


def _all_events(record: RunRecord) -> Iterator[dict[str, Any]]:
    for host, report in record.hosts.items():
        for event in report["recorder"]["events"]:
            shifted = {**event, "host": host, "t_ns": event["now_ns"] - record.zero_ns}
            if "sent_ns" in event:
                shifted["sent_ns"] = event["sent_ns"] - record.zero_ns
            yield shifted


def _events_on(record: RunRecord, fault: FaultDone) -> list[dict[str, Any]]:
    """Events of paths that cross the fault's targets, and of ports that are the targets, in time order."""
    crosses = _crossing_test(record, fault.action.targets)
    found = [event for event in _all_events(record) if crosses(event)]
    found.sort(key=lambda event: int(event["t_ns"]))
    return found


def _crossing_test(record: RunRecord, targets: tuple[str, ...]) -> Callable[[Event], bool]:
    wanted = set(targets)
    paths = {
        (host, qp["qpn"], path["ev"]): path
        for host, report in record.hosts.items()
        for qp in report["qps"]
        for path in qp["paths"]
    }

    def crosses(event: Event) -> bool:
        if event["kind"] == "PortChanged":
            return f"h{event['host']}:p{event['port']}" in wanted
        path = paths.get((event["host"], event["qpn"], event.get("ev")))
        return path is not None and not wanted.isdisjoint(_places(path))

    return crosses


def _places(path: Mapping[str, Any]) -> set[str]:
    """Names of everything a path crosses: switches, fabric links, NIC links."""
    hops, plane = path["hops"], path["plane"]
    names = {*hops[1:-1], f"{hops[0]}:p{plane}", f"{hops[-1]}:p{plane}"}
    switches = hops[1:-1]
    for first, second in pairwise(switches):
        lower, upper = (first, second) if "-t0-" in first else (second, first)
        names.add(f"{lower}:{upper}")
    return names
