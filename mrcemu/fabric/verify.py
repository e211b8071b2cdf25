"""Reads a new fabric back and compares: a kernel that ignores what it does not know must not pass for one that obeys.

Every switch's own SID (an old kernel installs a plain End without the NEXT-CSID flavour and says nothing), the ports
every T0 spreads over, every queue's limits, and the HTB rates of one port a node. Refuses to mend: a difference is an
`UnfitEnvironmentError`.
"""

from __future__ import annotations

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import readback, tables, tc
from mrcemu.fabric.encode import next_csid_flavour
from mrcemu.fabric.netlink import attributes
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.ops import PortSpec, QueueLimits
from mrcemu.fabric.plan import Plan
from mrcemu.fabric.readback import Route
from mrcemu.topology.addressing import HOSTS_NETWORK


def verify(planned: Plan, nodes: Nodes) -> None:
    """UnfitEnvironmentError names the first difference between a plan and what the kernel holds."""
    for switch in planned.switches_by_name:
        routes = tables.routes(nodes[switch])
        _verify_sid(planned, routes, switch)
        _verify_spreading(planned, routes, switch)
    for node, specs in planned.ports_by_node.items():
        _verify_leaves(planned, nodes, node)
        _verify_rates(nodes, specs[0], planned.limits_of(specs[0]))


def _verify_sid(planned: Plan, routes: list[Route], switch: str) -> None:
    wanted = attributes(next_csid_flavour()[4:])
    prefix = planned.sid_route(switch).prefix
    own = [route for route in routes if route.prefix == prefix]
    if not own or attributes(own[0].flavour) != wanted:
        raise UnfitEnvironmentError(
            f"the kernel did not keep the NEXT-CSID flavour of the SID of {switch}", "use Linux 6.1 or later"
        )


def _verify_spreading(planned: Plan, routes: list[Route], switch: str) -> None:
    """A T0's one route to all hosts beyond it must hold all of its uplinks."""
    uplinks = sorted(spec.ifindex for spec in planned.ports_by_node[switch] if spec.port.ifname.startswith("up"))
    prefix = HOSTS_NETWORK.network_address.packed
    beyond = [route for route in routes if route.prefix == prefix and route.prefix_bits == HOSTS_NETWORK.prefixlen]
    found = sorted(ifindex for route in beyond for ifindex in route.ports or (route.ifindex,))
    if found != uplinks:
        raise UnfitEnvironmentError(
            f"the kernel spreads host traffic of {switch} over ports {found}, not {uplinks}", "use Linux 6.1 or later"
        )


def _verify_leaves(planned: Plan, nodes: Nodes, node: str) -> None:
    found = {(item.ifindex, item.parent): item for item in tables.qdiscs(nodes[node])}
    for spec in planned.ports_by_node[node]:
        limits = planned.limits_of(spec)
        wanted = {tc.CONTROL_CLASS: limits.control_limit_bytes, tc.DATA_CLASS: limits.data_limit_bytes}
        for parent, limit_bytes in wanted.items():
            leaf = found.get((spec.ifindex, parent))
            if leaf is None or leaf.kind != "bfifo" or readback.leaf_limit_bytes(leaf) != limit_bytes:
                raise _differs(spec, f"a bfifo of {limit_bytes} bytes below class {parent & 0xFFFF:x}", leaf)


def _verify_rates(nodes: Nodes, spec: PortSpec, limits: QueueLimits) -> None:
    found = {item.handle: item for item in tables.classes(nodes[spec.node], spec.ifindex)}
    link, control, data = (found.get(handle) for handle in (tc.LINK_CLASS, tc.CONTROL_CLASS, tc.DATA_CLASS))
    rate = limits.rate_bps // 8
    if link is None or link.rate_bytes != rate or link.ceil_bytes != rate:
        raise _differs(spec, f"an HTB class of {rate} bytes/s", link)
    if control is None or data is None or control.rate_bytes + data.rate_bytes != rate:
        raise _differs(spec, f"control and data classes that share {rate} bytes/s", (control, data))


def _differs(spec: PortSpec, wanted: str, found: object) -> UnfitEnvironmentError:
    return UnfitEnvironmentError(
        f"{spec.port.name} has not got {wanted} (found {found})", "use a kernel with HTB and bfifo; see `mrcemu doctor`"
    )
