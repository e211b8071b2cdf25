"""Delays, base RTT and bandwidth-delay products, all derived from rates, sizes and hops; nothing typed in.

HTB releases a frame at the start of its serialisation, so an idle path of namespaces takes microseconds. The fixed
delay a real path would have, per hop the frame's serialisation plus `link_delay`, is computed here and added by the
receiving endpoint. See docs/architecture.md, "Time".
"""

from __future__ import annotations

from mrcemu.topology.ecmp import ECMP, SRV6, Forwarding
from mrcemu.topology.model import SACK_FRAME_BYTES, QueueSpec, Topology

# Unloaded cross-T1 round trip in full-frame times of the NIC rate with `link_delay: auto`. Below 8 frames of
# bandwidth-delay product per plane neither ECN steering nor NSCC can work; 16 gave full throughput in simulation.
AUTO_RTT_FRAMES = 16
CROSS_T1_HOPS = 4
OUTER_HEADER_BYTES = 40  # what a frame of ECMP mode is shorter by; base RTT and BDP do not count it (at most 1 %)
NS = 10**9


def serialisation_ns(topology: Topology, hops: int, frame_bytes: int) -> int:
    """Time on the wire of a frame over a path's links: two NIC links, the rest fabric links."""
    bits = frame_bytes * 8
    return 2 * bits * NS // topology.nic_rate_bps + (hops - 2) * bits * NS // topology.fabric_rate_bps


def link_delay_ns(topology: Topology) -> int:
    """The delay of one hop beside serialisation; `auto` makes the unloaded cross-T1 RTT 16 NIC frame times."""
    if topology.link_delay_ns is not None:
        return topology.link_delay_ns
    target = AUTO_RTT_FRAMES * topology.data_frame_bytes * 8 * NS // topology.nic_rate_bps
    wire = serialisation_ns(topology, CROSS_T1_HOPS, topology.data_frame_bytes)
    wire += serialisation_ns(topology, CROSS_T1_HOPS, SACK_FRAME_BYTES)
    return max(0, (target - wire) // (2 * CROSS_T1_HOPS))


def one_way_delay_ns(topology: Topology, hops: int, frame_bytes: int) -> int:
    """Unloaded delay of a frame over a path of `hops` links: what the receiving endpoint adds."""
    return serialisation_ns(topology, hops, frame_bytes) + hops * link_delay_ns(topology)


def base_rtt_ns(topology: Topology, hops: int = CROSS_T1_HOPS) -> int:
    """Unloaded time from a full data packet's departure to its SACK's arrival."""
    return one_way_delay_ns(topology, hops, topology.data_frame_bytes) + one_way_delay_ns(
        topology, hops, SACK_FRAME_BYTES
    )


def plane_bdp_bytes(topology: Topology, hops: int = CROSS_T1_HOPS) -> int:
    """Bandwidth-delay product of one plane in frame bytes: NIC link rate times base RTT."""
    return min(topology.nic_rate_bps, topology.fabric_rate_bps) * base_rtt_ns(topology, hops) // (8 * NS)


def queue_spec(topology: Topology) -> QueueSpec:
    """Queue thresholds; `auto`: data 1.0, last hop 1.5, ECN 0.2 .. 0.8, control 1.0 of the plane's BDP."""
    if topology.queue is not None:
        return topology.queue
    bdp = plane_bdp_bytes(topology)
    return QueueSpec(bdp, bdp * 3 // 2, bdp // 5, bdp * 4 // 5, bdp)


def line_payload_bps(topology: Topology, ports_up: int, forwarding: Forwarding = SRV6) -> float:
    """Payload rate of `ports_up` NIC ports at full packets: rate x mtu / (mtu + 142) each, 102 in ECMP mode."""
    frame_bytes = topology.data_frame_bytes - (OUTER_HEADER_BYTES if forwarding == ECMP else 0)
    return ports_up * topology.nic_rate_bps * topology.mtu_bytes / frame_bytes
