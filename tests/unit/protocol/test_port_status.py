"""Which ports are up at both ends: masks, ids, announcements, and what a QP does about them (sources 4.9)."""

from __future__ import annotations

import pytest
from transport_kit import EIGHT, MTU, Bench, Control, Data

from mrcemu.protocol.ev import EvState
from mrcemu.protocol.events import EvChanged, LossWasSpurious, PacketLost, PeerPortsChanged, PortChanged, QpFailed
from mrcemu.protocol.port_status import PortStatus
from mrcemu.topology.addressing import host_address
from mrcemu.wire import fast
from mrcemu.wire.opcodes import EndpointOp, Opcode

PEER = b"p" * 16
UPDATE = EndpointOp.PORT_STATUS_UPDATE


def wire_mask(ports: PortStatus) -> tuple[int, int]:
    """(request id, mask on the wire) of the next update."""
    return ports.next_id(), int.from_bytes(ports.update(0)[4:8], "big")


def test_ports_count_from_one_on_the_wire() -> None:
    ports = PortStatus(8)
    assert wire_mask(ports)[1] == 0b1_1111_1110
    ports.set_local(0, False)
    assert wire_mask(ports)[1] == 0b1_1111_1100
    ports.set_local(7, False)
    assert wire_mask(ports)[1] == 0b0_1111_1100


def test_setting_a_port_to_what_it_is_is_no_change() -> None:
    ports = PortStatus(8)
    assert not ports.set_local(3, True)
    assert ports.set_local(3, False)
    assert not ports.set_local(3, False)
    assert ports.local_mask == 0b1111_0111


def test_usable_is_what_is_up_at_both_ends() -> None:
    ports = PortStatus(8)
    assert ports.usable(PEER) == 0xFF
    ports.set_local(0, False)
    assert ports.receive(PEER, 1, 0b1_0111_1110) == 0b1011_1111
    assert ports.usable(PEER) == 0b1011_1110
    assert ports.usable(b"q" * 16) == 0b1111_1110


def test_copies_and_older_updates_are_ignored() -> None:
    ports = PortStatus(8)
    assert ports.receive(PEER, 5, 0x1FC) == 0xFE
    assert ports.receive(PEER, 5, 0x1FE) is None
    assert ports.receive(PEER, 4, 0x1FE) is None
    assert ports.usable(PEER) == 0xFE
    assert ports.receive(PEER, 6, 0x1FC) is None  # newer, but says nothing new
    assert ports.receive(PEER, 7, 0x1FE) == 0xFF


def test_ids_wrap_at_16_bits() -> None:
    ports = PortStatus(8)
    newest = 0
    for step in range(1, 40):
        newest = (newest + 0x1FFF) & 0xFFFF
        expected = 0xFE if step % 2 else 0xFF
        assert ports.receive(PEER, newest, expected << 1) == expected
    assert ports.receive(PEER, newest - 1 & 0xFFFF, 0) is None


def test_updates_are_numbered_from_one_and_wrap() -> None:
    ports = PortStatus(2)
    ids = [ports.next_id() for _ in range(0x10002)]
    assert ids[:3] == [1, 2, 3]
    assert ids[0xFFFE:] == [0xFFFF, 0, 1, 2]


def test_an_update_of_a_host_without_a_qp_is_remembered() -> None:
    ports = PortStatus(8)
    assert ports.receive(PEER, 1, 0x1FC) == 0xFE
    assert ports.usable(PEER) == 0xFE


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0xFFFFFE00 | 0x1FE, 0x1])
def test_bits_of_ports_that_do_not_exist_are_ignored(mask: int) -> None:
    ports = PortStatus(8)
    ports.receive(PEER, 1, mask)
    assert ports.usable(PEER) == (0xFF if mask & 0x1FE else 0)


# -- announcements --------------------------------------------------------------------------------------------------


def announcements(items: list[Data | Control]) -> list[Control]:
    return [item for item in items if isinstance(item, Control) and item.opcode == Opcode.ENDPOINT_REQUEST]


def test_a_change_is_told_to_the_peer_once_on_every_usable_plane() -> None:
    bench = Bench()
    bench.port(2, up=False)
    copies = announcements(bench.sent())
    assert [item.plane for item in copies] == [0, 1, 3, 4, 5, 6, 7]
    assert {item.fields[:2] for item in copies} == {(UPDATE, 0b1_1111_0110)}
    assert len({item.psn for item in copies}) == 1
    assert {(item.dest_qpn, item.dscp) for item in copies} == {(2, 46)}
    assert bench.sent() == []
    bench.port(2, up=True)
    copies = announcements(bench.sent())
    assert [item.plane for item in copies] == list(range(8))
    assert {item.fields[1] for item in copies} == {0x1FE}


