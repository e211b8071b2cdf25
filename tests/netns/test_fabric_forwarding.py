"""Frames along uSID lists through the kernel of every switch: each arrives where its list says, and nowhere else."""

import dataclasses
import os
import signal
import struct
import subprocess
import time

import fabric_support as kit
import pytest

from mrcemu.fabric.net import MrcNet
from mrcemu.topology.addressing import all_paths, usid
from mrcemu.topology.model import Tier

pytestmark = pytest.mark.netns
TCPDUMP = "tcpdump -Z root -i any -y LINUX_SLL2 -U --immediate-mode -w"


@pytest.fixture(scope="module")
def net():
    with MrcNet(kit.TINY, kit.fabric_name("fwd")) as built:
        yield built


@pytest.fixture(scope="module")
def ports(net):
    with kit.host_ports(net) as sockets:
        yield sockets


def pairs(topology):
    hosts = range(topology.host_count)
    return [(src, dst) for src in hosts for dst in hosts if src != dst]


@pytest.mark.parametrize(("src", "dst"), pairs(kit.TINY))
def test_every_ev_reaches_the_port_it_names_once_and_no_other(net, ports, src, dst):
    for path in all_paths(kit.TINY, src, dst):
        mark = f"ev {path.ev} h{src} h{dst};".encode()
        kit.send(ports, net, src, path.plane, path.destination, mark)
        assert [key for key, _ in kit.received(ports, mark, 0.01)] == [(dst, path.plane)]


def test_each_switch_lowers_the_hop_limit_and_changes_nothing_but_the_destination(net, ports):
    path = all_paths(kit.TINY, 0, 3)[-1]
    sent = kit.frame(net, 0, path.plane, path.destination, b"untouched", traffic_class=0x49, flow_label=0x54321)
    ports[0, path.plane].send(sent)
    [(_, got)] = kit.received(ports, b"untouched")
    assert got[21] == kit.HOP_LIMIT - 3  # hop limit: T0, T1, T0
    assert got[14:21] == sent[14:21]  # version, class, label, length, next header
    assert got[22:38] == sent[22:38]  # outer source
    assert got[54:] == sent[54:]  # the inner packet


def test_a_frame_of_a_full_payload_passes_and_is_not_cut(net, ports):
    path = all_paths(kit.TINY, 0, 3)[0]
    kit.send(ports, net, 0, path.plane, path.destination, b"full", size=kit.TINY.data_frame_bytes)
    [(_, got)] = kit.received(ports, b"full")
    assert len(got) == kit.TINY.data_frame_bytes


def test_a_self_probe_comes_back_on_the_port_it_left(net, ports):
    chain = usid(Tier.T0, 1, 0), usid(Tier.T1, 1, 1), usid(Tier.T0, 1, 0), usid(Tier.HOST, 1, 1)
    kit.send(ports, net, 1, 1, kit.uncompressed(kit.TINY, *chain), b"self-probe")
    assert [key for key, _ in kit.received(ports, b"self-probe")] == [(1, 1)]


def test_six_usids_in_one_address_are_all_used(net, ports):
    t0, other = usid(Tier.T0, 0, 0), usid(Tier.T0, 0, 1)
    chain = t0, usid(Tier.T1, 0, 0), other, usid(Tier.T1, 0, 1), t0, usid(Tier.HOST, 0, 1)
    kit.send(ports, net, 0, 0, kit.uncompressed(kit.TINY, *chain), b"six hops")
    [(key, got)] = kit.received(ports, b"six hops")
    assert key == (1, 0)
    assert got[21] == kit.HOP_LIMIT - 5


@pytest.mark.parametrize(
    ("what", "chain"),
    [
        ("unknown T1", [usid(Tier.T0, 0, 0), usid(Tier.T1, 0, 9), usid(Tier.T0, 0, 1), usid(Tier.HOST, 0, 0)]),
        ("other plane", [usid(Tier.T0, 0, 0), usid(Tier.T1, 1, 0), usid(Tier.T0, 1, 1), usid(Tier.HOST, 1, 0)]),
        ("not our T0", [usid(Tier.T0, 0, 1), usid(Tier.HOST, 0, 0)]),
        ("ends at a T1", [usid(Tier.T0, 0, 0), usid(Tier.T1, 0, 0)]),
        ("ends at a T0", [usid(Tier.T0, 0, 0), usid(Tier.T1, 0, 0), usid(Tier.T0, 0, 1)]),
        ("names its T0 twice", [usid(Tier.T0, 0, 0), usid(Tier.T0, 0, 0), usid(Tier.HOST, 0, 1)]),
        ("unknown downlink", [usid(Tier.T0, 0, 0), usid(Tier.T1, 0, 0), usid(Tier.T0, 0, 1), usid(Tier.HOST, 0, 7)]),
    ],
)
def test_a_list_that_leads_nowhere_is_dropped_on_every_plane(net, ports, what, chain):
    kit.send(ports, net, 0, 0, kit.uncompressed(kit.TINY, *chain), what.encode())
    assert kit.received(ports, what.encode(), wait_s=0.1, at_least=0) == []


