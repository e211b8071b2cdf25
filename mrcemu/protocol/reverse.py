"""Which path an answer takes: SACKs, NACKs, Transport ACKs and probe answers rotate over all planes.

Owns one reverse EV per plane and how it is kept fresh (protocol sources 4.7): while a QP receives without sending data
of its own, one random EV is probed each base RTT; the one that answers becomes the reverse EV of its plane. With data
of its own, every acknowledged packet says that its EV works. A reverse EV whose probe stays unanswered is exchanged. So
a dead reverse path costs single answers only, and every SACK repeats what others reported. A rotation apart from the
data's leaves the equal plane shares of data alone.
"""

from __future__ import annotations

from collections import deque

from mrcemu.protocol.ev import EvEntry, EvInput
from mrcemu.protocol.spray import Spray
from mrcemu.rng import Rng

# Unanswered probes in a row that retire a path which carries no data of ours (ours: one answer may be what was lost).
MISSES_RETIRE = 3


class ReversePaths:
    """The reverse EVs of one QP."""

    __slots__ = (
        "_base_rtt_ns",
        "_current",
        "_inbound_ns",
        "_next_probe_ns",
        "_order",
        "_outbound_ns",
        "_rng",
        "_spray",
        "_suspects",
        "_turn",
    )

    def __init__(self, spray: Spray, base_rtt_ns: int, rng: Rng) -> None:
        self._spray = spray
        self._rng = rng
        self._base_rtt_ns = base_rtt_ns
        self._order = list(range(spray.plane_count))
        self._turn = len(self._order)
        self._suspects: deque[EvEntry] = deque()
        self._current: dict[int, EvEntry] = {}  # plane -> its reverse EV
        self._inbound_ns = self._outbound_ns = -1
        self._next_probe_ns = 0

    def select(self, room: int) -> EvEntry | None:
        """The path of the next answer among ports with room, or None."""
        usable = self._spray.usable_planes & room
        if not usable:
            return None
        plane = self._next_plane(usable)
        entry = self._current.get(plane)
        return entry if entry is not None and entry.active else self._choose(plane)

    def _next_plane(self, usable: int) -> int:
        """Rotate over planes in an order shuffled anew each time round.

        In a fixed order, answers of alternating kinds (SACK, Transport ACK) would march in step with the planes, and a
        dead plane would take the same kind every time.
        """
        for _ in range(2 * len(self._order)):
            if self._turn >= len(self._order):
                self._turn = 0
                self._rng.shuffle(self._order)
            plane = self._order[self._turn]
            self._turn += 1
            if usable >> plane & 1:
                return plane
        return (usable & -usable).bit_length() - 1

    def current(self, plane: int) -> EvEntry | None:
        """The reverse EV of a plane; None before its first answer."""
        return self._current.get(plane)

    def _choose(self, plane: int) -> EvEntry:
        """Any EV in service of a plane that has one."""
        active = self._spray.in_service(plane)
        entry = self._current[plane] = active[self._rng.below(len(active))]
        return entry

    def works(self, entry: EvEntry) -> None:
        """A probe on this path was answered: it is its plane's reverse EV from now on."""
        entry.missed_probes = 0
        if entry.active:
            self._current[entry.plane] = entry

    def suspect(self, entry: EvEntry, now_ns: int) -> None:
        """A probe on this path was not answered: take another, and ask again; `MISSES_RETIRE` in a row retire it."""
        if not entry.active:
            return
        entry.missed_probes += 1
        others = [other for other in self._spray.in_service(entry.plane) if other is not entry]
        if others and self._current.get(entry.plane) is entry:
            self._current[entry.plane] = others[self._rng.below(len(others))]
        if entry.missed_probes >= MISSES_RETIRE:
            entry.missed_probes = 0
            self._spray.apply(entry, EvInput.LOSS, "probe", now_ns)
        else:
            self._suspects.append(entry)

    def on_inbound(self, now_ns: int) -> None:
        """Data arrived."""
        if self._inbound_ns < 0 or now_ns - self._inbound_ns > self._base_rtt_ns:
            self._next_probe_ns = now_ns + self._base_rtt_ns
        self._inbound_ns = now_ns

    def on_outbound_acknowledged(self, entry: EvEntry, now_ns: int) -> None:
        """A data packet of ours was acknowledged: its EV works, and no probes are needed."""
        self._outbound_ns = now_ns
        self.works(entry)

    def _is_one_way(self) -> bool:
        """Receiving within the last base RTT, and nothing of ours acknowledged in that time."""
        return self._inbound_ns >= 0 and self._outbound_ns < self._inbound_ns - self._base_rtt_ns

    def next_timer_ns(self) -> int | None:
        """When a probe is due; None while the QP does not receive one way."""
        if not self._is_one_way() or self._next_probe_ns > self._inbound_ns + self._base_rtt_ns:
            return None
        return self._next_probe_ns

    def take_due(self, now_ns: int) -> EvEntry | None:
        """The path to probe now, or None: a suspect first, then a reverse EV or, as often, any EV in service."""
        due = self.next_timer_ns()
        if due is None or due > now_ns:
            return None
        self._next_probe_ns = now_ns + self._base_rtt_ns
        while self._suspects:
            suspect = self._suspects.popleft()
            if suspect.active:
                return suspect
        usable = self._spray.usable_planes
        planes = [plane for plane in self._order if usable >> plane & 1]
        if not planes:
            return None
        plane = planes[self._rng.below(len(planes))]
        current = self._current.get(plane)
        if current is not None and current.active and self._rng.below(2):
            return current
        active = self._spray.in_service(plane)
        return active[self._rng.below(len(active))]
