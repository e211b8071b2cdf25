"""A fabric's kernel tables as data that compares: routes, neighbours, queues of every node.

Used to prove that a fault leaves nothing behind, and to verify that what was asked for is what the kernel holds.
Counters, timers and learned entries are left out; they differ from moment to moment.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from mrcemu.fabric import readback, tc
from mrcemu.fabric.encode import NUD_PERMANENT, RTM_GETNEIGH, RTM_GETROUTE
from mrcemu.fabric.netlink import NetlinkSocket, message
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.plan import Plan
from mrcemu.fabric.readback import HtbClass, Neighbour, Route

_RTMSG = struct.Struct("=8BI")
_NDMSG = struct.Struct("=BxxxiHBB")
_GET_ROUTES = message(RTM_GETROUTE, 0, _RTMSG.pack(socket.AF_INET6, *(0,) * 7, 0))
_GET_NEIGHBOURS = message(RTM_GETNEIGH, 0, _NDMSG.pack(socket.AF_INET6, 0, 0, 0, 0))
_GET_QDISCS = message(tc.RTM_GETQDISC, 0, tc.tcmsg(0))


@dataclass(frozen=True, slots=True)
class NodeTables:
    """One node: sorted, free of counters. A qdisc is (ifindex, handle, parent, kind, options)."""

    routes: tuple[Route, ...]
    neighbours: tuple[Neighbour, ...]
    qdiscs: tuple[tuple[int, int, int, str, bytes], ...]
    classes: tuple[HtbClass, ...]


def snapshot(planned: Plan, nodes: Nodes) -> dict[str, NodeTables]:
    """The tables of every node, by node name."""
    return {node: node_tables(planned, nodes, node) for node in planned.topology.nodes}


def node_tables(planned: Plan, nodes: Nodes, node: str) -> NodeTables:
    sock = nodes[node]
    return NodeTables(
        tuple(sorted(routes(sock))),
        tuple(sorted(neighbours(sock))),
        tuple(sorted((q.ifindex, q.handle, q.parent, q.kind, _settings(q)) for q in qdiscs(sock))),
        tuple(sorted(item for spec in planned.ports_by_node[node] for item in classes(sock, spec.ifindex))),
    )


def routes(sock: NetlinkSocket) -> list[Route]:
    return [readback.route(body) for body in sock.dump(_GET_ROUTES)]


def neighbours(sock: NetlinkSocket) -> list[Neighbour]:
    """Permanent entries only: the kernel makes and forgets the others as it likes."""
    found = (readback.neighbour(body) for body in sock.dump(_GET_NEIGHBOURS))
    return [entry for entry in found if entry.state & NUD_PERMANENT]


def qdiscs(sock: NetlinkSocket) -> list[readback.Qdisc]:
    return [readback.qdisc(body) for body in sock.dump(_GET_QDISCS)]


def classes(sock: NetlinkSocket, ifindex: int) -> list[HtbClass]:
    bodies = sock.dump(message(tc.RTM_GETTCLASS, 0, tc.tcmsg(ifindex)))
    return [item for item in map(readback.htb_class, bodies) if item is not None]


def _settings(item: readback.Qdisc) -> bytes:
    """A leaf's options are its limit; HTB's mix settings with a packet counter and are covered by its classes."""
    return b"" if item.kind == "htb" else item.options
