"""What a responder has received: cumulative point, bitmap above it, and the report a SACK carries.

Owns the window [ePSN, ePSN + MPR) and the walking bitmap base (protocol sources 3.1 to 3.6). PSNs are unbounded ints.
"""

from __future__ import annotations

from enum import Enum

SACK_BITS = 64
SACK_MASK = (1 << SACK_BITS) - 1


class Arrival(Enum):
    """How a PSN relates to the window."""

    NEW = "new"
    DUPLICATE = "duplicate"  # at or below cack
    DUPLICATE_ABOVE = "duplicate_above"  # already marked above cack
    BEYOND = "beyond"  # above the window


class ReceiveWindow:
    """Arrived PSNs. `expected` is ePSN = cack + 1; bit i of `_bits` is ePSN + i."""

    __slots__ = ("_bits", "_edge", "_mpr_psns", "_walk", "expected", "highest", "ooo_count")

    def __init__(self, first_psn: int, mpr_psns: int) -> None:
        self.expected = first_psn
        self.highest = first_psn - 1
        self.ooo_count = 0  # packets held above cack
        self._bits = 0
        self._walk = first_psn  # where the next report starts
        self._mpr_psns = mpr_psns
        self._edge = first_psn  # PSNs below were allowed once and stay so, whatever the window shrinks to

    @property
    def cack(self) -> int:
        return self.expected - 1

    def resize(self, mpr_psns: int) -> None:
        """A new window size, effective above what was allowed before."""
        self._edge = max(self._edge, self.expected + self._mpr_psns)
        self._mpr_psns = mpr_psns

    def classify(self, psn: int) -> Arrival:
        """Whether a PSN is new, a duplicate, or out of the window; changes nothing."""
        ahead = psn - self.expected
        if ahead < 0:
            return Arrival.DUPLICATE
        if ahead >= self._mpr_psns and psn >= self._edge:
            return Arrival.BEYOND
        return Arrival.DUPLICATE_ABOVE if self._bits >> ahead & 1 else Arrival.NEW

    def mark(self, psn: int) -> bool:
        """Record a PSN that `classify` called NEW; True if the cumulative point moved."""
        ahead = psn - self.expected
        if psn > self.highest:
            self.highest = psn
        if ahead:
            self._bits |= 1 << ahead
            self.ooo_count += 1
            return False
        bits = self._bits | 1
        run = (~bits & (bits + 1)).bit_length() - 1
        self._bits = bits >> run
        self.expected += run
        self.ooo_count -= run - 1
        return True

    def report(self) -> tuple[int, int]:
        """(sack_offset, bitmap) of the next SACK; successive reports walk a spread wider than 64 and start over.

        bit i stands for cack + sack_offset + i. Bits at or below cack are 1. A 0 bit is "not reported received".
        """
        cack = self.expected - 1
        base = max(self._walk, self.expected)
        if base + SACK_BITS > self.highest + 1:
            base = max(self.highest - SACK_BITS + 1, self.expected)
            self._walk = self.expected
        else:
            self._walk = base + SACK_BITS
        return base - cack, self._bits >> (base - self.expected) & SACK_MASK
