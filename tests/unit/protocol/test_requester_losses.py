"""When a transmission counts as lost, and what that costs: rules (a), (b), (c), each alone (sources 2.6 to 2.8)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from transport_kit import DSCP, MTU, TINY, Bench, Data

from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import EvChanged, LossWasSpurious, PacketLost, QpFailed, Retransmitted, TimerExpired


def one_ev_a_plane(**overrides: object) -> Bench:
    """Two planes with one EV in service and one backup each: the EV of the next packet is known."""
    return Bench(TINY, active_share=0.01, ev_min_active=1, **overrides)


def send(bench: Bench, packets: int) -> list[Data]:
    bench.post(packets * MTU)
    return bench.sent_data()


def send_one_on(bench: Bench, plane: int) -> Data:
    bench.post(1)
    (packet,) = bench.sent_data(room=1 << plane)
    return packet


def lost(bench: Bench) -> list[tuple[int, str]]:
    return [(event.psn, event.signal) for event in bench.of(PacketLost)]


# -- (a) same EV ----------------------------------------------------------------------------------------------------


def test_a_later_packet_of_the_same_ev_acknowledged_proves_the_earlier_lost() -> None:
    bench = one_ev_a_plane()
    sent = send(bench, 8)  # all at one instant: the guard cannot speak
    on_plane_0 = [packet.psn for packet in sent if packet.plane == 0]
    bench.receive(bench.sack(-1, [on_plane_0[2]]))
    assert lost(bench) == [(psn, "sack_gap") for psn in on_plane_0[:2]]


def test_an_acknowledged_packet_says_nothing_about_other_evs_or_later_ones() -> None:
    bench = one_ev_a_plane()
    sent = send(bench, 8)
    first_on_plane_1 = next(packet.psn for packet in sent if packet.plane == 1)
    bench.receive(bench.sack(-1, [first_on_plane_1]))
    assert lost(bench) == []


def test_a_cumulative_acknowledgement_is_evidence_too() -> None:
    bench = one_ev_a_plane()
    on_plane_0 = [send_one_on(bench, 0), send_one_on(bench, 1), send_one_on(bench, 0), send_one_on(bench, 0)]
    bench.receive(bench.sack(1, [3]))
    assert lost(bench) == [(on_plane_0[2].psn, "sack_gap")]


# -- (b) guard ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_ns", "is_lost"), [(-1, False), (0, True), (10**9, True)])
def test_a_packet_sent_a_guard_later_and_acknowledged_proves_the_earlier_lost(later_ns: int, is_lost: bool) -> None:
    bench = one_ev_a_plane()
    send_one_on(bench, 0)
    bench.now_ns = bench.config.base_rtt_ns + later_ns
    send_one_on(bench, 1)  # another EV: same-EV order cannot speak
    bench.receive(bench.sack(-1, [1]))
    assert lost(bench) == ([(0, "guard")] if is_lost else [])


def test_the_guard_judges_by_send_times_not_by_arrival() -> None:
    bench = one_ev_a_plane()
    send_one_on(bench, 0)
    send_one_on(bench, 1)
    bench.now_ns = 100 * bench.config.base_rtt_ns
    bench.receive(bench.sack(-1, [1]))
    assert lost(bench) == []


# -- both need the report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap_ns", [0, 10**9])
def test_what_a_report_does_not_cover_is_never_lost(gap_ns: int) -> None:
    """The report starts above the missing packet: its arrival may have been told by a SACK that was lost."""
    bench = one_ev_a_plane()
    send_one_on(bench, 0)
    bench.now_ns += gap_ns
    send_one_on(bench, 0)
    send_one_on(bench, 0)
    bench.receive(bench.sack(-1, offset=2, bitmap=0b1))
    assert lost(bench) == []


def test_what_lies_above_the_report_is_never_lost() -> None:
    bench = one_ev_a_plane(window_bdp=100)
    sent = send(bench, 200)
    bench.receive(bench.sack(-1, range(64)))
    bench.receive(bench.sack(63, offset=1 + 70, bitmap=(1 << 64) - 1))
    on_both = {packet.psn for packet in sent if 64 <= packet.psn <= 133}
    assert not on_both & {psn for psn, _ in lost(bench)}


def test_a_loss_that_one_report_left_out_is_found_when_a_later_one_covers_it() -> None:
    bench = one_ev_a_plane()
    send_one_on(bench, 0)
    send_one_on(bench, 0)
    bench.receive(bench.sack(-1, offset=2, bitmap=0b1))  # PSN 1 is in, nothing said about PSN 0
    bench.receive(bench.sack(-1, offset=1, bitmap=0b10))  # now PSN 0 is covered and missing
    assert lost(bench) == [(0, "sack_gap")]


# -- (c) timer ------------------------------------------------------------------------------------------------------


def test_silence_for_the_local_ack_timer_is_a_loss_and_not_a_moment_before() -> None:
    bench = one_ev_a_plane()
    bench.now_ns = 1000
    send_one_on(bench, 0)
    bench.timer(1000 + bench.config.rto_ns - 1)
    assert lost(bench) == []
    assert bench.nic.next_timer_ns() == 1000 + bench.config.rto_ns
    bench.timer(1000 + bench.config.rto_ns)
    assert lost(bench) == [(0, "timer")]
    assert [event.psn for event in bench.of(TimerExpired)] == [0]


def test_a_spurious_timer_call_changes_nothing() -> None:
    bench = one_ev_a_plane()
    send(bench, 4)
    for _ in range(20):
        bench.timer(bench.now_ns + 1)
    assert bench.events == []
    assert bench.frames() == []


# -- the path answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["sack_gap", "guard", "timer"])
def test_one_loss_retires_the_path_with_the_signal_as_its_reason(signal: str) -> None:
    bench = one_ev_a_plane()
    packet = send_one_on(bench, 0)
    if signal == "timer":
        bench.timer(bench.config.rto_ns)
    else:
        bench.now_ns = 0 if signal == "sack_gap" else bench.config.base_rtt_ns
        send_one_on(bench, 0 if signal == "sack_gap" else 1)
        bench.receive(bench.sack(-1, [1]))
    assert [(e.ev, e.old, e.new, e.signal) for e in bench.of(EvChanged)] == [(packet.ev, "GOOD", "ASSUMED_BAD", signal)]
    assert bench.qp.spray.entries[packet.ev].lost == 1


def test_several_losses_on_one_path_retire_it_once() -> None:
    bench = one_ev_a_plane()
    sent = send(bench, 12)
    on_plane_0 = [packet.psn for packet in sent if packet.plane == 0]
    bench.receive(bench.sack(-1, [on_plane_0[-1]]))
    assert len(lost(bench)) == 5
    assert len(bench.of(EvChanged)) == 1
    assert bench.qp.spray.entries[sent[0].ev].retired + bench.qp.spray.entries[sent[1].ev].retired == 1


# -- retransmissions ------------------------------------------------------------------------------------------------


def test_a_retransmission_keeps_its_numbers_and_takes_another_ev_and_class() -> None:
    bench = Bench()
    sent = send(bench, 48)
    last_of_ev = {packet.ev: packet.psn for packet in sent}
    victim = sent[0]
    bench.receive(bench.sack(-1, [last_of_ev[victim.ev]]))
    (again,) = bench.sent_data()
    assert again.psn == victim.psn
    assert (again.msn, again.va, again.dma_bytes, again.rkey, again.payload, again.opcode) == (
        victim.msn, victim.va, victim.dma_bytes, victim.rkey, victim.payload, victim.opcode,
    )  # fmt: skip
    assert again.ev != victim.ev
    assert (again.rtx, victim.rtx) == (True, False)
    assert (again.dscp, victim.dscp) == (DSCP.trimmable_retx, DSCP.trimmable)
    assert [(e.psn, e.ev, e.attempt) for e in bench.of(Retransmitted)] == [(victim.psn, again.ev, 2)]


def test_retransmissions_leave_first_and_the_oldest_first() -> None:
    bench = Bench(TINY, mpr_units=1, window_bdp=100)
    bench.post(1 << 22)
    sent = bench.sent_data()
    assert len(sent) == 128
    missing = {2, 3, 9, 20, 31}
    received = [psn for psn in range(64) if psn not in missing]
    bench.receive(bench.sack(1, [psn for psn in received if psn > 1]))
    bench.receive(bench.sack(1, [], offset=64, bitmap=(1 << 62) - 1))
    assert {psn for psn, _ in lost(bench)} == missing
    again = bench.sent_data()
    assert [packet.psn for packet in again] == [2, 3, 9, 20, 31, 128, 129]
    assert [packet.rtx for packet in again] == [True] * 5 + [False] * 2


def test_every_transmission_of_a_packet_rides_another_ev_than_the_one_before() -> None:
    bench = Bench(exp_retries=25)
    bench.post(1)
    (first,) = bench.sent_data()
    rides = [first.ev]
    for _ in range(12):
        bench.timer(bench.now_ns + bench.qp.requester.budget.interval_ns())
        rides += [packet.ev for packet in bench.sent_data()]
    assert len(rides) == 13
    assert all(a != b for a, b in pairwise(rides))


def test_a_packet_acknowledged_while_it_waits_to_go_again_does_not() -> None:
    bench = one_ev_a_plane()
    send(bench, 2)
    bench.timer(bench.config.rto_ns)
    bench.receive(bench.sack(1))
    assert bench.sent_data() == []


def test_retransmissions_obey_the_window() -> None:
    """Seven of eight ports go down: what was on them goes again only as the one plane's window allows."""
    bench = Bench(window_bdp=1.0)
    bench.post(1 << 22)
    sent = bench.sent_data()
    on_plane_0 = [packet.psn for packet in sent if packet.plane == 0]
    for plane in range(1, 8):
        bench.port(plane, up=False)
    lost_ones = sorted(packet.psn for packet in sent if packet.plane)
    assert bench.sent_data() == []  # plane 0's own packets fill its window
    bench.receive(bench.sack(-1, on_plane_0[:3]))
    assert [packet.psn for packet in bench.sent_data()] == lost_ones[:3]


