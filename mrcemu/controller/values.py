"""An EV as the controller sees it, a 32-byte value with a port, and the states it can see.

Owns no meaning of the bytes: formats.py and expansion.py say where they go in a packet, paths.py which path they name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from errno import EINVAL

from mrcemu.controller.refusal import ControlError
from mrcemu.protocol.ev import EvState as PathState

EV_BYTES = 32  # mrc_ctl.h: 4 used by STEV, 16 by an SRv6 address, 16 more by a segment routing header
EV_VALUE_BITS = 8 * EV_BYTES


class EvState(IntFlag):
    """States of an EV and bits of an event mask (mrc_ctl.h). SKIP of the transport shows as GOOD."""

    GOOD = 1 << 0
    ASSUMED_BAD = 1 << 1
    DENIED = 1 << 2
    UNKNOWN = 1 << 31


# What a controller may ask for, and what events may report.
SETTABLE_STATES = EvState.GOOD | EvState.DENIED
EVENT_STATES = EvState.GOOD | EvState.ASSUMED_BAD


@dataclass(frozen=True, slots=True)
class Ev:
    """One entropy value: 32 bytes, used from the left, and the 1-based port it leaves by (0: none)."""

    value: bytes
    port: int

    @classmethod
    def of(cls, value: bytes, port: int) -> Ev:
        """An EV from at most 32 bytes, filled with zeros on the right; ControlError EINVAL if longer."""
        if len(value) > EV_BYTES:
            raise ControlError(EINVAL, "ev value", f"{len(value)} bytes", f"at most {EV_BYTES}")
        return cls(bytes(value).ljust(EV_BYTES, b"\0"), port)

    def __str__(self) -> str:
        return f"0x{self.value.rstrip(bytes(1)).hex() or '0'} on port {self.port}"


# An entry of an explicit array that nobody has replaced yet.
EV_UNPOPULATED = Ev(bytes(EV_BYTES), 0)


def require_settable(state: EvState) -> None:
    """ControlError EINVAL unless a controller may put an EV into this one state."""
    if state not in (EvState.GOOD, EvState.DENIED):
        raise ControlError(EINVAL, "state", repr(state), "GOOD or DENIED")


def is_assumed_bad(path_state: str) -> bool:
    """Whether a transport state, as named in `EvChanged`, is the one the controller sees as ASSUMED_BAD."""
    return PathState(path_state) is PathState.ASSUMED_BAD
