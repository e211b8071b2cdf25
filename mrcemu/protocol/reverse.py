"""Which path an answer takes: SACKs, NACKs, Transport ACKs and probe answers rotate over all planes.

Owns a rotation of its own, so that answers do not disturb the equal plane shares of data. A dead reverse path so costs
single answers only, and every SACK repeats what the one before reported (protocol sources 4.7).
"""

from __future__ import annotations

from mrcemu.protocol.ev import EvEntry
from mrcemu.protocol.spray import Spray


class ReversePaths:
    """The rotation of one QP's answers over planes, and over each plane's EVs in service."""

    __slots__ = ("_cursors", "_last_plane", "_spray")

    def __init__(self, spray: Spray) -> None:
        self._spray = spray
        self._last_plane = -1
        self._cursors: dict[int, int] = {}

    def select(self, room: int) -> EvEntry | None:
        """The path of the next answer among ports with room, or None."""
        usable = self._spray.usable_planes & room
        if not usable:
            return None
        above = usable >> (self._last_plane + 1) << (self._last_plane + 1)
        candidates = above or usable
        plane = (candidates & -candidates).bit_length() - 1
        self._last_plane = plane
        active = self._spray.in_service(plane)
        cursor = self._cursors.get(plane, 0) % len(active)
        self._cursors[plane] = cursor + 1
        return active[cursor]
