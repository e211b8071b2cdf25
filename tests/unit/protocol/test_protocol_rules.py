"""Rules of the sources that no other test states: fields on the wire, classes, gates. docs/protocol.md points here."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from transport_kit import DSCP, EIGHT, LOCAL_QPN, MTU, PEER_QPN, TINY, Bench, Control, Data

from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.protocol.events import MessageArrived, QpFailed
from mrcemu.runner.settings import SETTINGS
from mrcemu.topology.addressing import all_paths, ev_from_destination, usid_fields
from mrcemu.topology.model import Tier
from mrcemu.wire.fast import EXT_OFFSET, FLAG_ACKREQ
from mrcemu.wire.frame import Packet, Request, emit_frame, parse_frame, sized
from mrcemu.wire.headers import Neth, Seth
from mrcemu.wire.opcodes import NackReason, Opcode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
ONLY, ONLY_IMM = Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM


def only_frame(bench: Bench) -> bytes:
    ((_, frame, _),) = bench.frames()
    return frame


def data_packet(bench: Bench) -> tuple[bytes, Packet, Request]:
    """The one data frame the NIC sends now, its meaning, its request headers."""
    frame = only_frame(bench)
    packet = parse_frame(frame)
    assert isinstance(packet.ext, Request)
    return frame, packet, packet.ext


# -- 1: the wire ----------------------------------------------------------------------------------------------------


def test_a_full_packet_is_128_bytes_of_headers_and_trailer_behind_ethernet() -> None:
    bench = Bench()
    bench.post(MTU)
    frame, _, _ = data_packet(bench)
    assert len(frame) - MTU == 14 + 128
    assert len(frame) == EIGHT.data_frame_bytes


@pytest.mark.parametrize("ticks", [0, 7, 0xFFFF, 0x10005])
def test_requests_carry_a_timestamp_of_128_ns_times_the_scale_marked_as_our_own_unit(ticks: int) -> None:
    bench = Bench()
    bench.now_ns = ticks * 128 * EIGHT.scale + 1
    bench.post(1)
    _, packet, request = data_packet(bench)
    assert packet.bth.ts
    assert request.tseth is not None
    assert (request.tseth.tx_timestamp, request.tseth.tsr, request.tseth.ftype) == (ticks & 0xFFFF, True, 1)


def test_a_request_without_a_timestamp_is_placed_and_reflected_as_zero() -> None:
    bench = Bench()
    packet = parse_frame(bench.data(0, b"plain", flags=FLAG_ACKREQ))
    assert isinstance(packet.ext, Request)
    plain = emit_frame(sized(replace(packet, ext=replace(packet.ext, tseth=None))))
    assert bench.receive(plain) == 5
    assert bench.memory(0, 5) == b"plain"
    sack, _ = bench.answers()
    assert (sack.opcode, sack.fields[7]) == (Opcode.SACK, 0)


def test_a_sack_repeats_its_cumulative_psn_in_the_bth() -> None:
    bench = Bench(receive_psn=100)
    for psn in (100, 101, 107):
        bench.receive(bench.data(psn, msn=psn - 100, flags=FLAG_ACKREQ))
    sacks = [item for item in bench.answers() if item.opcode == Opcode.SACK]
    assert [(item.psn, item.cack) for item in sacks] == [(100, 100), (101, 101), (101, 101)]


def test_a_sack_says_nothing_that_is_not_implemented() -> None:
    """No CC type or flags, no window while it is static, no penalty, no port bitmap in the reserved byte."""
    bench = Bench()
    bench.receive(bench.data(1, msn=1, flags=FLAG_ACKREQ))
    frame = only_frame(bench)
    sack = parse_frame(frame).ext
    assert isinstance(sack, Seth)
    assert (sack.cc_type, sack.cc_fl, sack.mpr_units, sack.rcv_cwnd_pen, sack.restore_cwnd) == (0, 0, 0, 0, False)
    assert frame[EXT_OFFSET + 12] == 0


def test_a_report_that_starts_below_the_cumulative_point_is_understood() -> None:
    """Bits at or below cack are 1 and say nothing new; those above say what they always do."""
    bench = Bench()
    bench.post(8 * MTU)
    bench.sent()
    bench.receive(bench.sack(3, offset=-10, bitmap=(1 << 11) - 1 | 1 << 13))  # up to 3, and 6
    left = bench.qp.congestion.inflight_bytes // (MTU + 88)
    assert (bench.qp.requester.inflight_packets, left) == (3, 3)


def test_answers_name_both_qps_by_their_low_16_bits_and_the_peer_by_bth() -> None:
    bench = Bench()
    bench.receive(bench.data(1, msn=1, flags=FLAG_ACKREQ))
    bench.receive(bench.data(5000, msn=0))
    for _, frame, _ in bench.frames():
        packet = parse_frame(frame)
        assert isinstance(packet.ext, Seth | Neth)
        assert packet.bth.dest_qpn == PEER_QPN
        assert (packet.ext.spdcid, packet.ext.dpdcid) == (LOCAL_QPN, PEER_QPN & 0xFFFF)


def test_sacks_nacks_and_transport_acks_ride_the_control_class() -> None:
    bench = Bench()
    bench.receive(bench.data(0, flags=FLAG_ACKREQ))
    bench.receive(bench.data(5000, msn=0))
    answers = bench.answers()
    assert {item.opcode for item in answers} == {Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE}
    assert {item.dscp for item in answers} == {DSCP.control}


# -- 2: the requester -----------------------------------------------------------------------------------------------


def test_a_probe_and_a_port_update_take_no_psn_from_the_data() -> None:
    bench = Bench()
    bench.post(1)
    bench.sent()
    bench.timer(bench.config.rto_ns)
    bench.port(7, up=False)
    controls = [item.opcode for item in bench.sent() if isinstance(item, Control)]
    assert {Opcode.PROBE_REQUEST, Opcode.ENDPOINT_REQUEST} <= set(controls)
    bench.post(1)
    assert [packet.psn for packet in bench.sent_data()] == [1]


def test_retransmissions_wait_while_a_shrunken_window_is_below_them() -> None:
    bench = Bench(TINY, mpr_units=2, window_bdp=1e6)
    bench.post(256 * MTU)
    assert len(bench.sent_data()) == 256
    bench.receive(bench.sack(-1, mpr_units=1))
    bench.timer(bench.config.rto_ns)
    assert [packet.psn for packet in bench.sent_data()] == list(range(128))
    bench.receive(bench.sack(9, mpr_units=1))
    assert [packet.psn for packet in bench.sent_data()] == list(range(128, 138))


@pytest.mark.parametrize(("code", "timer_ns"), [(0, 1024), (8, 262_144), (14, 16_777_216), (24, 17_179_869_184)])
def test_the_local_ack_timer_is_1024_ns_times_two_to_the_code(code: int, timer_ns: int) -> None:
    assert replace(for_topology(EIGHT), timeout_code=code).rto_ns == timer_ns


def test_a_packet_trimmed_again_and_again_needs_no_timer() -> None:
    bench = Bench(linear_retries=0, exp_retries=0)
    bench.post(1)
    (packet,) = bench.sent_data()
    for _ in range(20):
        bench.receive(bench.nack(NackReason.TRIMMED, packet.psn, packet.ev))
        (packet,) = bench.sent_data()
        assert packet.rtx
    assert bench.of(QpFailed) == []


# -- 3: the responder -----------------------------------------------------------------------------------------------


def test_more_immediates_in_flight_than_advertised_are_an_invalid_request_and_the_end() -> None:
    """PSN 0 is missing, so none of the immediates behind it can be delivered."""
    bench = Bench(max_imm_in_flight=2)
    for psn in (1, 2):
        bench.receive(bench.data(psn, opcode=ONLY_IMM, imm=psn))
    assert bench.of(QpFailed) == []
    bench.receive(bench.data(3, opcode=ONLY_IMM, imm=3))
    assert len(bench.of(QpFailed)) == 1
    naks = [item.fields[0] for item in bench.answers() if item.opcode == Opcode.ACKNOWLEDGE]
    assert naks == [0x61]


def test_as_many_immediates_in_flight_as_advertised_are_taken() -> None:
    bench = Bench(max_imm_in_flight=2)
    for psn in (1, 2, 0, 4, 5, 3):
        bench.receive(bench.data(psn, opcode=ONLY if psn % 3 == 0 else ONLY_IMM, imm=None if psn % 3 == 0 else psn))
    assert [event.imm for event in bench.of(MessageArrived)] == [None, 1, 2, None, 4, 5]


def test_a_trimmed_class_on_a_packet_that_lost_nothing_still_counts_as_trimmed() -> None:
    """What tells is the class: the payload behind it is not looked at, since its checksum is not either."""
    bench = Bench()
    frame = bytearray(bench.data(0, b"x" * 8))
    frame[14:18] = (int.from_bytes(frame[14:18], "big") & ~(0x3F << 22) | DSCP.trimmed << 22).to_bytes(4, "big")
    assert bench.receive(bytes(frame)) == 0
    assert [item.fields[0] for item in bench.answers()] == [NackReason.TRIMMED]
    assert bench.memory(0, 8) == bytes(8)


# -- 4 and 5: paths -------------------------------------------------------------------------------------------------


def test_which_paths_of_a_plane_are_backups_is_random() -> None:
    chosen = {tuple(sorted(entry.ev for entry in Bench(seed=seed).qp.spray.in_service(0))) for seed in range(12)}
    assert len(chosen) > 1


def test_all_of_a_planes_losses_leave_the_shares_of_the_other_planes_equal() -> None:
    """Every path of plane 0 is retired; what it carried is spread over the rest, not given to a neighbour."""
    bench = Bench(ev_min_active=1, window_bdp=100, mpr_units=255)
    for entry in [entry for entry in bench.qp.spray.entries.values() if entry.plane == 0]:
        bench.receive(bench.sack(-1, entropy=entry.ev, mark=2))
    bench.post(700 * MTU)
    planes = [item.plane for item in bench.sent() if isinstance(item, Data)]
    assert {planes.count(plane) for plane in range(1, 8)} == {100}


@pytest.mark.parametrize(("src", "dst"), [(0, 15), (0, 12), (5, 2), (0, 1)])
def test_the_plane_is_in_every_usid_and_the_uplink_in_that_of_the_t1(src: int, dst: int) -> None:
    for path in all_paths(EIGHT, src, dst):
        fields = [usid_fields(value) for value in path.usids]
        assert {plane for _, plane, _ in fields} == {path.ev & 0xF} == {path.plane}
        assert fields[-1] == (Tier.HOST, path.plane, EIGHT.downlink_of_host(dst))
        if len(fields) == 4:
            assert [tier for tier, _, _ in fields] == [Tier.T0, Tier.T1, Tier.T0, Tier.HOST]
            assert fields[1][2] == path.ev >> 4
        assert ev_from_destination(EIGHT, path.destination) == path.ev


# -- docs/protocol.md -----------------------------------------------------------------------------------------------


def test_the_page_of_rules_names_tests_that_exist() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 100
    assert PAGE.count("::") == len(named)
    assert [f"{file}::{test}" for file, test in named if f"def {test}(" not in files.get(file, "")] == []


def test_the_page_of_rules_names_modules_and_functions_that_exist() -> None:
    named = re.findall(r"`(\w+(?:/\w+)+\.py)(?::(\w+))?`", PAGE)
    assert len(named) > 100
    missing = []
    for file, name in named:
        path = ROOT / "mrcemu" / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not text or (name and not re.search(rf"(def|class) {name}\b", text)):
            missing.append((file, name))
    assert missing == []


def test_the_page_of_rules_names_settings_that_exist() -> None:
    table = PAGE.split("## Open points")[1].split("## What is ours")[0]
    rows = [line.split("|")[-2].strip() for line in table.splitlines() if line.startswith("| ")][2:]
    config = {field.name for field in fields(TransportConfig)}
    keys = {}
    for cell in rows:
        for name, key in re.findall(r"`(\w+)`(?: \(`(\w+)`\))?", cell):
            assert name in config | {"QpSetup"}, cell
            if key:
                keys[key] = name
    assert keys == {key: setting.field for key, setting in SETTINGS.items()}


# -- what the page once listed as deviations ------------------------------------------------------------------------


def test_without_trimming_data_rides_no_trim() -> None:
    bench = Bench(trimmable=False)
    bench.post(2 * MTU)
    assert {packet.dscp for packet in bench.sent_data()} == {DSCP.no_trim}
    bench.timer(bench.config.rto_ns)
    assert {packet.dscp for packet in bench.sent_data()} == {DSCP.no_trim}


def test_the_last_packet_the_mpr_allows_asks_for_an_acknowledgement() -> None:
    bench = Bench(TINY, mpr_units=1, window_bdp=100)
    bench.post(1 << 22)
    sent = bench.sent_data()
    assert [packet.psn for packet in sent if packet.ackreq] == [127]


def test_a_window_below_one_packet_still_sends_one() -> None:
    bench = Bench(TINY, window_bdp=0.001)
    bench.post(1 << 20)
    assert len(bench.sent_data()) == 1
