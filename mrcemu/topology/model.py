"""Planes, T0 and T1 switches, hosts, ports and links as plain data with the names a user types.

Owns names and counts. Refuses addresses (addressing.py), delays (timing.py) and files (loader.py). Every plane is a
complete two-tier Clos of its own: host -- T0 -- T1 -- T0 -- host; planes share nothing but the hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from mrcemu.errors import UsageError

# Bytes of a full data frame beside its payload: Ethernet 14, outer and inner IPv6 80, UDP 8, BTH 12, METH 4, TSETH 4,
# RETH 16, iCRC 4. Source: protocol sources, "data overhead with SRv6 + TSETH", plus Ethernet.
DATA_OVERHEAD_BYTES = 142
# A SACK frame: Ethernet 14, outer and inner IPv6 80, UDP 8, BTH 12, SETH 28, CC_STATE 8, iCRC 4.
SACK_FRAME_BYTES = 154
# IP bytes an interface carries whole: a full packet at the largest path MTU is 4,224; ours, a usual jumbo size.
DEFAULT_LINK_MTU_BYTES = 9000


class Tier(IntEnum):
    """Where a uSID or a node stands; the value is the tier field of its uSID (0 would end a SID list)."""

    T0 = 1
    T1 = 2
    HOST = 3


@dataclass(frozen=True, slots=True, order=True)
class SwitchId:
    """One switch: plane, tier (T0 or T1) and index inside the plane's tier, all from 0."""

    plane: int
    tier: Tier
    index: int

    @property
    def name(self) -> str:
        return f"p{self.plane}-t{0 if self.tier is Tier.T0 else 1}-{self.index}"


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: the node it sits on and the interface name inside that node's namespace."""

    node: str
    ifname: str

    @property
    def name(self) -> str:
        return f"{self.node}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class Link:
    """One cable. `lower` is the end nearer the hosts (NIC port, or a T0's uplink), `upper` the end above it."""

    name: str  # "h3:p5" for a NIC link, "p5-t0-2:p5-t1-0" for a fabric link
    plane: int
    lower: Port
    upper: Port
    rate_bps: int

    @property
    def is_nic(self) -> bool:
        return self.lower.node.startswith("h")


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Egress queue thresholds in bytes, of a switch or NIC port. `auto` values derive from the plane's BDP."""

    data_bytes: int
    last_hop_bytes: int
    ecn_min_bytes: int
    ecn_max_bytes: int
    control_bytes: int


@dataclass(frozen=True, slots=True)
class TrimmingSpec:
    """Whether switches trim, and the IP bytes a trimmed packet keeps."""

    enabled: bool = True
    size_bytes: int = 128


@dataclass(frozen=True)
class Topology:
    """An eight-plane (or 1 to 16) two-tier fabric. Build it with `loader.load_topology`, which checks every value.

    Rates are bits per second of Ethernet frame bytes (no preamble or gap), as HTB charges them; sizes are bytes.
    """

    name: str
    planes: int
    t0_per_plane: int
    t1_per_plane: int
    hosts_per_t0: int
    nic_rate_bps: int
    fabric_rate_bps: int
    scale: int
    mtu_bytes: int
    link_delay_ns: int | None = None  # per hop; None is "auto" (see timing.py)
    queue: QueueSpec | None = None  # None is "auto" (see timing.py)
    trimming: TrimmingSpec = field(default_factory=TrimmingSpec)
    srv6_block: str = "fcbb:bbbb::/32"
    link_mtu_bytes: int = DEFAULT_LINK_MTU_BYTES  # MTU of every interface, in IP bytes

    @property
    def host_count(self) -> int:
        return self.t0_per_plane * self.hosts_per_t0

    @property
    def data_frame_bytes(self) -> int:
        """Bytes of a full data frame on the wire as HTB charges it."""
        return self.mtu_bytes + DATA_OVERHEAD_BYTES

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"h{i}" for i in range(self.host_count))

    @cached_property
    def switches(self) -> tuple[SwitchId, ...]:
        return tuple(
            SwitchId(plane, tier, index)
            for plane in range(self.planes)
            for tier, count in ((Tier.T0, self.t0_per_plane), (Tier.T1, self.t1_per_plane))
            for index in range(count)
        )

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        return self.hosts + tuple(switch.name for switch in self.switches)

    def host_index(self, name: str) -> int:
        """3 for "h3"; UsageError lists the allowed range."""
        match = re.fullmatch(r"h([0-9]+)", name)
        if match is None or int(match.group(1)) >= self.host_count:
            raise UsageError(f"no host {name!r} in {self.name}: h0 .. h{self.host_count - 1} exist")
        return int(match.group(1))

    def t0_of_host(self, host: int) -> int:
        """Index of the T0 (the same in every plane) that host number `host` hangs on."""
        return host // self.hosts_per_t0

    def downlink_of_host(self, host: int) -> int:
        """Number of the T0 downlink that host number `host` hangs on."""
        return host % self.hosts_per_t0

    def is_t0_local(self, src: int, dst: int) -> bool:
        """Whether two host numbers share their T0s, so that a path has two hops instead of four."""
        return self.t0_of_host(src) == self.t0_of_host(dst)

    def nic_link(self, host: int, plane: int) -> Link:
        t0 = SwitchId(plane, Tier.T0, self.t0_of_host(host)).name
        lower = Port(f"h{host}", f"p{plane}")
        return Link(lower.name, plane, lower, Port(t0, f"dn{self.downlink_of_host(host)}"), self.nic_rate_bps)

    def fabric_link(self, plane: int, t0: int, t1: int) -> Link:
        lower = Port(SwitchId(plane, Tier.T0, t0).name, f"up{t1}")
        upper = Port(SwitchId(plane, Tier.T1, t1).name, f"dn{t0}")
        return Link(f"{lower.node}:{upper.node}", plane, lower, upper, self.fabric_rate_bps)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every link, NIC links first."""
        return tuple(self._all_links())

    def _all_links(self) -> Iterator[Link]:
        for host in range(self.host_count):
            for plane in range(self.planes):
                yield self.nic_link(host, plane)
        for plane in range(self.planes):
            for t0 in range(self.t0_per_plane):
                for t1 in range(self.t1_per_plane):
                    yield self.fabric_link(plane, t0, t1)

    @cached_property
    def links_by_name(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}