def test_loss_of_a_window_returns_all_of_it() -> None:
    bench = Bench(TINY)
    bench.post(1 << 22)
    first = bench.sent_data()
    bench.timer(bench.config.rto_ns)
    assert bench.qp.congestion.inflight_bytes == 0
    again = bench.sent_data()
    assert [packet.psn for packet in again] == [packet.psn for packet in first]
    assert all(packet.rtx for packet in again)


# -- ambiguous acknowledgements and spurious losses -----------------------------------------------------------------


def test_the_acknowledgement_of_a_retransmission_is_no_evidence_against_other_packets() -> None:
    """It does not tell which transmission arrived, so a packet sent before the second one may still be on its way."""
    bench = one_ev_a_plane()
    first = send_one_on(bench, 0)
    bench.timer(bench.config.rto_ns)
    waiting = send_one_on_before_retransmission(bench, 1)
    bench.now_ns += 10 * bench.config.base_rtt_ns  # later than any guard allows
    (again,) = bench.sent_data(room=0b10)
    assert (again.psn, again.ev) == (first.psn, waiting.ev)
    bench.now_ns += bench.config.base_rtt_ns
    bench.receive(bench.sack(first.psn, rtx=True, entropy=again.ev))
    assert lost(bench) == [(first.psn, "timer")]


