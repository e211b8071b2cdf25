"""One host on real sockets: its NIC object, its ports, the frames still on their way to it.

Owns the order of one step: release what has arrived, let timers run, hand events on, send while ports have room.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mrcemu.endpoint import carrier
from mrcemu.endpoint.clock import RunClock
from mrcemu.endpoint.hold import DelayLine
from mrcemu.endpoint.ports import HostPort
from mrcemu.endpoint.record import Recorder
from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.events import Event
from mrcemu.protocol.framing import NicIdentity
from mrcemu.protocol.nic import Nic
from mrcemu.rng import Rng
from mrcemu.topology import timing
from mrcemu.topology.addressing import host_address
from mrcemu.topology.model import Topology

RECEIVE_WINDOWS = 4  # receive ring of a port, in plane windows (1.5 BDP each)
MIN_RECEIVE_FRAMES = 128
MAX_RECEIVE_FRAMES = 4096
OPENING_THREADS = 16
# A full port is tried again after one frame time: one frame has left then, and its queue of three has not run dry.
RETRY_SHARE = 1.0
TICK_SHARE = 0.02  # of base RTT: how finely time is cut


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Where a host lives: its number, its namespace, and per plane the MACs of its port and of the T0 facing it."""

    host: int
    netns_path: str
    port_macs: tuple[bytes, ...]
    gateway_macs: tuple[bytes, ...]


class HostEndpoint:
    """See the module docstring. `on_event` receives every transport event in order, after it was recorded."""

    def __init__(
        self,
        topology: Topology,
        spec: HostSpec,
        clock: RunClock,
        config: TransportConfig,
        rng: Rng,
    ) -> None:
        self.spec = spec
        self.recorder = Recorder()
        self.on_event: Callable[[Event], None] = lambda event: None
        self.lags_ns: list[int] = []
        self._timer_due_ns: int | None = None
        # Frames leave the delay line in the tick nearest to their time, so that ticks do not lengthen every path.
        self._half_tick_ns = int(config.base_rtt_ns * TICK_SHARE) // 2
        self.clock = clock
        self._delay_line = DelayLine(topology, spec.host)
        self._arrived: list[tuple[int, bytes]] = []
        identity = NicIdentity(spec.host, host_address(spec.host).packed, spec.port_macs, spec.gateway_macs)
        self.nic = Nic(topology, identity, config, rng, self.recorder.on_placed)
        frame_ns = topology.data_frame_bytes * 8 * timing.NS // topology.nic_rate_bps
        self._retry_ns = int(frame_ns * RETRY_SHARE)
        self.ports = self._open_ports(topology, spec, frame_ns)
        self.carrier = self._watch_carrier(topology, spec)

    @staticmethod
    def _open_ports(topology: Topology, spec: HostSpec, frame_ns: int) -> list[HostPort]:
        frame = topology.data_frame_bytes
        window_frames = int(1.5 * timing.plane_bdp_bytes(topology)) // frame + 1
        receive = min(MAX_RECEIVE_FRAMES, max(MIN_RECEIVE_FRAMES, RECEIVE_WINDOWS * window_frames))

        def open_port(plane: int) -> HostPort:
            return HostPort(
                spec.netns_path, f"p{plane}", plane, frame_bytes=frame, frame_ns=frame_ns, receive_frames=receive
            )

        # Threads, because each port waits for the kernel; a namespace is entered per thread.
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            return list(pool.map(open_port, range(topology.planes)))

    def _watch_carrier(self, topology: Topology, spec: HostSpec) -> carrier.CarrierWatch:
        names = [f"p{plane}" for plane in range(topology.planes)]
        indexes = carrier.interface_indexes(spec.netns_path, names)
        watch = carrier.CarrierWatch(spec.netns_path, {indexes[name]: plane for plane, name in enumerate(names)})
        # Whatever changed before the watch was open is read once, now.
        now_ns = self.clock.now_ns()
        for plane, name in enumerate(names):
            self._set_carrier(plane, carrier.has_carrier(spec.netns_path, name), now_ns)
        return watch

    # -- readiness ------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Take what has arrived on any port and hold it until its time."""
        frames = self._arrived
        for port in self.ports:
            port.ring.take(frames)
            if frames:
                self._delay_line.hold(port.plane, frames, self.clock.realtime_shift_ns)
                frames.clear()

    def on_carrier_readable(self) -> None:
        """The kernel announced link changes."""
        now_ns = self.clock.now_ns()
        for plane, up in self.carrier.read():
            self._set_carrier(plane, up, now_ns)

    def _set_carrier(self, plane: int, up: bool, now_ns: int) -> None:
        port = self.ports[plane]
        if port.carrier != up:
            port.carrier = up
            port.pending = None
            port.full = False
            self.nic.port_changed(plane, up, now_ns)

    # -- one step -------------------------------------------------------------------------------------------------

    def step(self, now_ns: int) -> bool:
        """Do all that is due at `now_ns`; whether a frame had arrived."""
        self.collect()
        nic = self.nic
        pop = self._delay_line.pop_due
        lags = self.lags_ns
        before = len(lags)
        horizon_ns = now_ns + self._half_tick_ns
        while (held := pop(horizon_ns)) is not None:
            lags.append(now_ns - held[0])
            nic.receive_frame(held[2], held[3], now_ns)
        # Nothing that arrives or leaves makes a deadline earlier than the one computed before waiting.
        if self._timer_due_ns is not None and self._timer_due_ns <= now_ns:
            nic.handle_timer(now_ns)
        self._hand_on_events()
        self._send(now_ns)
        return len(lags) > before

    def _hand_on_events(self) -> None:
        next_event = self.nic.next_event
        while (event := next_event()) is not None:
            self.recorder.on_event(event)
            self.on_event(event)

    def _room(self, now_ns: int) -> int:
        room = 0
        for port in self.ports:
            if port.full and now_ns >= port.retry_ns and not port.retry(now_ns):
                port.retry_ns = now_ns + self._retry_ns
            if not port.full:
                room |= 1 << port.plane
        return room

    def _send(self, now_ns: int) -> None:
        room = self._room(now_ns)
        ports, nic = self.ports, self.nic
        while True:
            frames = nic.frames_to_send(now_ns, room)
            if not frames:
                break
            for plane, frame, is_control in frames:
                port = ports[plane]
                if is_control:
                    port.send_control(frame)
                elif not port.send_data(frame, now_ns):
                    port.retry_ns = now_ns + self._retry_ns
                    room &= ~(1 << plane)
        self._hand_on_events()

    def next_due_ns(self) -> int | None:
        """When `step` has something to do."""
        due = self._delay_line.next_due_ns
        if due is not None:
            due -= self._half_tick_ns
        timer = self._timer_due_ns = self.nic.next_timer_ns()
        if timer is not None and (due is None or timer < due):
            due = timer
        for port in self.ports:
            if port.full and (due is None or port.retry_ns < due):
                due = port.retry_ns
        return due

    def close(self) -> None:
        """Close all sockets; in threads, because the kernel waits a grace period for each ring."""
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            list(pool.map(HostPort.close, self.ports))
        self.carrier.close()
