"""The state of a running host as plain data, for queries and for the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from mrcemu.endpoint.host import HostEndpoint
from mrcemu.endpoint.jobs import HostJobs
from mrcemu.endpoint.ports import HostPort
from mrcemu.endpoint.record import BIN_NS, Recorder
from mrcemu.protocol.ev import EvState
from mrcemu.protocol.qp import Qp

# The window of a peak rate, 200 ms: queues let a few frames through at once, which shorter ones would show as rate.
PEAK_BINS = 20


def path_rows(qp: Qp, now_ns: int) -> list[dict[str, Any]]:
    """One row per EV of a QP, plane by plane; `next_probe_ns` from now, for a path that waits for one."""
    rows = []
    for entry in sorted(qp.spray.entries.values(), key=lambda item: (item.plane, item.ev)):
        rows.append(
            {
                "ev": entry.ev,
                "plane": entry.plane,
                "hops": list(entry.path.nodes),
                "srv6": entry.path.srv6,
                "state": entry.state.value,
                "active": entry.active,
                "plane_up": bool(qp.spray.allowed_planes >> entry.plane & 1),
                "sent": entry.sent,
                "marked": entry.marked,
                "trimmed": entry.trimmed,
                "lost": entry.lost,
                "rtt_ns": entry.rtt_ns or None,
                "retired": entry.retired,
                "next_probe_ns": max(0, entry.next_probe_ns - now_ns) if entry.state is EvState.ASSUMED_BAD else None,
            }
        )
    return rows


def qp_report(qp: Qp, now_ns: int) -> dict[str, Any]:
    """Counters, error and paths of one QP."""
    return {
        "qpn": qp.qpn,
        "peer": qp.setup.peer_address.hex(),
        "error": qp.error,
        "requester": asdict(qp.requester.counters),
        "responder": asdict(qp.responder.counters),
        "guard_ns": qp.requester.loss.guard_ns,
        "window_bytes": qp.congestion.window_bytes,
        "floor_hits": qp.spray.floor_hits,
        "probes_sent": qp.prober.sent,
        "probes_answered": qp.prober.answered,
        "paths": path_rows(qp, now_ns),
    }


def host_report(host: HostEndpoint, jobs: HostJobs) -> dict[str, Any]:
    """All that one host measured."""
    nic = host.nic
    return {
        "qps": [qp_report(qp, host.clock.now_ns()) for qp in nic.qps.values()],
        "recorder": host.recorder.as_dict(),
        "senders": {
            name: {
                "completed": sender.completed,
                "outstanding": sender.outstanding,
                "latencies_ns": sender.latencies_ns,
            }
            for name, sender in jobs.senders.items()
        },
        "targets": jobs.verify(),
        "drops": dict(nic.parser.drops),
        "unknown_qp_drops": nic.unknown_qp_drops,
        "socket_drops": [port.ring.read_drops() for port in host.ports],
        "busy_ports": [_busy(port) for port in host.ports],
        "events_dropped": nic.events_dropped,
        "lag_ns": lag_summary(host.lags_ns),
        "ports_up": nic.ports.local_mask,
    }


def _busy(port: HostPort) -> dict[str, int]:
    port.busy.close()
    return {"bytes": port.busy.busy_bytes, "ns": port.busy.busy_ns}


def peak_bps(recorder: Recorder, qpns: Collection[int]) -> float:
    """The highest rate at which payload of some QPs arrived over any window of whole bins."""
    arrived: Counter[int] = Counter()
    for (qpn, _), bins in recorder.placed.items():
        if qpn in qpns:
            arrived.update(bins)
    best = max((sum(arrived[first + i] for i in range(PEAK_BINS)) for first in list(arrived)), default=0)
    return best * 8 * 10**9 / (PEAK_BINS * BIN_NS)


def lag_summary(lags: list[int]) -> dict[str, int]:
    """How far from their due time frames were released: count, p50, p99, max in ns (early and late alike)."""
    if not lags:
        return {"count": 0, "p50": 0, "p99": 0, "max": 0}
    ordered = sorted(map(abs, lags))
    count = len(ordered)
    return {"count": count, "p50": ordered[count // 2], "p99": ordered[count * 99 // 100], "max": ordered[-1]}
