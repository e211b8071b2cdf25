"""Where the hosts of a built fabric live, in the words of the endpoint group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrcemu.endpoint.group import HostPlace

if TYPE_CHECKING:
    from mrcemu.fabric.net import MrcNet


def host_place(net: MrcNet, host: int) -> HostPlace:
    """Namespace and MACs of one host number."""
    links = [net.topology.nic_link(host, plane) for plane in range(net.topology.planes)]
    return HostPlace(
        host,
        net.netns_path(f"h{host}"),
        tuple(net.port_mac(link.lower) for link in links),
        tuple(net.port_mac(link.upper) for link in links),
    )
