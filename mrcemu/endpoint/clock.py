"""The run clock: CLOCK_MONOTONIC counted from one epoch, the same in every process of a run.

Kernel packet stamps are CLOCK_REALTIME; the difference is taken once, so a step of the wall clock during a run shifts
later stamps. `Held` frames then come late or at once, which fidelity invariant F4 shows.
"""

from __future__ import annotations

import time


class RunClock:
    """`now_ns()` since the epoch; a kernel stamp minus `realtime_shift_ns` is on the same scale."""

    __slots__ = ("epoch_ns", "realtime_shift_ns")

    def __init__(self, epoch_ns: int) -> None:
        self.epoch_ns = epoch_ns
        self.realtime_shift_ns = _realtime_minus_monotonic_ns() + epoch_ns

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.epoch_ns


def _realtime_minus_monotonic_ns() -> int:
    """The difference of the two clocks, from the tightest of several readings."""
    best_gap, best = 1 << 62, 0
    for _ in range(16):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_gap:
            best_gap, best = after - before, wall - (before + after) // 2
    return best
