"""Two NICs on one virtual clock: the smallest world in which the whole transport runs.

Owns: per port a sender queue of three frames drained at the NIC rate, per frame the unloaded delay of its path, rules
that may drop, delay, mark, trim, duplicate or rewrite it, and taps that see every frame that leaves a NIC. Refuses:
switches and queues inside the fabric (contention is not modelled here). A frame's path is read from its outer
destination, as a switch would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.protocol.events import Event
from mrcemu.protocol.framing import NicIdentity
from mrcemu.protocol.nic import Nic
from mrcemu.protocol.qp import Qp, QpSetup
from mrcemu.rng import Rng
from mrcemu.sim.clock import VirtualClock
from mrcemu.topology import timing
from mrcemu.topology.addressing import all_paths, ev_from_destination, host_address, path_for_ev, plane_of_ev
from mrcemu.topology.model import Topology

PORT_QUEUE_FRAMES = 3
OUTER_DESTINATION = slice(38, 54)


class Verdict(Enum):
    """What a rule decides about a frame."""

    PASS = "pass"
    DROP = "drop"


@dataclass(slots=True)
class Crossing:
    """A frame about to cross, as rules see it; they may change `frame`, `delay_ns` and `copies`."""

    now_ns: int
    source: int  # 0 or 1: which NIC sent it
    plane: int
    ev: int
    frame: bytes
    is_control: bool
    delay_ns: int
    copies: int = 1


Rule = Callable[[Crossing], Verdict]
# Told of every frame that leaves a NIC, before anything is decided about it; must not change it.
Tap = Callable[[Crossing], None]


@dataclass(slots=True)
class _Port:
    up: bool = True  # the cable; the NIC hears of changes through port_changed
    busy_until_ns: int = 0


@dataclass(slots=True)
class Side:
    """One NIC, its ports and what came out of it."""

    host: int
    nic: Nic
    ports: list[_Port]
    events: list[Event] = field(default_factory=list)
    sent_frames: int = 0


class VirtualPair:
    """Hosts `src` and `dst` of a topology, connected by all their paths."""

    def __init__(
        self, topology: Topology, src: int, dst: int, seed: int, config: TransportConfig | None = None
    ) -> None:
        self.topology = topology
        self.clock = VirtualClock()
        self.config = config or for_topology(topology, 2 if topology.is_t0_local(src, dst) else 4)
        self.rng = Rng(seed)
        self.rules: list[Rule] = []
        self.taps: list[Tap] = []
        self.drops = 0
        self.dead_nodes: set[str] = set()  # switches that forward nothing, links by "a:b" of adjacent node names
        self.sides = (self._side(src), self._side(dst))
        self._wake_at: list[int | None] = [None, None]

    def _side(self, host: int) -> Side:
        planes = self.topology.planes
        mac = [bytes((2, 0, 0, host >> 8, host & 0xFF, plane)) for plane in range(planes)]
        gateway = [bytes((2, 1, 0, host >> 8, host & 0xFF, plane)) for plane in range(planes)]
        identity = NicIdentity(host, host_address(host).packed, tuple(mac), tuple(gateway))
        nic = Nic(self.topology, identity, self.config, self.rng.child(f"nic{host}"))
        return Side(host, nic, [_Port() for _ in range(planes)])

    def connect(self, qpn: int = 3, first_psn: int = 0, count: int = 1) -> list[tuple[Qp, Qp]]:
        """Create `count` QPs between the two, numbered from `qpn` at both ends."""
        pairs = []
        for number in range(qpn, qpn + count):
            qps = tuple(
                side.nic.create_qp(
                    QpSetup(
                        number,
                        number,
                        host_address(other.host).packed,
                        all_paths(self.topology, side.host, other.host),
                        self.config,
                        first_psn,
                        first_psn,
                    )
                )
                for side, other in (self.sides, self.sides[::-1])
            )
            pairs.append((qps[0], qps[1]))
        return pairs

    # -- faults ---------------------------------------------------------------------------------------------------

    def set_port(self, side: int, plane: int, up: bool, notice_ns: int = 0) -> None:
        """Pull or plug a NIC cable; its NIC sees carrier change `notice_ns` later."""
        self.sides[side].ports[plane].up = up
        self.clock.at(self.clock.now_ns + notice_ns, lambda: self._carrier(side, plane, up))

    def _carrier(self, side: int, plane: int, up: bool) -> None:
        self.sides[side].nic.port_changed(plane, up, self.clock.now_ns)
        self._pump(side)

    # -- time -----------------------------------------------------------------------------------------------------

    def run_for(self, duration_ns: int) -> None:
        """Let virtual time pass; both NICs are polled first, so that posted work starts."""
        for index in (0, 1):
            self._pump(index)
        self.clock.run_until(self.clock.now_ns + duration_ns)

    def _pump(self, index: int) -> None:
        """Send all one NIC may send now, then ask to be woken when a port has room or a timer is due."""
        side, now = self.sides[index], self.clock.now_ns
        side.nic.handle_timer(now)
        while True:
            frames = side.nic.frames_to_send(now, self._room(side, now))
            for plane, frame, is_control in frames:
                self._transmit(index, plane, frame, is_control)
            if not frames:
                break
        self._collect_events(side)
        self._arm(index)

    def _room(self, side: Side, now_ns: int) -> int:
        slack = PORT_QUEUE_FRAMES * self._frame_time_ns(self.topology.data_frame_bytes)
        return sum(1 << plane for plane, port in enumerate(side.ports) if port.busy_until_ns - now_ns < slack)

    def _frame_time_ns(self, size: int) -> int:
        return size * 8 * timing.NS // self.topology.nic_rate_bps

    @staticmethod
    def _collect_events(side: Side) -> None:
        while (event := side.nic.next_event()) is not None:
            side.events.append(event)

    def _arm(self, index: int) -> None:
        side, now = self.sides[index], self.clock.now_ns
        slack = (PORT_QUEUE_FRAMES - 1) * self._frame_time_ns(self.topology.data_frame_bytes)
        times = [port.busy_until_ns - slack for port in side.ports if port.busy_until_ns - slack > now]
        timer = side.nic.next_timer_ns()
        if timer is not None:
            times.append(max(timer, now + 1))
        due = min(times, default=None)
        pending = self._wake_at[index]
        if due is not None and (pending is None or due < pending):
            self._wake_at[index] = due
            self.clock.at(due, lambda: self._wake(index, due))

    def _wake(self, index: int, due: int) -> None:
        if self._wake_at[index] == due:
            self._wake_at[index] = None
            self._pump(index)

    # -- the wire -------------------------------------------------------------------------------------------------

    def _transmit(self, index: int, plane: int, frame: bytes, is_control: bool) -> None:
        side, now = self.sides[index], self.clock.now_ns
        side.sent_frames += 1
        port = side.ports[plane]
        start = now if is_control else max(now, port.busy_until_ns)
        if not is_control:
            port.busy_until_ns = start + self._frame_time_ns(len(frame))
        ev = ev_from_destination(self.topology, frame[OUTER_DESTINATION])
        hops = 2 if self.topology.is_t0_local(self.sides[0].host, self.sides[1].host) else 4
        delay = start - now + timing.one_way_delay_ns(self.topology, hops, len(frame))
        crossing = Crossing(now, index, plane, ev, frame, is_control, delay)
        for tap in self.taps:
            tap(crossing)
        if not port.up or self._path_is_dead(index, ev) or self._ruled_out(crossing):
            self.drops += 1
            return
        for _ in range(crossing.copies):
            self.clock.at(now + crossing.delay_ns, lambda: self._arrive(1 - index, plane, crossing.frame))

    def _path_is_dead(self, index: int, ev: int) -> bool:
        if not self.dead_nodes:
            return False
        path = path_for_ev(self.topology, self.sides[index].host, self.sides[1 - index].host, ev)
        nodes = path.nodes
        hops = {f"{a}:{b}" for a, b in pairwise(nodes)}
        return not self.dead_nodes.isdisjoint(nodes) or not self.dead_nodes.isdisjoint(hops)

    def _ruled_out(self, crossing: Crossing) -> bool:
        return any(rule(crossing) is Verdict.DROP for rule in self.rules)

    def _arrive(self, index: int, plane: int, frame: bytes) -> None:
        side = self.sides[index]
        if not side.ports[plane].up:
            self.drops += 1
            return
        side.nic.receive_frame(plane, frame, self.clock.now_ns)
        self._pump(index)


def kill_ev(ev: int) -> Rule:
    """A rule: everything on one EV is dropped, both directions."""
    return lambda crossing: Verdict.DROP if crossing.ev == ev else Verdict.PASS


def kill_plane(plane: int) -> Rule:
    """A rule: everything on one plane is dropped, both directions."""
    return lambda crossing: Verdict.DROP if plane_of_ev(crossing.ev) == plane else Verdict.PASS


def random_loss(probability: float, rng: Rng) -> Rule:
    """A rule: each frame is lost with this probability (0 .. 1)."""
    return lambda crossing: Verdict.DROP if rng.uniform() < probability else Verdict.PASS
