"""The calls of the one controller of a NIC, named as in mrc_ctl.h; errno becomes an exception, attribute masks None.

Owns the profiles of one host by id, the EV events, and which QP uses which profile. Refuses to reach into a QP:
whoever owns the NIC attaches QPs, passes their `EvChanged` events in, and applies the commands that come out.

An id that was never configured is a profile in INIT, and a profile moved back to INIT is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from errno import E2BIG, EINVAL, EPERM
from typing import TypeVar

from mrcemu.controller.binding import EvBinding
from mrcemu.controller.device import DeviceAttr, device_of
from mrcemu.controller.entries import EvReplacement
from mrcemu.controller.events import EvEvent, EvEventQueue
from mrcemu.controller.formats import EvFmtMode, EvFmtProfile
from mrcemu.controller.lifecycle import Command, ProfileState
from mrcemu.controller.profiles import EvProfile, EvProfileAttr
from mrcemu.controller.refusal import ControlError, require_range
from mrcemu.controller.values import Ev, EvState, is_assumed_bad
from mrcemu.protocol.events import EvChanged
from mrcemu.topology.model import Topology

_P = TypeVar("_P", EvFmtProfile, EvProfile)

MAX_PROFILE_ID = (1 << 64) - 1
DEFAULT_EVENT_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class EvFmtProfileInfo:
    """A format profile as queried; `fields` are widths in bits."""

    state: ProfileState
    mode: EvFmtMode | None
    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EvProfileInfo:
    """An EV profile as queried. `count` is the real length of its array, 0 in INIT; `qpns` use it."""

    state: ProfileState
    attr: EvProfileAttr
    count: int
    qpns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QpEvCommand:
    """What the owner of the NIC must tell a QP: deny or allow one 32-bit EV."""

    qpn: int
    ev: int
    denied: bool


class Controller:
    """See the module docstring. `privileged`: whether the caller may use it at all (CAP_NET_ADMIN), or EPERM."""

    def __init__(
        self,
        topology: Topology,
        host: int,
        *,
        privileged: bool = True,
        device: DeviceAttr | None = None,
        event_capacity: int = DEFAULT_EVENT_CAPACITY,
    ) -> None:
        self._topology = topology
        self._host = host
        self._privileged = privileged
        self._device = device or device_of(topology.planes)
        self._formats: dict[int, EvFmtProfile] = {}
        self._profiles: dict[int, EvProfile] = {}
        self._bindings: dict[int, tuple[int, EvBinding]] = {}  # by QPN
        self._commands: deque[QpEvCommand] = deque()
        self._events = EvEventQueue(event_capacity)

    def query_device(self) -> DeviceAttr:
        """Limits, modes, algorithms, ports and optional features, with the number of EVs still free."""
        self._check_privilege()
        return self._device.with_free(self._free_count())

    # -- format profiles ------------------------------------------------------------------------------------------

    def modify_ev_fmt_profile(
        self,
        fmt_id: int,
        *,
        state: ProfileState | None = None,
        mode: EvFmtMode | None = None,
        fields: Sequence[int] | None = None,
    ) -> None:
        """Configure and move a format profile; `fields` are widths in bits. EINVAL, E2BIG, EBUSY, EPERM."""
        profile = self._format(fmt_id)
        in_use = any(
            each.state is ProfileState.ONLINE and each.attr.fmt_id == fmt_id for each in self._profiles.values()
        )
        _check_room(self._formats, fmt_id, self._device.ev.max_fmt_profiles)
        profile.modify(state=state, mode=mode, fields=fields, in_use=in_use)
        _keep(self._formats, fmt_id, profile, forget=state is ProfileState.INIT)

    def query_ev_fmt_profile(self, fmt_id: int) -> EvFmtProfileInfo:
        """State, mode and field widths."""
        profile = self._format(fmt_id)
        return EvFmtProfileInfo(profile.state, profile.mode, profile.widths)

    # -- EV profiles ----------------------------------------------------------------------------------------------

    def modify_ev_profile(self, profile_id: int, attr: EvProfileAttr, state: ProfileState | None = None) -> None:
        """Configure an EV profile, then move it; all or nothing. EINVAL, E2BIG, EBUSY, EPERM."""
        profile = self._profile(profile_id)
        _check_room(self._profiles, profile_id, self._device.ev.max_profiles)
        profile.modify(attr, state, self._free_count() + len(profile.entries))
        _keep(self._profiles, profile_id, profile, forget=state is ProfileState.INIT)

    def query_ev_profile(self, profile_id: int) -> EvProfileInfo:
        """State, attributes (fields too) and the real number of entries."""
        profile = self._profile(profile_id)
        return EvProfileInfo(profile.state, profile.attr, len(profile.entries), tuple(sorted(profile.qpns)))

    def replace_ev(self, profile_id: int, entries: Iterable[EvReplacement]) -> None:
        """Replace EVs of an EXPLICIT profile, one after the other; those before the first refused one stay replaced."""
        profile = self._profile(profile_id)
        for entry in entries:
            profile.replace_ev(entry)

    def modify_ev_state(self, profile_id: int, entries: Iterable[tuple[Ev, EvState]]) -> None:
        """Deny EVs or allow them again, one after the other; those before the first refused one stay changed.

        EINVAL for a state that is neither GOOD nor DENIED, ENOENT for an EV that is not listed. Commands for the QPs
        concerned are ready afterwards.
        """
        profile = self._profile(profile_id)
        for ev, state in entries:
            profile.allow(Command.MODIFY_EV_STATE)
            before = profile.entries.state_of(ev)
            profile.entries.set_state(ev, state)
            self._command_qps(profile_id, ev, state is EvState.DENIED)
            self._tell(profile_id, profile, ev, before)

    def query_ev_state(self, profile_id: int, evs: Iterable[Ev]) -> tuple[EvState, ...]:
        """The state of each EV given: ASSUMED_BAD as long as any QP holds it so, UNKNOWN if unpopulated. ENOENT."""
        profile = self._profile(profile_id)
        profile.allow(Command.QUERY_EV_STATE)
        return tuple(profile.entries.state_of(ev) for ev in evs)

    def query_ev_array(self, profile_id: int) -> tuple[tuple[Ev, EvState], ...]:
        """Every entry in order, copies and unpopulated ones too, with its state."""
        profile = self._profile(profile_id)
        profile.allow(Command.QUERY_EV_ARRAY)
        return tuple((ev, profile.entries.state_of(ev)) for ev in profile.entries.evs)

    def poll_ev_event(self, limit: int) -> tuple[EvEvent, ...]:
        """Take at most `limit` EV events, oldest first."""
        self._check_privilege()
        return self._events.poll(limit)

    @property
    def events_dropped(self) -> int:
        """EV events dropped in all, because nobody polled."""
        return self._events.dropped_total

    # -- the side of the NIC's owner ------------------------------------------------------------------------------

    def attach_qp(self, profile_id: int, qpn: int, dst: int) -> EvBinding:
        """Give a QP towards host number `dst` the paths of an ONLINE profile, which it keeps until `detach_qp`.

        ControlError: EINVAL if the profile is not ONLINE or the QP has one, EIO if no EV names a path to `dst`.
        """
        if qpn in self._bindings:
            raise ControlError(EINVAL, "qpn", qpn, "a QP without an EV profile")
        profile = self._profiles.get(profile_id) or self._new_profile()
        binding = profile.bind(dst)
        profile.qpns.add(qpn)
        self._bindings[qpn] = profile_id, binding
        return binding

    def detach_qp(self, qpn: int) -> None:
        """Forget a QP and what it thought of its EVs; harmless if it has no profile."""
        profile_id, binding = self._bindings.pop(qpn, (0, None))
        if binding is not None:
            self._profiles[profile_id].qpns.discard(qpn)
            for ev in binding.ev_of.values():
                self._note(profile_id, qpn, ev, bad=False)

    def on_ev_changed(self, event: EvChanged) -> None:
        """Learn a change of a path's state from a QP; ignored if the QP or EV is none of a profile's."""
        profile_id, binding = self._bindings.get(event.qpn, (0, None))
        ev = None if binding is None else binding.ev_of.get(event.ev)
        if ev is not None:
            self._note(profile_id, event.qpn, ev, is_assumed_bad(event.new))

    def next_command(self) -> QpEvCommand | None:
        """The oldest command for a QP not yet taken, or None; to be applied in this order."""
        return self._commands.popleft() if self._commands else None

    def _note(self, profile_id: int, qpn: int, ev: Ev, bad: bool) -> None:
        profile = self._profiles[profile_id]
        if ev in profile.entries:  # not if it was replaced since
            before = profile.entries.state_of(ev)
            profile.entries.set_bad_at(qpn, ev, bad)
            self._tell(profile_id, profile, ev, before)

    def _tell(self, profile_id: int, profile: EvProfile, ev: Ev, before: EvState) -> None:
        """Queue an event if an EV entered a state that its profile's mask asks for."""
        state = profile.entries.state_of(ev)
        if state is not before and state & (profile.attr.event_mask or 0):
            self._events.offer(profile_id, ev, state)

    def _command_qps(self, profile_id: int, ev: Ev, denied: bool) -> None:
        for qpn, (used, binding) in self._bindings.items():
            if used == profile_id:
                self._commands.extend(
                    QpEvCommand(qpn, ev32, denied) for ev32, own in binding.ev_of.items() if own == ev
                )

    # -- ids ------------------------------------------------------------------------------------------------------

    def _check_privilege(self) -> None:
        if not self._privileged:
            raise ControlError(EPERM, "controller", "an unprivileged caller", "a caller with CAP_NET_ADMIN")

    def _profile(self, profile_id: int) -> EvProfile:
        self._check_privilege()
        require_range("profile_id", profile_id, 0, MAX_PROFILE_ID)
        return self._profiles.get(profile_id) or self._new_profile()

    def _new_profile(self) -> EvProfile:
        return EvProfile(self._topology, self._host, self._device, self._formats)

    def _format(self, fmt_id: int) -> EvFmtProfile:
        self._check_privilege()
        require_range("fmt_id", fmt_id, 0, MAX_PROFILE_ID)
        found = self._formats.get(fmt_id)
        return found or EvFmtProfile(self._device.ev.fmt_mode_mask, self._device.ev.max_width_bits)

    def _free_count(self) -> int:
        return self._device.ev.max_count - sum(len(profile.entries) for profile in self._profiles.values())


def _check_room(kept: dict[int, _P], key: int, limit: int) -> None:
    if key not in kept and len(kept) >= limit:
        raise ControlError(E2BIG, "profiles", f"{limit} in use", f"at most {limit}; move one to INIT")


def _keep(kept: dict[int, _P], key: int, profile: _P, forget: bool) -> None:
    if forget:
        kept.pop(key, None)
    else:
        kept[key] = profile
