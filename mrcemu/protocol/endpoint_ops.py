"""Endpoint operations: connectionless requests between two NICs on QPN 2 (protocol sources 1.7, 4.9, 4.11).

Owns Port Status Updates out and in, EV probes (to a peer, or along a list of uSIDs back to this NIC) and their answers.
Best effort: nothing is retransmitted, no PSN is consumed; a request is matched to its answer by the 16 bits of PSN that
the requester chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mrcemu.protocol import events
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.framing import Framer, NicIdentity
from mrcemu.protocol.port_status import REPEATS, PortStatus
from mrcemu.topology.addressing import MAX_INDEX, host_address
from mrcemu.topology.ecmp import path_of_ev, paths_between
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.opcodes import ENDPOINT_QPN, Ecn, EndpointOp, Opcode

ID_MASK = 0xFFFF
# Answers waiting to leave; beyond this a flood of requests is dropped (best effort).
MAX_QUEUED = 256

Outgoing = tuple[int, bytes, bool]


@dataclass(slots=True)
class _Asked:
    peer: bytes
    ev: int
    sent_ns: int
    deadline_ns: int


@dataclass(slots=True)
class _Announcement:
    request_id: int
    sent_ns: int
    left: int


class EndpointOps:
    """The endpoint operations of one NIC."""

    def __init__(
        self,
        topology: Topology,
        identity: NicIdentity,
        config: TransportConfig,
        ports: PortStatus,
        emit_event: Callable[[events.Event], None],
        peer_ports_changed: Callable[[bytes, int], None],
    ) -> None:
        self._topology = topology
        self._identity = identity
        self._config = config
        self._ports = ports
        self._event = emit_event
        self._peer_ports_changed = peer_ports_changed
        self._hosts = {host_address(host).packed: host for host in range(topology.host_count)}
        self._framers: dict[bytes, Framer] = {}
        self._queue: list[Outgoing] = []
        self._asked: dict[int, _Asked] = {}
        self._announcements: dict[bytes, _Announcement] = {}  # updates still to be repeated, by peer
        self._next_id = 0
        self._answer_turn = 0
        self.dropped = 0

    # -- requests of ours -----------------------------------------------------------------------------------------

    def announce(self, peers: Iterable[bytes], now_ns: int) -> None:
        """Tell peers which local ports are up: one copy on each plane usable at both ends, repeated a few times."""
        request_id = self._ports.next_id()
        for peer in sorted(peers):
            self._announcements[peer] = _Announcement(request_id, now_ns, REPEATS)
            self._send_update(peer, request_id, now_ns)

    def _send_update(self, peer: bytes, request_id: int, now_ns: int) -> None:
        ext = self._ports.update(self._timestamp(now_ns))
        for plane in range(self._topology.planes):
            if self._ports.usable(peer) >> plane & 1:
                self._send(peer, plane, Opcode.ENDPOINT_REQUEST, request_id, ext)

    def _repeat_updates(self, now_ns: int) -> None:
        for peer, announcement in list(self._announcements.items()):
            if announcement.sent_ns + self._config.rto_ns > now_ns:
                continue
            self._send_update(peer, announcement.request_id, now_ns)
            announcement.sent_ns = now_ns
            announcement.left -= 1
            if announcement.left == 0:
                del self._announcements[peer]

    def _timestamp(self, now_ns: int) -> int:
        return now_ns // self._config.timestamp_unit_ns & 0xFFFF

    def probe_peer(self, peer: bytes, ev: int, now_ns: int, timeout_ns: int) -> int:
        """Ask a peer to answer along one EV; the id that its `EvProbed` event will carry. ValueError: no such path."""
        path = path_of_ev(self._topology, self._identity.host, self._hosts[peer], ev)
        return self._ask(peer, path.plane, path.outer_destination, ev, now_ns, timeout_ns)

    def probe_self(self, plane: int, destination: bytes, ev: int, now_ns: int, timeout_ns: int) -> int:
        """Send a probe along uSIDs that lead back to this NIC, marked `ev`; the id of its `EvProbed` event."""
        return self._ask(self._identity.address, plane, destination, ev, now_ns, timeout_ns)

    def _ask(self, peer: bytes, plane: int, destination: bytes | None, ev: int, now_ns: int, timeout_ns: int) -> int:
        self._next_id = (self._next_id + 1) & ID_MASK
        self._asked[self._next_id] = _Asked(peer, ev, now_ns, now_ns + timeout_ns)
        ext = fast.pack_erth(EndpointOp.EV_PROBE, self._ports.local_mask << 1, self._timestamp(now_ns))
        template = self._framer(peer).make(plane, destination, ev, self._config.dscp.control, Ecn.NOT_ECT)
        frame = fast.build_control(template, Opcode.ENDPOINT_REQUEST, ENDPOINT_QPN, self._next_id, ext)
        self._queue.append((plane, frame, True))
        return self._next_id

    # -- in -------------------------------------------------------------------------------------------------------

    def receive(self, port: int, packet: fast.Received, now_ns: int) -> None:
        """Take a request or a response; anything from an address that is no host of the fabric is dropped."""
        if packet.src not in self._hosts:
            self.dropped += 1
            return
        request_id = packet.psn24 & ID_MASK
        if packet.opcode == Opcode.ENDPOINT_RESPONSE:
            if fast.eeth_fields(packet.frame)[0] == EndpointOp.EV_PROBE:
                self._answered(packet.src, request_id, now_ns)
            return
        op, mask, timestamp = fast.erth_fields(packet.frame)
        if packet.src == self._identity.address:  # a probe of ours that came back by its uSID list
            self._answered(packet.src, request_id, now_ns)
            return
        if op == EndpointOp.PORT_STATUS_UPDATE:
            changed = self._ports.receive(packet.src, request_id, mask)
            if changed is not None:
                self._event(events.PeerPortsChanged(now_ns, 0, packet.src, changed))
                self._peer_ports_changed(packet.src, now_ns)
        if len(self._queue) < MAX_QUEUED:
            ext = fast.pack_eeth(op, timestamp)
            self._send(packet.src, port, Opcode.ENDPOINT_RESPONSE, request_id, ext, like_ev=packet.ev)
        else:
            self.dropped += 1

    def _answered(self, peer: bytes, request_id: int, now_ns: int) -> None:
        asked = self._asked.get(request_id)
        if asked is not None and asked.peer == peer:
            del self._asked[request_id]
            self._event(events.EvProbed(now_ns, 0, asked.ev, now_ns - asked.sent_ns, request_id))

    # -- out ------------------------------------------------------------------------------------------------------

    def _framer(self, peer: bytes) -> Framer:
        framer = self._framers.get(peer)
        if framer is None:
            framer = Framer(self._identity, peer, self._config)
            self._framers[peer] = framer
        return framer

    def _send(
        self, peer: bytes, plane: int, opcode: int, request_id: int, ext: bytes, like_ev: int | None = None
    ) -> None:
        """Queue one frame on a plane: on the path of `like_ev` if the plane has it, else on its paths in turn.

        An answer so returns by the T1 that its request came by, and says something about that path alone.
        """
        paths = paths_between(self._topology, self._identity.host, self._hosts[peer], self._config.forwarding)
        in_plane = [path for path in paths if path.plane == plane]
        self._answer_turn = (self._answer_turn + 1) % MAX_INDEX
        path = next((p for p in in_plane if p.ev == like_ev), in_plane[self._answer_turn % len(in_plane)])
        template = self._framer(peer).make(
            plane, path.outer_destination, path.ev, self._config.dscp.control, Ecn.NOT_ECT
        )
        frame = fast.build_control(template, opcode, ENDPOINT_QPN, request_id, ext)
        self._queue.append((plane, frame, True))

    def frames(self, planes_up: int, now_ns: int, out: list[Outgoing]) -> None:
        """Append what waits to leave; frames for ports that are down are dropped (best effort)."""
        if self._queue:
            out.extend(item for item in self._queue if planes_up >> item[0] & 1)
            self._queue.clear()

    def next_timer_ns(self) -> int | None:
        """When an answer is overdue, or an update is to be repeated."""
        times = [asked.deadline_ns for asked in self._asked.values()]
        times.extend(item.sent_ns + self._config.rto_ns for item in self._announcements.values())
        return min(times, default=None)

    def handle_timer(self, now_ns: int) -> None:
        """Repeat updates; give up on overdue answers: an `EvProbed` event without RTT."""
        self._repeat_updates(now_ns)
        for request_id in [key for key, asked in self._asked.items() if asked.deadline_ns <= now_ns]:
            asked = self._asked.pop(request_id)
            self._event(events.EvProbed(now_ns, 0, asked.ev, None, request_id))
