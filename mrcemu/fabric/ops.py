"""Every step that makes or mends a fabric, as plain data.

Owns the vocabulary shared by `plan.py` (which orders the steps) and `encode.py` (which turns them into netlink
messages). Refuses input and output. All interface indexes are unique over every standing fabric, all sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrcemu.topology.model import Port


@dataclass(frozen=True, slots=True)
class PortSpec:
    """One end of a veth pair before it exists: where, which index, which MAC address (6 bytes)."""

    port: Port
    ifindex: int
    mac: bytes

    @property
    def node(self) -> str:
        return self.port.node


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """HTB of one port: link rate in bits per second of frame bytes, burst and leaf limits in bytes."""

    rate_bps: int
    burst_bytes: int
    control_limit_bytes: int
    data_limit_bytes: int


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """A named network namespace; its inverse is unmounting the name."""

    node: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One value below /proc/sys inside a node's namespace, e.g. key "net/ipv6/conf/all/forwarding"."""

    node: str
    key: str
    value: str
    optional: bool = False  # a kernel that does not have it is good enough


@dataclass(frozen=True, slots=True)
class CreateVeth:
    """A veth pair made directly between two namespaces; it dies with either of them."""

    link: str
    lower: PortSpec
    upper: PortSpec
    mtu_bytes: int


@dataclass(frozen=True, slots=True)
class LoopbackUp:
    """`lo` up: a switch's own SID route hangs on it, so that the route outlives any port."""

    node: str


@dataclass(frozen=True, slots=True)
class AddQueue:
    """HTB with a control and a data class on one port; stays through admin down, dies with the port."""

    port: PortSpec
    limits: QueueLimits


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Admin up; the inverse is `LinkDown`."""

    port: PortSpec


@dataclass(frozen=True, slots=True)
class LinkDown:
    """Admin down: the kernel drops the port's static routes and neighbours, and the peer loses carrier."""

    port: PortSpec


@dataclass(frozen=True, slots=True)
class AddNeighbour:
    """A permanent neighbour fe80::1 on a port, standing for whoever is at the other end."""

    port: PortSpec
    mac: bytes


@dataclass(frozen=True, slots=True)
class AddRoute:
    """A /48 (the prefix's first 16 bytes, packed) through a port's neighbour fe80::1."""

    port: PortSpec
    prefix: bytes


@dataclass(frozen=True, slots=True)
class AddHostRoute:
    """A prefix of host addresses (16 bytes, and its length in bits) through a port's neighbour fe80::1."""

    port: PortSpec
    prefix: bytes
    prefix_bits: int


@dataclass(frozen=True, slots=True)
class AddNexthop:
    """One more port over which the kernel spreads a prefix by its hash; the first makes the route."""

    port: PortSpec
    prefix: bytes
    prefix_bits: int


@dataclass(frozen=True, slots=True)
class AddBlackhole:
    """A prefix that a switch drops in silence when no better route to it is left."""

    node: str
    prefix: bytes
    prefix_bits: int


@dataclass(frozen=True, slots=True)
class AddSidRoute:
    """A switch's own /48: seg6local End with NEXT-CSID, locator block 32 bits, node and function 16 bits."""

    node: str
    prefix: bytes


@dataclass(frozen=True, slots=True)
class DeleteSidRoute:
    """The inverse of `AddSidRoute`: what a rebooting switch forgets."""

    node: str
    prefix: bytes


@dataclass(frozen=True, slots=True)
class SyncOperstate:
    """Ask for one port's state, which makes the kernel settle its operational state now instead of within a second."""

    port: PortSpec


Operation = (
    CreateNamespace | Sysctl | CreateVeth | LoopbackUp | AddQueue | LinkUp | LinkDown | AddNeighbour | AddRoute
    | AddHostRoute | AddNexthop | AddBlackhole | AddSidRoute | DeleteSidRoute | SyncOperstate
)  # fmt: skip


def describe(operation: Operation) -> str:
    """An operation for a person reading an error: what and where."""
    what = type(operation).__name__
    if isinstance(operation, CreateVeth):
        return f"{what} {operation.link}"
    port = getattr(operation, "port", None)
    where = port.port.name if port is not None else getattr(operation, "node", "")
    return f"{what} on {where}"
