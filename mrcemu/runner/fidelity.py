"""Can the run be believed? The invariants this version measures: F2, F4, F6, F8; the others say "not_measured".

Owns thresholds (ours, from measurements on two cores; see docs/architecture.md) and verdicts. A failed invariant makes
the run untrustworthy: then its figures describe the machine and not the network.
"""

from __future__ import annotations

from mrcemu.runner.engine import RunRecord
from mrcemu.runner.metrics import FidelityRow
from mrcemu.units import format_time

PASS, WARN, FAIL = "pass", "warn", "fail"
MIN_BUSY_NS = 200_000_000  # of a port, in all, before its rate says anything


def fidelity_rows(record: RunRecord) -> dict[str, FidelityRow]:
    """Measured invariants by name; those absent were not measured."""
    rows = {
        "F2": _link_rate(record),
        "F4": _timer_lag(record),
        "F6": _unplanned_drops(record),
        "F8": _fault_lag(record),
    }
    return {name: row for name, row in rows.items() if row is not None}


def _link_rate(record: RunRecord) -> FidelityRow | None:
    """F2: rate of each NIC port over its busy intervals, against its configured rate."""
    nominal = record.scenario.topology.nic_rate_bps
    errors = [
        port["bytes"] * 8 * 10**9 / port["ns"] / nominal - 1
        for host in record.hosts.values()
        for port in host["busy_ports"]
        if port["ns"] >= MIN_BUSY_NS
    ]
    if not errors:
        return None
    worst = max(errors, key=abs)
    verdict = PASS if abs(worst) <= 0.01 else WARN if -0.03 <= worst < 0.01 else FAIL
    return FidelityRow(f"worst of {len(errors)} ports {worst:+.2%}", verdict)


def _timer_lag(record: RunRecord) -> FidelityRow | None:
    """F4: how late held frames were released, against base RTT (p99) and the timer (maximum).

    Below half a timer nothing is taken for lost because this machine was late. A quiet machine stays under a tenth.
    """
    lags = [host["lag_ns"] for host in record.hosts.values() if host["lag_ns"]["count"]]
    if not lags:
        return None
    p99, worst = max(lag["p99"] for lag in lags), max(lag["max"] for lag in lags)
    base, rto = record.config.base_rtt_ns, record.config.rto_ns
    if p99 <= 0.10 * base and worst <= rto / 4:
        verdict = PASS
    elif p99 <= 0.25 * base and worst < rto / 2:
        verdict = WARN
    else:
        verdict = FAIL
    return FidelityRow(f"p99 {format_time(p99)}, max {format_time(worst)}", verdict)


def _unplanned_drops(record: RunRecord) -> FidelityRow | None:
    """F6: packets dropped in queues, sockets or the kernel's input path, none of them asked for."""
    if not record.hosts or not record.ports_after:
        return None
    sockets = sum(sum(host["socket_drops"]) for host in record.hosts.values())
    queues = 0
    for name, after in record.ports_after.items():
        before = record.ports_before[name]
        queues += after.data.drops - before.data.drops + after.control.drops - before.control.drops
    captures = sum(tap["dropped"] for tap in record.captures)
    total = sockets + queues + record.softnet_drops + captures
    text = f"sockets {sockets}, queues {queues}, softnet {record.softnet_drops}, captures {captures}"
    return FidelityRow(text, PASS if total == 0 else FAIL)


def _fault_lag(record: RunRecord) -> FidelityRow | None:
    """F8: delay between when a fault was asked for and when the kernel had it."""
    late = [fault.done_at_ns - fault.asked_at_ns for fault in record.faults if fault.done_at_ns is not None]
    if not late:
        return None
    worst, base = max(late), record.config.base_rtt_ns
    verdict = PASS if worst <= base else WARN if worst <= 5 * base else FAIL
    return FidelityRow(f"worst of {len(late)} faults {format_time(worst)}", verdict)
