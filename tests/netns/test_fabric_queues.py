"""Port queues: the link's rate is kept, control goes first, the outer DSCP alone decides, limits count in bytes."""

import errno
import select
import socket
import struct
import time

import fabric_support as kit
import pytest

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import encode, verify
from mrcemu.fabric.net import MrcNet
from mrcemu.fabric.ops import QueueLimits
from mrcemu.topology.addressing import all_paths

pytestmark = pytest.mark.netns
FRAME_BYTES = 4238
CONTROL = 46 << 2


@pytest.fixture(scope="module")
def net():
    with MrcNet(kit.TINY, kit.fabric_name("que")) as built:
        yield built


@pytest.fixture(scope="module")
def ports(net):
    with kit.host_ports(net) as sockets:
        yield sockets


@pytest.fixture(autouse=True)
def _quiet_beforehand(net, ports):
    assert kit.wait_until(lambda: not any(port.data.backlog_packets for port in net.counters().values()))
    kit.received(ports, b"leftovers of the test before", 0.01, at_least=0)


@pytest.fixture
def deep(net):
    """A socket on h0's port of plane 1 whose send buffer holds more than the port's queue."""
    with kit.packet_socket(net, "h0", "p1") as sock:
        sock.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)  # SO_SNDBUFFORCE
        yield sock


def flood(net, sock, path, seconds):
    """Send full frames as fast as the port takes them, half its data queue deep."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 150_000)  # the kernel doubles it
    data = kit.frame(net, 0, path.plane, path.destination, b"flood", size=FRAME_BYTES)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([], [sock], [], left)[1]:
            try:
                sock.send(data)
            except BlockingIOError:
                time.sleep(0.0005)


def kernel_stamps(sock, mark):
    """When the kernel received each frame holding `mark`, in nanoseconds."""
    stamps = []
    while select.select([sock], [], [], 0.3)[0]:
        data, ancillary, _, _ = sock.recvmsg(65536, 64)
        if mark in data:
            seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
            stamps.append(seconds * 10**9 + nanoseconds)
    return stamps


def test_a_port_at_full_load_runs_at_its_rate(net, ports):
    path = all_paths(kit.TINY, 0, 3)[0]
    ports[3, 0].setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    before = net.counters()
    flood(net, ports[0, 0], path, 2.0)
    stamps = kernel_stamps(ports[3, 0], b"flood")
    ports[3, 0].setsockopt(socket.SOL_SOCKET, 35, 0)
    settled = stamps[10:]  # after the burst
    rate = (len(settled) - 1) * FRAME_BYTES * 8e9 / (settled[-1] - settled[0])
    assert rate == pytest.approx(kit.RATE, rel=0.01)
    after = net.counters()
    for port in ("h0:p0", "p0-t0-0:up0", "p0-t1-0:dn1", "p0-t0-1:dn1"):
        others = after[port].data.sent_packets - before[port].data.sent_packets - len(stamps)
        assert 0 <= others <= 2  # a switch port's own MLD reports, in its first seconds
        assert after[port].data.drops == before[port].data.drops


@pytest.mark.parametrize("dscp", [46, 16, 18])
@pytest.mark.parametrize("ecn", [0, 3])
def test_control_and_trimmed_packets_use_the_control_class_on_every_port(net, ports, dscp, ecn):
    path, name = all_paths(kit.TINY, 0, 3)[0], f"dscp {dscp} {ecn};".encode()
    before = net.counters()
    kit.send(ports, net, 0, path.plane, path.destination, name, traffic_class=dscp << 2 | ecn)
    kit.received(ports, name)
    after = net.counters()
    for port in ("h0:p0", "p0-t0-0:up0", "p0-t1-0:dn1", "p0-t0-1:dn1"):
        assert after[port].control.sent_packets == before[port].control.sent_packets + 1
        assert after[port].data.sent_packets == before[port].data.sent_packets


@pytest.mark.parametrize("dscp", [0, 1, 10, 17, 45, 47, 63])
def test_everything_else_is_data(net, ports, dscp):
    path, name = all_paths(kit.TINY, 0, 3)[0], f"other {dscp};".encode()
    before = net.counters()["p0-t0-0:up0"]
    kit.send(ports, net, 0, path.plane, path.destination, name, traffic_class=dscp << 2)
    kit.received(ports, name)
    after = net.counters()["p0-t0-0:up0"]
    assert after.data.sent_packets == before.data.sent_packets + 1
    assert after.control.sent_packets == before.control.sent_packets


def test_a_control_packet_overtakes_the_data_that_waits(net, ports, deep):
    path = all_paths(kit.TINY, 0, 1)[1]
    waiting = 40
    for number in range(waiting):
        deep.send(kit.frame(net, 0, 1, path.destination, f"queued {number};".encode(), size=FRAME_BYTES))
    deep.send(kit.frame(net, 0, 1, path.destination, b"queued first;", traffic_class=CONTROL))
    got = [data for _, data in kit.received(ports, b"queued", 0.2, at_least=waiting + 1)]
    assert len(got) == waiting + 1
    position = next(place for place, data in enumerate(got) if b"queued first" in data)
    assert position <= 5  # what HTB had already let go; in one queue it would be 40


def dropped_at_once(sock, data):
    """Send; whether the port's queue dropped the frame, which a packet socket hears as ENOBUFS."""
    try:
        sock.send(data)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
        return True
    return False


def test_a_full_data_queue_drops_the_excess_and_counts_it(net, ports, deep):
    limits = net.plan.limits_of(net.plan.ports["h0:p1"])
    path = all_paths(kit.TINY, 0, 3)[2]
    holds, tried, refused = limits.data_limit_bytes // FRAME_BYTES, 200, 0
    before = net.counters()["h0:p1"].data
    data = kit.frame(net, 0, 1, path.destination, b"excess", size=FRAME_BYTES)
    for _ in range(tried):
        refused += dropped_at_once(deep, data)
    queued = net.counters()["h0:p1"].data
    assert holds - 4 <= queued.backlog_packets <= holds
    assert queued.backlog_bytes <= limits.data_limit_bytes
    assert queued.drops - before.drops == refused > 0
    arrived = kit.received(ports, b"excess", 0.3, at_least=tried - refused)
    assert len(arrived) == tried - refused


def test_a_queue_other_than_planned_is_noticed(net, monkeypatch):
    spec = net.plan.ports["h0:p0"]
    right = net.plan.limits_of(spec)
    wrong = QueueLimits(right.rate_bps * 2, right.burst_bytes, right.control_limit_bytes, right.data_limit_bytes)
    verify.verify(net.plan, net.nodes_io)
    with pytest.raises(UnfitEnvironmentError, match="HTB class"):
        verify._verify_rates(net.nodes_io, spec, wrong)


def test_a_sid_without_its_flavour_is_noticed(net, monkeypatch):
    switch = "p0-t1-0"
    monkeypatch.setattr(encode, "next_csid_flavour", lambda: b"")  # what an old kernel makes of it
    route = net.plan.sid_route(switch)
    net.nodes_io.run(switch, [net.plan.sid_removal(switch), route])
    monkeypatch.undo()
    with pytest.raises(UnfitEnvironmentError, match="NEXT-CSID"):
        verify.verify(net.plan, net.nodes_io)
    net.nodes_io.run(switch, [net.plan.sid_removal(switch), route])
    verify.verify(net.plan, net.nodes_io)
