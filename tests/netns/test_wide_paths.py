"""Every one of 128 paths, watched at every port it may touch: the list shifts by one uSID a switch, and nothing strays.

One hand-built frame per EV from h0 to the farthest host. Captures stand at all ports of all planes that any path uses;
the counters of all other ports say that no frame of this size passed there.
"""

import socket
from collections import defaultdict
from pathlib import Path

import pytest
from fabric_support import fabric_name, wait_until

from mrcemu.capture.pcapng import read_pcapng
from mrcemu.capture.session import CaptureSession
from mrcemu.capture.targets import taps_for
from mrcemu.fabric.net import MrcNet
from mrcemu.linux.netns import inside
from mrcemu.topology.addressing import all_paths, host_address
from mrcemu.topology.loader import load_topology
from mrcemu.wire import fast, srv6
from mrcemu.wire.opcodes import DscpMap, Opcode

pytestmark = pytest.mark.netns

WIDE = Path(__file__).parents[2] / "topologies" / "wide.yaml"
SRC, DST = 0, 3
PATHS = 128
QPN, RKEY = 77, 7
PAYLOAD = bytes(1024)
FRAME_BYTES = 142 + len(PAYLOAD)
PORTS_ON_A_PATH = 8  # four links, both ends
OUTER_DESTINATION = slice(38, 54)
HOP_LIMIT = 21
PSN = slice(111, 114)  # the last three bytes of the BTH, behind Ethernet, outer and inner IPv6 and UDP


@pytest.fixture(scope="module")
def topology():
    return load_topology(WIDE.read_text(), str(WIDE))


@pytest.fixture(scope="module")
def designed(topology):
    """{EV: [(port name, outer destination, hop limit) in the order of travel]}, from path names and shifts alone."""
    links = {frozenset((link.lower.node, link.upper.node)): link for link in topology.links if not link.is_nic}
    found = {}
    for path in all_paths(topology, SRC, DST):
        between = [topology.nic_link(SRC, path.plane)]
        between += [links[frozenset(pair)] for pair in zip(path.nodes[1:-2], path.nodes[2:-1], strict=True)]
        between += [topology.nic_link(DST, path.plane)]
        visits, address, hop_limit = [], path.destination, 64
        for node, link in zip(path.nodes, between, strict=False):
            here, there = (link.lower, link.upper) if link.lower.node == node else (link.upper, link.lower)
            visits += [(here.name, address, hop_limit), (there.name, address, hop_limit)]
            address, hop_limit = srv6.shift(address), hop_limit - 1
        found[path.ev] = visits
    return found


@pytest.fixture(scope="module")
def recorded(topology, designed, tmp_path_factory):
    """({PSN: {port: [frame]}}, bytes that passed each port no path uses), after one frame on every path."""
    file = tmp_path_factory.mktemp("wide") / "wide.pcapng"
    watched = sorted({port for visits in designed.values() for port, _, _ in visits})
    with MrcNet(topology, fabric_name("wide")) as net:
        before = net.counters()
        session = CaptureSession(taps_for(topology, watched, net.netns_path), file, bpf="ip6 proto 41")
        with session:
            send_one_on_each_path(net, topology)
            wait_until(lambda: session.frames >= PATHS * PORTS_ON_A_PATH)
        after = net.counters()
    strayed = {
        name: max(now.tx_bytes - before[name].tx_bytes, now.rx_bytes - before[name].rx_bytes)
        for name, now in after.items()
        if name not in watched
    }
    return by_psn_and_port(read_pcapng(file.read_bytes())), strayed


def send_one_on_each_path(net, topology):
    """The PSN of each frame is the number of its path."""
    sockets = [packet_sender(net, plane) for plane in range(topology.planes)]
    try:
        for number, path in enumerate(all_paths(topology, SRC, DST)):
            link = topology.nic_link(SRC, path.plane)
            template = fast.FrameTemplate(
                dst_mac=net.port_mac(link.upper), src_mac=net.port_mac(link.lower),
                outer_src=host_address(SRC).packed, outer_dst=path.destination,
                inner_src=host_address(SRC).packed, inner_dst=host_address(DST).packed,
                ev=path.ev, dscp=DscpMap().trimmable,
            )  # fmt: skip
            head = (template, Opcode.WRITE_ONLY, QPN, number, 0, 0, 0, 0, 0, RKEY, len(PAYLOAD))
            sockets[path.plane].send(fast.build_data(*head, PAYLOAD))
    finally:
        for sock in sockets:
            sock.close()


def packet_sender(net, plane):
    with inside(net.netns_path(f"h{SRC}")):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((f"p{plane}", 0))
    return sock


def by_psn_and_port(capture):
    found = defaultdict(lambda: defaultdict(list))
    for tap, frame in capture.frames:
        found[int.from_bytes(frame.data[PSN], "big")][capture.taps[tap].name].append(frame)
    return found


def test_there_are_128_distinct_paths_over_all_planes(topology, designed):
    assert len(designed) == PATHS
    assert len({visits[0][1] for visits in designed.values()}) == PATHS
    assert {visits[0][0] for visits in designed.values()} == {f"h{SRC}:p{plane}" for plane in range(topology.planes)}
    assert {len(visits) for visits in designed.values()} == {PORTS_ON_A_PATH}


def test_every_frame_is_seen_once_at_each_designed_port_and_at_no_other(designed, recorded):
    frames, _ = recorded
    assert sorted(frames) == list(range(PATHS))
    for number, visits in enumerate(designed.values()):
        seen = {port: len(found) for port, found in frames[number].items()}
        assert seen == {port: 1 for port, _, _ in visits}


def test_the_destination_shifts_by_one_usid_and_the_hop_limit_falls_by_one_at_every_switch(designed, recorded):
    frames, _ = recorded
    for number, visits in enumerate(designed.values()):
        for port, address, hop_limit in visits:
            data = frames[number][port][0].data
            assert (port, data[OUTER_DESTINATION], data[HOP_LIMIT]) == (port, address, hop_limit)


def test_frames_pass_the_ports_in_the_order_of_the_path(designed, recorded):
    frames, _ = recorded
    for number, visits in enumerate(designed.values()):
        # Both ends of a link see a frame at once; from link to link there is a switch's queue.
        times = [frames[number][port][0].time_ns for port, _, _ in visits[::2]]
        assert times == sorted(times)


def test_no_frame_passes_a_port_that_no_path_uses(topology, designed, recorded):
    _, strayed = recorded
    unused = 2 * len(topology.links) - len({port for visits in designed.values() for port, _, _ in visits})
    assert len(strayed) == unused > 0
    assert {port: size for port, size in strayed.items() if size >= FRAME_BYTES} == {}
