"""The responder's window changes while packets fly: nothing allowed before is refused, and the requester follows."""

from dataclasses import replace

import pytest

from mrcemu.errors import QpError
from mrcemu.protocol.config import for_topology
from mrcemu.protocol.events import WriteCompleted
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.protocol.window import Arrival, ReceiveWindow
from mrcemu.sim.pair import VirtualPair
from mrcemu.topology.model import Topology
from mrcemu.workload.pattern import PatternSource

EIGHT = Topology("eight", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)


def test_a_shrunk_window_still_takes_what_it_once_allowed():
    window = ReceiveWindow(0, 512)
    window.resize(128)
    assert window.classify(511) is Arrival.NEW
    assert window.classify(512) is Arrival.BEYOND


def test_a_shrunk_window_binds_once_the_old_edge_is_passed():
    window = ReceiveWindow(0, 256)
    window.resize(128)
    for psn in range(200):
        window.mark(psn)
    assert window.classify(200 + 127) is Arrival.NEW
    assert window.classify(200 + 128) is Arrival.BEYOND


def test_a_grown_window_takes_more_at_once():
    window = ReceiveWindow(0, 128)
    window.resize(256)
    assert window.classify(255) is Arrival.NEW
    assert window.classify(256) is Arrival.BEYOND


def pair_with(dynamic):
    config = replace(for_topology(EIGHT), dynamic_mpr=dynamic, mpr_units=8, window_bdp=20.0)
    pair = VirtualPair(EIGHT, 0, 12, 1, config)
    ((requester, responder),) = pair.connect()
    memory = bytearray(8 << 20)
    pair.sides[1].nic.regions.register(MemoryRegion(1, 0, memoryview(memory)))
    pair.sides[0].nic.post_write(3, 0, PatternSource(3, 0), 8 << 20, 0, 1, 0)
    return pair, requester, responder, memory


def test_the_requester_keeps_to_the_window_that_sacks_carry():
    pair, requester, responder, memory = pair_with(dynamic=True)
    pair.run_for(60_000_000)
    responder.responder.resize_window(1)
    pair.run_for(4 * pair.config.base_rtt_ns)  # the old window drains
    widest = 0
    for _ in range(40):
        pair.run_for(pair.config.base_rtt_ns // 4)
        widest = max(widest, requester.requester.inflight_packets)
    assert 0 < widest <= 128
    pair.run_for(3_000_000_000)
    assert any(isinstance(event, WriteCompleted) for event in pair.sides[0].events)
    assert responder.responder.counters.beyond_window == 0
    assert bytes(memory[: 1 << 16]) == bytes(PatternSource(3, 0).read(0, 1 << 16))


def test_a_window_cannot_be_resized_without_agreement_or_beyond_the_field():
    _, _, responder, _ = pair_with(dynamic=False)
    with pytest.raises(QpError, match="agree"):
        responder.responder.resize_window(4)
    _, _, responder, _ = pair_with(dynamic=True)
    for units in (0, 256):
        with pytest.raises(QpError, match=r"1 \.\. 255"):
            responder.responder.resize_window(units)
