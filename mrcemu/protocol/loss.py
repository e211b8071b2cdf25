"""When is a packet lost? Transmissions in flight and the three rules (protocol sources 2.6).

(a) same EV: a later packet of the same EV was acknowledged, and this one is reported missing. Static source routing
    keeps an EV in order, so this is proof.
(b) guard: a packet sent at least `guard_ns` later was acknowledged, and this one is reported missing. On a dead path
    rule (a) never fires, since nothing later on it is acknowledged.
(c) timer: nothing was heard for the local ACK timeout (retry.py charges the oldest packet's).

"Reported missing" means: this SACK's bitmap covers the PSN with a 0. A PSN outside the bitmap says nothing, since the
report of its arrival may have been on a SACK that was lost.

A retransmitted packet's acknowledgement does not tell which transmission arrived, so it is no evidence for (a) or (b);
if it comes sooner than its newest transmission can have been answered, the loss was spurious and the guard doubles.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.ev import EvEntry

if TYPE_CHECKING:
    from mrcemu.protocol.messages import Message

IN_FLIGHT = 0
ACKED = 1
LOST = 2


class Flight:
    """One transmission of one packet. `psn` is unbounded; `message` and `offset` say what to send again."""

    __slots__ = (
        "attempt",
        "blamed",
        "entry",
        "length",
        "message",
        "nominal_bytes",
        "offset",
        "psn",
        "sent_ns",
        "serial",
        "state",
    )

    def __init__(
        self,
        psn: int,
        message: Message,
        offset: int,
        length: int,
        entry: EvEntry,
        sent_ns: int,
        attempt: int,
        nominal: int,
    ) -> None:
        self.psn = psn
        self.message = message
        self.offset = offset
        self.length = length
        self.entry = entry
        self.sent_ns = sent_ns
        self.attempt = attempt
        self.nominal_bytes = nominal
        self.state = IN_FLIGHT
        self.blamed: EvEntry | None = None  # the path that lost the transmission before this one
        entry.serial += 1
        self.serial = entry.serial


class LossDetector:
    """All transmissions of one QP in send order, and which of them are lost."""

    __slots__ = ("_max_guard_ns", "_newest_acked_sent_ns", "_order", "_touched", "guard_ns")

    def __init__(self, config: TransportConfig) -> None:
        self.guard_ns = config.base_rtt_ns
        self._max_guard_ns = config.max_guard_ns
        self._order: deque[Flight] = deque()
        self._newest_acked_sent_ns = -1
        self._touched: dict[EvEntry, None] = {}  # ordered, so that a run replays exactly

    def sent(self, flight: Flight) -> None:
        self._order.append(flight)
        flight.entry.flights.append(flight)

    def acked(self, flight: Flight) -> None:
        """Take an unambiguous acknowledgement as evidence about its path and time."""
        entry = flight.entry
        if flight.serial > entry.acked_serial:
            entry.acked_serial = flight.serial
            self._touched[entry] = None
        self._newest_acked_sent_ns = max(self._newest_acked_sent_ns, flight.sent_ns)

    def lengthen_guard(self) -> int:
        """A presumed loss was spurious: double the guard up to the worst queue of a path; the new guard in ns."""
        self.guard_ns = min(2 * self.guard_ns, self._max_guard_ns)
        return self.guard_ns

    def find_by_report(self, first_psn: int, last_psn: int) -> list[tuple[Flight, str]]:
        """Lost transmissions by rules (a) and (b), among PSNs the newest report covers; marks them LOST."""
        lost: list[tuple[Flight, str]] = []
        if self._touched:
            # A path stays under suspicion while something older than its newest arrival is unaccounted for.
            self._touched = {e: None for e in self._touched if self._collect_same_ev(e, first_psn, last_psn, lost)}
        self._collect_by_guard(first_psn, last_psn, lost)
        return lost

    @staticmethod
    def _collect_same_ev(entry: EvEntry, first: int, last: int, lost: list[tuple[Flight, str]]) -> bool:
        """Judge one path by rule (a); whether an older transmission remains that the report does not cover."""
        flights, acked_serial = entry.flights, entry.acked_serial
        while flights and flights[0].state != IN_FLIGHT:
            flights.popleft()
        if not flights or flights[0].serial >= acked_serial:
            return False
        uncovered = False
        for flight in flights:
            if flight.serial >= acked_serial:
                break
            if flight.state == IN_FLIGHT:
                if first <= flight.psn <= last:
                    flight.state = LOST
                    lost.append((flight, "sack_gap"))
                else:
                    uncovered = True
        return uncovered

    def _collect_by_guard(self, first: int, last: int, lost: list[tuple[Flight, str]]) -> None:
        order = self._order
        while order and order[0].state != IN_FLIGHT:
            order.popleft()
        limit_ns = self._newest_acked_sent_ns - self.guard_ns
        for flight in order:
            if flight.sent_ns > limit_ns:
                break
            if flight.state == IN_FLIGHT and first <= flight.psn <= last:
                flight.state = LOST
                lost.append((flight, "guard"))

    def find_by_timer(self, sent_before_ns: int) -> list[tuple[Flight, str]]:
        """Lost transmissions by rule (c): sent at or before a time, still unanswered; marks them LOST."""
        lost: list[tuple[Flight, str]] = []
        order = self._order
        while order and (order[0].state != IN_FLIGHT or order[0].sent_ns <= sent_before_ns):
            flight = order.popleft()
            if flight.state == IN_FLIGHT:
                flight.state = LOST
                lost.append((flight, "timer"))
        return lost

    def find_by_plane(self, plane: int) -> list[tuple[Flight, str]]:
        """All transmissions in flight on a plane whose port went down; marks them LOST."""
        lost: list[tuple[Flight, str]] = []
        for flight in self._order:
            if flight.state == IN_FLIGHT and flight.entry.plane == plane:
                flight.state = LOST
                lost.append((flight, "port"))
        return lost

    def oldest_sent_ns(self) -> int | None:
        """When the oldest transmission still in flight was sent."""
        order = self._order
        while order and order[0].state != IN_FLIGHT:
            order.popleft()
        return order[0].sent_ns if order else None
