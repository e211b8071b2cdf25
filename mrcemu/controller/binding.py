"""What a QP gets from an EV profile: the paths that its entries name towards one destination.

Entries that name no path there are left out and returned with the reason: one profile may list addresses of many
destinations, and fields may generate paths that a fabric does not have. AUTO mode returns none: its entries are more
than any one destination has by design, and nobody asked for them. An EV listed twice gives its path once (ours: a real
NIC may send more on it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from errno import EIO

from mrcemu.controller import expansion, paths
from mrcemu.controller.device import EvMode
from mrcemu.controller.entries import EvEntries
from mrcemu.controller.expansion import EvField
from mrcemu.controller.formats import EvFormat
from mrcemu.controller.refusal import ControlError
from mrcemu.controller.values import EV_UNPOPULATED, Ev, EvState
from mrcemu.topology.addressing import Path
from mrcemu.topology.model import Topology


@dataclass(frozen=True, slots=True)
class EvShape:
    """All that decides what the entries of a profile can be."""

    mode: EvMode
    fmt: EvFormat
    count: int
    fields: tuple[EvField, ...]

    def wire(self, value: bytes) -> bytes:
        """The 32 bytes an entry's value becomes in a packet; without fields (EXPLICIT mode) the value itself."""
        return expansion.expand(self.fields, self.fmt, value) if self.fields else value

    @property
    def ev_bits(self) -> int:
        """Bits an entry's value may use, from the left."""
        return sum(each.ev_bits for each in self.fields) if self.fields else self.fmt.total_bits

    def entries(self, topology: Topology, host: int) -> EvEntries:
        """A new array for the NIC of a host: by itself, unpopulated, or generated."""
        if self.mode is EvMode.AUTO:
            return EvEntries(paths.auto_evs(topology, host))
        if self.mode is EvMode.EXPLICIT:
            return EvEntries([EV_UNPOPULATED] * self.count)
        return EvEntries(
            Ev(value, paths.port_of(topology, self.fmt.mode, self.wire(value)))
            for value in expansion.generate(self.fields, self.count)
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry of a profile that a QP did not get, and why."""

    ev: Ev
    reason: str


@dataclass(frozen=True, slots=True)
class EvBinding:
    """Paths in the order of the profile's array, the 32-bit EVs among them that start denied, what was left out.

    `ev_of` is the profile's EV of each path's 32-bit EV; `min_active` is at most the number of paths.
    """

    paths: tuple[Path, ...]
    denied: frozenset[int]
    refused: tuple[Refusal, ...]
    min_active: int
    ev_of: Mapping[int, Ev]


def bind(topology: Topology, src: int, dst: int, shape: EvShape, entries: EvEntries, min_active: int) -> EvBinding:
    """The binding of a QP from host number `src` to `dst`; ControlError EIO if no entry names a path."""
    found: dict[int, tuple[Path, Ev]] = {}
    refused: list[Refusal] = []
    for ev in entries.evs:
        try:
            path = _path(topology, src, dst, shape, ev)
            if path.ev in found:
                raise ValueError(f"names the path of {found[path.ev][1]} again")
            found[path.ev] = path, ev
        except ValueError as error:
            refused.append(Refusal(ev, str(error)))
    if not found:
        raise ControlError(EIO, "profile", f"no EV that names a path to h{dst}: {refused[0].reason}", "at least one")
    return EvBinding(
        paths=tuple(path for path, _ in found.values()),
        denied=frozenset(ev32 for ev32, (_, ev) in found.items() if entries.state_of(ev) is EvState.DENIED),
        refused=() if shape.mode is EvMode.AUTO else tuple(refused),
        min_active=min(min_active, len(found)),
        ev_of={ev32: ev for ev32, (_, ev) in found.items()},
    )


def _path(topology: Topology, src: int, dst: int, shape: EvShape, ev: Ev) -> Path:
    path = paths.path_named(topology, src, dst, shape.fmt.mode, shape.wire(ev.value), ev.port)
    shared = shape.mode is EvMode.AUTO and not topology.is_t0_local(src, dst)
    if shared and path.uplink not in paths.auto_uplinks(topology, src):
        raise ValueError("an uplink of other hosts' share")
    return path
