"""The sending half of a QP: messages into packets, acknowledgements back into completions.

Owns PSN assignment, the MPR gate and the retransmission queue; messages.py owns messages and their completion. Asks
`spray` for a path, `congestion` for room in the window, `loss` for what is lost, `retry` for how long to go on. See
protocol sources, section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from mrcemu.protocol import events
from mrcemu.protocol.config import NOMINAL_OVERHEAD_BYTES, TransportConfig
from mrcemu.protocol.congestion.base import CongestionControl
from mrcemu.protocol.ev import EvEntry, EvInput, EvState
from mrcemu.protocol.loss import ACKED, IN_FLIGHT, LOST, Flight, LossDetector
from mrcemu.protocol.memory import PayloadSource
from mrcemu.protocol.messages import MessageQueue
from mrcemu.protocol.retry import RetryBudget
from mrcemu.protocol.spray import Spray
from mrcemu.wire import psn as wire_psn
from mrcemu.wire.opcodes import AethSyndrome, NackReason, SackMark

SACK_BITS = 64


@dataclass(slots=True)
class RequesterCounters:
    """What a requester counts over its life."""

    packets_sent: int = 0
    retransmitted: int = 0
    lost: int = 0
    lost_same_ev: int = 0
    lost_guard: int = 0
    lost_timer: int = 0
    lost_port: int = 0
    spurious: int = 0
    trimmed: int = 0
    marked: int = 0
    nacks: int = 0
    sacks: int = 0
    bad_acks: int = 0
    timeouts: int = 0


class Requester:
    """Sends RDMA Writes; see the module docstring. All calls take `now_ns`; nothing here reads a clock."""

    def __init__(
        self,
        qpn: int,
        config: TransportConfig,
        spray: Spray,
        congestion: CongestionControl,
        emit_event: Callable[[events.Event], None],
        fail: Callable[[str, int], None],
        first_psn: int = 0,
    ) -> None:
        self._qpn = qpn
        self._config = config
        self._spray = spray
        self._congestion = congestion
        self._event = emit_event
        self._fail = fail
        self.counters = RequesterCounters()
        self.on_path_works: Callable[[EvEntry, int], None] | None = None  # told of paths that delivered, with now_ns
        self.loss = LossDetector(config)
        self.budget = RetryBudget(config)
        self._una = first_psn  # lowest PSN not cumulatively acknowledged
        self._next_psn = first_psn
        self._mpr_psns = config.mpr_psns
        self._flights: dict[int, Flight] = {}  # PSN -> its newest transmission, until acknowledged
        self._acked_bits = 0  # bit i: una + i is acknowledged
        self._rtx: list[int] = []  # heap of PSNs to send again
        self._delayed: list[tuple[int, int]] = []  # heap of (due, PSN): refused for lack of resources
        self._messages = MessageQueue(config.max_imm_in_flight)
        self.wants_state_probe = False
        self._refused_ns = -1  # when a refusal last charged the budget
        self._mtu = config.mtu_bytes
        self._full_nominal = self._mtu + NOMINAL_OVERHEAD_BYTES

    # -- application ----------------------------------------------------------------------------------------------

    def post_write(
        self,
        wr_id: int,
        source: PayloadSource,
        length: int,
        va: int,
        rkey: int,
        now_ns: int,
        imm: int | None = None,
    ) -> int:
        """Queue one RDMA Write of 0 .. 1 GiB; its MSN. QpError for a length outside that."""
        if not self._messages.incomplete:
            self.budget.progress(now_ns)
        return self._messages.post(wr_id, source, length, va, rkey, imm, now_ns).msn

    @property
    def has_unsent(self) -> bool:
        """Whether packets wait to be sent, for the first time or again."""
        return self._messages.has_unsent or bool(self._rtx)

    @property
    def outstanding_messages(self) -> int:
        return len(self._messages.incomplete)

    @property
    def inflight_packets(self) -> int:
        return len(self._flights)

    # -- sending --------------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Whether a packet could leave now, paths and ports aside."""
        if self._rtx:
            return self._congestion.may_send(self._full_nominal)
        if not self._messages.may_send() or self._next_psn >= self._una + self._mpr_psns:
            return False
        return self._congestion.may_send(self._full_nominal)

    def next_flight(self, room: int, now_ns: int) -> Flight | None:
        """Commit the next transmission to a path with room: retransmissions first, oldest first; None: none may go."""
        psn = self._next_rtx()
        if psn is not None:
            return self._start_retransmission(psn, room, now_ns)
        if not self.has_work():
            return None
        entry = self._spray.select(room)
        return None if entry is None else self._start_new(entry, now_ns)

    def _next_rtx(self) -> int | None:
        """The oldest PSN to send again; acknowledged ones are dropped from the queue on the way."""
        while self._rtx:
            flight = self._flights.get(self._rtx[0])
            if flight is not None and flight.state == LOST:
                return self._rtx[0]
            heappop(self._rtx)
        return None

    def _start_retransmission(self, psn: int, room: int, now_ns: int) -> Flight | None:
        old = self._flights[psn]
        if psn >= self._una + self._mpr_psns:  # the peer's window shrank below it
            return None
        if not self._congestion.may_send(old.nominal_bytes):
            return None
        entry = self._spray.select(room, avoid=old.entry)
        if entry is None:
            return None
        heappop(self._rtx)
        flight = Flight(psn, old.message, old.offset, old.length, entry, now_ns, old.attempt + 1, old.nominal_bytes)
        flight.blamed = old.blamed
        self._launch(flight)
        self.counters.retransmitted += 1
        self._event(events.Retransmitted(now_ns, self._qpn, psn, entry.ev, flight.attempt))
        return flight

    def _start_new(self, entry: EvEntry, now_ns: int) -> Flight:
        psn = self._next_psn
        self._next_psn = psn + 1
        message, offset, length = self._messages.cut(psn, self._mtu)
        flight = Flight(psn, message, offset, length, entry, now_ns, 1, length + NOMINAL_OVERHEAD_BYTES)
        self._launch(flight)
        return flight

    def _launch(self, flight: Flight) -> None:
        self._flights[flight.psn] = flight
        self.loss.sent(flight)
        self._congestion.on_sent(flight.nominal_bytes)
        flight.entry.sent += 1
        self.counters.packets_sent += 1

    def wants_ack(self, flight: Flight) -> bool:
        """The AckReq bit: the window has no room for another packet, or nothing follows (6.7; the latter ours)."""
        if not self._congestion.may_send(self._full_nominal) or self._next_psn >= self._una + self._mpr_psns:
            return True
        if not self._messages.may_send() and self._messages.has_unsent:  # an immediate waits for the peer's limit
            return True
        return not self._messages.has_unsent and not self._rtx

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def receive_sack(
        self,
        cack24: int,
        sack_offset: int,
        bitmap: int,
        ack_psn_offset: int,
        is_probe: bool,
        rtx_echo: bool,
        entropy: int,
        mark: int,
        mpr_units: int,
        now_ns: int,
    ) -> None:
        """Free what a SACK reports, judge what it reports missing, and steer by its mark."""
        self.counters.sacks += 1
        cack = wire_psn.expand(cack24, self._una)
        if cack >= self._next_psn:
            self.counters.bad_acks += 1
            return
        if mpr_units:
            self._mpr_psns = mpr_units * 128
        if not is_probe:
            self._sample_rtt(cack + ack_psn_offset, rtx_echo, entropy, now_ns)
            self._steer(entropy, mark, now_ns)
        self._advance(cack, now_ns)
        base = cack + sack_offset
        self._report(base, bitmap, now_ns)
        for flight, signal in self.loss.find_by_report(max(base, self._una), base + SACK_BITS - 1):
            self.lose(flight, signal, now_ns)

    def _sample_rtt(self, psn: int, rtx_echo: bool, entropy: int, now_ns: int) -> None:
        """RTT of the packet that triggered the SACK, where it is certain which transmission that was (sources 6.3)."""
        flight = self._flights.get(psn)
        if flight is None or flight.entry.ev != entropy:
            return
        if (flight.attempt == 1 and not rtx_echo) or (flight.attempt == 2 and rtx_echo):
            rtt = now_ns - flight.sent_ns
            entry = flight.entry
            if self.on_path_works is not None:
                self.on_path_works(entry, now_ns)
            entry.rtt_ns = rtt if not entry.rtt_ns else entry.rtt_ns + ((rtt - entry.rtt_ns) >> 3)

    def _steer(self, entropy: int, mark: int, now_ns: int) -> None:
        entry = self._spray.entries.get(entropy)
        if entry is None:
            return
        if mark not in (SackMark.SKIP_ONCE, SackMark.ALWAYS_SKIP):  # 3 is reserved
            if entry.skip_run:
                self._spray.clear_mark_run(entry)
            return
        entry.marked += 1
        self.counters.marked += 1
        what = EvInput.MARK_ALWAYS if mark == SackMark.ALWAYS_SKIP else EvInput.MARK
        self._spray.apply(entry, what, "mark", now_ns)

    def _advance(self, cack: int, now_ns: int) -> None:
        """Cumulative acknowledgement up to and including `cack`."""
        moved = cack + 1 - self._una
        if moved <= 0:
            return
        flights = self._flights
        for psn in range(self._una, cack + 1):
            flight = flights.pop(psn, None)
            if flight is not None:
                self._acknowledge(flight, now_ns)
        self._una = cack + 1
        self._acked_bits >>= moved
        self.budget.progress(now_ns)

    def _report(self, base: int, bitmap: int, now_ns: int) -> None:
        """Selective acknowledgement: bit i of `bitmap` says base + i arrived."""
        shift = base - self._una
        bits = bitmap << shift if shift >= 0 else bitmap >> -shift
        new = bits & ~self._acked_bits & ((1 << (self._next_psn - self._una)) - 1)
        self._acked_bits |= new
        flights = self._flights
        while new:
            low = new & -new
            new ^= low
            flight = flights.pop(self._una + low.bit_length() - 1, None)
            if flight is not None:
                self._acknowledge(flight, now_ns)

    def _acknowledge(self, flight: Flight, now_ns: int) -> None:
        state = flight.state
        flight.state = ACKED
        if state == IN_FLIGHT:
            self._congestion.on_left(flight.nominal_bytes)
            if flight.attempt == 1:
                self.loss.acked(flight)
                return
        too_soon = now_ns - flight.sent_ns < self._config.base_rtt_ns * 9 // 10
        if flight.blamed is not None and (state == LOST or too_soon):
            self._exonerate(flight, flight.blamed, now_ns)

    def _exonerate(self, flight: Flight, blamed: EvEntry, now_ns: int) -> None:
        """The transmission presumed lost had arrived: its path is good, and the guard was too short."""
        self.counters.spurious += 1
        guard_ns = self.loss.lengthen_guard()
        self._event(events.LossWasSpurious(now_ns, self._qpn, flight.psn, blamed.ev, guard_ns))
        self._spray.apply(blamed, EvInput.EXONERATED, "spurious", now_ns)

    def receive_transport_ack(self, syndrome: int, msn24: int, psn24: int, now_ns: int) -> None:
        """Complete messages in order up to the peer's MSN; then fail, if it is a NAK (sources 2.13, 3.7)."""
        is_nak = syndrome != AethSyndrome.ACK
        msn = wire_psn.expand(msn24, self._messages.completed_msn)
        # A NAK's PSN is the refused packet; what it acknowledges are the messages below its MSN.
        cack = self._last_psn_below(msn) if is_nak else wire_psn.expand(psn24, self._una)
        if cack >= self._next_psn or msn > self._messages.posted:
            self.counters.bad_acks += 1
        else:
            self._advance(cack, now_ns)
            self._complete_below(msn, now_ns)
        if is_nak:
            self._fail(_NAK_MEANING.get(syndrome, f"peer sent NAK {syndrome:#x}"), now_ns)

    def _last_psn_below(self, msn: int) -> int:
        """The last PSN of the messages before `msn`, of those sent completely; una - 1 if there are none."""
        last = self._messages.last_psn_below(msn)
        return self._una - 1 if last is None else max(last, self._una - 1)

    def _complete_below(self, msn: int, now_ns: int) -> None:
        """Complete messages before `msn` in order; the peer cannot have what was never acknowledged."""
        while (message := self._messages.complete_next(msn, self._una)) is not None:
            self.budget.progress(now_ns)
            self._event(
                events.WriteCompleted(now_ns, self._qpn, message.wr_id, message.msn, message.length, message.posted_ns)
            )
        if self._messages.incomplete and self._messages.incomplete[0].msn < msn:
            self.counters.bad_acks += 1

    # -- refusals -------------------------------------------------------------------------------------------------

    def receive_nack(self, reason: int, psn24: int, entropy: int, now_ns: int) -> None:
        """React to one refused packet by the table of sources 2.12."""
        self.counters.nacks += 1
        psn = wire_psn.expand(psn24, self._una)
        flight = self._flights.get(psn)
        entry = self._spray.entries.get(entropy)
        self._event(events.NackReceived(now_ns, self._qpn, psn, entropy, reason))
        if reason == NackReason.UNEXP_EVENT:
            self._fail("remote operation error (NACK UNEXP_EVENT)", now_ns)
            return
        if reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP):
            self.counters.trimmed += 1
            if entry is not None:
                entry.trimmed += 1
                if reason == NackReason.TRIMMED:
                    self._spray.apply(entry, EvInput.MARK, "trimmed", now_ns)
        if flight is None or flight.state != IN_FLIGHT or flight.entry.ev != entropy:
            return
        self._take_back(flight)
        if reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP):
            heappush(self._rtx, psn)
        else:
            self._charge_refusal(psn, now_ns)
            heappush(self._delayed, (now_ns + self._config.base_rtt_ns, psn))

    def _take_back(self, flight: Flight) -> None:
        """A transmission is known not to have delivered, without blame on its path."""
        flight.state = LOST
        flight.blamed = None
        self._congestion.on_left(flight.nominal_bytes)

    # -- loss and time --------------------------------------------------------------------------------------------

    def lose(self, flight: Flight, signal: str, now_ns: int) -> None:
        """A transmission is lost: its path answers for it (a port's fault excepted), the packet goes out again."""
        entry = flight.entry
        counters = self.counters
        self._congestion.on_left(flight.nominal_bytes)
        entry.lost += 1
        counters.lost += 1
        _COUNT_LOSS[signal](counters)
        self._event(events.PacketLost(now_ns, self._qpn, flight.psn, entry.ev, signal, flight.sent_ns))
        heappush(self._rtx, flight.psn)
        flight.blamed = None if signal == "port" else entry
        if signal != "port" and entry.state is not EvState.ASSUMED_BAD:
            self._spray.apply(entry, EvInput.LOSS, signal, now_ns)

    def plane_down(self, plane: int, now_ns: int) -> None:
        """A port of this plane is down at either end: what is in flight there goes out again at once."""
        for flight, signal in self.loss.find_by_plane(plane):
            self.lose(flight, signal, now_ns)

    def next_timer_ns(self) -> int | None:
        """When `handle_timer` has something to do; None while nothing is outstanding."""
        if not self._messages.incomplete:
            return None
        due = self.budget.deadline_ns()
        oldest = self.loss.oldest_sent_ns()
        if oldest is not None:
            due = min(due, oldest + self.budget.interval_ns())
        if self._delayed:
            due = min(due, self._delayed[0][0])
        return due

    def handle_timer(self, now_ns: int) -> None:
        """Rule (c), the retry budget, and packets whose resource delay is over. Harmless when early."""
        if not self._messages.incomplete:
            return
        for flight, signal in self.loss.find_by_timer(now_ns - self.budget.interval_ns()):
            self.counters.timeouts += 1
            self.lose(flight, signal, now_ns)
        while self._delayed and self._delayed[0][0] <= now_ns:
            heappush(self._rtx, heappop(self._delayed)[1])
        if now_ns >= self.budget.deadline_ns():
            self.wants_state_probe = True
            self._charge(self._una, now_ns)

    def _charge_refusal(self, psn: int, now_ns: int) -> None:
        """Refusals charge the budget too, a burst of them once a timer (ours: one full window would use it up)."""
        if self._refused_ns < 0 or now_ns - self._refused_ns >= self._config.rto_ns:
            self._refused_ns = now_ns
            self._charge(psn, now_ns)

    def _charge(self, psn: int, now_ns: int) -> None:
        within = self.budget.charge(now_ns)
        self._event(events.TimerExpired(now_ns, self._qpn, psn, self.budget.attempts))
        if not within:
            self._fail("retry counter exceeded", now_ns)

    def abandon(self) -> int:
        """Forget all work (the QP is in error); the number of messages that will not complete."""
        count = len(self._messages.incomplete)
        for flight in self._flights.values():
            if flight.state == IN_FLIGHT:
                flight.state = ACKED
                self._congestion.on_left(flight.nominal_bytes)
        self._flights.clear()
        self._messages.clear()
        self._rtx.clear()
        self._delayed.clear()
        return count


def _count(field: str) -> Callable[[RequesterCounters], None]:
    def add(counters: RequesterCounters) -> None:
        setattr(counters, field, getattr(counters, field) + 1)

    return add


_COUNT_LOSS = {
    "sack_gap": _count("lost_same_ev"),
    "guard": _count("lost_guard"),
    "timer": _count("lost_timer"),
    "port": _count("lost_port"),
}

_NAK_MEANING = {
    int(AethSyndrome.NAK_SEQUENCE): "peer reports a sequence error (NAK 0x60)",
    int(AethSyndrome.NAK_INVALID_REQUEST): "peer reports an invalid request (NAK 0x61)",
    int(AethSyndrome.NAK_REMOTE_ACCESS): "remote access error (NAK 0x62)",
    int(AethSyndrome.NAK_REMOTE_OPERATION): "remote operation error (NAK 0x63)",
}
