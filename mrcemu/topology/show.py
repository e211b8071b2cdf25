"""A topology as tables: counts and derived figures, the address of everything, the paths between two hosts.

Owns the data behind `topo show` and `paths`, as plain dicts that JSON and a table renderer both take. Refuses drawing
(draw.py) and terminals (cli).
"""

from __future__ import annotations

from typing import Any

from mrcemu.topology import timing
from mrcemu.topology.addressing import all_paths, host_address, usid, usid_prefix
from mrcemu.topology.model import SwitchId, Tier, Topology


def summary(topology: Topology) -> dict[str, Any]:
    """Counts, rates (as built and as they stand for), times and queue thresholds; rates in bits per second."""
    t = topology
    queue = timing.queue_spec(t)
    return {
        "name": t.name,
        "planes": t.planes,
        "t0_per_plane": t.t0_per_plane,
        "t1_per_plane": t.t1_per_plane,
        "switches": t.planes * (t.t0_per_plane + t.t1_per_plane),
        "hosts": t.host_count,
        "hosts_per_t0": t.hosts_per_t0,
        "nic_links": t.host_count * t.planes,
        "fabric_links": t.planes * t.t0_per_plane * t.t1_per_plane,
        "paths_cross_t1": t.planes * t.t1_per_plane,
        "paths_t0_local": t.planes,
        "nic_rate_bps": t.nic_rate_bps,
        "fabric_rate_bps": t.fabric_rate_bps,
        "scale": t.scale,
        "stands_for_nic_bps": t.nic_rate_bps * t.scale,
        "host_line_payload_bps": round(timing.line_payload_bps(t, t.planes)),
        "mtu_bytes": t.mtu_bytes,
        "data_frame_bytes": t.data_frame_bytes,
        "link_mtu_bytes": t.link_mtu_bytes,
        "link_delay_ns": timing.link_delay_ns(t),
        "base_rtt_ns": timing.base_rtt_ns(t),
        "base_rtt_t0_local_ns": timing.base_rtt_ns(t, hops=2),
        "plane_bdp_bytes": timing.plane_bdp_bytes(t),
        "queue_bytes": {
            "data": queue.data_bytes,
            "last_hop": queue.last_hop_bytes,
            "ecn_min": queue.ecn_min_bytes,
            "ecn_max": queue.ecn_max_bytes,
            "control": queue.control_bytes,
        },
        "trimming": {"enabled": t.trimming.enabled, "size_bytes": t.trimming.size_bytes},
        "srv6_block": t.srv6_block,
    }


def addressing(topology: Topology) -> list[dict[str, Any]]:
    """One row a host (inner address), a switch (own uSID) and a T0 downlink (uSID of a host's port)."""
    rows: list[dict[str, Any]] = [
        {"name": f"h{host}", "kind": "host", "plane": None, "usid": None, "address": str(host_address(host))}
        for host in range(topology.host_count)
    ]
    for switch in topology.switches:
        rows.append(_usid_row(topology, switch.name, switch.tier.name.lower(), switch, switch.index))
        if switch.tier is Tier.T0:
            rows.extend(_downlink_rows(topology, switch))
    return rows


def _downlink_rows(topology: Topology, t0: SwitchId) -> list[dict[str, Any]]:
    """A host-downlink uSID means the same on every T0 of a plane; the T0 before it in the list says which host."""
    first = t0.index * topology.hosts_per_t0
    return [
        _usid_row(topology, f"h{first + d}:p{t0.plane}", "downlink", SwitchId(t0.plane, Tier.HOST, d), d)
        for d in range(topology.hosts_per_t0)
    ]


def _usid_row(topology: Topology, name: str, kind: str, owner: SwitchId, index: int) -> dict[str, Any]:
    value = usid(owner.tier, owner.plane, index)
    prefix = usid_prefix(topology, value)
    return {"name": name, "kind": kind, "plane": owner.plane, "usid": f"{value:04x}", "address": prefix}


def paths(topology: Topology, src: str, dst: str) -> list[dict[str, Any]]:
    """Every distinct path between two host names, plane by plane; UsageError if a host does not exist."""
    return [
        {
            "ev": path.ev,
            "plane": path.plane,
            "uplink": path.uplink,
            "hops": path.hops,
            "nodes": list(path.nodes),
            "usids": [f"{item:04x}" for item in path.usids],
            "srv6": path.srv6,
        }
        for path in all_paths(topology, topology.host_index(src), topology.host_index(dst))
    ]


def as_data(topology: Topology, src: str | None = None, dst: str | None = None) -> dict[str, Any]:
    """Everything `topo show --json` prints; paths are between `src` and `dst`, by default the first and last host."""
    src, dst = src or topology.hosts[0], dst or topology.hosts[-1]
    data = {"summary": summary(topology), "addressing": addressing(topology)}
    found = paths(topology, src, dst)
    return {**data, "paths": {"src": src, "dst": dst, "count": len(found), "paths": found}}
