"""NACKs by the table of sources 2.12, Transport NAKs, and answers that no honest peer would send."""

from __future__ import annotations

import pytest
from transport_kit import LOCAL_QPN, MTU, TINY, Bench, Data

from mrcemu.errors import QpError
from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import NackReceived, PacketLost, QpFailed, TimerExpired, WriteCompleted
from mrcemu.rng import Rng
from mrcemu.wire.opcodes import AethSyndrome, NackReason

RESOURCE = [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE]
CHARGED = [*RESOURCE, NackReason.PSN_OOR_WINDOW]


def sent_bench(packets: int = 4) -> tuple[Bench, list[Data]]:
    bench = Bench()
    bench.post(packets * MTU)
    return bench, bench.sent_data()


# -- the NACK table -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "state"), [(NackReason.TRIMMED, EvState.SKIP), (NackReason.TRIMMED_LASTHOP, EvState.GOOD)]
)
def test_a_trimmed_packet_goes_again_at_once_and_only_a_fabric_trim_skips_the_path(
    reason: NackReason, state: EvState
) -> None:
    bench, sent = sent_bench()
    bench.receive(bench.nack(reason, sent[1].psn, sent[1].ev))
    assert bench.qp.spray.entries[sent[1].ev].state is state
    (again,) = bench.sent_data()
    assert (again.psn, again.rtx) == (sent[1].psn, True)
    assert again.ev != sent[1].ev
    assert bench.of(TimerExpired) == bench.of(PacketLost) == []
    assert [(e.psn, e.ev, e.reason) for e in bench.of(NackReceived)] == [(sent[1].psn, sent[1].ev, reason)]


def test_a_retransmission_passes_over_the_path_it_was_trimmed_on_even_if_it_is_that_paths_turn() -> None:
    bench = Bench(TINY, active_share=1.0)
    bench.post(2 * MTU)
    first, second = bench.sent_data(room=1)
    assert first.ev != second.ev
    bench.receive(bench.nack(NackReason.TRIMMED_LASTHOP, first.psn, first.ev))
    (again,) = bench.sent_data(room=1)
    assert (again.psn, again.ev) == (first.psn, second.ev)


@pytest.mark.parametrize("reason", CHARGED)
def test_a_refusal_for_resources_waits_a_round_trip_charges_a_retry_and_leaves_the_path_alone(
    reason: NackReason,
) -> None:
    bench, sent = sent_bench()
    bench.receive(bench.nack(reason, sent[2].psn, sent[2].ev))
    assert bench.qp.spray.entries[sent[2].ev].state is EvState.GOOD
    assert [event.attempt for event in bench.of(TimerExpired)] == [1]
    assert bench.sent_data() == []
    bench.timer(bench.config.base_rtt_ns - 1)
    assert bench.sent_data() == []
    bench.timer(bench.config.base_rtt_ns)
    assert [packet.psn for packet in bench.sent_data()] == [sent[2].psn]


@pytest.mark.parametrize("reason", CHARGED)
def test_refusals_for_resources_without_progress_exhaust_the_budget(reason: NackReason) -> None:
    bench = Bench(linear_retries=3, exp_retries=0)
    bench.post(1)
    for _ in range(4):
        for packet in bench.sent_data():
            bench.receive(bench.nack(reason, packet.psn, packet.ev))
        bench.timer(bench.now_ns + bench.config.rto_ns)
    assert [event.reason for event in bench.of(QpFailed)] == ["retry counter exceeded"]


def test_a_burst_of_refusals_charges_the_budget_once() -> None:
    bench, sent = sent_bench()
    for packet in sent[2:6]:
        bench.receive(bench.nack(NackReason.NO_RESOURCE, packet.psn, packet.ev))
    assert [event.attempt for event in bench.of(TimerExpired)] == [1]


def test_sustained_trimming_with_progress_never_kills_the_qp() -> None:
    bench = Bench(linear_retries=1, exp_retries=0)
    bench.post(100 * MTU)
    sent = bench.sent_data()
    for _ in range(10):
        for packet in sent[:8]:
            bench.receive(bench.nack(NackReason.TRIMMED_LASTHOP, packet.psn, packet.ev))
        sent = bench.sent_data()
    assert bench.of(QpFailed) == bench.of(TimerExpired) == []


def test_an_unexpected_event_at_the_peer_fails_the_qp_at_once() -> None:
    bench, sent = sent_bench()
    bench.receive(bench.nack(NackReason.UNEXP_EVENT, sent[0].psn, sent[0].ev))
    (failure,) = bench.of(QpFailed)
    assert "remote operation error" in failure.reason
    assert bench.frames() == []