def test_only_the_asked_for_path_carries_the_frame(net, ports):
    path = all_paths(kit.TINY, 0, 3)[1]
    before = net.counters()
    kit.send(ports, net, 0, path.plane, path.destination, b"counted", size=1000)
    kit.received(ports, b"counted")
    after = net.counters()
    carried = {name for name in after if after[name].tx_bytes - before[name].tx_bytes >= 1000}
    planned = {f"{a}:{_port_towards(net, a, b)}" for a, b in zip(path.nodes, path.nodes[1:], strict=False)}
    assert carried == planned


def _port_towards(net, node, neighbour):
    for link in net.topology.links:
        if (link.lower.node, link.upper.node) == (node, neighbour):
            return link.lower.ifname
        if (link.upper.node, link.lower.node) == (node, neighbour):
            return link.upper.ifname
    raise AssertionError(f"{node} and {neighbour} are not connected")


def test_the_destination_shifts_by_one_usid_at_every_switch(net, ports, tmp_path):
    path = all_paths(kit.TINY, 0, 3)[1]
    switches = path.nodes[1:-1]
    with _Captures(net, switches, tmp_path) as files:
        kit.send(ports, net, 0, path.plane, path.destination, b"shifting")
        kit.received(ports, b"shifting")
        time.sleep(0.1)
    expected = [kit.uncompressed(kit.TINY, *path.usids[skip:]) for skip in range(4)]
    for number, switch in enumerate(switches):
        seen = [destination for destination, data in _cooked(files[switch]) if b"shifting" in data]
        assert seen == expected[number : number + 2]  # as it came in, as it went out


class _Captures:
    """tcpdump (a memory-mapped ring: what the wire held, not what the kernel made of it later) in some nodes."""

    def __init__(self, net, nodes, folder):
        self.files = {node: folder / f"{node}.pcap" for node in nodes}
        self.net, self.running = net, []

    def __enter__(self):
        for node, file in self.files.items():
            process = self.net[node].popen(f"{TCPDUMP} {file}")
            self.running.append(process)
            assert b"listening" in process.stderr.readline() + process.stderr.readline()
        return self.files

    def __exit__(self, *_):
        for process in self.running:
            process.send_signal(signal.SIGINT)
            process.wait(5)
            process.stdout.close()
            process.stderr.close()


def _cooked(file):
    """(IPv6 destination, data) of every record of a pcap file with 20-byte cooked headers."""
    data = file.read_bytes()
    offset = 24
    while offset < len(data):
        length = struct.unpack_from("<I", data, offset + 8)[0]
        packet = data[offset + 16 + 20 : offset + 16 + length]
        yield packet[24:40], packet
        offset += 16 + length


def test_frames_sent_at_once_after_building_all_arrive():
    for attempt in range(20):
        with MrcNet(kit.TINY, kit.fabric_name("now")) as net, kit.host_ports(net) as ports:
            mark = f"at once {attempt};".encode()
            for path in all_paths(kit.TINY, 0, 3):
                kit.send(ports, net, 0, path.plane, path.destination, mark)
            assert len(kit.received(ports, mark, 0.01, at_least=4)) == 4


def test_every_port_has_the_mtu_of_the_topology():
    topology = dataclasses.replace(kit.SMALLEST, link_mtu_bytes=4300)
    with MrcNet(topology, kit.fabric_name("mtu")) as net:
        for spec in net.plan.ports.values():
            assert " mtu 4300 " in net[spec.node].pexec(f"ip -o link show {spec.port.ifname}")[0]


def test_hosts_say_nothing_on_their_own():
    with MrcNet(kit.TINY, kit.fabric_name("mute")) as net:
        time.sleep(1.0)
        assert {name: port.tx_packets for name, port in net.counters().items() if name.startswith("h")} == {
            f"h{host}:p{plane}": 0 for host in range(4) for plane in range(2)
        }


def test_eight_planes_carry_all_evs_between_far_hosts():
    with MrcNet(kit.EIGHT, kit.fabric_name("eight")) as net, kit.host_ports(net) as ports:
        for path in all_paths(kit.EIGHT, 0, 15):
            mark = f"ev {path.ev};".encode()
            kit.send(ports, net, 0, path.plane, path.destination, mark)
            assert [key for key, _ in kit.received(ports, mark, 0.002)] == [(15, path.plane)]


def test_the_names_are_those_of_ip_netns(net):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for node in kit.TINY.nodes:
        assert os.path.basename(net.netns_path(node)) in listed
