"""Which EVs a QP is given: every distinct path up to the profile's limit, or a number of them, plane by plane."""

from __future__ import annotations

from itertools import zip_longest

from mrcemu.topology.addressing import all_paths
from mrcemu.topology.ecmp import ECMP, SRV6, Forwarding, hashed_paths
from mrcemu.topology.model import Topology

MAX_EVS = 256


def select_evs(
    topology: Topology, src: int, dst: int, wanted: int | None, forwarding: Forwarding = SRV6
) -> list[int]:  # fmt: skip
    """EVs from one host number to another; `wanted` of them (at least one a plane is up to the caller), None for all.

    Taken in turn from each plane, so that planes differ by one path at most.
    """
    by_plane: dict[int, list[int]] = {}
    ecmp = forwarding == ECMP
    for path in hashed_paths(topology, src, dst, wanted) if ecmp else all_paths(topology, src, dst):
        by_plane.setdefault(path.plane, []).append(path.ev)
    in_turn = [ev for row in zip_longest(*by_plane.values()) for ev in row if ev is not None]
    return in_turn[: min(wanted or MAX_EVS, MAX_EVS)]
