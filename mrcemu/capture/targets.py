"""The names a user gives to `capture`, turned into taps.

Refuses names that match nothing, with the nearest that exist. A fabric link is both its ports; `h3:p5` is the NIC port
(the other end of that cable is called by its switch name, e.g. `p5-t0-0:dn3`), so a NIC's frame is recorded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mrcemu.topology.model import Link, Port, Topology
from mrcemu.topology.names import expand


@dataclass(frozen=True, slots=True)
class Tap:
    """One place to capture at: an interface in a namespace, the name it gets in the file, its rate in bits/s."""

    netns_path: str
    ifname: str
    label: str
    rate_bps: int | None = None


def taps_for(topology: Topology, targets: Sequence[str], netns_path: Callable[[str], str]) -> list[Tap]:
    """Taps of every port and link that `targets` (names or globs) match, each once; UsageError on no match.

    `netns_path` gives the path of a node's namespace from the node's name.
    """
    ends = dict(_ends(topology))
    names = [name for target in targets for name in expand(target, tuple(ends), "port or link")]
    chosen = {end.name: (end, link) for name in names for end, link in ends[name]}
    return [Tap(netns_path(end.node), end.ifname, end.name, link.rate_bps) for end, link in chosen.values()]


def _ends(topology: Topology) -> Iterator[tuple[str, tuple[tuple[Port, Link], ...]]]:
    for link in topology.links:
        if not link.is_nic:
            yield link.name, ((link.lower, link), (link.upper, link))
        for end in (link.lower, link.upper):
            yield end.name, ((end, link),)
