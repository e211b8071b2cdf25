"""Structural addresses: uSID, EV and SRv6 destination are the same bits in three places, so each is computed from the
others by copying bits, and back.

    uSID (16 bits)  tier[15:14] | plane[13:10] | index[9:0]      tier: T0 1, T1 2, host downlink 3; never 0
    EV   (32 bits)  0[31:20] | uplink[19:4] | plane[3:0]
    DA   (128 bits) block[32] | T0(source) | T1 | T0(destination) | host downlink | 0 ...   cross-T1, four hops
                    block[32] | T0 | host downlink | 0 ...                                  T0-local, two hops

Source of the scheme: paper arXiv 2605.04333 section 2.3 (plane into every uSID, T0 uplink into the T1 uSID); the exact
widths are ours. Planes 1 to 16, indexes 0 to 1023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from ipaddress import IPv6Address, IPv6Network, summarize_address_range

from mrcemu.topology.model import SwitchId, Tier, Topology

MAX_PLANES = 16
MAX_INDEX = 1 << 10

# Inner (host) addresses: a unique local prefix of ours, "MRC" in ASCII behind fd. Switches route it for ECMP mode only.
_HOST_PREFIX = 0xFD4D_5243_0000_0000_0000_0000_0000_0000
HOSTS_NETWORK = IPv6Network((_HOST_PREFIX, 64))


def usid(tier: Tier, plane: int, index: int) -> int:
    """The 16-bit micro-SID of a T0, a T1, or a T0's host downlink."""
    return tier << 14 | plane << 10 | index


def usid_fields(value: int) -> tuple[int, int, int]:
    """(tier, plane, index) of a 16-bit uSID; tier 0 is no uSID of ours."""
    return value >> 14 & 3, value >> 10 & 0xF, value & 0x3FF


def ev_of(plane: int, uplink: int) -> int:
    """The 32-bit entropy value of a path: plane and T0 uplink (0 for a T0-local path)."""
    return uplink << 4 | plane


def plane_of_ev(ev: int) -> int:
    return ev & 0xF


def uplink_of_ev(ev: int) -> int:
    return ev >> 4 & 0xFFFF


@cache
def _block_of(block: str) -> int:
    return int(IPv6Network(block).network_address)


def block_bits(topology: Topology) -> int:
    """The SRv6 locator block in the top 32 bits of a 128-bit address."""
    return _block_of(topology.srv6_block)


def usid_prefix(topology: Topology, value: int) -> str:
    """The /48 that a switch matches for a uSID, e.g. "fcbb:bbbb:4401::/48"."""
    return f"{IPv6Address(block_bits(topology) | value << 80)}/48"


def host_address(host: int) -> IPv6Address:
    """The NIC's own address, the same on all planes: the inner source and destination of every packet."""
    return IPv6Address(_HOST_PREFIX | host + 1)


def host_networks(topology: Topology, t0: int) -> tuple[IPv6Network, ...]:
    """The fewest prefixes that hold exactly the addresses of the hosts on T0 number `t0`."""
    return _networks(t0 * topology.hosts_per_t0, topology.hosts_per_t0)


@cache
def _networks(first: int, count: int) -> tuple[IPv6Network, ...]:
    return tuple(summarize_address_range(host_address(first), host_address(first + count - 1)))


@dataclass(frozen=True, slots=True)
class Path:
    """One distinct path from a source to a destination host, or in ECMP mode (see ecmp.py) what an EV stands for."""

    ev: int
    plane: int
    uplink: int  # of the first T0; -1 where its hash chooses
    usids: tuple[int, ...]  # none where switches choose
    destination: bytes  # IPv6 destination as the sender writes it, 16 bytes: of the outer header, if there is one
    hops: int  # links crossed: 4 cross-T1, 2 T0-local
    nodes: tuple[str, ...]  # names from source host to destination host

    @property
    def outer_destination(self) -> bytes | None:
        """The uSID list, 16 bytes; None on a path without one."""
        return self.destination if self.usids else None

    @property
    def srv6(self) -> str:
        """The uSID list as text, empty on a path without one."""
        return str(IPv6Address(self.destination)) if self.usids else ""


def path_for_ev(topology: Topology, src: int, dst: int, ev: int) -> Path:
    """The path an EV names between two host numbers; ValueError if the EV's plane or uplink does not exist."""
    plane, uplink = plane_of_ev(ev), uplink_of_ev(ev)
    local = topology.is_t0_local(src, dst)
    if plane >= topology.planes or uplink >= (1 if local else topology.t1_per_plane) or ev >> 20:
        raise ValueError(f"EV {ev:#x} names no path from h{src} to h{dst}")
    src_t0, dst_t0 = topology.t0_of_host(src), topology.t0_of_host(dst)
    down = usid(Tier.HOST, plane, topology.downlink_of_host(dst))
    first = SwitchId(plane, Tier.T0, src_t0).name
    if local:
        chain: tuple[int, ...] = (usid(Tier.T0, plane, src_t0), down)
        nodes: tuple[str, ...] = (f"h{src}", first, f"h{dst}")
    else:
        chain = (usid(Tier.T0, plane, src_t0), usid(Tier.T1, plane, uplink), usid(Tier.T0, plane, dst_t0), down)
        nodes = (
            f"h{src}", first, SwitchId(plane, Tier.T1, uplink).name, SwitchId(plane, Tier.T0, dst_t0).name, f"h{dst}",
        )  # fmt: skip
    return Path(ev, plane, uplink, chain, destination_bytes(topology, chain), len(chain), nodes)


def destination_bytes(topology: Topology, chain: tuple[int, ...]) -> bytes:
    """The 16-byte outer destination for a uSID list of at most six."""
    if len(chain) > 6:
        raise ValueError("at most six uSIDs fit behind a 32-bit block")
    value = block_bits(topology)
    for position, item in enumerate(chain):
        value |= item << (80 - 16 * position)
    return value.to_bytes(16, "big")


def ev_from_destination(topology: Topology, destination: bytes) -> int:
    """The EV a full outer destination encodes, by reading its bits back (the reverse of `path_for_ev`)."""
    value = int.from_bytes(destination, "big")
    if value >> 96 != block_bits(topology) >> 96:
        raise ValueError("destination outside the SRv6 block")
    chain = [value >> shift & 0xFFFF for shift in (80, 64, 48, 32, 16, 0)]
    tier, plane, _ = usid_fields(chain[0])
    if tier != Tier.T0:
        raise ValueError("the list does not start at a T0")
    second_tier, second_plane, index = usid_fields(chain[1])
    if second_plane != plane or second_tier not in (Tier.T1, Tier.HOST):
        raise ValueError("the second uSID is no T1 or host downlink of the same plane")
    return ev_of(plane, index if second_tier == Tier.T1 else 0)


def all_paths(topology: Topology, src: int, dst: int) -> tuple[Path, ...]:
    """Every distinct path between two host numbers, plane by plane."""
    uplinks = 1 if topology.is_t0_local(src, dst) else topology.t1_per_plane
    return tuple(
        path_for_ev(topology, src, dst, ev_of(plane, uplink))
        for plane in range(topology.planes)
        for uplink in range(uplinks)
    )