def send_one_on_before_retransmission(bench: Bench, plane: int) -> Data:
    """A new packet on a plane while a lost one waits: send both, then time the lost one out again elsewhere."""
    bench.post(1)
    retransmission, new = bench.sent_data(room=1 << plane)
    assert retransmission.rtx
    assert not new.rtx
    # The retransmission is refused for its payload, so it is queued once more and the new packet is alone in flight.
    bench.receive(bench.nack(0x02, retransmission.psn, retransmission.ev))
    return new


def test_an_original_arriving_after_its_loss_was_presumed_is_spurious() -> None:
    bench = one_ev_a_plane()
    base = bench.config.base_rtt_ns
    packet = send_one_on(bench, 0)
    bench.now_ns = base
    send_one_on(bench, 1)
    bench.receive(bench.sack(-1, [1]))
    entry = bench.qp.spray.entries[packet.ev]
    assert entry.state is EvState.ASSUMED_BAD
    bench.receive(bench.sack(1))  # before the retransmission left
    (event,) = bench.of(LossWasSpurious)
    assert (event.psn, event.ev, event.guard_ns) == (0, packet.ev, 2 * base)
    assert entry.state is EvState.GOOD
    assert bench.of(EvChanged)[-1].signal == "spurious"
    assert bench.sent_data() == []


