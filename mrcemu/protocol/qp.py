"""One QP: routes packets, time and commands to the parts that own the rules, and frames from them back out.

Owns the wiring and the QP's error state. Owns no algorithm: if you look for a rule, follow the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mrcemu.protocol import events
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.congestion.fixed import FixedWindow
from mrcemu.protocol.denylist import Denylist
from mrcemu.protocol.ev import EvEntry, EvInput, EvState
from mrcemu.protocol.framing import Framer
from mrcemu.protocol.loss import Flight
from mrcemu.protocol.memory import RegionTable
from mrcemu.protocol.probes import ProbeOrder, Prober
from mrcemu.protocol.requester import Requester
from mrcemu.protocol.responder import Responder
from mrcemu.protocol.reverse import ReversePaths
from mrcemu.protocol.scheduler import QpActivity
from mrcemu.protocol.spray import Spray
from mrcemu.rng import Rng
from mrcemu.topology.addressing import Path
from mrcemu.wire import fast
from mrcemu.wire import psn as wire_psn
from mrcemu.wire.opcodes import DATA_OPCODES, WRITE_OPCODE, Opcode

# (plane, frame, rides the control class): what leaves a NIC.
Outgoing = tuple[int, bytes, bool]


@dataclass(frozen=True, slots=True)
class QpSetup:
    """What two ends agree on out of band (MRC has no connection manager)."""

    qpn: int
    peer_qpn: int
    peer_address: bytes  # inner address, 16 bytes
    paths: tuple[Path, ...]  # towards the peer
    config: TransportConfig
    send_psn: int = 0  # first PSN of this end's requests
    receive_psn: int = 0  # first PSN of the peer's requests


class Qp:
    """One end of a connection; built by `Nic.create_qp`."""

    def __init__(
        self,
        setup: QpSetup,
        framer: Framer,
        regions: RegionTable,
        rng: Rng,
        planes_mask: int,
        emit_event: Callable[[events.Event], None],
    ) -> None:
        self.setup = setup
        self.qpn = setup.qpn
        self.error: str | None = None
        self.denied_evs: set[int] = set()  # by the controller, beside the NIC's denylist
        self._framer = framer
        self._event = emit_event
        self._now_ns = 0
        self._planes_mask = planes_mask
        config = setup.config
        self._timestamp_unit_ns = config.timestamp_unit_ns
        self.spray = Spray(setup.paths, config, rng.child("spray"), self._path_changed)
        self.spray.allow_planes(planes_mask)
        self.reverse = ReversePaths(self.spray, config.base_rtt_ns, rng.child("reverse"))
        self.congestion = FixedWindow(config, self.spray.usable_plane_count)
        self.prober = Prober(setup.qpn, config, self.spray, rng.child("probes"), emit_event, self.reverse)
        self.requester = Requester(
            setup.qpn, config, self.spray, self.congestion, emit_event, self.fail, setup.send_psn
        )
        self.responder = Responder(setup.qpn, setup.peer_qpn, config, regions, emit_event, self.fail, setup.receive_psn)
        self.requester.on_path_works = self.reverse.on_outbound_acknowledged
        self._due_probes: list[ProbeOrder] = []

    # -- in -------------------------------------------------------------------------------------------------------

    def receive(self, packet: fast.Received, now_ns: int) -> int:
        """Route one packet; payload bytes newly placed in memory."""
        self._now_ns = now_ns
        if self.error is not None:
            return 0
        if packet.opcode in DATA_OPCODES:
            self.reverse.on_inbound(now_ns)
            return self.responder.receive_data(packet, now_ns)
        route = self._ROUTES.get(packet.opcode)
        if route is not None:
            route(self, packet, now_ns)
        return 0

    def _receive_sack(self, packet: fast.Received, now_ns: int) -> None:
        mark, is_probe, second, entropy, cack, offset, bitmap, _, _, _, _, _, mpr = fast.sack_fields(packet.frame)
        if is_probe:
            self.prober.receive_answer(second, mark, now_ns)
        self.requester.receive_sack(cack, offset, bitmap, second, is_probe, packet.rtx, entropy, mark, mpr, now_ns)

    def _receive_nack(self, packet: fast.Received, now_ns: int) -> None:
        reason, entropy, psn, _ = fast.nack_fields(packet.frame)
        self.requester.receive_nack(reason, psn, entropy, now_ns)

    def _receive_ack(self, packet: fast.Received, now_ns: int) -> None:
        syndrome, msn = fast.aeth_fields(packet.frame)
        self.requester.receive_transport_ack(syndrome, msn, packet.psn24, now_ns)

    def _receive_probe(self, packet: fast.Received, now_ns: int) -> None:
        probe_id, timestamp = fast.peth_fields(packet.frame)
        self.responder.receive_probe(packet, probe_id, timestamp)

    _ROUTES: ClassVar = {
        int(Opcode.SACK): _receive_sack,
        int(Opcode.NACK): _receive_nack,
        int(Opcode.ACKNOWLEDGE): _receive_ack,
        int(Opcode.PROBE_REQUEST): _receive_probe,
    }

    # -- out ------------------------------------------------------------------------------------------------------

    def control_frames(self, room: int, now_ns: int, out: list[Outgoing]) -> None:
        """Append answers, each on the next path of the reverse rotation."""
        control = self.responder.control
        while control:
            entry = self.reverse.select(room)
            if entry is None:
                return
            item = control.popleft()
            frame = fast.build_control(
                self._framer.control(entry), item.opcode, self.setup.peer_qpn, item.psn, item.ext, item.rtx
            )
            out.append((entry.plane, frame, True))

    def next_frame(self, room: int, now_ns: int) -> Outgoing | None:
        """One probe or data packet for a port with room, or None."""
        if self._due_probes or self.requester.wants_state_probe:
            probe = self._probe_frame(room, now_ns)
            if probe is not None:
                return probe
        flight = self.requester.next_flight(room, now_ns)
        return None if flight is None else (flight.entry.plane, self._data_frame(flight, now_ns), False)

    def _probe_frame(self, room: int, now_ns: int) -> Outgoing | None:
        order = self._take_probe(room)
        if order is None:
            return None
        entry = order.entry
        probe_id = self.prober.register(order, now_ns)
        ext = fast.pack_peth(probe_id, self._timestamp(now_ns))
        frame = fast.build_control(self._framer.data(entry), Opcode.PROBE_REQUEST, self.setup.peer_qpn, 0, ext)
        return entry.plane, frame, False

    def _take_probe(self, room: int) -> ProbeOrder | None:
        for index, order in enumerate(self._due_probes):
            if room >> order.entry.plane & 1:
                return self._due_probes.pop(index)
        if self.requester.wants_state_probe:
            chosen = self.spray.select(room)
            if chosen is not None:
                self.requester.wants_state_probe = False
                return ProbeOrder(chosen)
        return None

    def _data_frame(self, flight: Flight, now_ns: int) -> bytes:
        message = flight.message
        offset, length = flight.offset, flight.length
        retransmission = flight.attempt > 1
        last = offset + length >= message.length
        template = self._framer.retransmission if retransmission else self._framer.data
        flags = (fast.FLAG_ACKREQ if self.requester.wants_ack(flight) else 0) | (fast.FLAG_RTX if retransmission else 0)
        imm = message.imm if last else None
        return fast.build_data(
            template(flight.entry),
            WRITE_OPCODE[offset == 0, last, imm is not None],
            self.setup.peer_qpn,
            flight.psn,
            flags,
            message.rqmsn & wire_psn.MSN_MASK,
            message.msn & wire_psn.MSN_MASK,
            self._timestamp(now_ns),
            message.va + offset,
            message.rkey,
            message.length,
            message.source.read(offset, length),
            imm,
        )

    def _timestamp(self, now_ns: int) -> int:
        return now_ns // self._timestamp_unit_ns & 0xFFFF

    # -- time and ports -------------------------------------------------------------------------------------------

    def next_timer_ns(self) -> int | None:
        """When `handle_timer` has something to do."""
        if self.error is not None:
            return None
        due = self.requester.next_timer_ns()
        for other in (self.prober.next_timer_ns(), self.reverse.next_timer_ns()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def handle_timer(self, now_ns: int) -> None:
        """Let time pass; harmless when early or late."""
        self._now_ns = now_ns
        if self.error is None:
            self.requester.handle_timer(now_ns)
            self._due_probes.extend(self.prober.take_due(now_ns))
            refresh = self.reverse.take_due(now_ns)
            if refresh is not None:
                self._due_probes.append(ProbeOrder(refresh))

    def planes_changed(self, mask: int, now_ns: int) -> None:
        """Planes usable at both ends (bit N = plane N): remap, resend what was on lost ones, look at returned ones."""
        self._now_ns = now_ns
        gone, back = self._planes_mask & ~mask, mask & ~self._planes_mask
        self._planes_mask = mask
        self.spray.allow_planes(mask)
        for plane in _bits(gone):
            self.requester.plane_down(plane, now_ns)
            self._exonerate_recent(plane, now_ns)
        for plane in _bits(back):
            self.prober.plane_returned(plane, now_ns)
        self.congestion.set_planes(self.spray.usable_plane_count)

    def apply_denylist(self, denylist: Denylist, now_ns: int) -> None:
        """Deny what is listed or denied for this QP alone, allow what no longer is."""
        self._now_ns = now_ns
        for entry in self.spray.entries.values():
            denied = entry.ev in self.denied_evs or denylist.denies(entry.ev)
            if denied != (entry.state is EvState.DENIED):
                self.spray.apply(entry, EvInput.DENY if denied else EvInput.ALLOW, "controller", now_ns)

    def _exonerate_recent(self, plane: int, now_ns: int) -> None:
        """EVs of a plane retired within the last timer before its port was known down: the port explains the loss."""
        horizon_ns = now_ns - self.setup.config.rto_ns
        for entry in self.spray.bad_entries():
            if entry.plane == plane and entry.retired_ns >= horizon_ns:
                self.spray.apply(entry, EvInput.EXONERATED, "port", now_ns)

    def _path_changed(self, entry: EvEntry, old: EvState, new: EvState, signal: str) -> None:
        if new is EvState.ASSUMED_BAD:
            self.prober.path_retired(entry, self._now_ns)
        elif old is EvState.ASSUMED_BAD:
            self.prober.path_left(entry)
        if EvState.SKIP not in (old, new) or EvState.ASSUMED_BAD in (old, new):
            self._event(events.EvChanged(self._now_ns, self.qpn, entry.ev, entry.plane, old.value, new.value, signal))
        self.congestion.set_planes(self.spray.usable_plane_count)

    @property
    def activity(self) -> QpActivity:
        """The scheduler's four states (sources 6.8)."""
        requester = self.requester
        if requester.has_unsent:
            return QpActivity.READY if requester.has_work() else QpActivity.ACTIVE
        return QpActivity.PENDING if requester.outstanding_messages else QpActivity.IDLE

    def may_send(self) -> bool:
        """Whether `next_frame` could give something, paths and ports aside."""
        return bool(self._due_probes) or self.requester.wants_state_probe or self.requester.has_work()

    def fail(self, reason: str, now_ns: int) -> None:
        """Put the QP in error, once; what is queued for the peer still leaves."""
        if self.error is None:
            self.error = reason
            self.requester.abandon()
            self._event(events.QpFailed(now_ns, self.qpn, reason))


def _bits(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]
