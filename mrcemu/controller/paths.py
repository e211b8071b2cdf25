"""Which path an expanded EV names on this fabric, and which EV names a path.

Owns the meaning of STEV and SRV6 bytes: a STEV value is the 32-bit EV of topology/addressing.py; an SRV6 value is the
whole outer destination, so it leads to one host only. Refuses UDP mode: no switch here hashes (ecmp.py).
"""

from __future__ import annotations

from mrcemu.controller.formats import EvFmtMode
from mrcemu.controller.values import EV_BYTES, Ev
from mrcemu.protocol.spray import MAX_EVS
from mrcemu.topology.addressing import Path, ev_from_destination, ev_of, path_for_ev, plane_of_ev
from mrcemu.topology.model import Topology

_STEV_BYTES = 4
_ADDRESS_BYTES = 16


def ev32_of(topology: Topology, mode: EvFmtMode, wire: bytes) -> int:
    """The 32-bit EV that an expanded value (32 bytes) stands for; ValueError says why it stands for none."""
    used = _STEV_BYTES if mode is EvFmtMode.STEV else _ADDRESS_BYTES
    if mode is EvFmtMode.UDP:
        raise ValueError("switches here do not hash, so a UDP source port names no path")
    if any(wire[used:]):
        raise ValueError("segment routing headers are not sent" if mode is EvFmtMode.SRV6 else "more than 32 bits")
    if mode is EvFmtMode.STEV:
        return int.from_bytes(wire[:used], "big")
    return ev_from_destination(topology, wire[:used])


def port_of(topology: Topology, mode: EvFmtMode, wire: bytes) -> int:
    """The 1-based port an expanded value leaves by, or 0 if it names none of this NIC's."""
    try:
        plane = plane_of_ev(ev32_of(topology, mode, wire))
    except ValueError:
        return 0
    return plane + 1 if plane < topology.planes else 0


def path_named(topology: Topology, src: int, dst: int, mode: EvFmtMode, wire: bytes, port: int) -> Path:
    """The path between two host numbers that an expanded value names; ValueError says why there is none."""
    path = path_for_ev(topology, src, dst, ev32_of(topology, mode, wire))
    if mode is EvFmtMode.SRV6 and path.destination != wire[:_ADDRESS_BYTES]:
        raise ValueError(f"the address does not lead from h{src} to h{dst}")
    if port != path.plane + 1:
        raise ValueError(f"port {port} does not lead into plane {path.plane}")
    return path


def ev_naming(path: Path, mode: EvFmtMode) -> Ev:
    """The expanded EV that names a path in STEV or SRV6 mode; ValueError in UDP mode."""
    if mode is EvFmtMode.UDP:
        raise ValueError("no UDP source port names a path here")
    value = path.destination if mode is EvFmtMode.SRV6 else path.ev.to_bytes(_STEV_BYTES, "big")
    return Ev(value.ljust(EV_BYTES, b"\0"), path.plane + 1)


def auto_uplinks(topology: Topology, host: int) -> tuple[int, ...]:
    """The T0 uplinks that AUTO mode uses between T0s: all, where 256 EVs hold them, or else this host's share of them.

    Shares of different hosts start at different uplinks, so that hosts together use all (paper 2605.04333 section 2.4:
    a subset per plane, senders uncoordinated; theirs is random).
    """
    uplinks = topology.t1_per_plane
    fitting = MAX_EVS // topology.planes
    if uplinks <= fitting:
        return tuple(range(uplinks))
    share = fitting - 1  # one is left for the path inside a T0, which counts as uplink 0
    return tuple((host * share + turn) % uplinks for turn in range(share))


def auto_evs(topology: Topology, host: int) -> tuple[Ev, ...]:
    """The STEV EVs of AUTO mode: at most 256, planes in turn and equally often."""
    shared = auto_uplinks(topology, host)
    return tuple(
        Ev.of(ev_of(plane, uplink).to_bytes(_STEV_BYTES, "big"), plane + 1)
        for uplink in (shared if 0 in shared else (0, *shared))
        for plane in range(topology.planes)
    )
