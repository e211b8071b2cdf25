"""Nothing is wrong: every byte arrives, at line rate, over all planes alike, and then there is silence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from sim_support import EIGHT, FIRST_QPN, TINY, Transfer

from mrcemu.protocol.events import Event, MessageArrived, WriteCompleted
from mrcemu.sim.pair import random_loss
from mrcemu.topology.model import Topology


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_001])
def test_messages_of_any_size_arrive_byte_for_byte(size: int) -> None:
    transfer = Transfer(size=size, depth=5).write(5).run_to_end()
    transfer.assert_delivered()
    assert transfer.losses == transfer.ev_changes == []


def test_a_lone_transfer_runs_at_line_rate() -> None:
    transfer = Transfer().write(12)
    transfer.run(10 * transfer.base_rtt_ns)
    start = transfer.now_ns
    transfer.run(8 * transfer.base_rtt_ns)
    assert 0.985 <= transfer.rate_share(start, transfer.now_ns) <= 1.005
    transfer.run_to_end().assert_delivered()
    assert transfer.requester.requester.counters.retransmitted == 0
    assert transfer.requester.requester.counters.spurious == 0


def test_a_message_takes_its_serialisation_and_one_round_trip() -> None:
    transfer = Transfer(size=4096).write().run_to_end()
    (done,) = transfer.of(WriteCompleted)
    assert transfer.base_rtt_ns * 0.95 <= done.now_ns - done.posted_ns <= transfer.base_rtt_ns * 1.05


def test_planes_carry_equal_shares_and_every_active_path_is_used() -> None:
    transfer = Transfer().write(4).run_to_end()
    shares = Counter(frame.plane for frame in transfer.data_sent())
    assert max(shares.values()) - min(shares.values()) <= 2
    paths = Counter(frame.ev for frame in transfer.data_sent())
    assert len(paths) == 24
    assert min(paths.values()) > 0.8 * 1024 / 24


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_after_completion_nothing_is_sent_for_ten_timers(size: int) -> None:
    transfer = Transfer(size=size).write(2).run_to_end()
    transfer.assert_delivered()
    transfer.run(2 * transfer.base_rtt_ns)
    frames, events = len(transfer.sent), [len(side.events) for side in transfer.pair.sides]
    transfer.run(10 * transfer.rto_ns)
    assert len(transfer.sent) == frames
    assert [len(side.events) for side in transfer.pair.sides] == events
    assert [side.nic.next_timer_ns() for side in transfer.pair.sides] == [None, None]


def test_two_ends_that_have_nothing_to_say_say_nothing() -> None:
    assert Transfer().run(10**10).sent == []


def test_no_window_is_left_over_when_all_is_done() -> None:
    transfer = Transfer(qps=3).write(3).run_to_end()
    for requester, responder in transfer.pairs:
        for qp in (requester, responder):
            assert qp.congestion.inflight_bytes == 0
            assert qp.requester.inflight_packets == 0


@pytest.mark.parametrize("first_psn", [(1 << 24) - 1, (1 << 24) - 100, (1 << 24) - 513])
def test_psns_wrap_in_the_middle_of_a_transfer(first_psn: int) -> None:
    transfer = Transfer(first_psn=first_psn)
    transfer.write(3).run_to_end().assert_delivered()
    assert transfer.losses == []


def test_psns_wrap_in_the_middle_of_a_lossy_transfer() -> None:
    transfer = Transfer(first_psn=(1 << 24) - 300, seed=5)
    transfer.rule(random_loss(0.02, transfer.pair.rng.child("loss")))
    transfer.write(3).run_to_end().assert_delivered()
    assert transfer.losses


@pytest.mark.parametrize(
    ("topology", "hosts"),
    [
        (EIGHT, (0, 1)),
        (TINY, (0, 3)),
        (TINY, (2, 3)),
        (replace(EIGHT, planes=1), (0, 15)),
        (replace(EIGHT, planes=16), (1, 14)),
    ],
    ids=["t0-local", "two planes", "two planes t0-local", "one plane", "sixteen planes"],
)
def test_other_fabrics_run_at_their_line_rate_too(topology: Topology, hosts: tuple[int, int]) -> None:
    transfer = Transfer(topology, hosts=hosts, size=1 << 17, depth=8 * topology.planes)
    transfer.write(transfer.depth)
    transfer.run(6 * transfer.base_rtt_ns)
    start = transfer.now_ns
    transfer.run(6 * transfer.base_rtt_ns)
    assert 0.97 <= transfer.rate_share(start, transfer.now_ns) <= 1.01
    transfer.run_to_end().assert_delivered()


def test_both_directions_at_once_deliver_both() -> None:
    transfer = Transfer(size=1 << 19)
    transfer.write(2, back=True)
    transfer.posted[FIRST_QPN] = 0
    transfer.write(2).run_to_end()
    transfer.assert_delivered()
    transfer.assert_delivered(back=True)
    assert transfer.losses == []


def test_qps_share_the_ports_fairly() -> None:
    transfer = Transfer(size=1 << 18, qps=8, depth=8).write(8)
    transfer.run(20 * transfer.base_rtt_ns)
    shares = Counter[int]()
    for _, qpn, size in transfer.placed:
        shares[qpn] += size
    assert len(shares) == 8
    assert max(shares.values()) <= 1.05 * min(shares.values())
    transfer.run_to_end().assert_delivered()


def test_sixty_four_qps_all_finish() -> None:
    transfer = Transfer(size=1 << 14, qps=64, depth=2).write(2).run_to_end()
    transfer.assert_delivered()
    finish = [event.now_ns for event in transfer.of(WriteCompleted) if event.msn == 1]
    assert max(finish) - min(finish) <= transfer.base_rtt_ns


def test_immediates_arrive_with_their_message_in_order() -> None:
    transfer = Transfer(size=9000, depth=30).write(30, imm=True).run_to_end()
    transfer.assert_delivered()
    assert [event.imm for event in transfer.of(MessageArrived, 1)] == list(range(1000, 1030))


def run_lossy(seed: int) -> tuple[list[Event], list[Event], list[object]]:
    transfer = Transfer(seed=seed, size=1 << 18, qps=2)
    transfer.rule(random_loss(0.03, transfer.pair.rng.child("loss")))
    transfer.write(3).run_to_end()
    return transfer.pair.sides[0].events, transfer.pair.sides[1].events, list(transfer.sent)


def test_a_run_replays_identically_from_its_seed_and_differs_with_another() -> None:
    first = run_lossy(7)
    assert first == run_lossy(7)
    assert first[2] != run_lossy(8)[2]
