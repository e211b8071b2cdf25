"""What a topology needs from the kernel, in order, as data; no input, no output, no privileges.

`plan()` is the only place that decides which namespaces, ports, routes and queues a fabric has. `Plan.port_restore()`
is the part of it that an administrative down destroys, so healing and building can never disagree. Refuses to know
whether the machine can hold it: `Plan.needs` says how much, `apply.check_fits` compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv6Network

from mrcemu.errors import UsageError
from mrcemu.fabric import hostroutes
from mrcemu.fabric.ops import (
    AddNeighbour,
    AddQueue,
    AddRoute,
    AddSidRoute,
    CreateNamespace,
    CreateVeth,
    DeleteSidRoute,
    LinkUp,
    LoopbackUp,
    Operation,
    PortSpec,
    QueueLimits,
    SyncOperstate,
    Sysctl,
)
from mrcemu.topology.addressing import usid, usid_prefix
from mrcemu.topology.model import Link, Port, SwitchId, Tier, Topology
from mrcemu.topology.timing import plane_bdp_bytes, queue_spec

# HTB must release more than one frame at a time at high rates or it under-delivers (measured: 0.3 to 0.5 ms of rate).
BURST_NS = 500_000
# Without the trimming program the data queue may not drop early, so it is this many plane bandwidth-delay products.
DATA_LIMIT_BDPS = 4
# Kernel memory, measured on Linux 6.18: an empty namespace, a veth pair with two queues. See bench/fabric_build.py.
NAMESPACE_BYTES = 260_000
LINK_BYTES = 150_000

# Set on `default` before a port exists: no duplicate detection delay, no router solicitations, no addresses invented.
SWITCH_SYSCTLS = (
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    *hostroutes.NO_ICMP_SYSCTLS,
)
# Hosts speak through packet sockets only: no ICMP, no MLD, no neighbour discovery from the kernel.
HOST_SYSCTLS = (
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
)

_FABRIC_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Needs:
    """What the machine must have: kernel memory, permanent neighbour entries (not limited, see apply), descriptors."""

    memory_bytes: int
    neighbours: int
    descriptors: int


@dataclass(frozen=True)
class Plan:
    """A fabric to be built: names, ports with their indexes and MACs, and the operations in order."""

    topology: Topology
    fabric: str
    ifindex_base: int

    @cached_property
    def namespaces(self) -> dict[str, str]:
        """Node name to the name of its network namespace."""
        return {node: f"mrc-{self.fabric}-{node}" for node in self.topology.nodes}

    @cached_property
    def ports(self) -> dict[str, PortSpec]:
        """Port name ("h3:p5", "p5-t0-2:up0") to its index and MAC; lower and upper end of link n are 2n and 2n + 1."""
        specs = {}
        for number, link in enumerate(self.topology.links):
            for offset, port in enumerate((link.lower, link.upper)):
                ifindex = self.ifindex_base + 2 * number + offset
                specs[port.name] = PortSpec(port, ifindex, mac_of(ifindex))
        return specs

    @property
    def ifindex_count(self) -> int:
        return 2 * len(self.topology.links)

    @cached_property
    def ports_by_ifindex(self) -> dict[int, PortSpec]:
        return {spec.ifindex: spec for spec in self.ports.values()}

    @cached_property
    def ports_by_node(self) -> dict[str, tuple[PortSpec, ...]]:
        grouped: dict[str, list[PortSpec]] = {node: [] for node in self.topology.nodes}
        for spec in self.ports.values():
            grouped[spec.node].append(spec)
        return {node: tuple(specs) for node, specs in grouped.items()}

    @cached_property
    def links_by_port(self) -> dict[str, Link]:
        return {end.name: link for link in self.topology.links for end in (link.lower, link.upper)}

    @cached_property
    def switches_by_name(self) -> dict[str, SwitchId]:
        return {switch.name: switch for switch in self.topology.switches}

    @property
    def needs(self) -> Needs:
        switch_ports = sum(not spec.node.startswith("h") for spec in self.ports.values())
        nodes, links = len(self.topology.nodes), len(self.topology.links)
        return Needs(
            memory_bytes=nodes * NAMESPACE_BYTES + links * LINK_BYTES,
            neighbours=switch_ports,
            descriptors=2 * nodes + 64,
        )

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Everything, in an order that works: namespaces, pairs, then node by node queues, up, neighbours, routes."""
        return (*self._namespace_ops(), *self.veth_ops, *(op for ops in self.node_ops.values() for op in ops))

    @cached_property
    def node_ops(self) -> dict[str, tuple[Operation, ...]]:
        """The operations inside each node's namespace once its ports exist."""
        return {node: tuple(self._ops_of(node)) for node in self.topology.nodes}

    @cached_property
    def veth_ops(self) -> tuple[CreateVeth, ...]:
        ports = self.ports
        return tuple(
            CreateVeth(link.name, ports[link.lower.name], ports[link.upper.name], self.topology.link_mtu_bytes)
            for link in self.topology.links
        )

    def namespace_sysctls(self, node: str) -> tuple[Sysctl, ...]:
        settings = HOST_SYSCTLS if node.startswith("h") else SWITCH_SYSCTLS
        switch = self.switches_by_name.get(node)
        hashing = () if switch is None else hostroutes.hash_sysctls(switch)
        return (*(Sysctl(node, key, value) for key, value in settings), *hashing)

    def sid_route(self, switch: str) -> AddSidRoute:
        """The switch's own uSID, which hangs on `lo` and so outlives every port."""
        return AddSidRoute(switch, _own_prefix(self.topology, self.switches_by_name[switch]))

    def sid_removal(self, switch: str) -> DeleteSidRoute:
        return DeleteSidRoute(switch, _own_prefix(self.topology, self.switches_by_name[switch]))

    def port_restore(self, port_name: str) -> tuple[Operation, ...]:
        """Bring a port back: up, then its tables. HTB is not among them: it survives an admin down (tested)."""
        return (LinkUp(self.ports[port_name]), *self.port_tables(port_name))

    def port_tables(self, port_name: str) -> tuple[Operation, ...]:
        """What a port that is up again lacks: neighbour, routes, settled state."""
        spec = self.ports[port_name]
        return (*self._forwarding_ops(spec), SyncOperstate(spec))

    def peer(self, spec: PortSpec) -> PortSpec:
        """The other end of a port's link."""
        link = self.links_by_port[spec.port.name]
        return self.ports[(link.upper if spec.port == link.lower else link.lower).name]

    def limits_of(self, spec: PortSpec) -> QueueLimits:
        """HTB settings of a port."""
        return self._limits_by_rate[self.links_by_port[spec.port.name].rate_bps]

    @cached_property
    def _limits_by_rate(self) -> dict[int, QueueLimits]:
        return {rate: self._limits(rate) for rate in {link.rate_bps for link in self.topology.links}}

    def _limits(self, rate_bps: int) -> QueueLimits:
        burst = max(self.topology.data_frame_bytes, rate_bps * BURST_NS // (8 * 10**9))
        data = DATA_LIMIT_BDPS * plane_bdp_bytes(self.topology)
        return QueueLimits(rate_bps, burst, queue_spec(self.topology).control_bytes, data)

    def _namespace_ops(self) -> Iterator[Operation]:
        for node, namespace in self.namespaces.items():
            yield CreateNamespace(node, namespace)
            yield from self.namespace_sysctls(node)

    def _ops_of(self, node: str) -> Iterator[Operation]:
        yield LoopbackUp(node)
        if node in self.switches_by_name:
            yield self.sid_route(node)
            yield from hostroutes.of_switch(self.topology, self.switches_by_name[node])
        for spec in self.ports_by_node[node]:
            yield AddQueue(spec, self.limits_of(spec))
            yield LinkUp(spec)
            yield from self._forwarding_ops(spec)

    def _forwarding_ops(self, spec: PortSpec) -> Iterator[Operation]:
        """Neighbour, /48 of the uSID and host addresses behind a switch port; a NIC port has none of them."""
        if spec.node.startswith("h"):
            return
        switch = self.switches_by_name[spec.node]
        yield AddNeighbour(spec, self.peer(spec).mac)
        yield AddRoute(spec, _far_prefix(self.topology, switch, spec.port))
        yield from hostroutes.of_port(self.topology, switch, spec)


def plan(topology: Topology, fabric: str, ifindex_base: int) -> Plan:
    """Plan a fabric whose ports take the indexes from `ifindex_base` on; UsageError for a name that cannot be used."""
    check_fabric_name(fabric)
    return Plan(topology, fabric, ifindex_base)


def check_fabric_name(fabric: str) -> None:
    """A fabric's name becomes part of file names: small letters, digits and inner dashes, at most 32."""
    if not _FABRIC_NAME.match(fabric):
        raise UsageError(f"fabric name {fabric!r}: use small letters, digits and inner dashes, at most 32")


def mac_of(ifindex: int) -> bytes:
    """02:4d and the interface index: locally administered, unicast, unique wherever the index is."""
    return b"\x02\x4d" + ifindex.to_bytes(4, "big")


def _packed(topology: Topology, value: int) -> bytes:
    return IPv6Network(usid_prefix(topology, value)).network_address.packed


def _own_prefix(topology: Topology, switch: SwitchId) -> bytes:
    return _packed(topology, usid(switch.tier, switch.plane, switch.index))


def _far_prefix(topology: Topology, switch: SwitchId, port: Port) -> bytes:
    """The uSID reached through a switch port: `upN` T1 N, a T0's `dnN` host downlink N, a T1's `dnN` T0 N."""
    number = int(port.ifname[2:])
    if port.ifname.startswith("up"):
        return _packed(topology, usid(Tier.T1, switch.plane, number))
    tier = Tier.HOST if switch.tier is Tier.T0 else Tier.T0
    return _packed(topology, usid(tier, switch.plane, number))
