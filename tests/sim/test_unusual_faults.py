"""Faults that hide: reordered answers, updates nobody hears, lossy links that flap, memory that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_support import EIGHT, TINY, Transfer, data_only, one_way, trim_rule

from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import PeerPortsChanged, QpFailed, WriteCompleted
from mrcemu.rng import Rng
from mrcemu.sim.pair import Crossing, Rule, Verdict, kill_plane, random_loss
from mrcemu.topology.addressing import plane_of_ev
from mrcemu.wire.opcodes import Opcode
from mrcemu.workload.pattern import PatternSource


def drop_opcode(opcode: int) -> Rule:
    return lambda crossing: Verdict.DROP if crossing.frame[102] == opcode else Verdict.PASS


@pytest.mark.parametrize("seed", range(4))
def test_answers_reordered_on_the_way_back_are_no_loss(seed: int) -> None:
    """An old SACK that comes late reports as missing what has arrived since."""
    transfer = Transfer(seed=seed)
    rng = Rng(seed)

    def delay(crossing: Crossing) -> Verdict:
        crossing.delay_ns += rng.below(transfer.base_rtt_ns // 2)
        return Verdict.PASS

    transfer.rule(one_way(1, delay))
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.losses == transfer.ev_changes == []


def test_a_port_update_nobody_hears_costs_loss_detection_and_probes_only() -> None:
    transfer = Transfer(depth=12, ev_min_active=1)
    transfer.rule(drop_opcode(Opcode.ENDPOINT_REQUEST))
    transfer.write(6)
    transfer.run(3 * transfer.base_rtt_ns)
    transfer.pair.set_port(1, 3, up=False)
    transfer.run_to_end()
    assert {event.plane for event in transfer.ev_changes if event.new == "ASSUMED_BAD"} == {3}
    transfer.pair.set_port(1, 3, up=True)
    transfer.run(8 * transfer.rto_ns)
    assert {entry.state for entry in transfer.requester.spray.entries.values()} == {EvState.GOOD}
    back_ns = transfer.now_ns
    transfer.write(6).run_to_end().assert_delivered()
    assert 3 in {frame.plane for frame in transfer.data_sent(back_ns)}
    assert transfer.of(PeerPortsChanged) == []


def test_a_lossy_link_is_tried_less_and_less_often() -> None:
    """A tenth of one path's packets are lost: it returns by probes, fails again, and is held down ever longer."""
    transfer = Transfer(TINY, size=1 << 17, depth=400, active_share=1.0, ev_min_active=1)
    rng = Rng(3)
    transfer.rule(lambda c: Verdict.DROP if c.ev == 0x11 and rng.below(10) == 0 else Verdict.PASS)
    transfer.write(200)
    transfer.run(27 * transfer.rto_ns)
    retired = [event.now_ns for event in transfer.ev_changes if event.new == "ASSUMED_BAD"]
    assert {event.ev for event in transfer.ev_changes} == {0x11}
    returned = [event.now_ns for event in transfer.ev_changes if event.new == "GOOD"]
    assert len(returned) >= 4
    for hold_rtos, out_ns, back_ns in zip((0, 1, 2, 4, 8), retired, returned, strict=False):
        assert back_ns - out_ns >= (hold_rtos + 3 * 0.75) * transfer.rto_ns
    assert len(transfer.losses) <= 4 * len(retired)
    assert transfer.rate_share(0, transfer.now_ns) >= 0.97


def test_writing_to_memory_that_is_not_there_fails_both_ends_once_and_says_why() -> None:
    transfer = Transfer(size=100_000, depth=4)
    transfer.write(1).run_to_end()
    requester = transfer.pair.sides[0].nic
    requester.post_write(3, 1, PatternSource(3, 1), 100_000, 1 << 50, 1, transfer.now_ns)
    requester.post_write(3, 2, PatternSource(3, 2), 100_000, 0, 1, transfer.now_ns)
    transfer.run(3 * transfer.base_rtt_ns)
    assert transfer.failures == (1, 1)
    assert "0x62" in transfer.of(QpFailed, 0)[0].reason
    assert "memory" in transfer.of(QpFailed, 1)[0].reason
    assert [event.msn for event in transfer.of(WriteCompleted)] == [0]
    frames = len(transfer.sent)
    transfer.run(100 * transfer.rto_ns)
    assert len(transfer.sent) == frames


def test_one_failed_qp_leaves_the_others_of_its_nic_alone() -> None:
    transfer = Transfer(size=1 << 17, qps=4)
    transfer.pair.sides[0].nic.post_write(3, 0, PatternSource(3, 0), 4096, 1 << 50, 1, 0)
    for qpn in transfer.qpns[1:]:
        transfer.pair.sides[0].nic.post_write(qpn, 0, PatternSource(qpn, 0), 1 << 17, qpn << 17, 1, 0)
    transfer.run(10 * transfer.base_rtt_ns)
    assert [event.qpn for event in transfer.of(QpFailed, 0)] == [3]
    assert {event.qpn for event in transfer.of(WriteCompleted)} == {4, 5, 6}


