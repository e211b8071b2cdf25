"""Topology file text to a checked `Topology`, and a `Topology` to plain data and back.

Owns what sizes are possible and why (each refusal says its reason). Refuses paths: text comes in. Whether the
machine at hand can hold the fabric is not a property of the file; the fabric builder decides that.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Network
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mrcemu.schema import Document, FileModel, RateBps, SizeBytes, auto_or, load, whole
from mrcemu.topology import timing
from mrcemu.topology.addressing import MAX_INDEX, MAX_PLANES
from mrcemu.topology.model import (
    DATA_OVERHEAD_BYTES,
    DEFAULT_LINK_MTU_BYTES,
    SACK_FRAME_BYTES,
    QueueSpec,
    Topology,
    TrimmingSpec,
)
from mrcemu.units import format_rate, format_size, format_time, parse_time_ns

MTUS = (256, 512, 1024, 2048, 4096)  # path MTUs of InfiniBand verbs, which MRC keeps
MIN_BDP_FRAMES = 8  # below this neither ECN steering nor NSCC works (simulated; see timing.AUTO_RTT_FRAMES)
ETHERNET_BYTES = 14
# IP bytes a trimmed packet must keep so that the responder can answer: two IPv6 headers 80, UDP 8, BTH 12, TSETH 8 with
# METH. Source: protocol sources, "MIN_TRIM_SIZE" and its MRC analogue.
MIN_TRIM_BYTES = 108
# What a link of 2^63 ns arithmetic and HTB's 64-bit rates hold comfortably, from a slow modem to today's fastest port.
MIN_RATE_BPS, MAX_RATE_BPS = 10**4, 16 * 10**11
MAX_LINK_DELAY_NS = 10**9
MIN_LINK_MTU, MAX_LINK_MTU = 1280, 65535  # IPv6's minimum (RFC 8200 section 5); the largest a veth takes
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_RESERVED_BLOCKS = tuple(IPv6Network(block) for block in ("::/16", "fe80::/10", "ff00::/8", "fd4d:5243::/32"))


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("at most 40 of a-z, 0-9 and '-', starting with a letter or digit")
    return value


def _mtu(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in MTUS:
        raise ValueError(" | ".join(map(str, MTUS)) + " (payload bytes of a packet)")
    return value


def _block(value: object) -> str:
    try:
        network = IPv6Network(value) if isinstance(value, str) else None
    except ValueError:
        network = None
    if network is None or network.prefixlen != 32:
        raise ValueError("an IPv6 prefix of exactly /32 without host bits (six 16-bit uSIDs follow it)")
    if any(network.overlaps(reserved) for reserved in _RESERVED_BLOCKS):
        raise ValueError("a /32 that is not link-local, multicast, ::/16 or the hosts' own fd4d:5243::/32")
    return str(network)


def _explicit_queue(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"a mapping with the keys {', '.join(QueueFile.model_fields)}")
    return value


class RateFile(FileModel):
    """`link_rate`: bits per second of Ethernet frames, without preamble and gap."""

    nic: RateBps
    fabric: RateBps


class QueueFile(FileModel):
    """`queue` with explicit sizes, in bytes of frames."""

    data: SizeBytes
    last_hop: SizeBytes
    ecn_min: SizeBytes
    ecn_max: SizeBytes
    control: SizeBytes


class TrimmingFile(FileModel):
    """`trimming`."""

    enabled: bool = True
    size: Annotated[int, whole(MIN_TRIM_BYTES, max(MTUS))] = 128


class Srv6File(FileModel):
    """`srv6`."""

    block: Annotated[str, BeforeValidator(_block)] = "fcbb:bbbb::/32"


class TopologyFile(FileModel):
    """A topology file, key by key."""

    name: Annotated[str, BeforeValidator(_name)]
    planes: Annotated[int, whole(1, MAX_PLANES)]
    t0_per_plane: Annotated[int, whole(1, MAX_INDEX)]
    t1_per_plane: Annotated[int, whole(1, MAX_INDEX)]
    hosts_per_t0: Annotated[int, whole(1, MAX_INDEX)]
    link_rate: RateFile
    scale: Annotated[int, whole(1, 10**7)] = 4000
    link_delay: Annotated[int | None, auto_or(parse_time_ns)] = None
    queue: Annotated[QueueFile | None, auto_or(_explicit_queue)] = None
    trimming: TrimmingFile = Field(default_factory=TrimmingFile)
    mtu: Annotated[int, BeforeValidator(_mtu)] = 4096
    link_mtu: Annotated[int, whole(MIN_LINK_MTU, MAX_LINK_MTU)] = DEFAULT_LINK_MTU_BYTES
    srv6: Srv6File = Field(default_factory=Srv6File)


def load_topology(text: str, file: str = "topology", overrides: Sequence[str] = ()) -> Topology:
    """A topology file's text as a checked `Topology`; ConfigError for the first thing that is wrong or impossible.

    `overrides` are `KEY=VALUE` with dotted keys of the topology file ("link_rate.nic=3mbit").
    """
    model, document = load(text, TopologyFile, file=file, overrides=overrides)
    _check_rates(model, document)
    topology = _topology(model)
    _check_bdp(topology, document)
    _check_queue(topology, document)
    _check_packet_sizes(topology, document)
    return topology


def _topology(model: TopologyFile) -> Topology:
    q = model.queue
    queue = QueueSpec(q.data, q.last_hop, q.ecn_min, q.ecn_max, q.control) if q is not None else None
    return Topology(
        name=model.name,
        planes=model.planes,
        t0_per_plane=model.t0_per_plane,
        t1_per_plane=model.t1_per_plane,
        hosts_per_t0=model.hosts_per_t0,
        nic_rate_bps=model.link_rate.nic,
        fabric_rate_bps=model.link_rate.fabric,
        scale=model.scale,
        mtu_bytes=model.mtu,
        link_mtu_bytes=model.link_mtu,
        link_delay_ns=model.link_delay,
        queue=queue,
        trimming=TrimmingSpec(model.trimming.enabled, model.trimming.size),
        srv6_block=model.srv6.block,
    )


def _check_rates(model: TopologyFile, document: Document) -> None:
    for key, rate in (("nic", model.link_rate.nic), ("fabric", model.link_rate.fabric)):
        if not MIN_RATE_BPS <= rate <= MAX_RATE_BPS:
            found = document.data["link_rate"][key]
            raise document.error(
                ("link_rate", key), found, f"{format_rate(MIN_RATE_BPS)} to {MAX_RATE_BPS // 10**9}gbit"
            )
    if model.link_delay is not None and model.link_delay > MAX_LINK_DELAY_NS:
        raise document.error(("link_delay",), document.data["link_delay"], f"at most {format_time(MAX_LINK_DELAY_NS)}")


def _check_bdp(topology: Topology, document: Document) -> None:
    """A plane's bandwidth-delay product must hold eight frames, or neither ECN steering nor NSCC has room to act."""
    frames = timing.plane_bdp_bytes(topology) / topology.data_frame_bytes
    if frames >= MIN_BDP_FRAMES:
        return
    key = "link_delay" if topology.link_delay_ns is not None else "link_rate"
    least = format_time(-(-_least_delay_ns(topology) // 1000) * 1000)
    raise document.error(
        (key,),
        f"a bandwidth-delay product of {frames:.1f} frames a plane",
        f"at least {MIN_BDP_FRAMES} frames: link_delay of {least} or more at these rates",
    )


def _least_delay_ns(topology: Topology) -> int:
    """The smallest `link_delay` that gives a plane `MIN_BDP_FRAMES` frames, a little above the exact value."""
    still = dataclasses.replace(topology, link_delay_ns=0)
    slowest = min(topology.nic_rate_bps, topology.fabric_rate_bps)
    needed = MIN_BDP_FRAMES * topology.data_frame_bytes * 8 * timing.NS / slowest
    return int((needed - timing.base_rtt_ns(still)) * 1.001 / (2 * timing.CROSS_T1_HOPS)) + 1


def _check_queue(topology: Topology, document: Document) -> None:
    queue = topology.queue
    if queue is None:
        return
    least = MIN_BDP_FRAMES * topology.data_frame_bytes
    floors = {"data": (queue.data_bytes, least), "last_hop": (queue.last_hop_bytes, least)}
    floors["control"] = (queue.control_bytes, MIN_BDP_FRAMES * SACK_FRAME_BYTES)
    found = document.data["queue"]
    for key, (size, floor) in floors.items():
        if size < floor:
            raise document.error(
                ("queue", key), found[key], f"at least {MIN_BDP_FRAMES} frames, {floor}B ({format_size(floor)})"
            )
    if not queue.ecn_min_bytes < queue.ecn_max_bytes:
        raise document.error(("queue", "ecn_max"), found["ecn_max"], f"more than ecn_min ({found['ecn_min']})")
    if queue.ecn_max_bytes > queue.data_bytes:
        raise document.error(("queue", "ecn_max"), found["ecn_max"], f"at most data ({found['data']})")


def _check_packet_sizes(topology: Topology, document: Document) -> None:
    """A full packet with its SRv6 encapsulation must pass every link whole; a trimmed one must be shorter than it."""
    full = topology.mtu_bytes + DATA_OVERHEAD_BYTES - ETHERNET_BYTES
    if topology.link_mtu_bytes < full:
        raise document.error(
            ("link_mtu",), topology.link_mtu_bytes, f"at least {full}: mtu and the longest header stack, in IP bytes"
        )
    if topology.trimming.size_bytes >= full:
        size = topology.trimming.size_bytes
        raise document.error(("trimming", "size"), size, f"less than a full packet's {full} IP bytes at this mtu")


def dump_topology(topology: Topology) -> dict[str, Any]:
    """The topology as data that JSON holds without loss; `topology_from_dict` reads it back."""
    return dataclasses.asdict(topology)


def topology_from_dict(data: Mapping[str, Any]) -> Topology:
    """The inverse of `dump_topology`; KeyError or TypeError if the data is not what `dump_topology` wrote."""
    queue = data["queue"]
    rest = {key: value for key, value in data.items() if key not in ("queue", "trimming")}
    return Topology(
        **rest, queue=None if queue is None else QueueSpec(**queue), trimming=TrimmingSpec(**data["trimming"])
    )