@pytest.mark.parametrize("reason", [*RESOURCE, NackReason.PSN_OOR_WINDOW, NackReason.TRIMMED])
def test_every_refused_packet_leaves_the_window_once(reason: NackReason) -> None:
    bench, sent = sent_bench(1)
    for _ in range(3):
        bench.receive(bench.nack(reason, sent[0].psn, sent[0].ev))
    assert bench.qp.congestion.inflight_bytes == 0


@pytest.mark.parametrize("reason", list(NackReason)[:-1])
def test_a_refusal_of_what_is_acknowledged_or_never_sent_sends_nothing(reason: NackReason) -> None:
    bench, sent = sent_bench()
    bench.receive(bench.ack(1, sent[-1].psn))
    for psn in (sent[0].psn, sent[-1].psn + 1, 5000, 1 << 23, 0xFFFFFF):
        bench.receive(bench.nack(reason, psn, 0xFFFFFFFF))
    assert bench.frames() == []
    assert bench.of(QpFailed) == bench.of(TimerExpired) == []
    assert bench.nic.next_timer_ns() is None


def test_a_late_refusal_of_the_first_transmission_does_not_take_back_the_second() -> None:
    """The NACK names the EV of what it refuses; the newest transmission rode another and is still under way."""
    bench, sent = sent_bench(1)
    bench.timer(bench.config.rto_ns)
    (again,) = bench.sent_data()
    bench.receive(bench.nack(NackReason.TRIMMED, sent[0].psn, sent[0].ev))
    assert again.ev != sent[0].ev
    assert bench.sent_data() == []


@pytest.mark.parametrize("reason", [0x00, 0x03, 0x42, 0xFF])
def test_a_reason_nobody_defined_does_not_crash_or_complete(reason: int) -> None:
    bench, sent = sent_bench()
    bench.receive(bench.nack(reason, sent[0].psn, sent[0].ev))
    assert bench.of(WriteCompleted) == []
    assert bench.qp.spray.entries[sent[0].ev].state is EvState.GOOD


# -- Transport NAKs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("syndrome", "words"),
    [
        (AethSyndrome.NAK_SEQUENCE, "0x60"),
        (AethSyndrome.NAK_INVALID_REQUEST, "0x61"),
        (AethSyndrome.NAK_REMOTE_ACCESS, "0x62"),
        (AethSyndrome.NAK_REMOTE_OPERATION, "0x63"),
        (0x7A, "0x7a"),
    ],
)
def test_a_transport_nak_fails_the_qp_once_with_its_meaning(syndrome: int, words: str) -> None:
    bench, sent = sent_bench()
    for _ in range(3):
        bench.receive(bench.ack(0, sent[0].psn, syndrome))
    (failure,) = bench.of(QpFailed)
    assert words in failure.reason
    assert bench.frames() == []
    assert bench.nic.next_timer_ns() is None
    with pytest.raises(QpError, match="QPN 3"):
        bench.post(1)


def test_a_failed_qp_neither_places_nor_answers() -> None:
    bench, sent = sent_bench()
    bench.receive(bench.ack(0, sent[0].psn, AethSyndrome.NAK_REMOTE_ACCESS))
    assert bench.receive(bench.data(0, b"late")) == 0
    assert bench.frames() == []
    assert bench.memory(0, 4) == bytes(4)


def test_messages_the_peer_completed_before_its_nak_complete() -> None:
    """A NAK is an acknowledgement too: its MSN counts the messages done before the one it refuses (IBTA)."""
    bench = Bench()
    for wr_id in range(3):
        bench.post(MTU, wr_id=wr_id)
    bench.frames()
    bench.receive(bench.ack(2, 2, AethSyndrome.NAK_REMOTE_ACCESS))
    assert [event.wr_id for event in bench.of(WriteCompleted)] == [0, 1]
    assert len(bench.of(QpFailed)) == 1


# -- hostile SACKs and ACKs -----------------------------------------------------------------------------------------

HOSTILE_SACKS = {
    "cack just beyond what was sent": {"cack": 4},
    "cack far beyond": {"cack": 1 << 22},
    "cack half a circle ahead": {"cack": (1 << 23) - 1},
    "cack and bitmap beyond": {"cack": 1000, "bitmap": (1 << 64) - 1},
    "offset far above": {"cack": -1, "offset": 0x7FFF, "bitmap": (1 << 64) - 1},
    "offset just above": {"cack": -1, "offset": 5, "bitmap": (1 << 64) - 1},
    "offset far below": {"cack": -1, "offset": -0x8000, "bitmap": (1 << 64) - 1},
    "an old cack": {"cack": -1000, "bitmap": 0},
    "a very old cack": {"cack": -(1 << 23) + 10, "offset": -0x8000, "bitmap": (1 << 64) - 1},
    "ack_psn_offset out of range": {"cack": -1, "ack_psn_offset": 0x7FFF, "entropy": 0xFFFFFFFF},
    "an EV nobody has": {"cack": -1, "entropy": 0xDEADBEEF, "mark": 1},
    "a reserved mark for no EV": {"cack": -1, "entropy": 0xFFFFFFFF, "mark": 3},
    "an answer to no probe": {"cack": -1, "probe_id": 0xBEEF},
}


