"""Paths of ECMP mode: an EV is a UDP source port, switches choose by hashing it, and nobody knows what they chose.

    EV   (16 bits)  11[15:14] | index[13:4] | plane[3:0]

So an EV lies in 0xC000 .. 0xFFFF, the dynamic ports of RFC 6335 that RoCE senders use for entropy, and no EV of SRv6
mode does: its value says which mode it belongs to. The plane is the sender's choice of port and in the same bits in
both. Owns how many EVs a QP gets. Refuses to say which T1 an EV takes: that is the kernel's hash
(fabric/hostroutes.py), and several EVs may share a path.
"""

from __future__ import annotations

from typing import Final, Literal

from mrcemu.topology.addressing import Path, all_paths, host_address, path_for_ev, plane_of_ev
from mrcemu.topology.model import SwitchId, Tier, Topology

Forwarding = Literal["srv6", "ecmp"]
SRV6: Final = "srv6"
ECMP: Final = "ecmp"

FIRST_EV, LAST_EV = 0xC000, 0xFFFF
# Ours: enough that nearly every uplink is met by some EV (16 miss one of four in 4 % of planes); the 256 paths of a QP
# are the most.
EVS_PER_UPLINK = 4
MAX_EVS = 256
ANY_SWITCH = "?"  # the name of a node that a hash chooses


def hashed_ev(plane: int, index: int) -> int:
    """EV number `index` (0 to 1023) of a plane."""
    return FIRST_EV | index << 4 | plane


def is_hashed(ev: int) -> bool:
    """Whether an EV belongs to ECMP mode."""
    return FIRST_EV <= ev <= LAST_EV


def evs_per_plane(topology: Topology, wanted: int | None = None) -> int:
    """EVs a QP has in each plane: `EVS_PER_UPLINK` for each T0 uplink, or as many as hold `wanted` in all."""
    if wanted is not None:
        return -(-min(wanted, MAX_EVS) // topology.planes)
    return min(EVS_PER_UPLINK * topology.t1_per_plane, MAX_EVS // topology.planes)


def hashed_paths(topology: Topology, src: int, dst: int, wanted: int | None = None) -> tuple[Path, ...]:
    """The paths of a QP in ECMP mode, plane by plane; one a plane between hosts on one T0, where nothing is chosen."""
    count = 1 if topology.is_t0_local(src, dst) else evs_per_plane(topology, wanted)
    return tuple(
        path_of_ev(topology, src, dst, hashed_ev(plane, index))
        for plane in range(topology.planes)
        for index in range(count)
    )


def path_of_ev(topology: Topology, src: int, dst: int, ev: int) -> Path:
    """What an EV of either mode names between two host numbers; ValueError if there is no such path."""
    if not is_hashed(ev):
        return path_for_ev(topology, src, dst, ev)
    plane = plane_of_ev(ev)
    if plane >= topology.planes:
        raise ValueError(f"EV {ev:#x} names no plane of {topology.name}")
    first, last = (SwitchId(plane, Tier.T0, topology.t0_of_host(host)).name for host in (src, dst))
    between = (first,) if topology.is_t0_local(src, dst) else (first, ANY_SWITCH, last)
    nodes = (f"h{src}", *between, f"h{dst}")
    return Path(ev, plane, -1, (), host_address(dst).packed, len(nodes) - 1, nodes)


def paths_between(topology: Topology, src: int, dst: int, forwarding: Forwarding) -> tuple[Path, ...]:
    """What a QP gets that is not told which paths to use."""
    return hashed_paths(topology, src, dst) if forwarding == ECMP else all_paths(topology, src, dst)


def possible_evs(topology: Topology) -> tuple[int, ...]:
    """Every EV of ECMP mode that some QP of a fabric may have."""
    most = evs_per_plane(topology, MAX_EVS)
    return tuple(hashed_ev(plane, index) for plane in range(topology.planes) for index in range(most))
