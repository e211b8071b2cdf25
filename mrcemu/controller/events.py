"""The queue of EV events: one record each time an EV enters a state that its profile's mask asks for.

It never overruns: a full queue drops the newest and counts, and the next record that fits says how many were dropped
before it (mrc_ctl.h, with precise drop counts).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from errno import EINVAL

from mrcemu.controller.refusal import ControlError, require_range
from mrcemu.controller.values import Ev, EvState

MAX_EVENTS = 65536  # ours: bounds the memory a controller that never polls can take


@dataclass(frozen=True, slots=True)
class EvEvent:
    """`drop_count`: events dropped between the record before this one and this one."""

    profile_id: int
    ev: Ev
    state: EvState
    drop_count: int


class EvEventQueue:
    """At most `capacity` records, oldest first."""

    def __init__(self, capacity: int) -> None:
        """ControlError EINVAL unless `capacity` is 1 to `MAX_EVENTS`."""
        require_range("capacity", capacity, 1, MAX_EVENTS)
        self._capacity = capacity
        self._records: deque[EvEvent] = deque()
        self._drops = 0  # since the newest record
        self.dropped_total = 0

    def __len__(self) -> int:
        return len(self._records)

    def offer(self, profile_id: int, ev: Ev, state: EvState) -> bool:
        """Queue one record; False if it had to be dropped."""
        if len(self._records) >= self._capacity:
            self._drops += 1
            self.dropped_total += 1
            return False
        self._records.append(EvEvent(profile_id, ev, state, self._drops))
        self._drops = 0
        return True

    def poll(self, limit: int) -> tuple[EvEvent, ...]:
        """Take at most `limit` records; none is an empty tuple. ControlError EINVAL for a negative limit."""
        if limit < 0:
            raise ControlError(EINVAL, "limit", limit, "0 or more")
        return tuple(self._records.popleft() for _ in range(min(limit, len(self._records))))