@pytest.mark.parametrize("mpr_units", [1, 2])
def test_the_smallest_window_with_loss_and_trims_still_delivers(mpr_units: int) -> None:
    transfer = Transfer(size=1 << 17, depth=6, mpr_units=mpr_units, sack_threshold_bytes=32768)
    transfer.rule(random_loss(0.03, Rng(8)))
    transfer.rule(trim_rule(random_loss(0.05, Rng(9))))
    transfer.write(6).run_to_end().assert_delivered()


def test_a_responder_with_a_smaller_window_than_the_requester_refuses_and_all_arrives() -> None:
    """The ends disagree on MPR: packets beyond the window meet NACKs, wait a round trip, and arrive."""
    transfer = Transfer(size=1 << 19, depth=4, exp_retries=25, mpr_units=8)
    for _, qp in transfer.pairs:
        qp.responder.window._mpr_psns = 32  # the spread of a clean transfer is larger
    transfer.rule(one_way(0, data_only(random_loss(0.01, Rng(2)))))
    transfer.write(2).run_to_end().assert_delivered()
    assert transfer.responder.responder.counters.beyond_window > 0


def test_two_hundred_and_fifty_six_paths_are_sprayed() -> None:
    wide = replace(EIGHT, name="wide", t1_per_plane=32)
    transfer = Transfer(wide, active_share=1.0)
    transfer.rule(random_loss(0.005, Rng(1)))
    transfer.write(4).run_to_end().assert_delivered()
    assert len({frame.ev for frame in transfer.data_sent()}) == 256


def test_an_outage_far_longer_than_the_timer_is_survived_with_endless_retries() -> None:
    transfer = Transfer(size=1 << 17, exp_retries=25, linear_retries=0)
    transfer.write(2)
    transfer.run(transfer.base_rtt_ns)
    for plane in range(8):
        transfer.pair.set_port(1, plane, up=False)
    transfer.run(100 * transfer.rto_ns)
    for plane in range(8):
        transfer.pair.set_port(1, plane, up=True)
    back_ns = transfer.now_ns
    transfer.run_to_end().assert_delivered()
    assert transfer.now_ns - back_ns <= 3 * transfer.rto_ns


@pytest.mark.parametrize("live", [0, 1, 5])
def test_seven_silently_dead_planes_leave_the_eighth_carrying(live: int) -> None:
    transfer = Transfer(size=1 << 18, depth=4, ev_min_active=1)
    for plane in range(8):
        if plane != live:
            transfer.rule(kill_plane(plane))
    transfer.write(4).run_to_end().assert_delivered()
    settled = transfer.now_ns
    transfer.posted[3] = 4
    transfer.write(4).run_to_end().assert_delivered()
    assert {plane_of_ev(frame.ev) for frame in transfer.data_sent(settled)} <= {live}


@pytest.mark.parametrize("dead", [0, 1])
def test_one_dead_reverse_plane_of_two_costs_answers_only(dead: int) -> None:
    """Answers must not march in step with the planes, or the same kind of answer dies every time."""
    transfer = Transfer(TINY, size=1 << 17, depth=4)
    transfer.rule(one_way(1, kill_plane(dead)))
    transfer.write(4).run_to_end(20 * transfer.rto_ns).assert_delivered()
    assert {event.signal for event in transfer.losses} <= {"timer"}


@pytest.mark.parametrize("dead", [0, 1])
def test_one_silently_dead_plane_of_two_is_survived_with_the_defaults(dead: int) -> None:
    transfer = Transfer(TINY, size=1 << 17, depth=4)
    transfer.rule(kill_plane(dead))
    transfer.write(4).run_to_end(20 * transfer.rto_ns).assert_delivered()


def test_probes_go_on_while_paths_are_bad_and_stop_when_they_are_back() -> None:
    transfer = Transfer(active_share=1.0, ev_min_active=1, size=1 << 19)
    transfer.pair.dead_nodes.add("p6-t1-0")
    transfer.write(2).run_to_end().assert_delivered()
    done_ns = transfer.now_ns
    transfer.run(20 * transfer.rto_ns)
    probes = [f for f in transfer.sent if f.opcode == Opcode.PROBE_REQUEST and f.now_ns > done_ns]
    assert {frame.ev for frame in probes} == {0x06}
    assert 14 <= len(probes) <= 28
    transfer.pair.dead_nodes.clear()
    transfer.run(6 * transfer.rto_ns)
    frames = len(transfer.sent)
    transfer.run(20 * transfer.rto_ns)
    assert len(transfer.sent) == frames
