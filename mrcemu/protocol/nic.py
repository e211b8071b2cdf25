"""One NIC, one sans-IO object per host: frames, port carrier and time in; frames and events out.

The call contract:

* `receive_frame(port, frame, now_ns)`: any bytes; never raises. Returns payload bytes newly placed.
* `frames_to_send(now_ns, room, budget)`: at most one data frame per port whose bit is set in `room`, and all control
  frames that have a path; call again until it returns nothing or no port has room.
* `port_changed(port, up, now_ns)`: carrier of a local port.
* `next_timer_ns()` / `handle_timer(now_ns)`: absolute; a late or spurious call is harmless.
* `next_event()`: what happened, in order, until None.
* `now_ns` is an int of the run clock that never decreases. A full window is a return value, never an exception.

Owns demultiplexing, the QP rotation, regions, the event queue. Routes endpoint operations (QPN 2) to endpoint_ops.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mrcemu.errors import QpError
from mrcemu.protocol import events
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.denylist import DenyEntry, Denylist
from mrcemu.protocol.endpoint_ops import EndpointOps
from mrcemu.protocol.framing import Framer, NicIdentity
from mrcemu.protocol.memory import PayloadSource, RegionTable
from mrcemu.protocol.port_status import PortStatus
from mrcemu.protocol.qp import Outgoing, Qp, QpSetup
from mrcemu.protocol.scheduler import QpScheduler
from mrcemu.rng import Rng
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.opcodes import DEFAULT_UDP_PORTS, ENDPOINT_QPN, FIRST_USER_QPN, Opcode

_ENDPOINT_OPCODES = frozenset({int(Opcode.ENDPOINT_REQUEST), int(Opcode.ENDPOINT_RESPONSE)})
# placed(qpn, plane, payload bytes, now_ns): told of every packet newly placed.
PlacementSink = Callable[[int, int, int, int], None]


class Nic:
    """The transport of one host. `config` gives the defaults that are not per QP (DSCP, UDP port, base RTT)."""

    def __init__(
        self,
        topology: Topology,
        identity: NicIdentity,
        config: TransportConfig,
        rng: Rng,
        placed: PlacementSink | None = None,
    ) -> None:
        self.identity = identity
        self.config = config
        self._rng = rng
        self._placed = placed
        self.regions = RegionTable()
        self.ports = PortStatus(topology.planes)
        self.qps: dict[int, Qp] = {}
        self._rotation: list[Qp] = []  # all QPs, in order of creation
        self._scheduler = QpScheduler()
        self.denylist = Denylist()
        self._events: deque[events.Event] = deque()
        self.events_dropped = 0
        self.unknown_qp_drops = 0
        self.parser = fast.FrameParser(identity.address, DEFAULT_UDP_PORTS | {config.udp_port}, config.dscp)
        self.endpoint_ops = EndpointOps(topology, identity, config, self.ports, self._emit, self._peer_ports_changed)

    # -- set-up ---------------------------------------------------------------------------------------------------

    def create_qp(self, setup: QpSetup, now_ns: int = 0) -> Qp:
        """Create one QP, ready to send and receive; QpError if its number is reserved or taken.

        A peer is told at once of local ports that are down already.
        """
        if setup.qpn < FIRST_USER_QPN or setup.qpn in self.qps:
            raise QpError(f"QPN {setup.qpn} is reserved or in use")
        framer = Framer(self.identity, setup.peer_address, setup.config)
        mask = self.ports.usable(setup.peer_address)
        qp = Qp(setup, framer, self.regions, self._rng.child(f"qp{setup.qpn}"), mask, self._emit)
        self.qps[setup.qpn] = qp
        self._rotation.append(qp)
        self._apply_denylist(qp, now_ns)
        if not self.ports.is_full:
            self.endpoint_ops.announce({setup.peer_address}, now_ns)
        return qp

    def destroy_qp(self, qpn: int) -> None:
        """Forget a QP; packets for it are dropped and counted from now on."""
        qp = self.qps.pop(qpn, None)
        if qp is not None:
            self._rotation.remove(qp)
            self._scheduler.forget(qp)

    def post_write(
        self,
        qpn: int,
        wr_id: int,
        source: PayloadSource,
        length: int,
        va: int,
        rkey: int,
        now_ns: int,
        imm: int | None = None,
    ) -> int:
        """Post one RDMA Write on a QP; its MSN. QpError if there is no such QP or it is in error."""
        qp = self.qps.get(qpn)
        if qp is None or qp.error is not None:
            raise QpError(f"QPN {qpn}: {'no such QP' if qp is None else qp.error}")
        msn = qp.requester.post_write(wr_id, source, length, va, rkey, now_ns, imm)
        self._scheduler.offer(qp)
        return msn

    # -- denylist -------------------------------------------------------------------------------------------------

    def deny(self, entry: DenyEntry, now_ns: int) -> None:
        """Deny every EV that matches, on all QPs, present and future: nothing is sent on it until allowed."""
        self.denylist.add(entry)
        for qp in self._rotation:
            self._apply_denylist(qp, now_ns)

    def allow(self, entry: DenyEntry, now_ns: int) -> bool:
        """Take an entry off the list; EVs no other entry denies are GOOD again. False if it is not listed."""
        if not self.denylist.remove(entry):
            return False
        for qp in self._rotation:
            self._apply_denylist(qp, now_ns)
        return True

    def set_ev_denied(self, qpn: int, ev: int, denied: bool, now_ns: int) -> None:
        """Deny or allow one EV of one QP, as an EV profile does; QpError if there is no such QP."""
        qp = self.qps.get(qpn)
        if qp is None:
            raise QpError(f"QPN {qpn}: no such QP")
        (qp.denied_evs.add if denied else qp.denied_evs.discard)(ev)
        self._apply_denylist(qp, now_ns)

    def _apply_denylist(self, qp: Qp, now_ns: int) -> None:
        qp.apply_denylist(self.denylist, now_ns)
        self._scheduler.offer(qp)

    # -- in -------------------------------------------------------------------------------------------------------

    def receive_frame(self, port: int, frame: bytes, now_ns: int) -> int:
        """Take any bytes that arrived on a port; payload bytes newly placed."""
        packet = self.parser.parse(frame)
        if packet is None:
            return 0
        qp = self.qps.get(packet.dest_qpn)
        if qp is not None and packet.src == qp.setup.peer_address:
            size = qp.receive(packet, now_ns)
            if qp.may_send():
                self._scheduler.offer(qp)
            if size and self._placed is not None:
                self._placed(qp.qpn, port, size, now_ns)
            return size
        if packet.dest_qpn == ENDPOINT_QPN and packet.opcode in _ENDPOINT_OPCODES:
            self.endpoint_ops.receive(port, packet, now_ns)
        else:
            self.unknown_qp_drops += 1
        return 0

    def port_changed(self, port: int, up: bool, now_ns: int) -> None:
        """Carrier of a local port changed: remap every QP and tell every peer."""
        if not self.ports.set_local(port, up):
            return
        self._emit(events.PortChanged(now_ns, 0, port, up))
        for qp in self._rotation:
            qp.planes_changed(self.ports.usable(qp.setup.peer_address), now_ns)
            self._scheduler.offer(qp)
        self.endpoint_ops.announce({qp.setup.peer_address for qp in self._rotation}, now_ns)

    def _peer_ports_changed(self, peer: bytes, now_ns: int) -> None:
        for qp in self._rotation:
            if qp.setup.peer_address == peer:
                qp.planes_changed(self.ports.usable(peer), now_ns)
                self._scheduler.offer(qp)

    # -- out ------------------------------------------------------------------------------------------------------

    def frames_to_send(self, now_ns: int, room: int, budget: int = 64) -> list[Outgoing]:
        """(plane, frame, is control) to send now; see the module docstring."""
        room &= self.ports.local_mask
        out: list[Outgoing] = []
        self.endpoint_ops.frames(self.ports.local_mask, now_ns, out)
        for qp in self._rotation:
            if qp.responder.control:
                qp.control_frames(self.ports.local_mask, now_ns, out)
        scheduler = self._scheduler
        idle = 0  # QPs in a row that had nothing for the ports with room
        while room and idle < len(scheduler) and len(out) < budget:
            qp = scheduler.turn()
            item = qp.next_frame(room, now_ns) if qp.error is None else None
            if item is not None:
                idle = 0
                out.append(item)
                room &= ~(1 << item[0])
            elif qp.error is None and qp.may_send():
                idle += 1
            else:
                scheduler.drop_last()
        return out

    # -- time and events ------------------------------------------------------------------------------------------

    def next_timer_ns(self) -> int | None:
        """The earliest time at which `handle_timer` has something to do, or None."""
        times = [due for qp in self._rotation if (due := qp.next_timer_ns()) is not None]
        ops = self.endpoint_ops.next_timer_ns()
        if ops is not None:
            times.append(ops)
        return min(times, default=None)

    def handle_timer(self, now_ns: int) -> None:
        """Let time pass for every QP and endpoint operation."""
        for qp in self._rotation:
            due = qp.next_timer_ns()
            if due is not None and due <= now_ns:
                qp.handle_timer(now_ns)
                self._scheduler.offer(qp)
        self.endpoint_ops.handle_timer(now_ns)

    def next_event(self) -> events.Event | None:
        """The oldest event not yet taken, or None."""
        return self._events.popleft() if self._events else None

    def _emit(self, event: events.Event) -> None:
        if len(self._events) >= events.EVENT_LIMIT:
            self.events_dropped += 1
        else:
            self._events.append(event)
