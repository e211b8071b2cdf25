"""Things break under a running transfer: what notices, how long it takes, what it costs, what comes back."""

from __future__ import annotations

from collections import Counter

import pytest
from sim_support import EIGHT, MS, TINY, Transfer, data_only, mark_rule, one_way, trim_rule

from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import (
    LossWasSpurious,
    MessageArrived,
    NackReceived,
    PeerPortsChanged,
    PortChanged,
    QpFailed,
    TimerExpired,
    WriteCompleted,
)
from mrcemu.rng import Rng
from mrcemu.sim.pair import Crossing, Verdict, kill_ev, kill_plane, random_loss
from mrcemu.wire.opcodes import Opcode

LINK = "p2-t0-0:p2-t1-1"  # forward; the way back crosses it as "p2-t1-1:p2-t0-0"
LINK_EV = 0x12  # plane 2, uplink 1


def cut_link(transfer: Transfer) -> None:
    a, b = LINK.split(":")
    transfer.pair.dead_nodes |= {f"{a}:{b}", f"{b}:{a}"}


def warm(transfer: Transfer, messages: int = 8, rtts: int = 4) -> int:
    """Start a transfer and let it reach its rate; the time."""
    transfer.write(messages)
    transfer.run(rtts * transfer.base_rtt_ns)
    return transfer.now_ns


# -- one dead link --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_dead_link_retires_its_path_within_three_base_rtts_of_its_first_loss(seed: int) -> None:
    transfer = Transfer(seed=seed, active_share=1.0)
    cut_ns = warm(transfer)
    cut_link(transfer)
    transfer.run(8 * transfer.base_rtt_ns)
    retired = [event for event in transfer.ev_changes if event.new == "ASSUMED_BAD"]
    assert [event.ev for event in retired] == [LINK_EV]
    first_lost = min(frame.now_ns for frame in transfer.data_sent(cut_ns + 1) if frame.ev == LINK_EV)
    assert first_lost == min(event.sent_ns for event in transfer.losses)
    assert retired[0].now_ns - first_lost <= 3 * transfer.base_rtt_ns
    assert {event.ev for event in transfer.losses} == {LINK_EV}


def test_a_dead_link_costs_no_throughput_and_its_plane_keeps_its_share() -> None:
    transfer = Transfer(active_share=1.0, depth=10)
    cut_ns = warm(transfer, messages=10)
    cut_link(transfer)
    transfer.run(6 * transfer.base_rtt_ns)
    settled = transfer.now_ns
    transfer.run(6 * transfer.base_rtt_ns)
    assert transfer.rate_share(cut_ns, transfer.now_ns) >= 0.95
    assert transfer.rate_share(settled, transfer.now_ns) >= 0.98
    shares = Counter(frame.plane for frame in transfer.data_sent(settled))
    assert max(shares.values()) - min(shares.values()) <= 4
    assert all(frame.ev != LINK_EV for frame in transfer.data_sent(settled))
    transfer.run_to_end().assert_delivered()


def test_nothing_was_lost_for_good_on_a_dead_link() -> None:
    transfer = Transfer(size=1 << 18, depth=6)
    cut_link(transfer)
    transfer.write(6).run_to_end().assert_delivered()


def test_a_path_that_heals_returns_after_three_probes_and_carries_data_again() -> None:
    transfer = Transfer(active_share=1.0, depth=60, size=1 << 19)
    warm(transfer, messages=4, rtts=2)
    cut_link(transfer)
    transfer.run(10 * transfer.rto_ns)
    healed_ns = transfer.now_ns
    assert transfer.requester.spray.entries[LINK_EV].state is EvState.ASSUMED_BAD
    transfer.pair.dead_nodes.clear()
    transfer.run(6 * transfer.rto_ns)
    back = transfer.ev_changes[-1]
    assert (back.ev, back.old, back.new, back.signal) == (LINK_EV, "ASSUMED_BAD", "GOOD", "probe")
    # The third reply leaves at least two spacings, at most three, after the link healed, and one round trip.
    assert 1.5 * transfer.rto_ns <= back.now_ns - healed_ns <= 3.75 * transfer.rto_ns + 2 * transfer.base_rtt_ns
    resumed_ns = transfer.now_ns
    transfer.write(4).run_to_end().assert_delivered()
    assert any(frame.ev == LINK_EV for frame in transfer.data_sent(resumed_ns))


# -- one dead plane, silently ---------------------------------------------------------------------------------------


