"""A controller on a small fabric, and the shortest way to a profile of each mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mrcemu.controller.controller import Controller
from mrcemu.controller.device import EvMode
from mrcemu.controller.entries import EvReplacement
from mrcemu.controller.expansion import EvField
from mrcemu.controller.formats import EvFmtMode
from mrcemu.controller.lifecycle import ProfileState
from mrcemu.controller.profiles import EvProfileAttr
from mrcemu.controller.refusal import ControlError
from mrcemu.controller.values import EV_UNPOPULATED, EVENT_STATES, Ev
from mrcemu.protocol.events import EvChanged
from mrcemu.topology.addressing import ev_of
from mrcemu.topology.model import Topology

INIT, OFFLINE, ONLINE = ProfileState
EIGHT = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
LOCAL, REMOTE, OTHER = 1, 15, 14  # host 0 shares its T0 with 1; 14 and 15 hang on another
STEV_FMT, SRV6_FMT, PROFILE = 13, 14, 1
# A STEV EV of this fabric: 12 zero bits, uplink 16, plane 4 (topology/addressing.py); 4 uplinks, 8 planes.
STEV_FIELDS = (EvField(12), EvField(16, 0, 0, 3, 0x3), EvField(4, 0, 0, 7, 0x7))


def stev(plane: int, uplink: int) -> Ev:
    return Ev.of(ev_of(plane, uplink).to_bytes(4, "big"), plane + 1)


@contextmanager
def refused(errno: int, key: str = "") -> Iterator[None]:
    """A call is refused with an errno, about something whose name holds `key`, saying what was found and is allowed."""
    with pytest.raises(ControlError) as caught:
        yield
    error = caught.value
    assert error.errno == errno, str(error)
    assert key in error.key, str(error)
    assert error.found in str(error)
    assert error.allowed


def controller(**options: object) -> Controller:
    """On host 0, with an ONLINE format profile of each mode."""
    made = Controller(EIGHT, 0, **options)  # type: ignore[arg-type]
    online_format(made, STEV_FMT, EvFmtMode.STEV, (12, 16, 4))
    online_format(made, SRV6_FMT, EvFmtMode.SRV6, (32, 16, 16, 16, 16))
    return made


def online_format(made: Controller, fmt_id: int, mode: EvFmtMode, widths: tuple[int, ...]) -> None:
    made.modify_ev_fmt_profile(fmt_id, state=OFFLINE, mode=mode, fields=widths)
    made.modify_ev_fmt_profile(fmt_id, state=ONLINE)


def attr(mode: EvMode, /, **changes: object) -> EvProfileAttr:
    """What a profile of a mode needs up to ONLINE, entries of an EXPLICIT one aside."""
    values: dict[str, object] = {"mode": mode, "min_active": 1, "event_mask": EVENT_STATES}
    if mode is EvMode.EXPLICIT:
        values |= {"fmt_id": STEV_FMT, "count": 4}
    elif mode is EvMode.GENERATED:
        values |= {"fmt_id": STEV_FMT, "count": 32, "fields": STEV_FIELDS}
    return EvProfileAttr(**(values | changes))  # type: ignore[arg-type]


def online(made: Controller, mode: EvMode, /, profile_id: int = PROFILE, **changes: object) -> None:
    made.modify_ev_profile(profile_id, attr(mode, **changes), OFFLINE)
    made.modify_ev_profile(profile_id, EvProfileAttr(), ONLINE)


def online_explicit(made: Controller, *evs: Ev, profile_id: int = PROFILE, **changes: object) -> None:
    made.modify_ev_profile(profile_id, attr(EvMode.EXPLICIT, count=len(evs), **changes), OFFLINE)
    made.replace_ev(profile_id, [EvReplacement(EV_UNPOPULATED, ev) for ev in evs])
    made.modify_ev_profile(profile_id, EvProfileAttr(), ONLINE)


def changed(qpn: int, ev: Ev, new: str, old: str = "GOOD") -> EvChanged:
    """What a QP reports about a STEV value."""
    ev32 = int.from_bytes(ev.value[:4], "big")
    return EvChanged(0, qpn, ev32, ev32 & 0xF, old, new, "test")
