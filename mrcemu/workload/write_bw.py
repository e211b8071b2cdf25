"""write_bw: keep `depth` RDMA Writes of one size outstanding on each QP, like ib_write_bw.

Owns when the next message is posted and what is counted about messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mrcemu.errors import QpError
from mrcemu.protocol.events import QpFailed, WriteCompleted
from mrcemu.protocol.nic import Nic
from mrcemu.workload.pattern import PatternSource

MAX_LATENCIES = 100_000


@dataclass(frozen=True, slots=True)
class WriteBwSpec:
    """One sender. It stops posting at `stop_ns`, or after `count` messages per QP if given."""

    workload_id: str
    qpns: tuple[int, ...]
    size_bytes: int
    depth: int
    rkey: int
    stop_ns: int
    count: int | None = None


@dataclass(slots=True)
class _QpState:
    posted: int = 0
    completed: int = 0
    failed: bool = False


@dataclass(slots=True)
class WriteBwSender:
    """The requester's side of write_bw on one NIC."""

    spec: WriteBwSpec
    nic: Nic
    latencies_ns: list[int] = field(default_factory=list)
    states: dict[int, _QpState] = field(default_factory=dict)

    def start(self, now_ns: int) -> None:
        """Post the first `depth` messages on every QP."""
        for qpn in self.spec.qpns:
            self.states[qpn] = _QpState()
            for _ in range(self.spec.depth):
                self._post(qpn, now_ns)

    def stop(self, now_ns: int) -> None:
        """Post nothing more; what is outstanding completes."""
        self.spec = replace(self.spec, stop_ns=now_ns)

    def _post(self, qpn: int, now_ns: int) -> None:
        spec, state = self.spec, self.states[qpn]
        if state.failed or now_ns >= spec.stop_ns or (spec.count is not None and state.posted >= spec.count):
            return
        msn = state.posted
        slot = self.spec.qpns.index(qpn) * spec.depth + msn % spec.depth
        try:
            self.nic.post_write(
                qpn, msn, PatternSource(qpn, msn), spec.size_bytes, slot * spec.size_bytes, spec.rkey, now_ns
            )
        except QpError:
            state.failed = True
            return
        state.posted += 1

    def on_completed(self, event: WriteCompleted) -> None:
        """One message is done: count it, post the next."""
        state = self.states[event.qpn]
        state.completed += 1
        if len(self.latencies_ns) < MAX_LATENCIES:
            self.latencies_ns.append(event.now_ns - event.posted_ns)
        self._post(event.qpn, event.now_ns)

    def on_failed(self, event: QpFailed) -> None:
        self.states[event.qpn].failed = True

    @property
    def outstanding(self) -> int:
        """Messages posted and neither completed nor lost with their QP."""
        return sum(state.posted - state.completed for state in self.states.values() if not state.failed)

    def done(self, now_ns: int) -> bool:
        """Whether nothing is outstanding and nothing more will be posted."""
        if not self.states or self.outstanding:
            return False
        if now_ns >= self.spec.stop_ns:
            return True
        count = self.spec.count
        return all(state.failed or (count is not None and state.posted >= count) for state in self.states.values())

    @property
    def completed(self) -> int:
        return sum(state.completed for state in self.states.values())
