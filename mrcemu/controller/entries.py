"""The entries of an EV profile: their values in order, copies and all, and the state of each different EV.

Owns replacement, denial and what QPs think of an EV. Refuses what a profile's state allows (lifecycle.py) and where an
EV leads (binding.py). Copies of an EV share one state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from errno import ENOENT

from mrcemu.controller.refusal import ControlError
from mrcemu.controller.values import EV_UNPOPULATED, Ev, EvState, require_settable


@dataclass(frozen=True, slots=True)
class EvReplacement:
    """One entry of a replace operation. `all_copies`: every occurrence of `ev`, instead of the first."""

    ev: Ev
    ev_new: Ev
    state: EvState = EvState.GOOD
    all_copies: bool = False


@dataclass(slots=True)
class _Standing:
    """State of one EV: what the controller said, and the QPs that hold its path bad."""

    denied: bool = False
    bad_at: set[int] = field(default_factory=set)

    @property
    def state(self) -> EvState:
        if self.denied:
            return EvState.DENIED
        return EvState.ASSUMED_BAD if self.bad_at else EvState.GOOD


class EvEntries:
    """The array of one profile. Unpopulated entries have no state of their own."""

    def __init__(self, evs: Iterable[Ev] = ()) -> None:
        self._evs = list(evs)
        self._standings = {ev: _Standing() for ev in self._evs if ev != EV_UNPOPULATED}

    def __len__(self) -> int:
        return len(self._evs)

    @property
    def evs(self) -> tuple[Ev, ...]:
        return tuple(self._evs)

    @property
    def populated(self) -> bool:
        return EV_UNPOPULATED not in self._evs

    def replace(self, entry: EvReplacement) -> None:
        """Put another EV, in the state given, in the place of one; ENOENT if it is not there."""
        require_settable(entry.state)
        places = [index for index, ev in enumerate(self._evs) if ev == entry.ev]
        if not places:
            raise self._not_found(entry.ev)
        for index in places if entry.all_copies else places[:1]:
            self._evs[index] = entry.ev_new
        if entry.ev not in self._evs:
            self._standings.pop(entry.ev, None)
        self._standings.setdefault(entry.ev_new, _Standing()).denied = entry.state is EvState.DENIED

    def set_state(self, ev: Ev, state: EvState) -> None:
        """Deny an EV or allow it again; EINVAL for any other state, ENOENT if it is not listed."""
        require_settable(state)
        self._standing(ev).denied = state is EvState.DENIED

    def state_of(self, ev: Ev) -> EvState:
        """ASSUMED_BAD while any QP holds it so; UNKNOWN of an unpopulated entry; ENOENT if it is not listed."""
        if ev == EV_UNPOPULATED and not self.populated:
            return EvState.UNKNOWN
        return self._standing(ev).state

    def set_bad_at(self, qpn: int, ev: Ev, bad: bool) -> None:
        """Record whether a QP holds an EV bad; nothing if the EV was replaced since the QP was given it."""
        standing = self._standings.get(ev)
        if standing is None:
            return
        if bad:
            standing.bad_at.add(qpn)
        else:
            standing.bad_at.discard(qpn)

    def __contains__(self, ev: Ev) -> bool:
        return ev in self._standings

    def _standing(self, ev: Ev) -> _Standing:
        standing = self._standings.get(ev)
        if standing is None:
            raise self._not_found(ev)
        return standing

    def _not_found(self, ev: Ev) -> ControlError:
        return ControlError(ENOENT, "ev", ev, f"one of the profile's {len(self)} entries")
