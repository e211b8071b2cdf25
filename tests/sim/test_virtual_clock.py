"""The virtual clock and the wire of the virtual pair: order, time and faults are what they say."""

from __future__ import annotations

import pytest
from sim_support import EIGHT, Sent, Transfer

from mrcemu.protocol.events import WriteCompleted
from mrcemu.sim.clock import VirtualClock
from mrcemu.sim.pair import Crossing, Verdict, VirtualPair
from mrcemu.topology import timing


def test_actions_run_in_time_order_and_equal_times_in_the_order_asked() -> None:
    clock, seen = VirtualClock(), []
    for name, due in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("late", 41)):
        clock.at(due, lambda name=name: seen.append((name, clock.now_ns)))
    clock.run_until(40)
    assert seen == [("a", 10), ("b1", 20), ("b2", 20), ("c", 30)]
    assert (clock.now_ns, clock.next_due_ns) == (40, 41)


def test_an_action_for_the_past_runs_now_and_actions_may_ask_for_more() -> None:
    clock, seen = VirtualClock(), []
    clock.run_until(100)
    clock.at(5, lambda: clock.at(50, lambda: seen.append(clock.now_ns)))
    clock.run_until(100)
    assert seen == [100]


def test_a_port_sends_no_faster_than_its_rate() -> None:
    transfer = Transfer().write(2)
    transfer.run(20 * transfer.base_rtt_ns)
    frame_ns = EIGHT.data_frame_bytes * 8 * timing.NS // EIGHT.nic_rate_bps
    for plane in range(8):
        times = [frame.now_ns for frame in transfer.data_sent() if frame.plane == plane]
        assert times[0] == times[2] == 0 < times[3]
        for first, start_ns in enumerate(times):
            for last in range(first, len(times)):
                # What a queue of three and a bit held at the start, and one more for each frame time.
                assert last - first + 1 <= 4 + (times[last] - start_ns) / frame_ns


def test_a_frame_takes_the_unloaded_delay_of_its_path() -> None:
    transfer = Transfer(size=4096).write().run_to_end()
    (placed,) = transfer.placed
    assert placed[0] == timing.one_way_delay_ns(EIGHT, 4, EIGHT.data_frame_bytes)


def test_a_pulled_cable_passes_nothing_either_way_and_the_nic_hears_of_it_when_told() -> None:
    transfer = Transfer(size=4096)
    for plane in range(8):
        transfer.pair.set_port(1, plane, up=False, notice_ns=10**12)
    transfer.write().run(transfer.base_rtt_ns * 4)
    assert transfer.placed == []
    assert transfer.pair.drops == len(transfer.sent) > 0
    assert transfer.of(WriteCompleted) == []


@pytest.mark.parametrize(
    ("dead", "evs"),
    [
        ({"p3-t1-2"}, {0x23}),
        ({"p3-t0-0"}, {0x03, 0x13, 0x23, 0x33}),
        ({"p3-t0-0:p3-t1-1"}, {0x13}),
        ({"p3-t1-1:p3-t0-3"}, {0x13}),
        ({"h0:p3-t0-0"}, {0x03, 0x13, 0x23, 0x33}),
        ({"p3-t1-1:p3-t0-2"}, set()),
    ],
)
def test_dead_nodes_and_links_stop_exactly_the_paths_that_cross_them(dead: set[str], evs: set[int]) -> None:
    transfer = Transfer(active_share=1.0)
    transfer.pair.dead_nodes |= dead
    passed: set[int] = set()

    def note(crossing: Crossing) -> Verdict:
        if crossing.source == 0:
            passed.add(crossing.ev)
        return Verdict.PASS

    transfer.rule(note)
    transfer.write().run(transfer.base_rtt_ns)
    tried = {frame.ev for frame in transfer.data_sent()}
    assert len(tried) == 32
    assert tried - passed == evs


def test_taps_see_frames_that_are_dropped_and_rules_decide() -> None:
    pair = VirtualPair(EIGHT, 0, 15, 1)
    seen: list[Sent] = []
    pair.taps.append(lambda c: seen.append(Sent(c.now_ns, c.source, c.plane, c.ev, c.frame[102])))
    pair.rules.append(lambda crossing: Verdict.DROP)
    pair.connect()
    pair.set_port(0, 1, up=False)
    pair.run_for(1000)
    assert len(seen) == pair.drops == 7