def test_a_silently_dead_plane_leaves_the_others_at_their_rate() -> None:
    transfer = Transfer(depth=12, ev_min_active=1)
    cut_ns = warm(transfer, messages=12)
    transfer.rule(kill_plane(5))
    transfer.run(10 * transfer.base_rtt_ns)
    settled = transfer.now_ns
    transfer.run(8 * transfer.base_rtt_ns)
    assert 0.97 * 7 / 8 <= transfer.rate_share(settled, transfer.now_ns) <= 1.01 * 7 / 8
    assert {event.plane for event in transfer.ev_changes if event.new == "ASSUMED_BAD"} == {5}
    assert Counter(frame.plane for frame in transfer.data_sent(settled))[5] == 0
    assert all(event.now_ns - cut_ns <= 10 * transfer.base_rtt_ns for event in transfer.ev_changes)
    transfer.run_to_end().assert_delivered()


# -- ports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1], ids=["requester's port", "responder's port"])
def test_a_port_down_moves_everything_to_the_other_planes_and_back(side: int) -> None:
    transfer = Transfer(depth=13)
    down_ns = warm(transfer, messages=13)
    transfer.pair.set_port(side, 3, up=False)
    transfer.run(4 * transfer.base_rtt_ns)
    settled = transfer.now_ns
    transfer.run(6 * transfer.base_rtt_ns)
    assert 0.97 * 7 / 8 <= transfer.rate_share(settled, transfer.now_ns) <= 1.01 * 7 / 8
    assert 3 not in transfer.planes_used(settled, source=0) | transfer.planes_used(settled, source=1)
    up_ns = transfer.now_ns
    transfer.pair.set_port(side, 3, up=True)
    transfer.run(4 * transfer.base_rtt_ns)
    settled = transfer.now_ns
    transfer.run(6 * transfer.base_rtt_ns)
    assert transfer.rate_share(settled, transfer.now_ns) >= 0.98
    transfer.run_to_end().assert_delivered()
    assert [(e.now_ns, e.port, e.up) for e in transfer.of(PortChanged, side)] == [(down_ns, 3, False), (up_ns, 3, True)]
    told = transfer.of(PeerPortsChanged, 1 - side)
    assert [event.mask for event in told] == [0xF7, 0xFF]


@pytest.mark.parametrize("side", [0, 1], ids=["requester's port", "responder's port"])
def test_ports_are_remapped_at_once_locally_and_one_trip_later_at_the_peer(side: int) -> None:
    transfer = Transfer(depth=16)
    down_ns = warm(transfer)
    transfer.pair.set_port(side, 3, up=False)
    transfer.run(8 * transfer.base_rtt_ns)
    late_local = [f for f in transfer.sent if f.plane == 3 and f.source == side and f.now_ns > down_ns]
    late_peer = [f.now_ns - down_ns for f in transfer.sent if f.plane == 3 and f.source != side]
    assert late_local == []
    assert max(late_peer) <= transfer.base_rtt_ns
    (told,) = transfer.of(PeerPortsChanged, 1 - side)
    assert told.now_ns - down_ns <= transfer.base_rtt_ns


