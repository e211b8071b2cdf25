"""Time from nothing to a ready fabric, against stock Mininet commanded to the very same kernel state.

    sudo .venv/bin/python bench/fabric_build.py [--planes 8] [--repeat 3]

Both sides run in this process, one after the other, on a fabric of eight planes unless told otherwise: stock Mininet
takes its time. The reference uses Mininet's own node and link classes, one shell a node and one command a setting, as
its users do; afterwards routes, neighbours, queues and classes of both are read back by the same code and must be
equal, or the comparison is void. Then `mrcemu up eight-plane` and `down`, as a user waits for them, against the same
build without command line and keeper. Prints one JSON document. Memory is what the whole machine has less of: it is in
the detail, without a ratio, and worth something on an idle machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any

from mininet.link import Link
from mininet.net import Mininet
from mininet.node import Node

from mrcemu.fabric import namespaces, ops, tables, tc
from mrcemu.fabric.encode import LAST_RESORT_METRIC
from mrcemu.fabric.net import MrcNet
from mrcemu.fabric.netlink import NetlinkSocket
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.plan import Plan
from mrcemu.topology.model import Topology

RATE_BPS = 25_000_000
EIGHT_PLANES = Topology("eight-plane", 8, 4, 4, 4, RATE_BPS, RATE_BPS, 4000, 4096)
TARGET_RATIO = 0.1
FIGURES = (("build", "build_s"), ("remove", "down_s"))


class StockMininet(Mininet):  # type: ignore[misc]  # Mininet carries no types
    """Mininet as it is, except that it must not raise the limits of the whole machine."""

    inited = True


def free_bytes() -> int:
    """Memory that is free or could be at once."""
    with open("/proc/meminfo", encoding="ascii") as file:
        values = {line.split(":")[0]: int(line.split()[1]) for line in file}
    return 1024 * sum(values[key] for key in ("MemFree", "Buffers", "Cached", "SReclaimable"))


def prefix_text(prefix: bytes) -> str:
    return f"{prefix[:2].hex()}:{prefix[2:4].hex()}:{prefix[4:6].hex()}::/48"


def address_text(address: bytes) -> str:
    return str(IPv6Address(address))


def commands(operation: ops.Operation) -> Iterator[str]:
    """One operation as a person would type it."""
    match operation:
        case ops.Sysctl(_, key, value):
            yield f"sysctl -q -w {key.replace('/', '.')}={value}"
        case ops.LoopbackUp():
            yield "ip link set lo up"
        case ops.LinkUp(spec):
            yield f"ip link set {spec.port.ifname} up"
        case ops.AddNeighbour(spec, mac):
            yield f"ip -6 neigh add fe80::1 lladdr {mac.hex(':')} dev {spec.port.ifname} nud permanent"
        case ops.AddRoute(spec, prefix):
            yield f"ip -6 route add {prefix_text(prefix)} via fe80::1 dev {spec.port.ifname} proto static"
        case ops.AddHostRoute(spec, prefix, bits):
            yield f"ip -6 route add {address_text(prefix)}/{bits} via fe80::1 dev {spec.port.ifname} proto static"
        case ops.AddNexthop(spec, prefix, bits):
            yield f"ip -6 route append {address_text(prefix)}/{bits} via fe80::1 dev {spec.port.ifname} proto static"
        case ops.AddBlackhole(_, prefix, bits):
            metric = LAST_RESORT_METRIC
            yield f"ip -6 route add blackhole {address_text(prefix)}/{bits} dev lo proto static metric {metric}"
        case ops.AddSidRoute(_, prefix):
            flavour = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
            yield f"ip -6 route add local {prefix_text(prefix)} {flavour} dev lo proto static"
        case ops.AddQueue(spec, limits):
            yield from queue_commands(spec.port.ifname, limits)


def queue_commands(ifname: str, limits: ops.QueueLimits) -> Iterator[str]:
    """The nine tc commands of one port."""
    rate = limits.rate_bps
    data = rate * tc.DATA_SHARE_PERCENT // 100
    tail = f"ceil {rate}bit burst {limits.burst_bytes} cburst {limits.burst_bytes} quantum {tc.QUANTUM_BYTES}"
    yield f"tc qdisc add dev {ifname} root handle 1: stab overhead 0 linklayer ethernet htb default 20"
    yield f"tc class add dev {ifname} parent 1: classid 1:1 htb rate {rate}bit {tail}"
    yield f"tc class add dev {ifname} parent 1:1 classid 1:10 htb rate {rate - data}bit {tail} prio 0"
    yield f"tc class add dev {ifname} parent 1:1 classid 1:20 htb rate {data}bit {tail} prio 1"
    yield f"tc qdisc add dev {ifname} parent 1:10 handle 10: bfifo limit {limits.control_limit_bytes}"
    yield f"tc qdisc add dev {ifname} parent 1:20 handle 20: bfifo limit {limits.data_limit_bytes}"
    for dscp in tc.CONTROL_DSCPS:
        match = f"u32 match u32 {dscp << 22:#x} {0x3F << 22:#x} at 0"
        yield f"tc filter add dev {ifname} parent 1: protocol ipv6 prio 1 {match} flowid 1:10"


def build_stock(planned: Plan) -> StockMininet:
    """The same fabric through Mininet's own classes and `node.cmd`."""
    net = StockMininet(topo=None, build=False, controller=None, host=Node, switch=Node, link=Link)
    for node in planned.topology.nodes:
        net.addHost(node)
        for sysctl in planned.namespace_sysctls(node):
            run(net, node, sysctl)
    for link in planned.topology.links:
        lower, upper = planned.ports[link.lower.name], planned.ports[link.upper.name]
        names = {"intfName1": lower.port.ifname, "intfName2": upper.port.ifname}
        net.addLink(lower.node, upper.node, addr1=lower.mac.hex(":"), addr2=upper.mac.hex(":"), **names)
    for node, operations in planned.node_ops.items():
        for spec in planned.ports_by_node[node]:
            net[node].cmd(f"ip link set {spec.port.ifname} down mtu {planned.topology.link_mtu_bytes}")
        for operation in operations:
            run(net, node, operation)
    return net


