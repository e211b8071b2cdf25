"""Which path the next packet takes: plane first, then the plane's GOOD EVs.

Owns: active and backup sets per plane, the rotation, same-plane replacement, the floor of EVs in service, the planes
usable at both ends. Refuses: why a path changes state (ev.py has the table, requester and probes give the inputs).

Planes rotate strictly over those with room, so plane shares stay equal (sources 4.4, 4.6); inside a plane the order is
pseudo-random and reshuffled, so that QPs sharing paths do not march in step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.ev import TRANSITIONS, EvEntry, EvInput, EvState
from mrcemu.rng import Rng
from mrcemu.topology.addressing import Path

MAX_EVS = 256
_GOOD = EvState.GOOD
_SKIP = EvState.SKIP


class _Plane:
    """One plane's EVs: those in service in rotation order, and the backups that may replace them."""

    __slots__ = ("active", "backup", "cursor", "target", "turns")

    def __init__(self) -> None:
        self.active: list[EvEntry] = []
        self.backup: deque[EvEntry] = deque()
        self.cursor = 0
        self.target = 0
        self.turns = 0


class Spray:
    """The path table of one QP and the choice of the next path.

    `on_change(entry, old, new, signal)` is called for each state change.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        config: TransportConfig,
        rng: Rng,
        on_change: Callable[[EvEntry, EvState, EvState, str], None],
    ) -> None:
        self._rng = rng
        self._config = config
        self._on_change = on_change
        self.entries: dict[int, EvEntry] = {path.ev: EvEntry(path) for path in paths}
        if not 1 <= len(self.entries) <= MAX_EVS:
            raise ValueError(f"a QP needs 1 to {MAX_EVS} paths, got {len(self.entries)}")
        self._planes = [_Plane() for _ in range(1 + max(entry.plane for entry in self.entries.values()))]
        self._floor = config.min_active(len(self.entries))
        self.active_count = 0
        self.floor_hits = 0  # losses that could not retire an EV because of the floor
        self.allowed_planes = (1 << len(self._planes)) - 1
        self._nonempty = 0
        self._usable = 0
        self._last_plane = rng.below(len(self._planes))
        self._fill()

    def _fill(self) -> None:
        for index, plane in enumerate(self._planes):
            members = [entry for entry in self.entries.values() if entry.plane == index]
            self._rng.shuffle(members)
            plane.target = max(1, int(len(members) * self._config.active_share)) if members else 0
            for entry in members[: plane.target]:
                self._enter(plane, entry)
            plane.backup.extend(members[plane.target :])

    # -- planes ---------------------------------------------------------------------------------------------------

    def allow_planes(self, mask: int) -> None:
        """Restrict sending to planes whose ports are up at both ends (bit N = plane N)."""
        self.allowed_planes = mask
        self._usable = self._nonempty & mask

    @property
    def usable_planes(self) -> int:
        """Bit mask of planes with a path in service and ports up at both ends."""
        return self._usable

    @property
    def plane_count(self) -> int:
        """Planes from 0 to the highest that has a path."""
        return len(self._planes)

    @property
    def usable_plane_count(self) -> int:
        return self._usable.bit_count()

    def in_service(self, plane: int) -> list[EvEntry]:
        """The EVs of a plane that carry traffic, in rotation order; not to be changed by the caller."""
        return self._planes[plane].active

    def _enter(self, plane: _Plane, entry: EvEntry) -> None:
        entry.active = True
        plane.active.append(entry)
        self.active_count += 1
        self._nonempty |= 1 << entry.plane
        self._usable = self._nonempty & self.allowed_planes

    def _leave(self, plane: _Plane, entry: EvEntry) -> None:
        position = plane.active.index(entry)
        plane.active.pop(position)
        if position < plane.cursor:
            plane.cursor -= 1
        entry.active = False
        self.active_count -= 1
        if not plane.active:
            self._nonempty &= ~(1 << entry.plane)
            self._usable = self._nonempty & self.allowed_planes

    # -- choice ---------------------------------------------------------------------------------------------------

    def select(self, room: int, avoid: EvEntry | None = None) -> EvEntry | None:
        """The path for the next packet among ports with room (bit N = port N), or None.

        `avoid` is passed over once if its plane has another choice (a retransmission avoids the path that lost it).
        """
        usable = self._usable & room
        if not usable:
            return None
        above = usable >> (self._last_plane + 1) << (self._last_plane + 1)
        candidates = above or usable
        index = (candidates & -candidates).bit_length() - 1
        self._last_plane = index
        plane = self._planes[index]
        entry = self._next_in_plane(plane)
        if entry is avoid and len(plane.active) > 1:
            entry = self._other_in_plane(plane, avoid)
        return entry

    @staticmethod
    def _other_in_plane(plane: _Plane, avoid: EvEntry) -> EvEntry:
        """The next EV of the rotation that is not `avoid`, preferably a GOOD one; restores nothing (one a packet)."""
        at = plane.cursor % len(plane.active)
        others = [entry for entry in plane.active[at:] + plane.active[:at] if entry is not avoid]
        return next((entry for entry in others if entry.state is _GOOD), others[0])

    def _next_in_plane(self, plane: _Plane) -> EvEntry:
        """Rotate to the next GOOD EV; a SKIP one is restored and passed over, at most one per packet (sources 4.2)."""
        active = plane.active
        restored = False
        for _ in range(2 * len(active)):
            cursor = plane.cursor
            if cursor >= len(active):
                cursor = 0
                self._wrap(plane)
            plane.cursor = cursor + 1
            entry = active[cursor]
            if entry.state is _GOOD or entry.state is EvState.ASSUMED_BAD:  # ASSUMED_BAD here: kept by the floor
                return entry
            if not restored and entry.state is _SKIP:
                restored = self._pass_turn(entry)
        return active[plane.cursor - 1]

    def _pass_turn(self, entry: EvEntry) -> bool:
        entry.skip_turns -= 1
        if entry.skip_turns > 0:
            return False
        entry.state = TRANSITIONS[entry.state, EvInput.TURN]
        self._on_change(entry, _SKIP, entry.state, "turn")
        return True

    def _wrap(self, plane: _Plane) -> None:
        plane.turns += 1
        if plane.turns % self._config.reshuffle_turns == 0:
            self._rng.shuffle(plane.active)

    # -- state ----------------------------------------------------------------------------------------------------

    def apply(self, entry: EvEntry, what: EvInput, signal: str, now_ns: int) -> bool:
        """Feed one input to a path by the table; True if its state changed."""
        old = entry.state
        new = TRANSITIONS[old, what]
        if what is EvInput.MARK:
            entry.skip_run += 1
        if new is old:
            return False
        if new in (EvState.ASSUMED_BAD, EvState.DENIED) and entry.active:
            if new is EvState.ASSUMED_BAD and self._at_floor(entry):
                self.floor_hits += 1
                return False
            self._replace(entry)
        entry.state = new
        if new is EvState.ASSUMED_BAD:
            entry.retired += 1
            entry.retired_ns = now_ns
        elif new is _SKIP:
            entry.skip_turns = 1 << min(entry.skip_run - 1, 6) if self._config.adaptive_skip else 1
        if old in (EvState.ASSUMED_BAD, EvState.DENIED) and new in (_GOOD, _SKIP):
            entry.returned_ns = now_ns
            self._restore(entry)
        self._on_change(entry, old, new, signal)
        return True

    def clear_mark_run(self, entry: EvEntry) -> None:
        """An unmarked acknowledgement ends a run of consecutive marks."""
        entry.skip_run = 0

    def _at_floor(self, entry: EvEntry) -> bool:
        """Whether retiring this EV would leave fewer in service than the floor allows (sources 4.5)."""
        has_backup = any(backup.state in (_GOOD, _SKIP) for backup in self._planes[entry.plane].backup)
        return not has_backup and self.active_count <= self._floor

    def _replace(self, entry: EvEntry) -> None:
        """Take a path out of service; a GOOD backup of the same plane, always the same plane, takes its place."""
        plane = self._planes[entry.plane]
        self._leave(plane, entry)
        for _ in range(len(plane.backup)):
            backup = plane.backup.popleft()
            if backup.state in (_GOOD, _SKIP):
                self._enter(plane, backup)
                break
            plane.backup.append(backup)
        plane.backup.append(entry)

    def _restore(self, entry: EvEntry) -> None:
        plane = self._planes[entry.plane]
        if not entry.active and len(plane.active) < plane.target:
            plane.backup.remove(entry)
            self._enter(plane, entry)

    def bad_entries(self) -> list[EvEntry]:
        """Paths that wait for probes to bring them back."""
        return [entry for entry in self.entries.values() if entry.state is EvState.ASSUMED_BAD]
