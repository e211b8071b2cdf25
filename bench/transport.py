"""What the transport core costs: two NICs joined by function calls, no sockets, no virtual clock queue.

Prints microseconds of CPU per data packet for both ends together, and the share of it that is not payload work (iCRC
and copies of 4 KiB), measured in the same run.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import time
import zlib

from mrcemu.protocol.config import for_topology
from mrcemu.protocol.framing import NicIdentity
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.protocol.nic import Nic
from mrcemu.protocol.qp import QpSetup
from mrcemu.rng import Rng
from mrcemu.topology.addressing import all_paths, host_address
from mrcemu.topology.model import Topology
from mrcemu.workload.pattern import PatternSource

MESSAGES = 64
MESSAGE_BYTES = 1 << 20
QPN = 3
STEP_NS = 430_000  # one tick of the endpoint loop on the default fabric


def make_pair() -> tuple[Nic, Nic]:
    """Two NICs with one QP between them on the eight-plane default."""
    topology = Topology("bench", 8, 4, 4, 4, 25 * 10**6, 25 * 10**6, 4000, 4096)
    config = for_topology(topology)
    nics = []
    for host, peer in ((0, 12), (12, 0)):
        macs = tuple(bytes((2, 0, 0, 0, host, plane)) for plane in range(8))
        identity = NicIdentity(host, host_address(host).packed, macs, macs)
        nic = Nic(topology, identity, config, Rng(host))
        nic.create_qp(QpSetup(QPN, QPN, host_address(peer).packed, all_paths(topology, host, peer), config))
        nics.append(nic)
    return nics[0], nics[1]


def transfer(sender: Nic, receiver: Nic) -> int:
    """Move all messages, 12 packets a step as the window allows; data packets sent."""
    view = memoryview(bytearray(MESSAGE_BYTES))
    receiver.regions.register(MemoryRegion(1, 0, view))
    for number in range(MESSAGES):
        sender.post_write(QPN, number, PatternSource(QPN, number), MESSAGE_BYTES, 0, 1, 0)
    requester = sender.qps[QPN].requester
    now_ns = 0
    while requester.outstanding_messages:
        now_ns += STEP_NS
        for source, target in ((sender, receiver), (receiver, sender)):
            source.handle_timer(now_ns)
            for plane, frame, _ in source.frames_to_send(now_ns, 0xFF):
                target.receive_frame(plane, frame, now_ns)
            while source.next_event() is not None:
                pass
            source.next_timer_ns()
    return requester.counters.packets_sent


def payload_floor_us() -> float:
    """CRC at both ends and one copy of 4 KiB: what no transport can avoid."""
    data, target = bytes(4096), bytearray(4096)
    count = 20000
    started = time.process_time()
    for _ in range(count):
        zlib.crc32(data)
        zlib.crc32(data)
        target[:] = data
    return (time.process_time() - started) / count * 1e6


def main() -> None:
    """Print one JSON document; with --profile, the functions that cost most instead."""
    sender, receiver = make_pair()
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.runcall(transfer, sender, receiver)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return
    started = time.process_time()
    packets = transfer(sender, receiver)
    per_packet = (time.process_time() - started) / packets * 1e6
    floor = payload_floor_us()
    row = {
        "what": "data packet, both ends, reference: CRCs and one copy",
        "ours": per_packet,
        "reference": floor,
        "unit": "us CPU",
        "ratio": per_packet / floor,
    }
    print(json.dumps({"ratios": [row], "detail": {"data_packets": packets}}))


if __name__ == "__main__":
    main()
