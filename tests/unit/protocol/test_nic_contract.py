"""The call contract of a NIC: bounded events, harmless timers, fair turns, classes and marks of what leaves it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from transport_kit import BASE_VA, EIGHT, LOCAL_QPN, MTU, RKEY, TINY, Bench, Control, Data, identity

from mrcemu.errors import QpError
from mrcemu.protocol import events
from mrcemu.protocol.config import for_topology
from mrcemu.protocol.congestion.fixed import FixedWindow
from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import EvChanged, MessageArrived, QpFailed
from mrcemu.protocol.memory import BufferSource, MemoryRegion
from mrcemu.protocol.nic import Nic
from mrcemu.rng import Rng
from mrcemu.topology import timing
from mrcemu.topology.addressing import all_paths, host_address
from mrcemu.wire.fast import FLAG_ACKREQ
from mrcemu.wire.opcodes import Ecn, EndpointOp, Opcode

# -- events and timers ----------------------------------------------------------------------------------------------


def test_undrained_events_are_bounded_the_oldest_stay_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, extra = 300, 10
    assert events.EVENT_LIMIT == 1 << 16
    monkeypatch.setattr(events, "EVENT_LIMIT", limit)
    bench = Bench()
    for psn in range(limit + extra):
        bench.nic.receive_frame(0, bench.data(psn, b"", msn=psn), 0)
    drained = []
    while (event := bench.nic.next_event()) is not None:
        drained.append(event)
    assert [event.msn for event in drained if isinstance(event, MessageArrived)] == list(range(limit))
    assert bench.nic.events_dropped == extra


def test_events_come_in_the_order_things_happened_and_carry_their_time() -> None:
    bench = Bench()
    for time_ns, psn in ((5, 1), (9, 0), (12, 2)):
        bench.now_ns = time_ns
        bench.receive(bench.data(psn))
    assert [(event.now_ns, event.msn) for event in bench.of(MessageArrived)] == [(9, 0), (9, 1), (12, 2)]


def test_timer_calls_early_late_or_for_nothing_are_harmless() -> None:
    bench = Bench()
    for _ in range(3):
        bench.timer(0)
    assert bench.nic.next_timer_ns() is None
    bench.post(MTU)
    bench.sent()
    bench.timer(1)
    due = bench.nic.next_timer_ns()
    assert due is not None
    bench.timer(due + 10**12)  # very late
    assert [item.psn for item in bench.sent() if isinstance(item, Data)] == [0]


def test_after_a_timer_ran_the_next_one_lies_ahead() -> None:
    """An owner that sleeps until `next_timer_ns` must not spin."""
    bench = Bench(linear_retries=3, exp_retries=3)
    bench.post(20 * MTU)
    bench.sent()
    calls = 0
    while (due := bench.nic.next_timer_ns()) is not None and calls < 5000:
        assert due > bench.now_ns
        bench.timer(due)
        bench.sent()
        calls += 1
    assert len(bench.of(QpFailed)) == 1
    assert calls < 5000


def test_a_wakeup_without_room_does_not_spin_either() -> None:
    bench = Bench()
    bench.post(4 * MTU)
    bench.sent()
    due = bench.nic.next_timer_ns()
    assert due is not None
    bench.timer(due)
    assert bench.frames(room=0) == []
    again = bench.nic.next_timer_ns()
    assert again is not None
    assert again > due


# -- turns ----------------------------------------------------------------------------------------------------------


def many_qps(count: int) -> Bench:
    bench = Bench()
    for qpn in range(LOCAL_QPN + 1, LOCAL_QPN + count):
        bench.nic.create_qp(bench.setup(qpn))
    for qpn in range(LOCAL_QPN, LOCAL_QPN + count):
        bench.nic.post_write(qpn, 0, BufferSource(bytes(64 * MTU)), 64 * MTU, qpn << 32, 1, 0)
    return bench


def test_qps_with_work_take_turns_packet_by_packet() -> None:
    bench = many_qps(5)
    owners = Counter(packet.va >> 32 for packet in bench.sent_data(limit=200))
    assert len(owners) == 5
    assert max(owners.values()) - min(owners.values()) <= 2


def test_turns_stay_fair_when_only_one_port_has_room_at_a_time() -> None:
    bench = many_qps(5)
    owners: Counter[int] = Counter()
    for call in range(100):
        for plane, frame, _ in bench.nic.frames_to_send(0, 1 << call % 8):
            packet = bench.read(plane, frame)
            assert isinstance(packet, Data)
            owners[packet.va >> 32] += 1
    assert sorted(owners.values()) == [20] * 5


def test_destroying_a_qp_in_the_middle_leaves_the_others_their_turns() -> None:
    bench = many_qps(5)
    bench.nic.frames_to_send(0, 0b111)
    bench.nic.destroy_qp(LOCAL_QPN + 4)
    bench.nic.destroy_qp(LOCAL_QPN)
    bench.nic.destroy_qp(12345)
    owners = Counter(packet.va >> 32 for packet in bench.sent_data(limit=90))
    assert sorted(owners) == [4, 5, 6]
    with pytest.raises(QpError, match="no such QP"):
        bench.post(1)


def test_answers_leave_even_when_no_port_has_room_for_data() -> None:
    bench = Bench()
    bench.post(10 * MTU)
    bench.receive(bench.data(0, flags=FLAG_ACKREQ))
    items = bench.nic.frames_to_send(0, 0)
    assert [is_control for _, _, is_control in items] == [True, True]


def test_a_port_that_is_down_is_sent_nothing_even_if_it_has_room() -> None:
    bench = Bench()
    bench.port(3, up=False)
    bench.sent()
    bench.post(64 * MTU)
    bench.receive(bench.data(0, flags=FLAG_ACKREQ))
    assert 3 not in {plane for plane, _, _ in bench.frames(room=0xFF)}
    assert bench.frames(room=1 << 3) == []


# -- classes and marks ----------------------------------------------------------------------------------------------


def outer_ecn(frame: bytes) -> int:
    return frame[15] >> 4 & 3


def test_data_may_be_marked_and_answers_never() -> None:
    bench = Bench()
    bench.post(MTU)
    bench.receive(bench.data(0, flags=FLAG_ACKREQ))
    marks = {is_control: outer_ecn(frame) for _, frame, is_control in bench.frames()}
    assert marks == {True: Ecn.NOT_ECT, False: Ecn.ECT0}
    bench.timer(bench.config.rto_ns)
    assert {outer_ecn(frame) for _, frame, _ in bench.frames()} == {Ecn.ECT0}  # retransmission and probe


def test_frames_carry_the_macs_of_their_plane() -> None:
    bench = Bench()
    bench.post(16 * MTU)
    for plane, frame, _ in bench.frames():
        assert (frame[0:6], frame[6:12]) == (bytes((2, 1, 0, 0, 0, plane)), bytes((2, 0, 0, 0, 0, plane)))


def test_a_mark_steers_without_an_event_and_costs_the_path_one_turn() -> None:
    bench = Bench()
    bench.post(MTU)
    (packet,) = bench.sent_data()
    bench.receive(bench.sack(-1, [0], entropy=packet.ev, mark=1))
    assert bench.qp.spray.entries[packet.ev].state is EvState.SKIP
    assert bench.of(EvChanged) == []
    assert bench.qp.spray.entries[packet.ev].marked == 1


def test_always_skip_retires_the_path() -> None:
    bench = Bench()
    bench.post(MTU)
    (packet,) = bench.sent_data()
    bench.receive(bench.sack(-1, [0], entropy=packet.ev, mark=2))
    assert [(e.ev, e.new, e.signal) for e in bench.of(EvChanged)] == [(packet.ev, "ASSUMED_BAD", "mark")]


# -- round trips ----------------------------------------------------------------------------------------------------


def rtt_after(bench: Bench, packet: Data, after_ns: int, **sack: object) -> int:
    bench.now_ns += after_ns
    bench.receive(bench.sack(-1, [0], ack_psn_offset=1, **{"entropy": packet.ev, **sack}))  # type: ignore[arg-type]
    return bench.qp.spray.entries[packet.ev].rtt_ns


def test_the_sack_of_a_first_transmission_measures_its_paths_round_trip() -> None:
    bench = Bench()
    bench.post(MTU)
    (packet,) = bench.sent_data()
    assert rtt_after(bench, packet, 5000) == 5000


@pytest.mark.parametrize("sack", [{"rtx": True}, {"entropy": 0x999}, {"probe_id": 5}])
def test_an_echo_that_does_not_match_the_transmission_measures_nothing(sack: dict[str, object]) -> None:
    bench = Bench()
    bench.post(MTU)
    (packet,) = bench.sent_data()
    assert rtt_after(bench, packet, 5000, **sack) == 0


@pytest.mark.parametrize(("rtx", "measured"), [(True, 7000), (False, 0)])
def test_a_second_transmission_is_measured_from_its_own_departure_by_its_rtx_echo(rtx: bool, measured: int) -> None:
    bench = Bench()
    bench.post(MTU)
    bench.sent()
    bench.timer(bench.config.rto_ns)
    (again,) = (item for item in bench.sent() if isinstance(item, Data))
    assert rtt_after(bench, again, 7000, rtx=rtx) == measured


def test_a_third_transmission_is_never_measured() -> None:
    bench = Bench()
    bench.post(MTU)
    bench.sent()
    for _ in range(2):
        bench.timer(bench.now_ns + bench.config.rto_ns)
        last = [item for item in bench.sent() if isinstance(item, Data)][-1]
    assert rtt_after(bench, last, 7000, rtx=True) == 0


# -- configuration and window ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topology", "hops"), [(EIGHT, 4), (EIGHT, 2), (TINY, 4)])
def test_defaults_derive_from_the_fabric(topology, hops) -> None:  # type: ignore[no-untyped-def]
    config = for_topology(topology, hops)
    assert config.base_rtt_ns == timing.base_rtt_ns(topology, hops)
    assert 4 * config.base_rtt_ns <= config.rto_ns < 8 * config.base_rtt_ns
    assert config.base_rtt_ns < config.max_guard_ns
    assert config.timestamp_unit_ns == 128 * topology.scale
    assert config.probe_spacing_ns == config.rto_ns
    assert config.mpr_psns == 1024


@pytest.mark.parametrize(("count", "floor"), [(1, 1), (3, 1), (32, 8), (256, 64)])
def test_the_default_floor_is_a_quarter_and_at_least_one(count: int, floor: int) -> None:
    assert for_topology(EIGHT).min_active(count) == floor


def test_the_fixed_window_is_a_multiple_of_the_bdp_of_the_planes_up_and_of_one_at_least() -> None:
    config = for_topology(EIGHT)
    window = FixedWindow(config, 8)
    per_plane = int(1.5 * config.plane_bdp_bytes)
    assert window.window_bytes == 8 * per_plane
    window.on_sent(8 * per_plane - 100)
    assert window.may_send(100)
    assert not window.may_send(101)
    window.set_planes(2)
    assert not window.may_send(1)
    window.on_left(7 * per_plane)
    assert window.may_send(per_plane)
    window.set_planes(0)
    assert window.window_bytes == per_plane


def test_a_probe_and_control_packet_name_the_peers_qp() -> None:
    bench = Bench()
    bench.post(1)
    bench.sent()
    bench.timer(bench.config.rto_ns)
    probes = [item for item in bench.sent() if isinstance(item, Control) and item.opcode == Opcode.PROBE_REQUEST]
    assert [item.dest_qpn for item in probes] == [0x012345]


# -- several peers --------------------------------------------------------------------------------------------------


def test_an_update_of_one_peer_leaves_the_qps_of_others_alone() -> None:
    bench = Bench()
    other = host_address(9).packed
    setup = replace(bench.setup(20), peer_address=other, paths=all_paths(EIGHT, 0, 9))
    second = bench.nic.create_qp(setup)
    bench.receive(bench.endpoint_request(EndpointOp.PORT_STATUS_UPDATE, 1, 0x1FC))
    assert (bench.qp.spray.usable_planes, second.spray.usable_planes) == (0xFE, 0xFF)
    bench.receive(bench.endpoint_request(EndpointOp.PORT_STATUS_UPDATE, 1, 0x03E, src=9))
    assert (bench.qp.spray.usable_planes, second.spray.usable_planes) == (0xFE, 0x1F)


def test_a_local_port_is_told_to_every_peer() -> None:
    bench = Bench()
    bench.nic.create_qp(replace(bench.setup(20), peer_address=host_address(9).packed, paths=all_paths(EIGHT, 0, 9)))
    bench.port(7, up=False)
    told = Counter(frame[78:94] for _, frame, _ in bench.frames())
    assert told == {host_address(bench.peer).packed: 7, host_address(9).packed: 7}


def test_every_packet_newly_placed_is_told_with_its_qp_port_and_time() -> None:
    bench = Bench()
    told: list[tuple[int, int, int, int]] = []
    nic = Nic(EIGHT, identity(EIGHT, 0), bench.config, Rng(1), lambda *args: told.append(args))
    nic.regions.register(MemoryRegion(RKEY, BASE_VA, memoryview(bytearray(1 << 16))))
    nic.create_qp(bench.setup(LOCAL_QPN))
    for port, psn in ((4, 0), (4, 0), (6, 3)):
        nic.receive_frame(port, bench.data(psn, b"12345"), 99 + psn)
    assert told == [(LOCAL_QPN, 4, 5, 99), (LOCAL_QPN, 6, 5, 102)]
