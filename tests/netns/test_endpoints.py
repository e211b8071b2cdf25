"""Endpoints on real sockets: bytes, loss, carrier, delay, processes. One standing eight-plane fabric for the module."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from statistics import median

import pytest
from fabric_support import EIGHT, fabric_name

from mrcemu.endpoint.group import EndpointError, EndpointGroup, spread
from mrcemu.fabric.net import MrcNet
from mrcemu.keeper.places import host_place
from mrcemu.topology import timing

pytestmark = pytest.mark.netns
QPN = 16
SIZE = 256 << 10
DEPTH = 8
REPORTED_WITHIN_NS = 5_000_000


@pytest.fixture(scope="module")
def net():
    with MrcNet(EIGHT, fabric_name("ends")) as built:
        yield built


def with_endpoints(net, hosts, work, config=None):
    """Run `work(group)` with endpoints on some hosts; they are gone afterwards."""

    async def run():
        group = EndpointGroup(net.topology, 1, time.monotonic_ns(), config or {})
        try:
            await group.start([host_place(net, host) for host in hosts])
            return await work(group)
        finally:
            await group.stop()

    return asyncio.run(run())


async def transfer(group, src, dst, *, count, size=SIZE, depth=DEPTH, limit_s=30):
    """`count` messages from src to dst; both sides' reports."""
    shape = {"workload": "w", "qpns": [QPN], "size": size, "depth": depth, "rkey": 1}
    await group.connect(src, dst, QPN)
    await group.ask(dst, "receive", **shape)
    await group.ask(src, "send", **shape, stop_ns=1 << 62, count=count)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        if (await group.ask(src, "progress"))[str(src)]["senders"]["w"]["done"]:
            break
    return [await group.ask(host, "workload_report", workload="w", qpns=[QPN]) for host in (src, dst)]


@pytest.mark.parametrize(("src", "dst"), [(0, 12), (0, 1)])
def test_every_byte_arrives_cross_t1_and_t0_local(net, src, dst):
    sent, got = with_endpoints(net, [src, dst], lambda group: transfer(group, src, dst, count=20))
    assert sent["completed"] == 20
    assert got["bytes"] == 20 * SIZE
    assert got["corrupted_bytes"] == 0
    assert sent["qp_errors"] == got["qp_errors"] == 0


def test_two_percent_random_loss_before_the_receivers_sockets_corrupts_nothing(net):
    async def work(group):
        await group.ask(12, "receiver_loss", share=0.02)
        reports = await transfer(group, 0, 12, count=40)
        await group.ask(12, "receiver_loss", share=0)
        return reports

    sent, got = with_endpoints(net, [0, 12], work)
    assert sent["completed"] == 40
    assert got["bytes"] == 40 * SIZE
    assert got["corrupted_bytes"] == 0
    assert sent["lost"] > 20  # about 51 of 2,560 packets; the chance of 20 or fewer is below one in a million
    assert sent["retransmitted"] > 20
    assert sent["qp_errors"] == 0


def test_a_message_larger_than_all_windows_arrives(net):
    sent, got = with_endpoints(net, [0, 12], lambda g: transfer(g, 0, 12, count=1, size=24 << 20, depth=1))
    assert (sent["completed"], got["bytes"], got["corrupted_bytes"]) == (1, 24 << 20, 0)


def test_base_rtt_is_the_computed_one(net):
    async def work(group):
        await transfer(group, 0, 12, count=24, size=EIGHT.mtu_bytes, depth=1)
        return await group.ask(0, "rtt_samples", qpn=QPN)

    samples = with_endpoints(net, [0, 12], work)
    assert len(samples) >= 16
    assert abs(median(samples) / timing.base_rtt_ns(EIGHT) - 1) <= 0.05


def test_carrier_loss_reaches_the_host_within_5_ms_and_the_peer_is_told(net):
    async def work(group):
        await group.connect(0, 12, QPN)
        down, up = [], []
        for _ in range(5):
            down.append(net.faults.port_down(0, 5) - group.epoch_ns)
            await asyncio.sleep(0.1)
            up.append(net.faults.port_up(0, 5) - group.epoch_ns)
            await asyncio.sleep(0.1)
        return down, up, await group.ask_all("collect")

    down, up, collected = with_endpoints(net, [0, 12], work)
    events = {int(host): report["recorder"]["events"] for part in collected for host, report in part["hosts"].items()}
    seen_down = [e["now_ns"] for e in events[0] if e["kind"] == "PortChanged" and not e["up"]]
    seen_up = [e["now_ns"] for e in events[0] if e["kind"] == "PortChanged" and e["up"]]
    assert len(seen_down) == len(seen_up) == 5
    assert median(seen - done for seen, done in zip(seen_down, down, strict=True)) <= REPORTED_WITHIN_NS
    assert median(seen - done for seen, done in zip(seen_up, up, strict=True)) <= REPORTED_WITHIN_NS
    told = [e["mask"] for e in events[12] if e["kind"] == "PeerPortsChanged"]
    assert told == [0xFF & ~(1 << 5), 0xFF] * 5


def test_sixteen_hosts_share_as_many_processes_as_cores(net):
    async def work(group):
        return group.hosts, len(group.pids), len(await group.ask_all("progress"))

    hosts, processes, answers = with_endpoints(net, range(16), work)
    assert hosts == list(range(16))
    assert processes == answers == os.cpu_count()
    assert [len(part) for part in spread(list(range(3)), 8)] == [1, 1, 1]


def test_a_refused_request_names_its_reason_and_the_worker_lives_on(net):
    async def work(group):
        with pytest.raises(EndpointError, match="reserved"):
            await group.ask(0, "create_qp", peer=12, qpn=2)
        with pytest.raises(EndpointError, match="unknown verb"):
            await group.ask(0, "dance")
        with pytest.raises(EndpointError, match="no endpoint"):
            await group.ask(3, "progress")
        return await transfer(group, 0, 12, count=2)

    sent, got = with_endpoints(net, [0, 12], work)
    assert (sent["completed"], got["corrupted_bytes"]) == (2, 0)


def test_workers_end_when_their_parent_is_killed(net):
    script = (
        "import asyncio, sys, time\n"
        "from mrcemu.endpoint.group import _WorkerProcess\n"
        "async def main():\n"
        "    workers = [_WorkerProcess() for _ in range(2)]\n"
        "    print(*(w.process.pid for w in workers), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
