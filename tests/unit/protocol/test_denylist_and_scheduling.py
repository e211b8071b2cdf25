"""What a controller forbids, which QP is READY, how many immediates are under way, and reverse paths kept fresh."""

from __future__ import annotations

from collections import Counter

import pytest
from transport_kit import LOCAL_QPN, MTU, Bench, Control, Data

from mrcemu.protocol.denylist import DenyEntry, Denylist
from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import EvChanged, PacketLost, WriteCompleted
from mrcemu.protocol.memory import BufferSource
from mrcemu.protocol.scheduler import QpActivity
from mrcemu.wire.fast import FLAG_ACKREQ
from mrcemu.wire.opcodes import Opcode

PLANE_3 = DenyEntry(0xF, 3)
UPLINK_2 = DenyEntry(0xFFFF0, 0x20)
ONE_PATH = DenyEntry(0xFFFFFFFF, 0x15)
ALL = DenyEntry(0, 0)

# -- denylist -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "denied"),
    [
        (PLANE_3, {0x03, 0x13, 0x23, 0x33}),
        (UPLINK_2, {0x20 | plane for plane in range(8)}),
        (ONE_PATH, {0x15}),
        (ALL, {uplink << 4 | plane for uplink in range(4) for plane in range(8)}),
        (DenyEntry(0xF, 0xF3), {0x03, 0x13, 0x23, 0x33}),  # value bits outside the mask do not count
        (DenyEntry(0xFFFFFFFF, 0x99), set()),
    ],
)
def test_an_entry_denies_what_matches_under_its_mask(entry: DenyEntry, denied: set[int]) -> None:
    bench = Bench()
    bench.nic.deny(entry, 0)
    states = {ev: path.state for ev, path in bench.qp.spray.entries.items()}
    assert {ev for ev, state in states.items() if state is EvState.DENIED} == denied


def test_denied_paths_carry_neither_data_nor_answers_and_return_when_allowed() -> None:
    bench = Bench()
    bench.nic.deny(PLANE_3, 0)
    bench.post(1 << 22)
    for psn in range(40):
        bench.receive(bench.data(psn, flags=FLAG_ACKREQ))
    assert {item.plane for item in bench.sent()} == {0, 1, 2, 4, 5, 6, 7}
    assert bench.nic.allow(PLANE_3, 0)
    bench.receive(bench.sack(90))
    assert 3 in {packet.plane for packet in bench.sent_data()}


def test_a_denied_path_is_replaced_by_a_backup_of_its_plane() -> None:
    bench = Bench()
    victim = bench.qp.spray.in_service(5)[0]
    bench.nic.deny(DenyEntry(0xFFFFFFFF, victim.ev), 0)
    assert victim not in bench.qp.spray.in_service(5)
    assert len(bench.qp.spray.in_service(5)) == 3
    assert [(e.ev, e.new, e.signal) for e in drained(bench)] == [(victim.ev, "DENIED", "controller")]


def drained(bench: Bench) -> list[EvChanged]:
    bench.timer()
    return bench.of(EvChanged)


def test_a_path_is_allowed_only_when_no_entry_denies_it() -> None:
    bench = Bench()
    bench.nic.deny(PLANE_3, 0)
    bench.nic.deny(UPLINK_2, 0)
    assert bench.nic.allow(PLANE_3, 0)
    states = {ev: bench.qp.spray.entries[ev].state for ev in (0x03, 0x23)}
    assert states == {0x03: EvState.GOOD, 0x23: EvState.DENIED}
    assert bench.nic.allow(UPLINK_2, 0)
    assert bench.qp.spray.entries[0x23].state is EvState.GOOD


def test_allowing_what_is_not_listed_says_so_and_changes_nothing() -> None:
    bench = Bench()
    bench.nic.deny(PLANE_3, 0)
    assert not bench.nic.allow(UPLINK_2, 0)
    assert bench.qp.spray.entries[0x03].state is EvState.DENIED
    assert bench.nic.allow(PLANE_3, 0)
    assert not bench.nic.allow(PLANE_3, 0)


def test_denying_twice_is_denying_once() -> None:
    denylist = Denylist()
    denylist.add(PLANE_3)
    denylist.add(DenyEntry(0xF, 3))
    assert denylist.entries == (PLANE_3,)
    assert denylist.remove(PLANE_3)
    assert not denylist.denies(0x03)


