"""Bringing bad paths back: when probes leave, what their answers do, hold-down of flapping paths (sources 4.8)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from transport_kit import DSCP, PEER_QPN, TINY, Bench, Control, Data

from mrcemu.protocol.ev import EvEntry, EvState
from mrcemu.protocol.events import EvChanged, EvProbed, WriteCompleted
from mrcemu.wire.opcodes import Opcode


def bench_with_bad_path(**overrides: object) -> tuple[Bench, EvEntry]:
    """A QP at rest whose first EV of plane 0 was retired by a loss."""
    bench = Bench(TINY, active_share=0.01, ev_min_active=1, **overrides)
    return bench, lose_one(bench)


def lose_one(bench: Bench) -> EvEntry:
    """Lose one packet on plane 0, deliver everything else; the EV that went bad."""
    packets = []
    for _ in range(2):
        bench.post(1)
        packets += [item for item in bench.sent(room=1) if isinstance(item, Data)]
    first, second = packets
    assert first.ev == second.ev
    bench.receive(bench.sack(first.psn - 1, [second.psn]))
    entry = bench.qp.spray.entries[first.ev]
    assert entry.state is EvState.ASSUMED_BAD
    deliver(bench, second)
    assert bench.qp.requester.outstanding_messages == 0
    return entry


def deliver(bench: Bench, last: Data) -> None:
    """Retransmissions leave and arrive, and are acknowledged no sooner than they can be."""
    bench.sent()
    bench.now_ns += bench.config.base_rtt_ns
    bench.receive(bench.ack(last.msn + 1, last.psn))


def next_probe(bench: Bench) -> Control:
    """Let time pass to the next probe that leaves."""
    for _ in range(100):
        due = bench.nic.next_timer_ns()
        assert due is not None, "no probe will ever leave"
        bench.timer(max(due, bench.now_ns))
        for item in bench.sent():
            assert item.opcode == Opcode.PROBE_REQUEST
            assert isinstance(item, Control)
            return item
    raise AssertionError("timers without probes")


def answer(bench: Bench, probe: Control, mark: int = 0) -> None:
    bench.now_ns += bench.config.base_rtt_ns
    bench.receive(bench.sack(bench_cack(bench), probe_id=probe.fields[0], mark=mark, entropy=probe.ev))


def bench_cack(bench: Bench) -> int:
    """The last PSN the peer has acknowledged: all messages of these tests are one packet."""
    return len(bench.of(WriteCompleted)) - 1


def rtos(bench: Bench, time_ns: int) -> float:
    return time_ns / bench.config.rto_ns


# -- when -----------------------------------------------------------------------------------------------------------


def test_a_bad_path_is_probed_on_itself_and_only_it() -> None:
    bench, entry = bench_with_bad_path()
    for _ in range(5):
        probe = next_probe(bench)
        assert (probe.ev, probe.plane, probe.dest_qpn, probe.psn) == (entry.ev, 0, PEER_QPN, 0)
        assert probe.dscp == DSCP.trimmable


def test_unanswered_probes_keep_a_spacing_of_one_timer_with_jitter() -> None:
    bench, entry = bench_with_bad_path()
    times = [entry.retired_ns]
    for _ in range(60):
        next_probe(bench)
        times.append(bench.now_ns)
    gaps = [rtos(bench, later - earlier) for earlier, later in pairwise(times)]
    assert all(0.75 <= gap <= 1.2500001 for gap in gaps)
    assert min(gaps) < 0.85
    assert max(gaps) > 1.15
    assert 0.9 < sum(gaps) / len(gaps) < 1.1


def test_the_spacing_can_be_set() -> None:
    bench, entry = bench_with_bad_path(probe_interval_ns=1_000_000_000)
    next_probe(bench)
    assert 0.75e9 <= bench.now_ns - entry.retired_ns <= 1.25e9


def test_probe_ids_differ_from_probe_to_probe() -> None:
    bench, _ = bench_with_bad_path()
    ids = [next_probe(bench).fields[0] for _ in range(20)]
    assert len(set(ids)) == 20


def test_without_bad_paths_nothing_is_probed() -> None:
    bench = Bench(TINY)
    assert bench.nic.next_timer_ns() is None
    bench.timer(10**15)
    assert bench.frames() == []


# -- what answers do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [1, 3, 5])
def test_the_configured_number_of_clean_replies_in_a_row_brings_the_path_back(needed: int) -> None:
    bench, entry = bench_with_bad_path(probe_successes=needed)
    for _ in range(needed):
        assert entry.state is EvState.ASSUMED_BAD
        answer(bench, next_probe(bench))
    assert entry.state is EvState.GOOD
    changed = bench.of(EvChanged)[-1]
    assert (changed.ev, changed.old, changed.new, changed.signal) == (entry.ev, "ASSUMED_BAD", "GOOD", "probe")
    assert bench.run_timers(bench.now_ns + 100 * bench.config.rto_ns) == []


@pytest.mark.parametrize("seed", range(12))
def test_an_unanswered_probe_starts_the_count_again(seed: int) -> None:
    """Also when the next one is answered before the timer of the lost one ran out: a path keeps its order."""
    bench, entry = bench_with_bad_path(seed=seed)
    answer(bench, next_probe(bench))
    answer(bench, next_probe(bench))
    next_probe(bench)  # lost
    answer(bench, next_probe(bench))
    assert entry.state is EvState.ASSUMED_BAD
    bench.now_ns += bench.config.rto_ns // 2  # the lost one is overdue by now
    bench.timer()
    for _ in range(4):
        if entry.state is EvState.ASSUMED_BAD:
            answer(bench, next_probe(bench))
    assert entry.state is EvState.GOOD


def test_a_marked_reply_counts_and_the_path_returns_skipped_once() -> None:
    bench, entry = bench_with_bad_path()
    for mark in (0, 0, 1):
        answer(bench, next_probe(bench), mark)
    assert entry.state is EvState.SKIP


@pytest.mark.parametrize("offset", [1, 0x8000, 0xFFFF])
def test_answers_with_ids_nobody_asked_for_count_for_nothing(offset: int) -> None:
    bench, entry = bench_with_bad_path()
    probe = next_probe(bench)
    for _ in range(5):
        forged = probe.fields[0] + offset & 0xFFFF
        bench.receive(bench.sack(bench_cack(bench), probe_id=forged, entropy=entry.ev))
    assert entry.state is EvState.ASSUMED_BAD


def test_one_reply_repeated_counts_once() -> None:
    bench, entry = bench_with_bad_path()
    probe = next_probe(bench)
    for _ in range(5):
        answer(bench, probe)
    assert entry.state is EvState.ASSUMED_BAD


def test_a_reply_later_than_the_timer_counts_for_nothing() -> None:
    bench, entry = bench_with_bad_path(probe_successes=1, probe_interval_ns=10**12)
    probe = next_probe(bench)
    bench.timer(bench.now_ns + bench.config.rto_ns)
    answer(bench, probe)
    assert entry.state is EvState.ASSUMED_BAD


def test_a_probe_answer_does_not_steer_data() -> None:
    bench, entry = bench_with_bad_path()
    other = next(e for e in bench.qp.spray.entries.values() if e.state is EvState.GOOD and e.active)
    probe = next_probe(bench)
    bench.receive(bench.sack(bench_cack(bench), probe_id=probe.fields[0], mark=1, entropy=other.ev))
    assert other.state is EvState.GOOD
    assert entry.state is EvState.ASSUMED_BAD


# -- hold-down ------------------------------------------------------------------------------------------------------


def bring_back(bench: Bench, entry: EvEntry) -> float:
    """Answer probes until the path is GOOD; RTOs from its retirement to its first probe."""
    retired_ns = entry.retired_ns
    first_ns = 0
    while entry.state is EvState.ASSUMED_BAD:
        probe = next_probe(bench)
        first_ns = first_ns or bench.now_ns
        answer(bench, probe)
    return rtos(bench, first_ns - retired_ns)


def test_the_hold_down_of_a_flapping_path_doubles_up_to_its_ceiling() -> None:
    bench = Bench(TINY, active_share=1.0, ev_min_active=1)
    first_probe = []
    bench.post(1)
    (packet,) = (item for item in bench.sent(room=1) if isinstance(item, Data))
    bench.receive(bench.ack(1, packet.psn))
    entry = bench.qp.spray.entries[packet.ev]
    for _ in range(8):
        lose_on(bench, entry)
        first_probe.append(bring_back(bench, entry))
    for hold, got in zip([0, 1, 2, 4, 8, 16, 16, 16], first_probe, strict=True):
        assert hold + 0.75 <= got <= hold + 1.2500001, first_probe


def lose_on(bench: Bench, entry: EvEntry) -> None:
    """Send on plane 0 until two packets rode `entry`, lose the first of them, deliver the rest."""
    rides: list[Data] = []
    while sum(packet.ev == entry.ev for packet in rides) < 2:
        bench.post(1)
        rides += [item for item in bench.sent(room=1) if isinstance(item, Data)]
    victim = next(packet for packet in rides if packet.ev == entry.ev)
    received = [packet.psn for packet in rides if packet.psn != victim.psn]
    cack = bench_cack(bench)
    bench.receive(bench.sack(cack, received))
    assert entry.state is EvState.ASSUMED_BAD
    deliver(bench, rides[-1])


def test_a_path_that_held_for_long_is_not_held_down() -> None:
    bench = Bench(TINY, active_share=1.0, ev_min_active=1)
    entry = bench.qp.spray.in_service(0)[0]
    lose_on(bench, entry)
    bring_back(bench, entry)
    bench.now_ns += 17 * bench.config.rto_ns
    lose_on(bench, entry)
    assert bring_back(bench, entry) <= 1.2500001


# -- ports ----------------------------------------------------------------------------------------------------------


def probed_evs(bench: Bench) -> list[int]:
    bench.timer()
    return [item.ev for item in bench.sent() if item.opcode == Opcode.PROBE_REQUEST]


def test_bad_paths_of_a_plane_that_is_down_are_not_probed() -> None:
    bench, _ = bench_with_bad_path()
    bench.now_ns += 2 * bench.config.rto_ns  # long enough that the port does not explain the loss
    bench.port(0, up=False)
    bench.sent()
    late = bench.now_ns + 20 * bench.config.rto_ns
    assert [item for item in bench.run_timers(late) if item.opcode == Opcode.PROBE_REQUEST] == []


def test_bad_paths_of_a_plane_that_returns_are_probed_at_once() -> None:
    bench, entry = bench_with_bad_path()
    next_probe(bench)
    next_probe(bench)
    assert bench.now_ns - entry.retired_ns > bench.config.rto_ns  # so that the port does not explain the loss
    bench.port(0, up=False)
    bench.port(0, up=True)
    assert probed_evs(bench) == [entry.ev]
    assert probed_evs(bench) == []


# -- probes asked for by name ---------------------------------------------------------------------------------------


def ask(bench: Bench, entry: EvEntry) -> Control:
    bench.qp.prober.ask(entry)
    bench.timer()
    (probe,) = (item for item in bench.sent() if item.opcode == Opcode.PROBE_REQUEST)
    assert isinstance(probe, Control)
    return probe


def test_a_probe_asked_for_by_name_reports_its_round_trip() -> None:
    bench = Bench(TINY)
    entry = bench.qp.spray.entries[0x11]
    probe = ask(bench, entry)
    assert probe.ev == 0x11
    bench.now_ns += 12345
    bench.receive(bench.sack(-1, probe_id=probe.fields[0], entropy=0x11))
    assert [(e.ev, e.rtt_ns, e.request_id) for e in bench.of(EvProbed)] == [(0x11, 12345, probe.fields[0])]


def test_a_probe_asked_for_by_name_reports_silence() -> None:
    bench = Bench(TINY)
    ask(bench, bench.qp.spray.entries[0x01])
    bench.run_timers(bench.config.rto_ns)
    assert [(e.ev, e.rtt_ns) for e in bench.of(EvProbed)] == [(0x01, None)]


def test_a_bad_path_asked_for_by_name_is_reported_too() -> None:
    bench, entry = bench_with_bad_path()
    probe = ask(bench, entry)
    answer(bench, probe)
    assert [(e.ev, e.rtt_ns) for e in bench.of(EvProbed)] == [(entry.ev, bench.config.base_rtt_ns)]


def test_probes_nobody_asked_for_by_name_are_no_events() -> None:
    """Neither those of bad paths nor the one that asks for acknowledgement state after a timeout."""
    bench, _ = bench_with_bad_path()
    answer(bench, next_probe(bench))
    bench.post(1)
    bench.sent()
    bench.timer(bench.now_ns + bench.config.rto_ns)
    for item in bench.sent():
        if isinstance(item, Control):
            answer(bench, item)
    assert bench.of(EvProbed) == []