def snapshot(bench: Bench) -> tuple[object, ...]:
    requester, spray = bench.qp.requester, bench.qp.spray
    states = {entry.ev: entry.state for entry in spray.entries.values()}
    return requester.inflight_packets, requester.outstanding_messages, bench.qp.congestion.inflight_bytes, states


@pytest.mark.parametrize("fields", HOSTILE_SACKS.values(), ids=HOSTILE_SACKS.keys())
def test_an_impossible_sack_changes_counters_only(fields: dict[str, int]) -> None:
    bench, _ = sent_bench()
    before = snapshot(bench)
    bench.now_ns = 10 * bench.config.base_rtt_ns
    bench.receive(bench.sack(**fields))  # type: ignore[arg-type]
    assert snapshot(bench) == before
    assert bench.events == []
    assert bench.frames() == []
    assert bench.qp.requester.counters.sacks == 1


@pytest.mark.parametrize("fields", [{"cack": 4}, {"cack": 1 << 22}])
def test_acknowledging_what_was_never_sent_is_counted_as_bad(fields: dict[str, int]) -> None:
    bench, _ = sent_bench()
    bench.receive(bench.sack(**fields))  # type: ignore[arg-type]
    assert bench.qp.requester.counters.bad_acks == 1


@pytest.mark.parametrize(
    ("msn", "psn"), [(2, 3), (0xFFFF, 3), (0x8000, 3), (1, 4), (1, 1 << 22), (1, 2), (1, -1), (1, -(1 << 23))]
)
def test_an_impossible_transport_ack_completes_nothing(msn: int, psn: int) -> None:
    bench, _ = sent_bench()
    bench.receive(bench.ack(msn, psn))
    assert bench.of(WriteCompleted) == []
    assert bench.qp.requester.outstanding_messages == 1
    assert bench.qp.error is None


def test_a_message_that_was_posted_but_not_sent_cannot_be_completed_by_the_peer() -> None:
    bench = Bench(mpr_units=1, window_bdp=1e6)
    bench.post(100 * MTU)
    bench.post(100 * MTU)
    bench.post(MTU)
    bench.frames()
    bench.receive(bench.ack(3, 127))
    assert [event.msn for event in bench.of(WriteCompleted)] == [0]
    assert bench.qp.requester.outstanding_messages == 2
    assert len(bench.sent_data()) == 73


def test_a_thousand_random_answers_keep_the_books_balanced() -> None:
    """Whatever the peer says, in-flight bytes are those of packets in flight, and nothing completes twice."""
    for seed in range(8):
        bench, rng = Bench(exp_retries=25, window_bdp=1.0), Rng(seed)
        for _ in range(40):
            bench.post(rng.below(3 * MTU))
        for _ in range(250):
            bench.now_ns += rng.below(bench.config.base_rtt_ns)
            bench.timer()
            bench.frames()
            bench.receive(random_answer(bench, rng))
            assert 0 <= bench.qp.congestion.inflight_bytes <= bench.qp.congestion.window_bytes + MTU
        msns = [event.msn for event in bench.of(WriteCompleted)]
        assert msns == list(range(len(msns)))
        assert all(event.reason for event in bench.of(QpFailed))
        assert len(bench.of(QpFailed)) <= 1


def random_answer(bench: Bench, rng: Rng) -> bytes:
    psn = rng.below(120)
    ev = rng.below(8) | rng.below(4) << 4
    kind = rng.below(4)
    if kind == 0:
        return bench.sack(psn - 40, offset=rng.below(40), bitmap=rng.u64() & rng.u64(), entropy=ev, mark=rng.below(3))
    if kind == 1:
        return bench.nack(CHARGED[rng.below(4)] if rng.below(20) == 0 else 1 + rng.below(2), psn, ev)
    if kind == 2:
        return bench.ack(rng.below(45), psn)
    return bench.sack(psn - 60, probe_id=rng.below(1 << 16), bitmap=rng.u64())


def test_answers_for_another_qp_or_from_another_host_are_dropped() -> None:
    bench, sent = sent_bench()
    frame = bench.control(0xD1, sent[-1].psn, b"\x1f\x00\x00\x01", qpn=LOCAL_QPN + 1)
    bench.receive(frame)
    assert bench.of(WriteCompleted) == []
    assert bench.nic.unknown_qp_drops == 1
