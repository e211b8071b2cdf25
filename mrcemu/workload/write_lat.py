"""write_lat: one RDMA Write at a time, answered by a write of the same size, like ib_write_lat.

Owns the ping-pong and its times. Each side "polls memory": it acts when the peer's whole message is there. MRC places
packets in any order, so the last byte says nothing by itself; what is awaited is the responder's `MessageArrived`
(ours; ib_write_lat may look at the last byte because its transport delivers in order). Completions are not waited for.
A latency is half the time from posting to the arrival of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mrcemu.errors import QpError
from mrcemu.protocol.events import MessageArrived, QpFailed, WriteCompleted
from mrcemu.protocol.nic import Nic
from mrcemu.workload.pattern import PatternSource
from mrcemu.workload.write_bw import MAX_LATENCIES


@dataclass(frozen=True, slots=True)
class WriteLatSpec:
    """One side of a ping-pong on one QP. The side that `begins` stops at `stop_ns`, or after `count` exchanges."""

    workload_id: str
    qpn: int
    size_bytes: int
    rkey: int
    begins: bool
    stop_ns: int
    count: int | None = None

    @property
    def qpns(self) -> tuple[int, ...]:
        return (self.qpn,)


@dataclass(slots=True)
class WriteLatSide:
    """Both ends run one; only the one that begins measures."""

    spec: WriteLatSpec
    nic: Nic
    latencies_ns: list[int] = field(default_factory=list)
    posted: int = 0
    acknowledged: int = 0
    arrived: int = 0
    failed: bool = False
    _posted_ns: int = 0

    def start(self, now_ns: int) -> None:
        """Post the first message, if this side begins."""
        if self.spec.begins and not self._is_over(now_ns):
            self._post(now_ns)

    def stop(self, now_ns: int) -> None:
        """Begin no further exchange; the answering side goes on answering."""
        self.spec = replace(self.spec, stop_ns=now_ns)

    def _is_over(self, now_ns: int) -> bool:
        count = self.spec.count
        return now_ns >= self.spec.stop_ns or (count is not None and self.posted >= count)

    def _post(self, now_ns: int) -> None:
        spec, msn = self.spec, self.posted
        try:
            self.nic.post_write(spec.qpn, msn, PatternSource(spec.qpn, msn), spec.size_bytes, 0, spec.rkey, now_ns)
        except QpError:
            self.failed = True
            return
        self.posted += 1
        self._posted_ns = now_ns

    def on_arrived(self, event: MessageArrived) -> None:
        """The peer's message is in memory: answer it, or time it and send the next."""
        self.arrived += 1
        if not self.spec.begins:
            self._post(event.now_ns)
            return
        if len(self.latencies_ns) < MAX_LATENCIES:
            self.latencies_ns.append((event.now_ns - self._posted_ns) // 2)
        if not self._is_over(event.now_ns):
            self._post(event.now_ns)

    def on_completed(self, event: WriteCompleted) -> None:
        """The peer acknowledged a message of ours; nothing waits for that but the end."""
        self.acknowledged += 1

    def on_failed(self, event: QpFailed) -> None:
        self.failed = True

    @property
    def outstanding(self) -> int:
        """Messages of this side not acknowledged, or an exchange not answered."""
        if self.failed:
            return 0
        unanswered = self.posted - self.arrived if self.spec.begins else 0
        return max(self.posted - self.acknowledged, unanswered)

    def done(self, now_ns: int) -> bool:
        """Whether nothing is outstanding and this side will begin nothing more."""
        if self.failed:
            return True
        return self.outstanding == 0 and (not self.spec.begins or self._is_over(now_ns))

    @property
    def completed(self) -> int:
        """Exchanges: answers that arrived, or messages answered."""
        return self.arrived if self.spec.begins else self.acknowledged
