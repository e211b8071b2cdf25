"""What every port has sent, received and dropped, and whether it is up, straight from the kernel.

Two dumps a namespace: links (totals and states) and queues (drops and backlog by class). Refuses rates and history.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mrcemu.fabric import readback, tc
from mrcemu.fabric.encode import RTM_GETLINK
from mrcemu.fabric.netlink import message
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.plan import Plan
from mrcemu.fabric.readback import LinkState, Qdisc

_GET_LINKS = message(RTM_GETLINK, 0, struct.pack("=BxHiII", 0, 0, 0, 0, 0))
_GET_QDISCS = message(tc.RTM_GETQDISC, 0, tc.tcmsg(0))


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """One class of a port's queue: dropped packets since the port was made, and what waits now."""

    sent_packets: int
    drops: int
    backlog_bytes: int
    backlog_packets: int


@dataclass(frozen=True, slots=True)
class PortCounters:
    """One port. Totals count frames and frame bytes since the port was made; `tx` is after the queue."""

    port: str
    admin_up: bool
    oper_up: bool
    tx_packets: int
    tx_bytes: int
    rx_packets: int
    rx_bytes: int
    tx_dropped: int
    rx_dropped: int
    control: QueueCounters
    data: QueueCounters


def read(planned: Plan, nodes: Nodes) -> dict[str, PortCounters]:
    """Counters of every port, by port name."""
    found: dict[str, PortCounters] = {}
    for node in planned.topology.nodes:
        found |= read_node(planned, nodes, node)
    return found


def read_node(planned: Plan, nodes: Nodes, node: str) -> dict[str, PortCounters]:
    """Counters of one node's ports, by port name."""
    links = {state.ifindex: state for state in map(readback.link_state, nodes[node].dump(_GET_LINKS))}
    qdiscs = map(readback.qdisc, nodes[node].dump(_GET_QDISCS))
    queues = {(item.ifindex, item.parent): item for item in qdiscs}
    return {
        spec.port.name: _port(spec.port.name, links[spec.ifindex], queues)
        for spec in planned.ports_by_node[node]
        if spec.ifindex in links
    }


def _port(name: str, state: LinkState, queues: dict[tuple[int, int], Qdisc]) -> PortCounters:
    return PortCounters(
        name, state.admin_up, state.oper_up, state.tx_packets, state.tx_bytes, state.rx_packets, state.rx_bytes,
        state.tx_dropped, state.rx_dropped,
        _queue(queues.get((state.ifindex, tc.CONTROL_CLASS))), _queue(queues.get((state.ifindex, tc.DATA_CLASS))),
    )  # fmt: skip


def _queue(item: Qdisc | None) -> QueueCounters:
    """Zeros when the leaf is gone: someone removed the queue by hand."""
    if item is None:
        return QueueCounters(0, 0, 0, 0)
    return QueueCounters(item.sent_packets, item.drops, item.backlog_bytes, item.backlog_packets)
