"""The denylist: (mask, value) pairs; an EV is denied when (ev AND mask) == (value AND mask) (protocol sources 4.10).

With structural EVs one entry names a whole plane (mask 0xF), a T0 uplink of every plane (mask 0xFFFF0) or one path.
Owns matching only; the state of a path changes by the table of ev.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DenyEntry:
    """One pair; both 32 bits."""

    mask: int
    value: int

    def matches(self, ev: int) -> bool:
        return ev & self.mask == self.value & self.mask


class Denylist:
    """The entries of one NIC, in the order they were added."""

    def __init__(self) -> None:
        self._entries: dict[DenyEntry, None] = {}

    def add(self, entry: DenyEntry) -> None:
        self._entries[entry] = None

    def remove(self, entry: DenyEntry) -> bool:
        """False if it is not listed."""
        return self._entries.pop(entry, self) is None

    def denies(self, ev: int) -> bool:
        return any(entry.matches(ev) for entry in self._entries)

    @property
    def entries(self) -> tuple[DenyEntry, ...]:
        return tuple(self._entries)