def test_a_port_whose_loss_of_carrier_shows_late_is_bridged_by_loss_detection_and_its_paths_are_exonerated() -> None:
    transfer = Transfer(depth=16, active_share=1.0, ev_min_active=1)
    warm(transfer)
    transfer.pair.set_port(0, 3, up=False, notice_ns=transfer.rto_ns // 2)
    transfer.run(transfer.rto_ns // 2 - MS)
    assert {event.plane for event in transfer.ev_changes} == {3}
    transfer.run(2 * MS)
    assert {entry.state for entry in transfer.requester.spray.entries.values()} == {EvState.GOOD}
    assert {event.signal for event in transfer.ev_changes if event.new == "GOOD"} == {"port"}
    transfer.run_to_end().assert_delivered()


def test_a_port_down_at_rest_is_told_and_costs_nothing() -> None:
    transfer = Transfer()
    transfer.pair.set_port(1, 6, up=False)
    transfer.run(transfer.base_rtt_ns)
    frames = [frame for frame in transfer.sent if frame.opcode == Opcode.ENDPOINT_REQUEST]
    assert [frame.plane for frame in frames] == [0, 1, 2, 3, 4, 5, 7]
    transfer.write().run_to_end().assert_delivered()
    assert transfer.losses == []
    assert 6 not in {frame.plane for frame in transfer.data_sent()}


def test_both_ends_losing_different_ports_meet_on_the_rest() -> None:
    transfer = Transfer(depth=16)
    warm(transfer)
    transfer.pair.set_port(0, 0, up=False)
    transfer.pair.set_port(1, 7, up=False)
    transfer.run(3 * transfer.base_rtt_ns)
    settled = transfer.now_ns
    transfer.run(4 * transfer.base_rtt_ns)
    assert transfer.planes_used(settled, source=0) == {1, 2, 3, 4, 5, 6}
    assert 0.97 * 6 / 8 <= transfer.rate_share(settled, transfer.now_ns) <= 1.01 * 6 / 8
    transfer.run_to_end().assert_delivered()


def test_a_flapping_port_loses_nothing() -> None:
    transfer = Transfer(depth=8)
    transfer.write(8)
    for flap in range(10):
        transfer.pair.set_port(flap % 2, 4, up=False, notice_ns=flap * MS)
        transfer.run(transfer.base_rtt_ns // 2 + flap * MS)
        transfer.pair.set_port(flap % 2, 4, up=True, notice_ns=flap * MS)
        transfer.run(transfer.base_rtt_ns // 2 + flap * MS)
    transfer.run_to_end().assert_delivered()


# -- all planes down ------------------------------------------------------------------------------------------------

BUDGET_RTOS = 3 + 2 + 4  # initial wait, two linear retries, then 2 T and 4 T


def all_ports(transfer: Transfer, up: bool, side: int = 0) -> None:
    for plane in range(transfer.topology.planes):
        transfer.pair.set_port(side, plane, up)


@pytest.mark.parametrize("side", [0, 1], ids=["requester's ports", "responder's ports"])
def test_all_planes_down_longer_than_the_budget_fails_the_requester_once_and_the_responder_never(side: int) -> None:
    transfer = Transfer(linear_retries=2, exp_retries=2)
    warm(transfer, rtts=3)
    all_ports(transfer, up=False, side=side)
    down_ns = transfer.now_ns
    transfer.run(40 * transfer.rto_ns)
    assert transfer.failures == (1, 0)
    (failure,) = transfer.of(QpFailed)
    assert failure.reason == "retry counter exceeded"
    assert (BUDGET_RTOS - 1) * transfer.rto_ns <= failure.now_ns - down_ns <= (BUDGET_RTOS + 1) * transfer.rto_ns
    all_ports(transfer, up=True, side=side)
    completed = len(transfer.of(WriteCompleted))
    transfer.run(40 * transfer.rto_ns)
    assert transfer.failures == (1, 0)
    assert len(transfer.of(WriteCompleted)) == completed


@pytest.mark.parametrize("side", [0, 1], ids=["requester's ports", "responder's ports"])
def test_all_planes_back_inside_the_budget_completes_everything_once(side: int) -> None:
    transfer = Transfer(linear_retries=2, exp_retries=2)
    warm(transfer, messages=4, rtts=3)
    all_ports(transfer, up=False, side=side)
    transfer.run((BUDGET_RTOS - 2) * transfer.rto_ns)
    all_ports(transfer, up=True, side=side)
    transfer.run_to_end().assert_delivered()
    assert transfer.of(TimerExpired)


def test_silent_death_of_all_planes_longer_than_the_budget_fails_once() -> None:
    transfer = Transfer(linear_retries=1, exp_retries=1)
    warm(transfer, rtts=3)
    transfer.rule(lambda crossing: Verdict.DROP)
    transfer.run(60 * transfer.rto_ns)
    assert transfer.failures == (1, 0)
    frames = len(transfer.sent)
    transfer.run(20 * transfer.rto_ns)
    assert len(transfer.sent) == frames  # a QP in error is silent


def test_a_qp_at_rest_never_fails_however_long_its_planes_are_down() -> None:
    transfer = Transfer(linear_retries=0, exp_retries=0, size=4096)
    transfer.write().run_to_end().assert_delivered()
    all_ports(transfer, up=False)
    transfer.run(1000 * transfer.rto_ns)
    all_ports(transfer, up=True)
    transfer.write().run_to_end().assert_delivered()


# -- random faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_two_percent_loss_both_ways_is_survived_byte_for_byte(seed: int) -> None:
    transfer = Transfer(seed=seed, size=1 << 19, depth=6)
    transfer.rule(random_loss(0.02, Rng(seed + 50)))
    transfer.write(6).run_to_end().assert_delivered()
    assert transfer.losses
    assert transfer.requester.congestion.inflight_bytes == 0
    kept = sum(len(entry.flights) for entry in transfer.requester.spray.entries.values())
    assert kept <= transfer.config.mpr_psns  # done transmissions are forgotten


def test_a_fifth_of_everything_lost_is_survived() -> None:
    transfer = Transfer(size=1 << 17, depth=4)
    transfer.rule(random_loss(0.2, Rng(9)))
    transfer.write(4).run_to_end().assert_delivered()


@pytest.mark.parametrize("copies", [2, 3])
def test_duplicated_frames_change_nothing(copies: int) -> None:
    transfer = Transfer(size=1 << 18, depth=4)

    def duplicate(crossing: Crossing) -> Verdict:
        crossing.copies = copies
        return Verdict.PASS

    transfer.rule(duplicate)
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.losses == transfer.ev_changes == []
    assert transfer.requester.requester.counters.retransmitted == 0
    transfer.run(transfer.base_rtt_ns)  # the last copies are still under way
    assert transfer.responder.responder.counters.duplicates >= 256 * (copies - 1)


def delay_rule(max_extra_ns: int, seed: int):  # type: ignore[no-untyped-def]
    rng = Rng(seed)

    def delay(crossing: Crossing) -> Verdict:
        crossing.delay_ns += rng.below(max_extra_ns)
        return Verdict.PASS

    return delay


@pytest.mark.parametrize("seed", range(3))
def test_reordering_between_paths_within_a_base_rtt_is_no_loss(seed: int) -> None:
    """Each path is slower than another by up to 0.9 base RTT and keeps its own order: neither rule may speak."""
    transfer = Transfer(seed=seed)
    rng = Rng(seed)
    extra = {entry.ev: rng.below(transfer.base_rtt_ns * 9 // 10) for entry in transfer.requester.spray.entries.values()}

    def delay(crossing: Crossing) -> Verdict:
        if crossing.source == 0:
            crossing.delay_ns += extra[crossing.ev]
        return Verdict.PASS

    transfer.rule(delay)
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.losses == transfer.ev_changes == []


def test_a_plane_slower_than_the_guard_is_presumed_lost_once_exonerated_and_then_known() -> None:
    transfer = Transfer(depth=6)
    slow_by = transfer.base_rtt_ns * 3 // 2

    def delay(crossing: Crossing) -> Verdict:
        if crossing.plane == 2 and crossing.source == 0:
            crossing.delay_ns += slow_by
        return Verdict.PASS

    transfer.rule(delay)
    transfer.write(6).run_to_end().assert_delivered()
    spurious = transfer.of(LossWasSpurious)
    assert spurious
    assert max(event.guard_ns for event in spurious) <= transfer.config.max_guard_ns
    assert {event.plane for event in transfer.ev_changes} <= {2}
    late = [event for event in transfer.losses if event.now_ns > spurious[0].now_ns + 2 * transfer.base_rtt_ns]
    assert late == []
    assert {entry.state for entry in transfer.requester.spray.entries.values()} == {EvState.GOOD}


def test_reordering_within_paths_exonerates_what_it_wrongly_retires() -> None:
    transfer = Transfer(size=1 << 19)
    transfer.rule(one_way(0, data_only(delay_rule(transfer.base_rtt_ns, 3))))
    transfer.write(4).run_to_end().assert_delivered()
    spurious = transfer.of(LossWasSpurious)
    assert spurious
    returned = [event.ev for event in transfer.ev_changes if event.signal == "spurious"]
    assert set(returned) <= {event.ev for event in spurious}
    retired = Counter(event.ev for event in transfer.ev_changes if event.new == "ASSUMED_BAD")
    assert sum(retired.values()) - len(returned) <= 2  # answers of retransmissions are not always telling


# -- the way back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_reverse_path_costs_answers_only(seed: int) -> None:
    transfer = Transfer(seed=seed, depth=8)
    start = warm(transfer, messages=8)
    reverse = transfer.responder.reverse.current(4)
    assert reverse is not None
    transfer.rule(one_way(1, kill_ev(reverse.ev)))
    transfer.run(8 * transfer.base_rtt_ns)
    assert transfer.pair.drops >= 1  # the path may be exchanged soon
    assert transfer.losses == transfer.ev_changes == []
    assert transfer.rate_share(start, transfer.now_ns) >= 0.97
    transfer.run_to_end().assert_delivered()


def test_a_dead_reverse_ev_is_exchanged_for_one_whose_probe_is_answered() -> None:
    transfer = Transfer(depth=8)
    warm(transfer, messages=64)
    reverse = transfer.responder.reverse.current(4)
    assert reverse is not None
    transfer.rule(one_way(1, kill_ev(reverse.ev)))
    transfer.run(60 * transfer.base_rtt_ns)
    exchanged = transfer.responder.reverse.current(4)
    assert exchanged is not None
    assert exchanged.ev != reverse.ev


def test_a_dead_reverse_plane_costs_answers_only() -> None:
    transfer = Transfer(depth=8)
    start = warm(transfer, messages=8)
    transfer.rule(one_way(1, kill_plane(4)))
    transfer.run(8 * transfer.base_rtt_ns)
    assert transfer.losses == transfer.ev_changes == []
    assert transfer.rate_share(start, transfer.now_ns) >= 0.95
    transfer.run_to_end().assert_delivered()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_transport_ack_is_asked_for_again(nth: int) -> None:
    transfer = Transfer(size=4096)
    seen = 0

    def lose_first_acks(crossing: Crossing) -> Verdict:
        nonlocal seen
        if crossing.frame[102] == Opcode.ACKNOWLEDGE:
            seen += 1
            if seen <= nth:
                return Verdict.DROP
        return Verdict.PASS

    transfer.rule(lose_first_acks)
    transfer.write().run_to_end().assert_delivered()
    (done,) = transfer.of(WriteCompleted)
    assert done.now_ns - done.posted_ns >= nth * transfer.rto_ns


def test_half_of_all_answers_lost_costs_time_only() -> None:
    transfer = Transfer(size=1 << 19)
    transfer.rule(one_way(1, random_loss(0.5, Rng(4))))
    transfer.write(4).run_to_end().assert_delivered()
    assert [event for event in transfer.losses if event.signal in ("sack_gap", "guard")] == []


# -- marks and trims ------------------------------------------------------------------------------------------------


def test_a_congested_path_is_skipped_without_loss_or_event() -> None:
    transfer = Transfer(active_share=1.0, depth=4)
    transfer.rule(mark_rule(0x15))
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.losses == transfer.ev_changes == []
    sent = Counter(frame.ev for frame in transfer.data_sent())
    others = [sent[ev] for ev in (0x05, 0x25, 0x35)]
    assert 0.3 * min(others) <= sent[0x15] <= 0.75 * min(others)
    planes = Counter(frame.plane for frame in transfer.data_sent())
    assert max(planes.values()) - min(planes.values()) <= 4
    assert transfer.requester.requester.counters.marked == transfer.responder.responder.counters.marked > 0


@pytest.mark.parametrize("lasthop", [False, True])
def test_trimmed_packets_go_again_at_once_and_retire_nothing(lasthop: bool) -> None:
    transfer = Transfer(size=1 << 18, depth=4)
    transfer.rule(trim_rule(random_loss(0.2, Rng(6)), lasthop=lasthop))
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.of(NackReceived)
    assert transfer.losses == transfer.of(TimerExpired) == []
    assert [event for event in transfer.ev_changes if event.new == "ASSUMED_BAD"] == []
    first_trim, last = transfer.of(NackReceived)[0], transfer.of(WriteCompleted)[-1]
    assert last.now_ns - first_trim.now_ns < 20 * transfer.base_rtt_ns


def test_trimmed_packets_meet_loss_detection_where_the_responder_cannot_say_so() -> None:
    transfer = Transfer(size=1 << 18, depth=4, trim_nack=False)
    transfer.rule(trim_rule(random_loss(0.02, Rng(6))))
    transfer.write(4).run_to_end().assert_delivered()
    assert transfer.of(NackReceived) == []
    assert transfer.losses


# -- everything at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_loss_reordering_duplicates_trims_and_a_flapping_port_together_still_deliver(seed: int) -> None:
    transfer = Transfer(
        TINY if seed == 0 else EIGHT, seed=seed, size=100_001, depth=12, qps=2, first_psn=(1 << 24) - 50
    )
    rng = Rng(seed + 1000)
    transfer.rule(random_loss(0.02, rng.child("loss")))
    transfer.rule(trim_rule(random_loss(0.03, rng.child("trim"))))
    transfer.rule(delay_rule(transfer.base_rtt_ns, seed))

    def duplicate(crossing: Crossing) -> Verdict:
        crossing.copies = 1 + (rng.below(20) == 0)
        return Verdict.PASS

    transfer.rule(duplicate)
    transfer.write(12, imm=True)
    for flap in range(6):
        transfer.pair.set_port(flap % 2, 1, up=flap % 2 == 1 or flap > 3, notice_ns=MS)
        transfer.run(transfer.base_rtt_ns * 2)
    for side in (0, 1):
        transfer.pair.set_port(side, 1, up=True)
    transfer.run_to_end().assert_delivered()
    imms = [event.imm for event in transfer.of(MessageArrived, 1) if event.qpn == transfer.qpns[0]]
    assert imms == list(range(1000, 1012))
