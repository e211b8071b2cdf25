"""Reliability probes: bringing bad paths back, and asking for acknowledgement state.

Owns when a probe is due and what its answer means (protocol sources 2.11, 4.8; the policy is ours): one probe a bad EV
every `probe_spacing_ns` +- 25 %, `probe_successes` clean replies in a row bring it back, and an EV retired soon after
it returned is held down twice as long, up to `max_hold_down_rto` timers. A marked reply counts, and the path
returns as SKIP. An unanswered probe starts the count again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrcemu.protocol import events
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.ev import EvEntry, EvInput, EvState
from mrcemu.protocol.reverse import ReversePaths
from mrcemu.protocol.spray import Spray
from mrcemu.rng import Rng
from mrcemu.wire.opcodes import SackMark

MAX_PROBE_ID = 0xFFFF


@dataclass(slots=True)
class _Pending:
    entry: EvEntry
    sent_ns: int
    asked: bool


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """A probe that is due; `asked`: by name, so that its answer is an `EvProbed` event."""

    entry: EvEntry
    asked: bool = False


class Prober:
    """The probes of one QP."""

    def __init__(
        self,
        qpn: int,
        config: TransportConfig,
        spray: Spray,
        rng: Rng,
        emit_event: Callable[[events.Event], None],
        reverse: ReversePaths | None = None,
    ) -> None:
        self._reverse = reverse  # hears which paths answer
        self._qpn = qpn
        self._config = config
        self._spray = spray
        self._rng = rng
        self._event = emit_event
        self._pending: dict[int, _Pending] = {}
        self._next_id = rng.below(MAX_PROBE_ID)
        self._waiting: dict[int, EvEntry] = {}  # bad EVs by EV
        self._asked: list[ProbeOrder] = []
        self.sent = 0
        self.answered = 0

    def path_retired(self, entry: EvEntry, now_ns: int) -> None:
        """Start probing a path that went ASSUMED_BAD; one that had just come back waits longer."""
        rto_ns = self._config.rto_ns
        flapped = entry.returned_ns >= 0 and now_ns - entry.returned_ns < self._config.max_hold_down_rto * rto_ns
        grown = min(max(rto_ns, 2 * entry.hold_down_ns), self._config.max_hold_down_rto * rto_ns)
        entry.hold_down_ns = grown if flapped else 0
        entry.clean_probes = 0
        entry.next_probe_ns = now_ns + entry.hold_down_ns + self._spacing_ns()
        self._waiting[entry.ev] = entry

    def path_left(self, entry: EvEntry) -> None:
        """The path is no longer ASSUMED_BAD."""
        self._waiting.pop(entry.ev, None)

    def plane_returned(self, plane: int, now_ns: int) -> None:
        """A port came up: probe the plane's bad paths now instead of at their next turn."""
        for entry in self._waiting.values():
            if entry.plane == plane:
                entry.next_probe_ns = now_ns

    def ask(self, entry: EvEntry) -> None:
        """Probe one path by name; the answer is an `EvProbed` event."""
        self._asked.append(ProbeOrder(entry, asked=True))

    def _spacing_ns(self) -> int:
        base = self._config.probe_spacing_ns
        return base * 3 // 4 + self._rng.below(base // 2 + 1)

    def next_timer_ns(self) -> int | None:
        """When a probe is due or an answer overdue."""
        if self._asked:
            return 0
        if not self._waiting and not self._pending:
            return None
        allowed = self._spray.allowed_planes
        times = [entry.next_probe_ns for entry in self._waiting.values() if allowed >> entry.plane & 1]
        times.extend(pending.sent_ns + self._config.rto_ns for pending in self._pending.values())
        return min(times, default=None)

    def take_due(self, now_ns: int) -> list[ProbeOrder]:
        """Probes to send now; overdue answers are given up first."""
        self._expire(now_ns)
        due = self._asked
        self._asked = []
        allowed = self._spray.allowed_planes
        for entry in self._waiting.values():
            if entry.next_probe_ns <= now_ns and allowed >> entry.plane & 1:
                entry.next_probe_ns = now_ns + self._spacing_ns()
                due.append(ProbeOrder(entry))
        return due

    def _expire(self, now_ns: int) -> None:
        limit = now_ns - self._config.rto_ns
        for probe_id in [key for key, pending in self._pending.items() if pending.sent_ns <= limit]:
            pending = self._pending.pop(probe_id)
            pending.entry.clean_probes = 0
            if self._reverse is not None:
                self._reverse.suspect(pending.entry, now_ns)
            if pending.asked:
                self._event(events.EvProbed(now_ns, self._qpn, pending.entry.ev, None, probe_id))

    def register(self, order: ProbeOrder, now_ns: int) -> int:
        """A probe leaves on its path; its 16-bit id."""
        self._next_id = (self._next_id + 1) & MAX_PROBE_ID
        self._pending[self._next_id] = _Pending(order.entry, now_ns, order.asked)
        self.sent += 1
        return self._next_id

    def receive_answer(self, probe_id: int, mark: int, now_ns: int) -> None:
        """A SACK with pr = 1; unknown ids (late, or forged) change nothing."""
        pending = self._pending.pop(probe_id, None)
        if pending is None:
            return
        self.answered += 1
        entry = pending.entry
        rtt_ns = now_ns - pending.sent_ns
        if self._reverse is not None:
            self._reverse.works(entry)
        if pending.asked:
            self._event(events.EvProbed(now_ns, self._qpn, entry.ev, rtt_ns, probe_id))
        marked = mark == SackMark.SKIP_ONCE
        if entry.state is not EvState.ASSUMED_BAD:
            if marked:
                self._spray.apply(entry, EvInput.PROBED_MARKED, "probe", now_ns)
            return
        if mark == SackMark.ALWAYS_SKIP:  # the responder holds the path for persistently bad
            entry.clean_probes = 0
            return
        self._give_up_older(entry, pending.sent_ns)
        entry.clean_probes += 1
        if entry.clean_probes >= self._config.probe_successes:
            what = EvInput.PROBED_MARKED if marked else EvInput.PROBED
            self._spray.apply(entry, what, "probe", now_ns)

    def _give_up_older(self, entry: EvEntry, sent_ns: int) -> None:
        """A path keeps its order: a probe sent before the one just answered is lost, and the count starts again."""
        older = [key for key, other in self._pending.items() if other.entry is entry and other.sent_ns < sent_ns]
        for key in older:
            self._pending.pop(key)
            entry.clean_probes = 0