def test_the_denylist_holds_for_qps_created_later() -> None:
    bench = Bench()
    bench.nic.deny(PLANE_3, 0)
    qp = bench.nic.create_qp(bench.setup(20))
    assert qp.spray.usable_planes == 0xF7


def test_denying_loses_nothing_that_is_under_way() -> None:
    bench = Bench()
    bench.post(16 * MTU)
    bench.sent()
    bench.nic.deny(PLANE_3, 0)
    bench.timer()
    assert bench.of(PacketLost) == []
    bench.receive(bench.ack(1, 15))
    assert len(bench.of(WriteCompleted)) == 1


def test_a_denied_path_is_neither_probed_nor_brought_back_by_a_late_answer() -> None:
    bench = Bench()
    bench.post(48 * MTU)
    sent = bench.sent_data()
    victim = sent[0]
    later = next(packet for packet in sent if packet.ev == victim.ev and packet.psn > victim.psn)
    bench.receive(bench.sack(-1, [later.psn]))
    entry = bench.qp.spray.entries[victim.ev]
    assert entry.state is EvState.ASSUMED_BAD
    bench.sent()
    bench.now_ns += bench.config.base_rtt_ns
    bench.receive(bench.ack(1, 47))
    bench.nic.deny(DenyEntry(0xFFFFFFFF, entry.ev), bench.now_ns)
    assert entry.state is EvState.DENIED
    assert bench.run_timers(bench.now_ns + 10 * bench.config.rto_ns) == []
    assert entry.state is EvState.DENIED


def test_with_everything_denied_work_waits_and_leaves_once_allowed() -> None:
    bench = Bench()
    bench.nic.deny(ALL, 0)
    bench.post(4 * MTU)
    assert bench.frames() == []
    bench.nic.allow(ALL, 0)
    assert len(bench.sent_data()) == 4


# -- the scheduler --------------------------------------------------------------------------------------------------


def test_a_qp_is_idle_ready_active_pending_and_idle_again() -> None:
    bench = Bench(mpr_units=1, window_bdp=100)
    seen = [bench.qp.activity]
    bench.post(129 * MTU)
    seen.append(bench.qp.activity)
    bench.sent()
    seen.append(bench.qp.activity)  # the MPR gate is closed, one packet waits
    bench.receive(bench.sack(127))
    seen.append(bench.qp.activity)
    bench.sent()
    seen.append(bench.qp.activity)
    bench.receive(bench.ack(1, 128))
    seen.append(bench.qp.activity)
    idle, ready, active, pending = QpActivity.IDLE, QpActivity.READY, QpActivity.ACTIVE, QpActivity.PENDING
    assert seen == [idle, ready, active, ready, pending, idle]


WAKERS = ["sack", "nack", "timer", "port up", "peer port up", "post"]


@pytest.mark.parametrize("waker", WAKERS)
def test_whatever_makes_a_qp_ready_puts_it_back_in_the_rotation(waker: str) -> None:
    """Asked in vain first, so that it has left the rotation."""
    bench = Bench(window_bdp=1.0)
    ports = range(8) if waker in ("port up", "peer port up") else ()
    if waker == "port up":
        for plane in ports:
            bench.port(plane, up=False)
    elif waker == "peer port up":
        bench.receive(bench.endpoint_request(0, 1, 0))
    if waker != "post":
        bench.post(1 << 22)
    first = bench.sent_data()
    assert bench.frames() == []
    if waker == "sack":
        bench.receive(bench.sack(3))
    elif waker == "nack":
        bench.receive(bench.nack(1, first[0].psn, first[0].ev))
    elif waker == "timer":
        bench.timer(bench.config.rto_ns)
    elif waker == "port up":
        bench.port(2, up=True)
    elif waker == "peer port up":
        bench.receive(bench.endpoint_request(0, 2, 0x1FE))
    else:
        bench.post(1)
    assert bench.sent_data()


def test_a_qp_with_a_closed_window_does_not_hold_up_the_others() -> None:
    bench = Bench()
    second = bench.nic.create_qp(bench.setup(LOCAL_QPN + 1))
    bench.post(1 << 22)
    bench.sent()
    bench.nic.post_write(second.qpn, 0, BufferSource(bytes(10 * MTU)), 10 * MTU, 1 << 40, 1, 0)
    assert [packet.va >> 40 for packet in bench.sent_data()] == [1] * 10


