"""The delay a real path would have: each frame is held until its kernel stamp + the unloaded delay of its path.

HTB releases a frame at the start of its serialisation and veth takes no time, so the fixed part of the delay is added
here, at the receiver. Queueing is real and needs nothing. Captures show frames before the hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from mrcemu.topology import timing
from mrcemu.topology.addressing import host_address
from mrcemu.topology.model import Topology
from mrcemu.wire.ev import ev_from_fields

# Where the source address lies, the outer and so the inner one or in ECMP mode the only one, and of a probe to itself,
# which always has a uSID list, the inner flow label (wire layout).
_SOURCE = slice(22, 38)
_INNER_FLOW = slice(54, 58)
_MAX_CACHED = 4096

# (due, sequence, plane, frame)
Held = tuple[int, int, int, bytes]


class DelayLine:
    """Frames of one host that are still on their way, ordered by arrival time (run clock ns)."""

    def __init__(self, topology: Topology, host: int) -> None:
        self._topology = topology
        self._hops = {
            host_address(other).packed: 2 if topology.is_t0_local(host, other) else 4
            for other in range(topology.host_count)
        }
        self._own = host_address(host).packed
        self._delay_ns: dict[tuple[bytes, int], int] = {}
        self._heap: list[Held] = []
        self._sequence = 0

    def hold(self, plane: int, frames: Iterable[tuple[int, bytes]], shift_ns: int) -> None:
        """Take frames of one port as (kernel stamp, bytes); a stamp minus `shift_ns` is run clock time."""
        heap, delays = self._heap, self._delay_ns
        for stamp_ns, frame in frames:
            key = (frame[_SOURCE], len(frame))
            delay = delays.get(key)
            if delay is None:
                delay = self._compute(frame, key)
            self._sequence += 1
            heappush(heap, (stamp_ns - shift_ns + delay, self._sequence, plane, frame))

    def _compute(self, frame: bytes, key: tuple[bytes, int]) -> int:
        source, size = key
        if source == self._own:  # a self-probe says in its EV how many links it crosses
            hops = ev_from_fields(int.from_bytes(frame[_INNER_FLOW], "big"), 0) >> 20 & 0xF
            return timing.one_way_delay_ns(self._topology, max(2, hops), size)
        delay = timing.one_way_delay_ns(self._topology, self._hops.get(source, 4), size)
        if len(self._delay_ns) >= _MAX_CACHED:
            self._delay_ns.clear()
        self._delay_ns[key] = delay
        return delay

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ns: int) -> Held | None:
        """The next frame whose time has come, or None."""
        if self._heap and self._heap[0][0] <= now_ns:
            return heappop(self._heap)
        return None

    def __len__(self) -> int:
        return len(self._heap)