def run(net: StockMininet, node: str, operation: ops.Operation) -> None:
    for command in commands(operation):
        if complaint := net[node].cmd(command).strip():
            raise SystemExit(f"{node}: {command}: {complaint}")


def state_of(sock: NetlinkSocket) -> dict[str, list[Any]]:
    """What forwards and shapes in one namespace, without interface indexes."""
    classes = [item for ifindex in {q.ifindex for q in tables.qdiscs(sock)} for item in tables.classes(sock, ifindex)]
    # uSIDs are in fc00::/8, hosts in fd00::/8; the rest is what the kernel makes for itself.
    routes = [route for route in tables.routes(sock) if route.prefix[:1] in (b"\xfc", b"\xfd")]
    return {
        "routes": sorted(
            (r.table, r.prefix, r.prefix_bits, r.kind, r.gateway, r.flavour, len(r.ports)) for r in routes
        ),
        "neighbours": sorted((n.address, n.mac) for n in tables.neighbours(sock)),
        "qdiscs": sorted(
            (q.handle, q.parent, q.kind, b"" if q.kind == "htb" else q.options) for q in tables.qdiscs(sock)
        ),
        "classes": sorted((c.handle, c.parent, c.rate_bytes, c.ceil_bytes, c.priority) for c in classes),
    }


@contextmanager
def stock_sockets(net: StockMininet) -> Iterator[Nodes]:
    nodes = Nodes()
    with namespaces.returning_home():
        for node in net:
            fd = os.open(f"/proc/{net[node].pid}/ns/net", os.O_RDONLY)
            namespaces.setns(fd)
            os.close(fd)
            nodes.add(node, NetlinkSocket())
    try:
        yield nodes
    finally:
        nodes.close()


def measure_ours(topology: Topology, repeat: int) -> tuple[dict[str, float], dict[str, Any], Plan]:
    """Median build and removal in seconds, memory in MiB of the first, and the kernel state that was reached."""
    builds, downs, used = [], [], []
    for _ in range(repeat):
        before = free_bytes()
        net = MrcNet(topology, f"bench{os.getpid()}")
        begun = time.perf_counter()
        net.build()
        builds.append(time.perf_counter() - begun)
        try:
            used.append((before - free_bytes()) / 2**20)
            state = {node: state_of(net.nodes_io[node]) for node in net.nodes_io}
            planned = net.plan
        finally:
            begun = time.perf_counter()
            net.stop()
            downs.append(time.perf_counter() - begun)
        time.sleep(1)  # the kernel frees namespaces after their names are gone
    medians = {"build_s": statistics.median(builds), "down_s": statistics.median(downs)}
    return {**medians, "memory_mib": used[0]}, state, planned


def measure_stock(planned: Plan) -> tuple[dict[str, float], dict[str, Any]]:
    before = free_bytes()
    begun = time.perf_counter()
    net = build_stock(planned)
    built = time.perf_counter() - begun
    try:
        used = (before - free_bytes()) / 2**20
        with stock_sockets(net) as nodes:
            state = {node: state_of(nodes[node]) for node in nodes}
    finally:
        begun = time.perf_counter()
        net.stop()
        down = time.perf_counter() - begun
    return {"build_s": built, "down_s": down, "memory_mib": used}, state


def measure_command_line(repeat: int) -> dict[str, float]:
    """Median wall time of `mrcemu up eight-plane` and `mrcemu down`, start of Python and keeper included, seconds."""
    mrcemu, name = [sys.executable, "-m", "mrcemu.cli"], f"bench{os.getpid()}"
    ups, downs = [], []
    for _ in range(repeat):
        try:
            ups.append(timed([*mrcemu, "up", "eight-plane", "--name", name]))
        finally:
            downs.append(timed([*mrcemu, "down", name]))
        time.sleep(1)
    return {"build_s": statistics.median(ups), "down_s": statistics.median(downs)}


def timed(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="builds of ours; the median counts")
    parser.add_argument("--planes", type=int, default=8, metavar="N", help="planes of the compared fabric")
    options = parser.parse_args()
    topology = replace(EIGHT_PLANES, name="compared", planes=options.planes)
    ours, our_state, planned = measure_ours(topology, options.repeat)
    stock, stock_state = measure_stock(planned)
    if our_state != stock_state:
        raise SystemExit("the two fabrics differ in the kernel: no comparison")
    eight, _, _ = measure_ours(EIGHT_PLANES, options.repeat)
    command_line = measure_command_line(options.repeat)
    ratios = [
        *ratio_rows(f"{options.planes} planes, reference: stock Mininet", ours, stock),
        *ratio_rows("eight-plane by command, reference: in-process", command_line, eight),
    ]
    detail = {"ours": ours, "stock_mininet": stock, "eight_planes": eight, "target_build_ratio": TARGET_RATIO}
    print(json.dumps({"ratios": ratios, "detail": detail}))


def ratio_rows(what: str, ours: dict[str, float], reference: dict[str, float]) -> list[dict[str, Any]]:
    """Building and removing, in seconds."""
    return [
        {
            "what": f"{verb} {what}",
            "ours": ours[key],
            "reference": reference[key],
            "unit": "s",
            "ratio": ours[key] / reference[key],
        }
        for verb, key in FIGURES
    ]


if __name__ == "__main__":
    main()