@pytest.mark.parametrize(("after_share", "is_spurious"), [(0.0, True), (0.5, True), (1.0, False), (3.0, False)])
def test_an_answer_sooner_than_the_retransmission_can_have_one_is_spurious(
    after_share: float, is_spurious: bool
) -> None:
    bench = one_ev_a_plane()
    base = bench.config.base_rtt_ns
    packet = send_one_on(bench, 0)
    bench.now_ns = base
    send_one_on(bench, 1)
    bench.receive(bench.sack(-1, [1]))
    assert [again.psn for again in bench.sent_data()] == [0]
    bench.now_ns += int(after_share * base)
    bench.receive(bench.sack(1))
    assert bool(bench.of(LossWasSpurious)) is is_spurious
    state = EvState.GOOD if is_spurious else EvState.ASSUMED_BAD
    assert bench.qp.spray.entries[packet.ev].state is state


def make_one_spurious(bench: Bench, gap_ns: int) -> bool:
    """Two packets `gap_ns` apart, the later acknowledged first; whether the earlier was presumed lost meanwhile."""
    before = len(bench.of(PacketLost))
    first = send_one_on(bench, 0)
    bench.now_ns += gap_ns
    second = send_one_on(bench, 1)
    bench.receive(bench.sack(first.psn - 1, [second.psn]))
    presumed = len(bench.of(PacketLost)) > before
    bench.receive(bench.ack(second.msn + 1, second.psn))
    return presumed


def test_each_spurious_loss_doubles_the_guard_up_to_the_worst_queue_of_a_path() -> None:
    bench = one_ev_a_plane()
    base, ceiling = bench.config.base_rtt_ns, bench.config.max_guard_ns
    guards = [base]
    for _ in range(6):
        assert not make_one_spurious(bench, guards[-1] - 1)
        assert make_one_spurious(bench, guards[-1])
        guards.append(bench.of(LossWasSpurious)[-1].guard_ns)
    assert guards == [min(base << step, ceiling) for step in range(7)]
    assert guards[-1] == ceiling < base << 6


def test_an_exonerated_path_carries_data_again_when_its_plane_has_room_for_it() -> None:
    bench = Bench(TINY, active_share=1.0, ev_min_active=1)
    assert make_one_spurious(bench, bench.config.base_rtt_ns)
    assert {packet.ev for packet in send(bench, 8)} == {0x00, 0x01, 0x10, 0x11}


# -- the retry budget -----------------------------------------------------------------------------------------------


def test_a_deaf_peer_costs_the_whole_schedule_and_then_one_failure() -> None:
    bench = Bench(linear_retries=2, exp_retries=2)
    bench.post(1)
    rto = bench.config.rto_ns
    bench.run_timers(1000 * rto)
    (failure,) = bench.of(QpFailed)
    assert failure.reason == "retry counter exceeded"
    assert failure.now_ns == (1 + 2 + 2 + 4) * rto
    assert [event.attempt for event in bench.of(TimerExpired)] == [1, 2, 3, 4, 5]
    assert bench.nic.next_timer_ns() is None
    assert bench.frames() == []


def test_progress_of_the_cumulative_point_restores_the_budget() -> None:
    bench = Bench(linear_retries=2, exp_retries=0)
    bench.post(10 * MTU)
    for cack in range(9):
        for _ in range(2):
            bench.sent()
            bench.timer(bench.now_ns + bench.config.rto_ns)
        bench.receive(bench.sack(cack))
    assert bench.of(QpFailed) == []
    bench.run_timers(bench.now_ns + 10 * bench.config.rto_ns)
    assert len(bench.of(QpFailed)) == 1


def test_a_timeout_asks_the_responder_for_its_state() -> None:
    bench = Bench()
    bench.post(1)
    bench.sent()
    bench.timer(bench.config.rto_ns)
    opcodes = [item.opcode for item in bench.sent()]
    assert opcodes.count(0xDE) == 1
    assert opcodes.count(0xCA) == 1
