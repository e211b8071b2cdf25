"""The workloads of one host: who sends, who receives, and whether what arrived is right.

Owns target regions and the routing of completions to senders. The workloads themselves are in `mrcemu.workload`.
"""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from typing import Any

from mrcemu.endpoint.host import HostEndpoint
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.events import Event, MessageArrived, QpFailed, WriteCompleted
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.workload.pattern import PatternCheck
from mrcemu.workload.write_bw import WriteBwSender, WriteBwSpec
from mrcemu.workload.write_lat import WriteLatSide, WriteLatSpec

Sender = WriteBwSender | WriteLatSide


@dataclass(slots=True)
class _Target:
    """A registered region and, per QP, the check of what lands in it."""

    region: MemoryRegion
    checks: dict[int, PatternCheck]


class HostJobs:
    """Senders and targets of one host, by workload id."""

    def __init__(self, host: HostEndpoint, config: TransportConfig) -> None:
        self._host = host
        self._config = config
        self.senders: dict[str, Sender] = {}
        self.targets: dict[str, _Target] = {}
        self._by_qpn: dict[int, Sender] = {}

    def receive(self, workload: str, qpns: list[int], size: int, depth: int, rkey: int) -> None:
        """Register a target region of depth x size bytes per QP and check all that lands in it."""
        length = max(1, size * depth * len(qpns))
        view = memoryview(mmap.mmap(-1, length))
        checks = {qpn: PatternCheck(qpn, size, depth, index * depth * size) for index, qpn in enumerate(qpns)}

        def observer(qpn: int, msn: int, offset: int, payload: bytes) -> None:
            checks[qpn].on_placed(qpn, msn, offset, payload)

        region = MemoryRegion(rkey, 0, view, observer=observer)
        self._host.nic.regions.register(region)
        self.targets[workload] = _Target(region, checks)

    def prepare_send(
        self, workload: str, qpns: tuple[int, ...], size: int, depth: int, rkey: int, stop_ns: int, count: int | None
    ) -> Sender:
        """A sender that starts when its `start(now_ns)` is called."""
        spec = WriteBwSpec(workload, qpns, size, depth, rkey, stop_ns, count)
        return self._add(workload, WriteBwSender(spec, self._host.nic))

    def prepare_ping_pong(
        self, workload: str, qpn: int, size: int, rkey: int, begins: bool, stop_ns: int, count: int | None
    ) -> Sender:
        """One side of a ping-pong; the side that begins does so when its `start(now_ns)` is called."""
        spec = WriteLatSpec(workload, qpn, size, rkey, begins, stop_ns, count)
        return self._add(workload, WriteLatSide(spec, self._host.nic))

    def _add(self, workload: str, sender: Sender) -> Sender:
        self.senders[workload] = sender
        self._by_qpn.update(dict.fromkeys(sender.spec.qpns, sender))
        return sender

    def workload_of(self, qpn: int) -> str | None:
        """The workload that sends on a QP; None for a QP that only answers."""
        sender = self._by_qpn.get(qpn)
        return None if sender is None else sender.spec.workload_id

    def stop_sending(self, workload: str, now_ns: int) -> None:
        """Post nothing more from now on; what is outstanding completes."""
        sender = self.senders.get(workload)
        if sender is not None:
            sender.stop(now_ns)

    def on_event(self, event: Event) -> None:
        """Completions and failures go to the sender whose QP it was."""
        sender = self._by_qpn.get(event.qpn)
        if sender is None:
            return
        if isinstance(event, WriteCompleted):
            sender.on_completed(event)
        elif isinstance(event, QpFailed):
            sender.on_failed(event)
        elif isinstance(event, MessageArrived) and isinstance(sender, WriteLatSide):
            sender.on_arrived(event)

    def forget(self, workload: str) -> None:
        """Drop a sender or target; its region is no longer reachable."""
        sender = self.senders.pop(workload, None)
        if sender is not None:
            for qpn in sender.spec.qpns:
                self._by_qpn.pop(qpn, None)
        target = self.targets.pop(workload, None)
        if target is not None:
            self._host.nic.regions.deregister(target.region.rkey)

    def report(self, workload: str, qpns: list[int]) -> dict[str, Any]:
        """What one workload did on this host, its region checked; zeros for the side it does not play."""
        nic, recorder = self._host.nic, self._host.recorder
        qps = [nic.qps[qpn] for qpn in qpns if qpn in nic.qps]
        spans = [recorder.span_ns[qpn] for qpn in qpns if qpn in recorder.span_ns]
        sender = self.senders.get(workload)
        checked = self._verify_one(self.targets[workload]) if workload in self.targets else {"corrupted_bytes": 0}
        return {
            "completed": sender.completed if sender else 0,
            "bytes": sum(qp.responder.counters.bytes_placed for qp in qps),
            "first_ns": min((first for first, _ in spans), default=0),
            "last_ns": max((last for _, last in spans), default=0),
            "lost": sum(qp.requester.counters.lost for qp in qps),
            "retransmitted": sum(qp.requester.counters.retransmitted for qp in qps),
            "evs_retired": sum(entry.retired for qp in qps for entry in qp.spray.entries.values()),
            "qp_errors": sum(qp.error is not None for qp in qps),
            "ports_up": nic.ports.local_mask.bit_count(),
            "corrupted_bytes": checked["corrupted_bytes"],
        }

    def progress(self) -> dict[str, Any]:
        """Small and cheap: what is outstanding, completed, placed."""
        qps = self._host.nic.qps
        now_ns = self._host.clock.now_ns()
        return {
            "senders": {
                name: {
                    "outstanding": sender.outstanding,
                    "completed": sender.completed,
                    "done": sender.done(now_ns),
                    "failed": any(qps[qpn].error is not None for qpn in sender.spec.qpns if qpn in qps),
                }
                for name, sender in self.senders.items()
            },
            "placed": {
                name: sum(qps[qpn].responder.counters.bytes_placed for qpn in target.checks if qpn in qps)
                for name, target in self.targets.items()
            },
        }

    def verify(self) -> dict[str, dict[str, Any]]:
        """Compare every region with what its senders' messages hold; per workload: corrupted bytes, hash, messages."""
        return {name: self._verify_one(target) for name, target in self.targets.items()}

    def _verify_one(self, target: _Target) -> dict[str, Any]:
        corrupted = sum(check.corrupted_bytes for check in target.checks.values())
        messages = 0
        for qpn, check in target.checks.items():
            arrived = self._host.nic.qps[qpn].responder.counters.messages
            messages += arrived
            corrupted += check.check_region(target.region, arrived)
        return {
            "corrupted_bytes": corrupted,
            "checked_bytes": sum(check.checked_bytes for check in target.checks.values()),
            "messages": messages,
            "sha256": hashlib.sha256(target.region.view).hexdigest(),
        }
