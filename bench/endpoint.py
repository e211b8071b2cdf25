"""What a data packet costs on the real fabric, and how near the endpoints come to the kernel's own forwarding rate.

One run measures, on the same eight-plane fabric between the same two hosts:

* the kernel alone: a blaster sends one prebuilt frame over one path as fast as it can, the far port counts;
* the transport at the default rate (8 x 25 Mbit/s): CPU per data packet at both ends, efficiency, memory;
* the transport on links that do not limit it: packets per second, as a share of the kernel's rate.

Prints one JSON document. Needs root.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mrcemu.endpoint.group import EndpointGroup
from mrcemu.fabric.net import MrcNet
from mrcemu.keeper.places import host_place
from mrcemu.linux.netns import inside
from mrcemu.topology import timing
from mrcemu.topology.addressing import all_paths, host_address
from mrcemu.topology.loader import load_topology
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.opcodes import DscpMap, Opcode

SRC, DST = 0, 12
QPN = 8
MESSAGE_BYTES = 1 << 20
BLAST_ROUNDS = 5
BLAST_SECONDS = 1.0  # of a round
TRANSFER_SECONDS = 6.0
TOPOLOGY = Path(__file__).resolve().parents[1] / "topologies" / "eight-plane.yaml"
FREE_RATE_BPS = 20 * 10**9  # HTB is no limit: one sender reaches about 2 Gbit/s of full frames
CLOCK_TICKS = 100  # of /proc/PID/stat, per second


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_bytes(pid: int) -> int:
    """Memory of a process that is nobody else's."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def blast(net: MrcNet, topology: Topology) -> dict[str, float]:
    """Packets per second sent and forwarded over one path when a sender does nothing but send, in the best round.

    The best and not the mean: the reference is what the kernel can do, and a disturbed round shows the disturbance.
    """
    place = host_place(net, SRC)
    path = all_paths(topology, SRC, DST)[0]
    template = fast.FrameTemplate(
        dst_mac=place.gateway_macs[0],
        src_mac=place.port_macs[0],
        outer_src=host_address(SRC).packed,
        outer_dst=path.destination,
        inner_src=host_address(SRC).packed,
        inner_dst=host_address(DST).packed,
        ev=path.ev,
        dscp=DscpMap().trimmable,
    )
    frame = fast.build_data(
        template, Opcode.WRITE_MIDDLE, QPN, 0, 0, 0, 0, 0, 0, 0, MESSAGE_BYTES, bytes(topology.mtu_bytes)
    )
    with inside(place.netns_path):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind(("p0", 0))
    with sender:
        rounds = [blast_round(net, sender, frame) for _ in range(BLAST_ROUNDS)]
    return max(rounds, key=lambda row: row["forwarded_per_s"])


def blast_round(net: MrcNet, sender: socket.socket, frame: bytes) -> dict[str, float]:
    """One round: what was handed to the first port, and what came out of the last one."""
    port, send, sent = f"h{DST}:p0", sender.send, 0
    before = net.counters()[port].rx_packets
    started = time.monotonic()
    ends = started + BLAST_SECONDS
    while time.monotonic() < ends:
        for _ in range(64):
            send(frame)
        sent += 64
    elapsed = time.monotonic() - started
    return {"sent_per_s": sent / elapsed, "forwarded_per_s": (net.counters()[port].rx_packets - before) / elapsed}


async def transfer(net: MrcNet, topology: Topology, config: dict[str, Any]) -> dict[str, float]:
    """One write_bw transfer; figures over its middle, after start-up."""
    group = EndpointGroup(topology, 1, time.monotonic_ns(), config)
    shape = {"workload": "w", "qpns": [QPN], "size": MESSAGE_BYTES, "depth": 16, "rkey": QPN}
    try:
        await group.start([host_place(net, SRC), host_place(net, DST)])
        await group.connect(SRC, DST, QPN)
        await group.ask(DST, "receive", **shape)
        await group.ask(SRC, "send", **shape, stop_ns=1 << 62)
        await asyncio.sleep(1.0)
        cpu, placed, at = _reading(group), await _placed(group), time.monotonic()
        await asyncio.sleep(TRANSFER_SECONDS)
        packets = (await _placed(group) - placed) / topology.mtu_bytes
        elapsed = time.monotonic() - at
        spent = [after - before for after, before in zip(_reading(group), cpu, strict=True)]
        return {
            "packets_per_s": packets / elapsed,
            "efficiency": packets
            * topology.mtu_bytes
            * 8
            / elapsed
            / timing.line_payload_bps(topology, topology.planes),
            "cpu_us_per_packet_requester": spent[0] / packets * 1e6,
            "cpu_us_per_packet_responder": spent[1] / packets * 1e6,
            "endpoint_bytes_each": sum(map(resident_bytes, group.pids)) / 2,
        }
    finally:
        await group.stop()


def _reading(group: EndpointGroup) -> list[float]:
    return [cpu_seconds(pid) for pid in group.pids]


async def _placed(group: EndpointGroup) -> int:
    return int((await group.ask(DST, "progress"))[str(DST)]["placed"]["w"])


def main() -> None:
    """Measure and print."""
    topology = load_topology(TOPOLOGY.read_text(encoding="utf-8"), str(TOPOLOGY))
    with MrcNet(topology, f"rate{os.getpid()}") as net:
        paced = asyncio.run(transfer(net, topology, {}))
    unlimited = replace(
        topology, nic_rate_bps=FREE_RATE_BPS, fabric_rate_bps=FREE_RATE_BPS, link_delay_ns=250_000, scale=5
    )
    with MrcNet(unlimited, f"free{os.getpid()}") as net:
        blaster = blast(net, unlimited)
        # A late machine is no loss here: the timer is far away.
        free = asyncio.run(transfer(net, unlimited, {"timeout_code": 20, "mpr_units": 8}))
    kernel = blaster["forwarded_per_s"]
    ratios = [
        ratio("packets/s, reference: kernel forwarding, one sender", free["packets_per_s"], kernel, "packets/s"),
        ratio("goodput at 8 x 25 Mbit/s, reference: line payload", paced["efficiency"], 1.0, "of the line"),
    ]
    print(json.dumps({"ratios": ratios, "detail": {"paced": paced, "unlimited": free, "blaster": blaster}}, indent=1))


def ratio(what: str, ours: float, reference: float, unit: str) -> dict[str, Any]:
    """One row of the document."""
    return {"what": what, "ours": ours, "reference": reference, "unit": unit, "ratio": ours / reference}


if __name__ == "__main__":
    main()
