"""When a profile may do what: INIT -> OFFLINE -> ONLINE -> OFFLINE -> INIT, as tables.

Owns which command is allowed in which state, the state that follows, and what each step needs (mrc_ctl.h, "state
transition requirements" and "allowed"). Refuses to know what a profile holds: it is told which needs are met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from errno import EBUSY, EINVAL

from mrcemu.controller.refusal import ControlError


class ProfileState(IntEnum):
    """INIT: to be configured; OFFLINE: configured, not usable; ONLINE: usable, hardly changeable."""

    INIT = 0
    OFFLINE = 1
    ONLINE = 2


class Command(Enum):
    """What a call can ask of a profile; one call may carry several."""

    TO_INIT = "state INIT"
    TO_OFFLINE = "state OFFLINE"
    TO_ONLINE = "state ONLINE"
    MODE = "mode"
    FMT_ID = "fmt_id"
    COUNT = "count"
    MIN_ACTIVE = "min_active"
    EVENT_MASK = "event_mask"
    MODIFY_FIELDS = "modify_fields"
    QUERY_FIELDS = "query_fields"
    REPLACE_EV = "replace_ev"
    MODIFY_EV_STATE = "modify_ev_state"
    QUERY_EV_STATE = "query_ev_state"
    QUERY_EV_ARRAY = "query_ev_array"


class Need(Enum):
    """What a step needs: (what it is called in a refusal, the errno of the refusal)."""

    MODE = ("mode must be set", EINVAL)
    FMT_ID = ("fmt_id must name a format profile whose mode and fields are set", EINVAL)
    COUNT = ("count must be set", EINVAL)
    FIELDS = ("fields must be set", EINVAL)
    MIN_ACTIVE = ("min_active must be set", EINVAL)
    EVENT_MASK = ("event_mask must be set", EINVAL)
    FORMAT_ONLINE = ("the format profile must be ONLINE", EINVAL)
    POPULATED = ("every unpopulated entry must be replaced", EINVAL)
    CAN_MODIFY_ONLINE = ("only a device with EV_PROFILE_MODIFY_ONLINE changes this ONLINE", EINVAL)
    NO_USER = ("nothing ONLINE may be using the profile", EBUSY)


@dataclass(frozen=True, slots=True)
class Step:
    """The row of a table: the state that follows, and what must hold first."""

    next: ProfileState
    needs: tuple[Need, ...] = ()


Table = Mapping[tuple[ProfileState, Command], Step]
_INIT, _OFFLINE, _ONLINE = ProfileState

# A profile past INIT meets the first for as long as it is; an ONLINE one meets the second too.
OFFLINE_NEEDS = (Need.MODE, Need.FMT_ID, Need.COUNT, Need.FIELDS)
ONLINE_NEEDS = (Need.MIN_ACTIVE, Need.EVENT_MASK, Need.FORMAT_ONLINE, Need.POPULATED)
_ONLINE_CHANGE = Step(_ONLINE, (Need.CAN_MODIFY_ONLINE,))

# EV profiles. A pair that is not here is refused with EINVAL.
EV_PROFILE_TABLE: Table = {
    (_INIT, Command.MODE): Step(_INIT),
    (_INIT, Command.FMT_ID): Step(_INIT),
    (_INIT, Command.COUNT): Step(_INIT),
    (_INIT, Command.MIN_ACTIVE): Step(_INIT),
    (_INIT, Command.EVENT_MASK): Step(_INIT),
    (_INIT, Command.MODIFY_FIELDS): Step(_INIT),
    (_INIT, Command.QUERY_FIELDS): Step(_INIT),
    (_INIT, Command.TO_OFFLINE): Step(_OFFLINE, OFFLINE_NEEDS),
    (_OFFLINE, Command.MODE): Step(_OFFLINE),
    (_OFFLINE, Command.FMT_ID): Step(_OFFLINE),
    (_OFFLINE, Command.COUNT): Step(_OFFLINE),
    (_OFFLINE, Command.MIN_ACTIVE): Step(_OFFLINE),
    (_OFFLINE, Command.EVENT_MASK): Step(_OFFLINE),
    (_OFFLINE, Command.MODIFY_FIELDS): Step(_OFFLINE),
    (_OFFLINE, Command.QUERY_FIELDS): Step(_OFFLINE),
    (_OFFLINE, Command.REPLACE_EV): Step(_OFFLINE),
    (_OFFLINE, Command.MODIFY_EV_STATE): Step(_OFFLINE),
    (_OFFLINE, Command.QUERY_EV_STATE): Step(_OFFLINE),
    (_OFFLINE, Command.QUERY_EV_ARRAY): Step(_OFFLINE),
    (_OFFLINE, Command.TO_ONLINE): Step(_ONLINE, ONLINE_NEEDS),
    (_OFFLINE, Command.TO_INIT): Step(_INIT),
    (_ONLINE, Command.EVENT_MASK): _ONLINE_CHANGE,
    (_ONLINE, Command.MODIFY_FIELDS): _ONLINE_CHANGE,
    (_ONLINE, Command.REPLACE_EV): _ONLINE_CHANGE,
    (_ONLINE, Command.QUERY_FIELDS): Step(_ONLINE),
    (_ONLINE, Command.MODIFY_EV_STATE): Step(_ONLINE),
    (_ONLINE, Command.QUERY_EV_STATE): Step(_ONLINE),
    (_ONLINE, Command.QUERY_EV_ARRAY): Step(_ONLINE),
    (_ONLINE, Command.TO_OFFLINE): Step(_OFFLINE, (Need.NO_USER,)),
}

# EV format profiles; NO_USER there means: no EV profile that is ONLINE.
FMT_PROFILE_TABLE: Table = {
    (_INIT, Command.MODE): Step(_INIT),
    (_INIT, Command.MODIFY_FIELDS): Step(_INIT),
    (_INIT, Command.TO_OFFLINE): Step(_OFFLINE, (Need.MODE,)),
    (_OFFLINE, Command.MODE): Step(_OFFLINE),
    (_OFFLINE, Command.MODIFY_FIELDS): Step(_OFFLINE),
    (_OFFLINE, Command.TO_ONLINE): Step(_ONLINE, (Need.FIELDS,)),
    (_OFFLINE, Command.TO_INIT): Step(_INIT),
    (_ONLINE, Command.TO_OFFLINE): Step(_OFFLINE, (Need.NO_USER,)),
}

MOVES = {_INIT: Command.TO_INIT, _OFFLINE: Command.TO_OFFLINE, _ONLINE: Command.TO_ONLINE}


def require(needs: tuple[Need, ...], met: Mapping[Need, bool], wanted: str) -> None:
    """ControlError with the errno of the first need that is not met."""
    for need in needs:
        if not met[need]:
            allowed, errno = need.value
            raise ControlError(errno, wanted, f"{need.name} unmet", allowed)


def step(table: Table, state: ProfileState, command: Command, met: Mapping[Need, bool]) -> ProfileState:
    """The state after a command; ControlError EINVAL if the table has no such row, or the errno of an unmet need."""
    row = table.get((state, command))
    if row is None:
        states = [at.name for at, what in table if what is command]
        raise ControlError(EINVAL, command.value, f"state {state.name}", f"in {' or '.join(states) or 'no state'}")
    require(row.needs, met, command.value)
    return row.next
