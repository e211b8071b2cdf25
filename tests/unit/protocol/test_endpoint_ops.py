"""Connectionless requests between two NICs on QPN 2: probes of paths and their answers (sources 1.7, 4.11)."""

from __future__ import annotations

import pytest
from transport_kit import EIGHT, Bench, Control

from mrcemu.errors import QpError
from mrcemu.protocol.events import EvProbed, PeerPortsChanged
from mrcemu.topology.addressing import destination_bytes, host_address, path_for_ev, usid
from mrcemu.topology.model import Tier
from mrcemu.wire.opcodes import EndpointOp, Opcode

PROBE, UPDATE = EndpointOp.EV_PROBE, EndpointOp.PORT_STATUS_UPDATE
TIMEOUT_NS = 50_000_000


def peer_address(bench: Bench) -> bytes:
    return host_address(bench.peer).packed


def probed(bench: Bench) -> list[tuple[int, int | None, int]]:
    return [(event.ev, event.rtt_ns, event.request_id) for event in bench.of(EvProbed)]


# -- requests of ours -----------------------------------------------------------------------------------------------


def test_a_probe_of_a_path_rides_that_path_on_the_control_class() -> None:
    bench = Bench()
    request_id = bench.nic.endpoint_ops.probe_peer(peer_address(bench), 0x25, 0, TIMEOUT_NS)
    ((plane, frame, is_control),) = bench.frames()
    item = bench.read(plane, frame)
    assert isinstance(item, Control)
    assert (plane, is_control, item.opcode, item.dest_qpn, item.psn) == (
        5,
        True,
        Opcode.ENDPOINT_REQUEST,
        2,
        request_id,
    )
    assert (item.ev, item.fields[0], item.dscp) == (0x25, PROBE, 46)
    assert frame[38:54] == path_for_ev(EIGHT, 0, bench.peer, 0x25).destination


def test_its_answer_is_an_event_with_the_round_trip() -> None:
    bench = Bench()
    request_id = bench.nic.endpoint_ops.probe_peer(peer_address(bench), 0x25, 0, TIMEOUT_NS)
    bench.frames()
    bench.now_ns = 1234
    for _ in range(2):
        bench.receive(bench.endpoint_response(PROBE, request_id))
    assert probed(bench) == [(0x25, 1234, request_id)]
    assert bench.nic.next_timer_ns() is None


def test_silence_is_an_event_without_a_round_trip_at_the_deadline() -> None:
    bench = Bench()
    request_id = bench.nic.endpoint_ops.probe_peer(peer_address(bench), 0x25, 0, TIMEOUT_NS)
    bench.frames()
    assert bench.nic.next_timer_ns() == TIMEOUT_NS
    bench.timer(TIMEOUT_NS - 1)
    assert probed(bench) == []
    bench.timer(TIMEOUT_NS)
    assert probed(bench) == [(0x25, None, request_id)]
    bench.receive(bench.endpoint_response(PROBE, request_id))
    assert len(probed(bench)) == 1


def test_many_probes_are_told_apart_whatever_the_order_of_answers() -> None:
    bench = Bench()
    ids = {}
    for ev in (0x00, 0x11, 0x22, 0x33):
        ids[ev] = bench.nic.endpoint_ops.probe_peer(peer_address(bench), ev, 0, TIMEOUT_NS)
    bench.frames()
    for ev in (0x22, 0x00, 0x33, 0x11):
        bench.receive(bench.endpoint_response(PROBE, ids[ev]))
    assert [ev for ev, _, _ in probed(bench)] == [0x22, 0x00, 0x33, 0x11]


@pytest.mark.parametrize("ev", [0x08, 0x40, 1 << 20])
def test_a_path_that_does_not_exist_cannot_be_probed(ev: int) -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="names no path"):
        bench.nic.endpoint_ops.probe_peer(peer_address(bench), ev, 0, TIMEOUT_NS)


def test_a_self_probe_leads_back_to_this_nic_and_answers_itself() -> None:
    """NIC to T0 to NIC: the request comes back as it left, and that is the answer."""
    bench = Bench()
    destination = destination_bytes(EIGHT, (usid(Tier.T0, 4, 0), usid(Tier.HOST, 4, 0)))
    request_id = bench.nic.endpoint_ops.probe_self(4, destination, 0x999, 0, TIMEOUT_NS)
    ((plane, frame, _),) = bench.frames()
    assert (plane, frame[38:54]) == (4, destination)
    bench.now_ns = 777
    bench.receive(frame, port=4)
    assert probed(bench) == [(0x999, 777, request_id)]
    assert bench.frames() == []  # it is not answered as a request