def test_an_update_is_repeated_three_times_one_timer_apart_with_the_same_id() -> None:
    bench = Bench()
    bench.port(2, up=False)
    first = announcements(bench.sent())
    rounds = []
    for _ in range(6):
        bench.timer(bench.now_ns + bench.config.rto_ns)
        rounds.append(announcements(bench.sent()))
    assert [len(copies) for copies in rounds] == [7, 7, 7, 0, 0, 0]
    assert {item.psn for copies in rounds for item in copies} == {item.psn for item in first}


def test_carrier_that_did_not_change_is_not_told() -> None:
    bench = Bench()
    bench.port(2, up=True)
    assert bench.sent() == []
    assert bench.events == []


def test_several_qps_to_one_peer_tell_it_once() -> None:
    bench = Bench()
    for qpn in range(10, 15):
        bench.nic.create_qp(bench.setup(qpn))
    bench.port(0, up=False)
    assert len(announcements(bench.sent())) == 7


def test_what_happened_is_an_event() -> None:
    bench = Bench()
    bench.now_ns = 5
    bench.port(6, up=False)
    bench.receive(bench.endpoint_request(UPDATE, 1, 0x1FC))
    assert bench.of(PortChanged) == [PortChanged(5, 0, 6, False)]
    assert bench.of(PeerPortsChanged) == [PeerPortsChanged(5, 0, host_address(bench.peer).packed, 0xFE)]


# -- what a QP does -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["local", "peer"])
def test_a_plane_down_at_either_end_carries_nothing_and_its_packets_go_again_at_once(side: str) -> None:
    bench = Bench()
    bench.post(40 * MTU)
    sent = bench.sent_data()
    on_plane_0 = [packet.psn for packet in sent if packet.plane == 0]
    if side == "local":
        bench.port(0, up=False)
    else:
        bench.receive(bench.endpoint_request(UPDATE, 1, 0x1FC))
    assert [(event.psn, event.signal) for event in bench.of(PacketLost)] == [(psn, "port") for psn in on_plane_0]
    again = bench.sent_data()
    assert [packet.psn for packet in again] == on_plane_0
    assert all(packet.rtx and packet.plane != 0 for packet in again)


def test_a_port_is_no_fault_of_its_paths() -> None:
    bench = Bench()
    bench.post(40 * MTU)
    bench.sent()
    bench.port(0, up=False)
    assert bench.of(EvChanged) == []
    assert {entry.state for entry in bench.qp.spray.entries.values()} == {EvState.GOOD}


def test_what_arrived_just_before_its_port_went_down_is_no_spurious_loss() -> None:
    """The port explains it: the guard was not too short."""
    bench = Bench()
    bench.post(8 * MTU)
    bench.sent()
    bench.port(0, up=False)
    assert len(bench.of(PacketLost)) == 1
    bench.receive(bench.sack(7))
    assert bench.of(LossWasSpurious) == []
    assert bench.qp.requester.loss.guard_ns == bench.config.base_rtt_ns


def test_paths_retired_just_before_their_port_was_known_down_are_exonerated() -> None:
    bench = Bench()
    bench.post(48 * MTU)
    sent = bench.sent_data()
    victim = next(packet for packet in sent if packet.plane == 0)
    later = next(packet for packet in sent if packet.ev == victim.ev and packet.psn > victim.psn)
    bench.receive(bench.sack(-1, [later.psn]))
    entry = bench.qp.spray.entries[victim.ev]
    assert entry.state is EvState.ASSUMED_BAD
    bench.now_ns = bench.config.rto_ns // 2
    bench.port(0, up=False)
    assert entry.state is EvState.GOOD
    assert bench.of(EvChanged)[-1].signal == "port"


def test_a_peer_with_all_ports_down_is_sent_nothing_and_no_failure_yet() -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(UPDATE, 1, 0))
    bench.sent()
    bench.post(MTU)
    assert bench.frames() == []
    assert bench.of(QpFailed) == []
    bench.receive(bench.endpoint_request(UPDATE, 2, 0x1FE))
    assert len(bench.sent_data()) == 1


def test_updates_of_another_host_leave_this_peers_planes_alone() -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(UPDATE, 1, 0, src=5))
    assert len(bench.of(PeerPortsChanged)) == 1
    assert bench.qp.spray.usable_planes == 0xFF


def test_a_port_down_before_the_qp_exists_is_respected() -> None:
    bench = Bench()
    bench.port(3, up=False)
    bench.sent()
    qp = bench.nic.create_qp(bench.setup(20))
    assert {item.fields[1] for item in announcements(bench.sent())} == {0b1_1110_1110}  # the peer is told at once
    assert qp.spray.usable_planes == 0xF7
    window = int(1.5 * bench.config.plane_bdp_bytes)
    assert qp.congestion.window_bytes == 7 * window


def test_an_update_reads_back_as_it_was_written() -> None:
    ports = PortStatus(EIGHT.planes)
    ports.set_local(4, False)
    assert fast.pack_erth(UPDATE, 0b1_1101_1110, 77) == ports.update(77)
