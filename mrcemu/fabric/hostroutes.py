"""Routes to the hosts' own addresses: what ECMP mode forwards by, beside the uSID routes and without touching them.

A T0 has a /128 for each of its hosts and one multipath route for all others over its uplinks, spread by the kernel's
hash of the 5-tuple; a T1 has the prefixes of each T0's hosts. Owns which routes and settings that takes. Refuses
convergence: everything is static, as the uSID routes are. What a dead link does is the kernel's and was measured
(Linux 6.18, tests/netns/test_ecmp.py):

* A T0's uplink that goes administratively down leaves the multipath route, the rest shares its flows, and it is back
  as it comes up. Where the last one went the route went too; `AddNexthop` makes it again port by port.
* An uplink that only loses carrier (the T1's end is down) stays in the hash: what falls on it is dropped.
* A T1 without its port to a T0, and a T0 without its port to a host, drop what is for there: nothing turns back.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrcemu.fabric.ops import AddBlackhole, AddHostRoute, AddNexthop, PortSpec, Sysctl
from mrcemu.topology.addressing import HOSTS_NETWORK, host_address, host_networks
from mrcemu.topology.model import SwitchId, Tier, Topology

# Host addresses are routed, so an error about a packet would reach its sender, who must not hear of it (no MRC NIC
# would). Errors are limited to one in longer than the credit of an unknown peer lasts (60 s), so none leaves. "Packet
# too big" alone is exempt (net/ipv6/icmp/ratemask), but the MTU is the same everywhere.
NO_ICMP_SYSCTLS = (("net/ipv6/icmp/ratelimit", "2147483647"),)


def hash_sysctls(switch: SwitchId) -> tuple[Sysctl, ...]:
    """A T0 hashes addresses, ports and protocol, with a seed of its own that is the same in every run."""
    if switch.tier is not Tier.T0:
        return ()
    return (
        Sysctl(switch.name, "net/ipv6/fib_multipath_hash_policy", "1"),
        # Since Linux 6.11; before, each boot has its seed, and which EVs meet on a link differs from boot to boot.
        Sysctl(switch.name, "net/ipv4/fib_multipath_hash_seed", str(_seed(switch)), optional=True),
    )


def _seed(switch: SwitchId) -> int:
    return 1 + (switch.plane << 10 | switch.index)  # 0 would mean: the boot's own


def of_switch(topology: Topology, switch: SwitchId) -> Iterator[AddBlackhole]:
    """What outlives every port: a T0 must not send up again what a T1 sent down for a host whose port is dead."""
    if switch.tier is Tier.T0:
        for network in host_networks(topology, switch.index):
            yield AddBlackhole(switch.name, network.network_address.packed, network.prefixlen)


def of_port(topology: Topology, switch: SwitchId, spec: PortSpec) -> Iterator[AddHostRoute | AddNexthop]:
    """What a switch's port adds."""
    number = int(spec.port.ifname[2:])
    if spec.port.ifname.startswith("up"):
        yield AddNexthop(spec, HOSTS_NETWORK.network_address.packed, HOSTS_NETWORK.prefixlen)
    elif switch.tier is Tier.T0:
        yield AddHostRoute(spec, host_address(switch.index * topology.hosts_per_t0 + number).packed, 128)
    else:
        for network in host_networks(topology, number):
            yield AddHostRoute(spec, network.network_address.packed, network.prefixlen)
