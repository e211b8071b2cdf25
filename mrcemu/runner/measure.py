"""From the raw record of a run to `Measurements`: shift to the run's zero, add up over hosts, follow each fault.

Owns which raw number becomes which measured one. Refuses definitions of figures (metrics.py) and of fidelity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from mrcemu.runner.engine import BIN_NS, Connection, RunRecord
from mrcemu.runner.faultrows import fault_rows
from mrcemu.runner.fidelity import fidelity_rows
from mrcemu.runner.metrics import Bins, EvRow, Measurements, WorkloadMeasurement, mean_of_steps
from mrcemu.topology import timing

Pairs = Iterable[Sequence[int]]


def measurements_of(record: RunRecord) -> Measurements:
    """All that a finished (or interrupted) run measured."""
    scenario = record.scenario
    duration = record.end_ns if record.interrupted else scenario.duration_ns
    count = -(-duration // BIN_NS)
    qpns = {connection.qpn for connection in record.connections}
    requesters = [qp for host in record.hosts.values() for qp in host["qps"] if qp["qpn"] in qpns]
    measured = bool(record.hosts)
    series = {name: _series(record, name, count) for name in ("lost", "retransmitted", "trimmed")}
    marks = sum(qp["requester"]["marked"] for qp in requesters)
    local = all(scenario.topology.is_t0_local(c.src, c.dst) for c in record.connections)
    return Measurements(
        duration_ns=duration,
        workloads={spec.id: _workload(record, spec.id, count) for spec in scenario.workload} if measured else {},
        plane_bits=_plane_bits(record, qpns, count),
        base_rtt_computed_ns=timing.base_rtt_ns(scenario.topology, 2 if local else timing.CROSS_T1_HOPS),
        base_rtt_measured_ns=int(median(record.calibration_rtts_ns)) if record.calibration_rtts_ns else None,
        lost=series["lost"],
        trimmed=series["trimmed"],
        # Nothing in this version's fabric marks; a mark from anywhere has no time and is not made into a series.
        marked=(0,) * count if measured and not marks else None,
        retransmitted=series["retransmitted"],
        timeouts=sum(qp["requester"]["timeouts"] for qp in requesters) if measured else None,
        evs_retired=sum(path["retired"] for qp in requesters for path in qp["paths"]) if measured else None,
        evs={_qp_name(c): _ev_rows(record, c) for c in record.connections} if measured else {},
        faults=fault_rows(record),
        ports={name: _counters(counters) for name, counters in record.ports_after.items()},
        fidelity=fidelity_rows(record),
        interrupted=record.interrupted,
    )


def _qp_name(connection: Connection) -> str:
    return f"{connection.workload.id}/h{connection.src}-h{connection.dst}/{connection.qpn}"


def _shifted(record: RunRecord, pairs: Pairs, count: int) -> dict[int, int]:
    """[endpoint clock bin, value] pairs as {bin since the run's zero: value}, cut to the run."""
    zero = record.zero_ns // BIN_NS
    return {index - zero: value for index, value in pairs if 0 <= index - zero < count}


def _sum_bins(parts: Iterable[Mapping[int, int]], count: int) -> Bins:
    total = [0] * count
    for part in parts:
        for index, value in part.items():
            total[index] += value
    return tuple(total)


def _placed(
    record: RunRecord, qpns: Iterable[int], count: int, receiver: int | None = None
) -> Iterable[tuple[int, dict[int, int]]]:  # fmt: skip
    """(plane, bytes per bin) of everything newly placed for some QPs, at one host or at any."""
    wanted = set(qpns)
    for number, host in record.hosts.items():
        if receiver is not None and number != receiver:
            continue
        for item in host["recorder"]["placed"]:
            if item["qpn"] in wanted:
                yield item["plane"], _shifted(record, item["bins"], count)


def _plane_bits(record: RunRecord, qpns: Iterable[int], count: int) -> tuple[Bins, ...]:
    """Per plane, bits of payload newly placed."""
    planes: dict[int, list[dict[int, int]]] = defaultdict(list)
    for plane, bins in _placed(record, qpns, count):
        planes[plane].append({index: value * 8 for index, value in bins.items()})
    return tuple(_sum_bins(planes[plane], count) for plane in range(record.scenario.topology.planes))


def _series(record: RunRecord, name: str, count: int) -> Bins | None:
    if not record.hosts:
        return None
    return _sum_bins(
        (_shifted(record, host["recorder"]["series"][name], count) for host in record.hosts.values()), count
    )


def _workload(record: RunRecord, workload: str, count: int) -> WorkloadMeasurement:
    mine = [connection for connection in record.connections if connection.workload.id == workload]
    spec = mine[0].workload
    src, dst = record.hosts[mine[0].src], record.hosts[mine[0].dst]
    qpns = {connection.qpn for connection in mine}
    # What a ping-pong answers is no goodput of the sender's.
    arrivals = _sum_bins((bins for _, bins in _placed(record, qpns, count, mine[0].dst)), count)
    sender = src["senders"][workload]
    targets = [host["targets"][workload] for host in (src, dst) if workload in host["targets"]]
    ends = [qp for host in (src, dst) for qp in host["qps"] if qp["qpn"] in qpns]
    end_ns = min(spec.end_ns, record.end_ns) if record.interrupted else spec.end_ns
    port_bps = timing.line_payload_bps(record.scenario.topology, 1, record.scenario.transport.forwarding)
    line_steps = tuple((at, port_bps * planes) for at, planes in planes_up(record, mine[0]))
    return WorkloadMeasurement(
        id=workload,
        start_ns=spec.start_ns,
        end_ns=end_ns,
        arrivals=arrivals,
        messages=sender["completed"],
        line_payload_bps=mean_of_steps(line_steps, spec.start_ns, end_ns) if end_ns > spec.start_ns else None,
        line_steps=line_steps,
        latency_ns=tuple(sender["latencies_ns"]),
        corrupted_bytes=sum(target["corrupted_bytes"] for target in targets),
        retransmitted_packets=sum(qp["requester"]["retransmitted"] for qp in ends),
        qp_errors=sum(qp["error"] is not None for qp in ends) + (0 if record.drained or record.interrupted else 1),
    )


def planes_up(record: RunRecord, connection: Connection) -> list[tuple[int, int]]:
    """Planes whose NIC ports are up at both ends, as steps of (from ns since the run began, planes), in order."""
    planes = record.scenario.topology.planes
    changes = sorted(
        (event["now_ns"] - record.zero_ns, event["port"], host, event["up"])
        for host in (connection.src, connection.dst)
        for event in record.hosts[host]["recorder"]["events"]
        if event["kind"] == "PortChanged"
    )
    down: set[tuple[int, int]] = set()
    steps = [(0, planes)]
    for when, port, host, up in changes:
        (down.discard if up else down.add)((port, host))
        steps.append((max(when, 0), planes - len({plane for plane, _ in down})))
    return steps


def _ev_rows(record: RunRecord, connection: Connection) -> list[EvRow]:
    """The path table of a connection's requester."""
    qp = next(qp for qp in record.hosts[connection.src]["qps"] if qp["qpn"] == connection.qpn)
    return [
        EvRow(
            ev=path["ev"],
            plane=path["plane"],
            hops=tuple(path["hops"]),
            srv6=path["srv6"],
            state=path["state"],
            sent=path["sent"],
            marked=path["marked"],
            trimmed=path["trimmed"],
            lost=path["lost"],
            rtt_ns=path["rtt_ns"],
            retired=path["retired"],
        )
        for path in qp["paths"]
    ]


def _counters(counters: Any) -> dict[str, Any]:
    return asdict(counters)


def region_hashes(record: RunRecord) -> dict[str, str]:
    """SHA-256 of each workload's target memory at the end."""
    return {name: target["sha256"] for host in record.hosts.values() for name, target in host["targets"].items()}


def event_lines(record: RunRecord) -> list[dict[str, Any]]:
    """All logged events of all hosts, and the faults as carried out, in time order; `t_ns` since the run's zero."""
    lines: list[dict[str, Any]] = []
    for host, report in record.hosts.items():
        for event in report["recorder"]["events"]:
            rest = {key: value for key, value in event.items() if key not in ("now_ns", "kind")}
            if "sent_ns" in rest:
                rest["sent_ns"] -= record.zero_ns
            lines.append({"t_ns": event["now_ns"] - record.zero_ns, "kind": event["kind"], "host": f"h{host}", **rest})
    for fault in record.faults:
        lines.append(
            {
                "t_ns": fault.asked_at_ns if fault.done_at_ns is None else fault.done_at_ns,
                "kind": "Fault",
                "verb": fault.action.verb,
                "targets": list(fault.action.targets),
                "asked_at_ns": fault.asked_at_ns,
                "error": fault.error,
            }
        )
    lines.sort(key=lambda line: line["t_ns"])
    return lines