# -- immediates under way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_immediates_are_under_way_than_the_peer_takes(limit: int) -> None:
    bench = Bench(max_imm_in_flight=limit)
    for imm in range(10):
        bench.post(MTU + 1, imm=imm)
    done = 0
    while done < 10:
        sent = bench.sent_data()
        imms = [packet.imm for packet in sent if packet.imm is not None]
        assert imms == list(range(done, min(done + limit, 10)))
        bench.receive(bench.sack(sent[-1].psn))
        assert bench.frames() == []  # reported, but not done
        done += len(imms)
        bench.receive(bench.ack(done, sent[-1].psn))
    assert len(bench.of(WriteCompleted)) == 10


def test_a_write_behind_a_waiting_immediate_keeps_its_place() -> None:
    bench = Bench(max_imm_in_flight=1)
    bench.post(1, imm=1)
    bench.post(1)
    bench.post(1, imm=2)
    bench.post(1)
    assert [packet.msn for packet in bench.sent_data()] == [0, 1]
    bench.receive(bench.ack(1, 0))
    assert [packet.msn for packet in bench.sent_data()] == [2, 3]


# -- reverse paths --------------------------------------------------------------------------------------------------


def receive_one_way(bench: Bench, rtts: int, *, answered: bool = True) -> list[Control]:
    """Data every quarter of a base RTT; the probes that leave, answered one base RTT later (or never)."""
    probes: list[Control] = []
    waiting: list[tuple[int, Control]] = []
    start_psn = bench.qp.responder.window.expected
    for step in range(4 * rtts):
        bench.now_ns += bench.config.base_rtt_ns // 4
        bench.receive(bench.data(start_psn + step, b"x", opcode=Opcode.WRITE_MIDDLE, msn=0))
        bench.timer()
        for item in bench.sent():
            if isinstance(item, Control) and item.opcode == Opcode.PROBE_REQUEST:
                probes.append(item)
                waiting.append((bench.now_ns + bench.config.base_rtt_ns, item))
        for due, probe in list(waiting):
            if answered and due <= bench.now_ns:
                waiting.remove((due, probe))
                bench.receive(bench.sack(-1, probe_id=probe.fields[0], entropy=probe.ev))
    return probes


def test_while_a_qp_only_receives_it_probes_a_path_each_base_rtt() -> None:
    bench = Bench()
    probes = receive_one_way(bench, 60)
    assert 40 <= len(probes) <= 61
    assert len({probe.plane for probe in probes}) == 8
    assert bench.of(EvChanged) == []


def test_probing_reverse_paths_stops_with_the_data() -> None:
    bench = Bench()
    receive_one_way(bench, 5)
    bench.run_timers(bench.now_ns + 2 * bench.config.rto_ns)
    assert bench.run_timers(bench.now_ns + 20 * bench.config.rto_ns) == []


def test_with_data_of_its_own_acknowledged_a_qp_needs_no_reverse_probes() -> None:
    bench = Bench()
    probes = 0
    for step in range(60):
        bench.post(1)
        data = bench.sent_data()
        bench.now_ns += bench.config.base_rtt_ns // 2
        bench.receive(bench.data(step, b"x"))
        bench.receive(bench.sack(data[-1].psn, entropy=data[-1].ev))
        bench.receive(bench.ack(step + 1, data[-1].psn))
        bench.timer()
        probes += sum(item.opcode == Opcode.PROBE_REQUEST for item in bench.sent())
    assert probes <= 1


def test_a_path_whose_probe_is_answered_carries_its_planes_answers() -> None:
    bench = Bench()
    (probe,) = receive_one_way(bench, 2)[-1:]
    bench.receive(bench.sack(-1, probe_id=probe.fields[0], entropy=probe.ev))
    for _ in range(40):
        bench.receive(bench.data(5000, flags=FLAG_ACKREQ))
    rides = {item.ev for item in bench.sent() if item.plane == probe.plane}
    assert rides == {probe.ev}


def test_one_missed_probe_retires_nothing() -> None:
    bench = Bench()
    receive_one_way(bench, 1, answered=False)
    bench.run_timers(bench.now_ns + 3 * bench.config.rto_ns)
    assert bench.of(EvChanged) == []


def test_sent_data_keeps_equal_plane_shares_whatever_answers_leave() -> None:
    bench = Bench(window_bdp=100, mpr_units=255)
    bench.post(800 * MTU)
    shares: Counter[int] = Counter()
    for psn in range(100):
        bench.receive(bench.data(psn % 7, flags=FLAG_ACKREQ))
        for item in bench.sent(limit=8):
            if isinstance(item, Data):
                shares[item.plane] += 1
    assert max(shares.values()) - min(shares.values()) <= 1