def test_the_answer_to_a_port_status_update_is_not_taken_for_a_probes() -> None:
    """Updates and probes number their requests apart, so ids meet; the answer's op tells them apart."""
    bench = Bench()
    bench.nic.endpoint_ops.probe_peer(peer_address(bench), 0x25, 0, TIMEOUT_NS)
    bench.port(0, up=False)
    update = next(item for item in bench.sent() if isinstance(item, Control) and item.fields[0] == UPDATE)
    bench.receive(bench.endpoint_response(UPDATE, update.psn))
    assert probed(bench) == []


def test_an_answer_from_another_host_is_not_taken() -> None:
    bench = Bench()
    request_id = bench.nic.endpoint_ops.probe_peer(peer_address(bench), 0x25, 0, TIMEOUT_NS)
    bench.frames()
    bench.receive(bench.endpoint_response(PROBE, request_id, src=7))
    assert probed(bench) == []


# -- requests of others ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [PROBE, UPDATE])
@pytest.mark.parametrize("port", [0, 3, 7])
def test_a_request_is_answered_on_the_plane_it_came_by_with_its_id_and_timestamp(op: int, port: int) -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(op, 0xABCD, 0x1FE, timestamp=0x4321), port=port)
    (answer,) = bench.answers()
    assert (answer.opcode, answer.dest_qpn, answer.psn, answer.plane) == (Opcode.ENDPOINT_RESPONSE, 2, 0xABCD, port)
    assert (answer.fields, answer.dscp) == ((op, 0x4321), 46)


def test_answers_take_the_planes_uplinks_in_turn() -> None:
    bench = Bench()
    for request_id in range(40):
        bench.receive(bench.endpoint_request(PROBE, request_id), port=2)
    evs = [answer.ev for answer in bench.answers()]
    assert {evs.count(ev) for ev in (0x02, 0x12, 0x22, 0x32)} == {10}


def test_any_host_of_the_fabric_is_answered_without_a_qp() -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(PROBE, 5, src=6))
    ((_, frame, _),) = bench.frames()
    assert frame[78:94] == host_address(6).packed


def test_an_unknown_source_is_dropped_and_counted() -> None:
    bench = Bench()
    for op in (PROBE, UPDATE):
        bench.receive(bench.endpoint_request(op, 1, 0, src=4000))
    bench.receive(bench.endpoint_response(PROBE, 1, src=4000))
    assert bench.frames() == []
    assert bench.nic.endpoint_ops.dropped == 3
    assert bench.of(PeerPortsChanged) == []


def test_a_flood_of_requests_is_bounded() -> None:
    bench = Bench()
    for request_id in range(5000):
        bench.receive(bench.endpoint_request(PROBE, request_id & 0xFFFF))
    answers = bench.answers()
    assert 64 <= len(answers) <= 1024
    assert bench.nic.endpoint_ops.dropped == 5000 - len(answers)
    bench.receive(bench.endpoint_request(PROBE, 1))
    assert len(bench.answers()) == 1


def test_answers_for_a_port_that_went_down_are_dropped() -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(PROBE, 9), port=1)
    bench.port(1, up=False)
    assert all(plane != 1 for plane, _, _ in bench.frames())
    bench.port(1, up=True)
    assert Opcode.ENDPOINT_RESPONSE not in [item.opcode for item in bench.sent()]


@pytest.mark.parametrize("op", [2, 3])
def test_an_operation_nobody_defined_changes_nothing(op: int) -> None:
    bench = Bench()
    bench.receive(bench.endpoint_request(op, 1, 0))
    assert bench.events == []
    assert bench.qp.spray.usable_planes == 0xFF


# -- QP numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qpn", [0, 1, 2, 3])
def test_reserved_and_taken_numbers_are_refused(qpn: int) -> None:
    bench = Bench()
    with pytest.raises(QpError, match="reserved or in use"):
        bench.nic.create_qp(bench.setup(qpn))


def test_packets_for_a_destroyed_qp_are_dropped_and_counted() -> None:
    bench = Bench()
    bench.nic.destroy_qp(3)
    assert bench.receive(bench.data(0, b"late")) == 0
    assert bench.nic.unknown_qp_drops == 1
    assert bench.frames() == []
    assert bench.memory(0, 4) == bytes(4)
