"""Names and globs of nodes, ports and links, as a user types them, matched against what exists.

One place for the rule of every command and file: a target is a name or a glob (`p3-*`, `p*-t0-1:p*-t1-0`); one that
matches nothing is an error that lists the nearest names.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mrcemu.errors import UsageError
from mrcemu.topology.model import Topology

NEAREST = 3  # names an error lists: enough to spot the slip, short enough for one line


def nearest(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The at most three names of `known` closest to `name`, best first; the first of `known` if none is close."""
    return tuple(get_close_matches(name, known, n=NEAREST, cutoff=0.4) or known[:NEAREST])


def expand(pattern: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """The names of `known`, in its order, that a name or glob matches; UsageError names `what` and the nearest."""
    if pattern in known:
        return (pattern,)
    found = tuple(name for name in known if fnmatchcase(name, pattern))
    if not found:
        raise UsageError(f"no {what} {pattern!r}", nearest(pattern, known))
    return found


def expand_links(topology: Topology, pattern: str) -> tuple[str, ...]:
    """Names of the links a target matches; either order of a fabric link's ends is right (`A:B` or `B:A`)."""
    known = tuple(topology.links_by_name)
    left, _, right = pattern.partition(":")
    swapped = f"{right}:{left}"
    if not any(fnmatchcase(name, pattern) for name in known) and any(fnmatchcase(name, swapped) for name in known):
        return expand(swapped, known, "link")
    return expand(pattern, known, "link")


def expand_ports(topology: Topology, pattern: str) -> tuple[str, ...]:
    """NIC ports a target matches, as "h3:p5"; the plane may be written with or without its p (`h3:5`)."""
    known = tuple(link.name for link in topology.links if link.is_nic)
    host, _, plane = pattern.partition(":")
    if plane and not plane.startswith(("p", "*", "?", "[")):
        pattern = f"{host}:p{plane}"
    return expand(pattern, known, "NIC port")


def expand_switches(topology: Topology, pattern: str) -> tuple[str, ...]:
    """Names of the switches a target matches."""
    return expand(pattern, tuple(switch.name for switch in topology.switches), "switch")


def split_port(name: str) -> tuple[int, int]:
    """(host, plane) of an existing NIC port's name: (3, 5) for "h3:p5"."""
    host, _, plane = name.partition(":")
    return int(host[1:]), int(plane[1:])
