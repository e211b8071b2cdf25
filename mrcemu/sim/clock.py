"""One ordered queue of things to do, by (due, sequence): equal times keep the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class VirtualClock:
    """Virtual time in ns. `run_until` calls what is due, in order; nothing else moves time."""

    __slots__ = ("_queue", "_sequence", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, due_ns: int, action: Callable[[], None]) -> None:
        """Call `action` at `due_ns` (or now, if that is past)."""
        self._sequence += 1
        heappush(self._queue, (max(due_ns, self.now_ns), self._sequence, action))

    def run_until(self, end_ns: int) -> None:
        """Let time pass up to and including `end_ns`."""
        while self._queue and self._queue[0][0] <= end_ns:
            self.now_ns, _, action = heappop(self._queue)
            action()
        self.now_ns = end_ns

    @property
    def next_due_ns(self) -> int | None:
        return self._queue[0][0] if self._queue else None
