"""The two-stage retry budget (protocol sources 2.9, 2.10): linear retries at a fixed timer, then doubling ones.

Owns the attempt count of a connection and the time it allows. Charged when the oldest unacknowledged packet times out,
or could not even be sent for that long because no path exists; reset by forward progress of the cumulative
acknowledgement, without which sustained trimming would kill a healthy QP.
"""

from __future__ import annotations

from mrcemu.protocol.config import RETRY_FOREVER, TransportConfig


class RetryBudget:
    """Attempts used, and how long the current one may take."""

    __slots__ = ("_exponential", "_linear", "_rto_ns", "attempts", "since_ns")

    def __init__(self, config: TransportConfig) -> None:
        self._rto_ns = config.rto_ns
        self._linear = config.linear_retries
        self._exponential = config.exp_retries
        self.attempts = 0
        self.since_ns = 0

    def interval_ns(self) -> int:
        """Timer of the current attempt: T in the linear stage, T x 2^j at the j-th exponential one (j <= 24)."""
        return self._rto_ns << min(max(0, self.attempts - self._linear), 24)

    def deadline_ns(self) -> int:
        return self.since_ns + self.interval_ns()

    def progress(self, now_ns: int) -> None:
        """The oldest packet changed: start over."""
        self.attempts = 0
        self.since_ns = now_ns

    def charge(self, now_ns: int) -> bool:
        """Use one attempt; False when the budget is exhausted."""
        self.attempts += 1
        self.since_ns = now_ns
        return self._exponential >= RETRY_FOREVER or self.attempts <= self._linear + self._exponential
