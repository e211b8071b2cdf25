"""What a standing fabric is right now, as one plain document: nodes, links, ports, planes.

Owns the shape of `mrcemu status --json`. Every state and counter is read from the kernel at the moment of asking; what
this version cannot measure (ECN marks, trims) is None, never zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mrcemu.topology.model import Link, Port, Topology

if TYPE_CHECKING:
    from mrcemu.fabric.counters import PortCounters
    from mrcemu.fabric.net import MrcNet

_SUMMED = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "drops")


def status_of(net: MrcNet) -> dict[str, Any]:
    """The whole document of a built net; rates are bits per second, counters run since the fabric was built."""
    topology, counters = net.topology, net.counters()
    ports = [_port(net, link, end, counters) for link in topology.links for end in (link.lower, link.upper)]
    by_name = {port["name"]: port for port in ports}
    links = [_link(net, link, by_name) for link in topology.links]
    return {
        "name": net.name,
        "topology": topology.name,
        "keeper": {"pid": os.getpid(), "alive": True},
        "created_unix_s": net.journal.record["created_unix_s"],
        "scale": topology.scale,
        "nodes": _nodes(net, ports),
        "links": links,
        "planes": [_plane(plane, links, ports) for plane in range(topology.planes)],
        "ports": ports,
    }


def _port(net: MrcNet, link: Link, end: Port, counters: Mapping[str, PortCounters]) -> dict[str, Any]:
    """One port; `namespace` and `ifname` are the map from our names to the kernel's."""
    found, spec = counters.get(end.name), net.plan.ports[end.name]
    known: dict[str, Any] = dict.fromkeys(
        ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "drops", "drops_control", "drops_data", "backlog_bytes")
    )
    if found is not None:
        known = {
            **{key: getattr(found, key) for key in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")},
            "drops": found.control.drops + found.data.drops,
            "drops_control": found.control.drops,
            "drops_data": found.data.drops,
            "backlog_bytes": found.control.backlog_bytes + found.data.backlog_bytes,
        }
    return {
        "name": end.name,
        "link": link.name,
        "node": end.node,
        "plane": link.plane,
        "namespace": net.plan.namespaces[end.node],
        "ifname": end.ifname,
        "ifindex": spec.ifindex,
        "mac": spec.mac.hex(":"),
        "admin_up": found is not None and found.admin_up,
        "oper_up": found is not None and found.oper_up,
        **known,
        "ecn_marks": None,
        "trims": None,
    }


def _link(net: MrcNet, link: Link, ports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    ends = (link.lower.name, link.upper.name)
    why = sorted(net.faults.why_down(ends[0]) | net.faults.why_down(ends[1]))
    return {
        "name": link.name,
        "plane": link.plane,
        "kind": "nic" if link.is_nic else "fabric",
        "state": "up" if all(ports[end]["oper_up"] for end in ends) else "down",
        "fault": " and ".join(why) or None,
        "rate_bps": link.rate_bps,
        "ports": list(ends),
    }


def _nodes(net: MrcNet, ports: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    up: dict[str, list[bool]] = {node: [] for node in net.topology.nodes}
    for port in ports:
        up[port["node"]].append(port["oper_up"])
    kinds = _kinds(net.topology)
    return [
        {
            "name": node,
            "kind": kinds[node],
            "state": "up" if any(states) else "down",
            "ports_up": sum(states),
            "ports": len(states),
            "namespace": net.plan.namespaces[node],
        }
        for node, states in up.items()
    ]


def _kinds(topology: Topology) -> dict[str, str]:
    return {
        **dict.fromkeys(topology.hosts, "host"),
        **{switch.name: switch.tier.name.lower() for switch in topology.switches},
    }


def _plane(plane: int, links: Iterable[Mapping[str, Any]], ports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over a plane: its links, and the counters of its switches' ports (a frame counts at each of them)."""
    mine = [link for link in links if link["plane"] == plane]
    switch_ports = [port for port in ports if port["plane"] == plane and not port["node"].startswith("h")]
    return {
        "plane": plane,
        "links": len(mine),
        "links_up": sum(link["state"] == "up" for link in mine),
        **{key: sum(port[key] or 0 for port in switch_ports) for key in _SUMMED},
        "ecn_marks": None,
        "trims": None,
    }
