"""EV profiles: the configuration and the life of one set of EVs that QPs share.

Owns what a configuration may be and when it may change, by lifecycle.py's table. Its entries are entries.py's, the
paths they give a QP binding.py's. A change of mode, format, count or fields makes a new array; an EXPLICIT one starts
unpopulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from errno import E2BIG, EINVAL

from mrcemu.controller import expansion, paths
from mrcemu.controller.binding import EvBinding, EvShape, bind
from mrcemu.controller.device import DeviceAttr, EvMode, OptCap
from mrcemu.controller.entries import EvEntries, EvReplacement
from mrcemu.controller.expansion import EvField
from mrcemu.controller.formats import EvFmtMode, EvFmtProfile, EvFormat
from mrcemu.controller.lifecycle import (
    EV_PROFILE_TABLE,
    MOVES,
    OFFLINE_NEEDS,
    ONLINE_NEEDS,
    Command,
    Need,
    ProfileState,
    require,
    step,
)
from mrcemu.controller.refusal import ControlError, require_range
from mrcemu.controller.values import EV_BYTES, EV_VALUE_BITS, EVENT_STATES, Ev, EvState
from mrcemu.topology.model import Topology

# AUTO values are STEV values; they need no format profile of the controller's.
_AUTO_FORMAT = EvFormat(EvFmtMode.STEV, (32,))


@dataclass(frozen=True, slots=True)
class EvProfileAttr:
    """Attributes of an EV profile; None is "not set", as a bit missing from the attribute mask of mrc_ctl.h.

    `count`: entries of the array, ignored in AUTO mode. `min_active`: EVs that stay in service whatever happens to
    them. `event_mask`: states whose entering makes an event, of GOOD and ASSUMED_BAD.
    """

    mode: EvMode | None = None
    fmt_id: int | None = None
    count: int | None = None
    min_active: int | None = None
    event_mask: EvState | None = None
    fields: tuple[EvField, ...] | None = None

    def over(self, older: EvProfileAttr) -> EvProfileAttr:
        """`older` with what is set here."""
        return replace(older, **{name: getattr(self, name) for name in self.names_set})

    @property
    def names_set(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)


class EvProfile:
    """One EV profile of the NIC of host number `host`. `formats` are the format profiles by id, as they stand."""

    def __init__(self, topology: Topology, host: int, device: DeviceAttr, formats: Mapping[int, EvFmtProfile]) -> None:
        self._topology = topology
        self._host = host
        self._device = device
        self._formats = formats
        self.state = ProfileState.INIT
        self.attr = EvProfileAttr()
        self.entries = EvEntries()
        self.qpns: set[int] = set()
        self._shape: EvShape | None = None  # None in INIT

    # -- configuration and life -----------------------------------------------------------------------------------

    def modify(self, attr: EvProfileAttr, state: ProfileState | None, free_count: int) -> None:
        """Set what `attr` sets, then move to `state`; nothing changes if anything is refused.

        `free_count`: entries this profile may have. ControlError: EINVAL for what the state or a value forbids, E2BIG
        for too much, EBUSY while QPs use it.
        """
        wanted = attr.over(self.attr)
        for name in attr.names_set:
            self.allow(Command.MODIFY_FIELDS if name == "fields" else Command[name.upper()])
        self._check_values(wanted)
        after = self.state if state is None else state
        # A move that the table does not have is refused as such, before what its state would need.
        if state is not None and (self.state, MOVES[state]) not in EV_PROFILE_TABLE:
            self.allow(MOVES[state])
        shape = None if after is ProfileState.INIT else self._shape_for(wanted, free_count)
        if state is not None:
            step(EV_PROFILE_TABLE, self.state, MOVES[state], self._met(wanted, shape))
        elif after is ProfileState.ONLINE:
            require(ONLINE_NEEDS, self._met(wanted, shape), "state ONLINE")
        self.attr = EvProfileAttr() if state is ProfileState.INIT else wanted
        self.state = after
        if shape != self._shape:
            self._shape = shape
            self.entries = EvEntries() if shape is None else shape.entries(self._topology, self._host)

    def allow(self, command: Command) -> None:
        """ControlError unless the profile's state allows a command."""
        step(EV_PROFILE_TABLE, self.state, command, self._met(self.attr, self._shape))

    def _shape_for(self, wanted: EvProfileAttr, free_count: int) -> EvShape:
        """The shape of the array under a configuration fit for OFFLINE, or ControlError."""
        require(OFFLINE_NEEDS, self._met(wanted, None), "state OFFLINE")
        fmt = self._format_of(wanted)
        if wanted.mode is EvMode.AUTO:
            shape = EvShape(wanted.mode, _AUTO_FORMAT, len(paths.auto_evs(self._topology, self._host)), ())
        else:
            assert wanted.mode is not None  # this and the next two: OFFLINE_NEEDS
            assert wanted.count is not None
            assert fmt is not None
            shape = EvShape(wanted.mode, fmt, wanted.count, wanted.fields or ())
        if shape.fields:
            expansion.check_fields(shape.fields, shape.fmt)
        if shape.mode is EvMode.GENERATED:
            require_range("count", shape.count, 1, expansion.generated_count(shape.fields))
        require_range("count", shape.count, 1, free_count, E2BIG)
        require_range("min_active", wanted.min_active or 0, 0, shape.count)
        return shape

    def _check_values(self, wanted: EvProfileAttr) -> None:
        limits = self._device.ev
        if wanted.mode is not None and (wanted.mode not in limits.mode_mask or wanted.mode.bit_count() != 1):
            raise ControlError(EINVAL, "mode", repr(wanted.mode), f"one of {limits.mode_mask!r}")
        if wanted.mode is EvMode.AUTO and (wanted.fmt_id is not None or wanted.fields is not None):
            raise ControlError(EINVAL, "mode", "AUTO with a format or fields", "AUTO alone (INIT clears a profile)")
        if wanted.count is not None:
            require_range("count", wanted.count, 1, limits.max_count_profile, E2BIG)
            if wanted.count % limits.count_align:
                raise ControlError(EINVAL, "count", wanted.count, f"multiples of {limits.count_align}")
        if wanted.min_active is not None:
            require_range("min_active", wanted.min_active, 0, limits.max_count_profile)
        if wanted.event_mask is not None and wanted.event_mask & ~EVENT_STATES:
            raise ControlError(EINVAL, "event_mask", repr(wanted.event_mask), "GOOD and ASSUMED_BAD, or none")

    def _met(self, wanted: EvProfileAttr, shape: EvShape | None) -> Mapping[Need, bool]:
        """Which needs a configuration meets; `shape` is that of its array, None while there is none."""
        auto = wanted.mode is EvMode.AUTO
        used = self._formats.get(-1 if wanted.fmt_id is None else wanted.fmt_id)
        return {
            Need.MODE: wanted.mode is not None,
            Need.FMT_ID: auto or self._format_of(wanted) is not None,
            Need.COUNT: auto or wanted.count is not None,
            Need.FIELDS: wanted.mode is not EvMode.GENERATED or bool(wanted.fields),
            Need.MIN_ACTIVE: wanted.min_active is not None,
            Need.EVENT_MASK: wanted.event_mask is not None,
            Need.FORMAT_ONLINE: auto or (used is not None and used.state is ProfileState.ONLINE),
            Need.POPULATED: wanted.mode is not EvMode.EXPLICIT or (shape == self._shape and self.entries.populated),
            Need.CAN_MODIFY_ONLINE: OptCap.EV_PROFILE_MODIFY_ONLINE in self._device.opt_attr,
            Need.NO_USER: not self.qpns,
        }

    def _format_of(self, wanted: EvProfileAttr) -> EvFormat | None:
        profile = None if wanted.fmt_id is None else self._formats.get(wanted.fmt_id)
        return None if profile is None else profile.format

    # -- operations on entries ------------------------------------------------------------------------------------

    def replace_ev(self, entry: EvReplacement) -> None:
        """Put another EV in the place of one: EINVAL outside EXPLICIT mode or if the format cannot hold it; ENOENT."""
        self.allow(Command.REPLACE_EV)
        if self.attr.mode is not EvMode.EXPLICIT:
            raise ControlError(EINVAL, "replace_ev", f"mode {self.attr.mode!r}", "mode EXPLICIT")
        self._check_value(entry.ev_new)
        self.entries.replace(entry)

    def _check_value(self, ev: Ev) -> None:
        """Refuse early what could never be expanded; where an EV leads is known only with a destination."""
        assert self._shape is not None  # in every state that allows the operation
        require_range("ev port", ev.port, 1, self._device.port_count)
        bits = self._shape.ev_bits
        if len(ev.value) != EV_BYTES or int.from_bytes(ev.value, "big") & (1 << EV_VALUE_BITS - bits) - 1:
            raise ControlError(EINVAL, "ev value", ev, f"{EV_BYTES} bytes, zeros after the first {bits} bits")

    def bind(self, dst: int) -> EvBinding:
        """What a QP towards host number `dst` gets. ControlError: EINVAL unless ONLINE, EIO if no EV names a path."""
        if self.state is not ProfileState.ONLINE:
            raise ControlError(EINVAL, "profile", f"state {self.state.name}", "state ONLINE")
        assert self._shape is not None  # as in every state past INIT
        assert self.attr.min_active is not None  # ONLINE_NEEDS
        return bind(self._topology, self._host, dst, self._shape, self.entries, self.attr.min_active)
