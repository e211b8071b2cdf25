"""A small seeded generator passed wherever randomness is needed, so that a run replays exactly from its seed.

SplitMix64 (Steele, Lea, Flood 2014): 64-bit state, one multiply-xorshift mix a number. Not for cryptography.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

T = TypeVar("T")

_MASK64 = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


class Rng:
    """Deterministic random numbers from a 64-bit seed; children by label are independent of call order."""

    __slots__ = ("_seed", "_state")

    def __init__(self, seed: int) -> None:
        self._seed = seed & _MASK64
        self._state = self._seed

    def u64(self) -> int:
        """Next number in 0 .. 2^64 - 1."""
        self._state = (self._state + _GOLDEN_GAMMA) & _MASK64
        return _mix(self._state)

    def below(self, n: int) -> int:
        """Uniform integer in 0 .. n - 1 (n >= 1; bias below n / 2^64)."""
        return (self.u64() * n) >> 64

    def uniform(self) -> float:
        """Uniform float in [0, 1)."""
        return (self.u64() >> 11) * (1.0 / (1 << 53))

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Fisher-Yates in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def child(self, label: str) -> Rng:
        """A generator whose stream depends on this seed and the label only."""
        state = self._seed
        for byte in label.encode():
            state = _mix((state ^ byte) + _GOLDEN_GAMMA & _MASK64)
        return Rng(state)
