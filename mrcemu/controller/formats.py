"""EV format profiles: which header bits of a packet carry an EV, as an ordered list of field widths.

Owns the three modes, their width ceilings and the life of a format profile. Refuses values (expansion.py) and paths
(paths.py). STEV puts the first 16 bits in the flow label and the next 16 in the UDP source port; SRV6 is the outer
destination address, followed by one segment of a segment routing header; UDP is the UDP source port alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from errno import E2BIG, EINVAL

from mrcemu.controller.lifecycle import FMT_PROFILE_TABLE, MOVES, Command, Need, ProfileState, step
from mrcemu.controller.refusal import ControlError, require_range

MAX_FMT_FIELD_BITS = 255  # mrc_ctl.h: a format field's width is one byte
SRV6_ADDRESS_BITS = 128


class EvFmtMode(IntFlag):
    """Where an EV travels (mrc_ctl.h); the values are bits of the device's mode mask."""

    STEV = 1 << 0
    SRV6 = 1 << 1
    UDP = 1 << 2


# Bits an EV of each mode can have at most (protocol sources 5.3). SRV6: 128 of the address, 128 of one segment.
WIDTH_CEILING_BITS = {EvFmtMode.STEV: 32, EvFmtMode.SRV6: 256, EvFmtMode.UDP: 16}


@dataclass(frozen=True, slots=True)
class EvFormat:
    """A checked format: field widths in bits, in the order they stand in the packet from the left.

    ControlError: EINVAL for a mode or width that does not exist, E2BIG when the fields together pass the ceiling.
    """

    mode: EvFmtMode
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.mode not in WIDTH_CEILING_BITS:
            raise ControlError(EINVAL, "mode", repr(self.mode), "one of STEV, SRV6, UDP")
        if not self.widths:
            raise ControlError(EINVAL, "format fields", "none", "at least one")
        for index, width in enumerate(self.widths):
            require_range(f"format field {index} width", width, 1, MAX_FMT_FIELD_BITS)
        require_range("format fields, bits in all", self.total_bits, 1, WIDTH_CEILING_BITS[self.mode], E2BIG)

    @property
    def total_bits(self) -> int:
        return sum(self.widths)


class EvFmtProfile:
    """One format profile and its life. `format` is None until both mode and fields are set."""

    def __init__(self, mode_mask: EvFmtMode, max_width_bits: int) -> None:
        """What the device offers: modes, and bits an EV may have at most in any mode."""
        self._mode_mask = mode_mask
        self._max_width_bits = max_width_bits
        self.state = ProfileState.INIT
        self.mode: EvFmtMode | None = None
        self.widths: tuple[int, ...] = ()
        self.format: EvFormat | None = None

    def modify(
        self,
        *,
        state: ProfileState | None = None,
        mode: EvFmtMode | None = None,
        fields: Sequence[int] | None = None,
        in_use: bool = False,
    ) -> None:
        """Set what is given, then move; nothing changes if anything is refused. `fields` are widths in bits.

        `in_use`: an ONLINE EV profile refers to this one, so it must stay ONLINE (EBUSY).
        """
        new_mode = self.mode if mode is None else mode
        new_widths = self.widths if fields is None else tuple(fields)
        met = {Need.MODE: new_mode is not None, Need.FIELDS: bool(new_widths), Need.NO_USER: not in_use}
        commands = [
            command
            for command, given in ((Command.MODE, mode is not None), (Command.MODIFY_FIELDS, fields is not None))
            if given
        ]
        for command in commands:
            step(FMT_PROFILE_TABLE, self.state, command, met)
        if mode is not None and mode not in self._mode_mask:
            raise ControlError(EINVAL, "mode", repr(mode), f"what the device offers: {self._mode_mask!r}")
        new_format = self._format_of(new_mode, new_widths) if fields is not None or new_widths else None
        if state is not None:
            self.state = step(FMT_PROFILE_TABLE, self.state, MOVES[state], met)
        if state is ProfileState.INIT:
            new_mode, new_widths, new_format = None, (), None
        self.mode, self.widths, self.format = new_mode, new_widths, new_format

    def _format_of(self, mode: EvFmtMode | None, widths: tuple[int, ...]) -> EvFormat | None:
        if mode is None:
            return None
        found = EvFormat(mode, widths)
        require_range("format fields, bits in all", found.total_bits, 1, self._max_width_bits, E2BIG)
        return found
