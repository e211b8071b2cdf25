"""Whole frames on the cold path: round trips, shapes the hot path refuses, trimming, the one-line summary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_kit import DST, MAC_A, MAC_B, OUTER_DST, data_frame, packets, sack_frame, template

from mrcemu.errors import WireError
from mrcemu.wire import fast, switching
from mrcemu.wire.frame import Packet, Request, emit_frame, parse_frame, sized, summary
from mrcemu.wire.icrc import icrc_of
from mrcemu.wire.opcodes import DATA_OPCODES, DEFAULT_DSCP, DscpMap, Ecn, NackReason, Opcode


def reason_of(frame: bytes) -> str:
    with pytest.raises(WireError) as caught:
        parse_frame(frame)
    return str(caught.value.reason)


@given(packets(standard=False))
def test_any_packet_survives_the_wire(packet: Packet) -> None:
    assert parse_frame(emit_frame(packet)) == packet
    assert sized(packet) == packet


@given(packets(standard=False), st.integers(1, 200))
def test_a_frame_cut_anywhere_is_truncated(packet: Packet, cut: int) -> None:
    frame = emit_frame(packet)
    assert reason_of(frame[:-cut]) == "truncated"


def test_a_frame_without_an_outer_header_is_read_and_says_that_switches_choose_its_way() -> None:
    frame = data_frame(bytes(64), ev=0xC010)
    bare = frame[:14] + frame[54:]
    packet, whole = parse_frame(bare), parse_frame(frame)
    assert packet == replace(whole, outer=None)
    assert (packet.usids, packet.ev) == ((), 0xC010)
    assert "ev 0x0000c010 via hash" in summary(packet)


def test_a_wrong_icrc_is_an_error_or_a_remark_as_asked() -> None:
    damaged = data_frame()[:-1] + b"\x00"
    assert reason_of(damaged) == "icrc"
    packet = parse_frame(damaged, check_icrc=False)
    assert packet.icrc_ok is False
    assert summary(packet).endswith("bad iCRC")


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_hops_and_marks_leave_the_icrc_and_the_inner_packet_alone(hops: int) -> None:
    sent = data_frame()
    arriving = switching.mark_ce(sent)
    for _ in range(hops):
        forwarded = switching.forward(arriving)
        assert forwarded is not None
        arriving = forwarded
    received = fast.FrameParser(DST).parse(arriving)
    assert received is not None
    assert received.ecn_ce
    assert arriving[54:] == sent[54:]
    packet = parse_frame(arriving)
    assert packet.outer is not None
    assert (packet.outer.hop_limit, len(packet.usids)) == (64 - hops, 4 - hops)
    assert packet.inner.ecn == Ecn.ECT0


def test_a_sender_that_is_not_ecn_capable_is_not_marked() -> None:
    control = sack_frame(ecn=Ecn.NOT_ECT)
    assert switching.mark_ce(control) == control


def test_a_used_up_hop_limit_ends_the_way() -> None:
    assert switching.forward(data_frame(hop_limit=1)) is None
    assert switching.forward(data_frame(hop_limit=2)) is not None


@pytest.mark.parametrize("keep", [108, 109, 123, 124, 128, 131, 4224])
@pytest.mark.parametrize("opcode", sorted(DATA_OPCODES))
@pytest.mark.parametrize(
    ("dscp", "state"), [(DEFAULT_DSCP.trimmed, fast.TRIMMED), (DEFAULT_DSCP.trimmed_lasthop, fast.TRIMMED_LASTHOP)]
)
def test_a_trimmed_packet_tells_what_it_was(keep: int, opcode: int, dscp: int, state: int) -> None:
    original = data_frame(bytes(range(256)) * 16, opcode)
    frame = switching.trim(original, dscp, keep)
    packet, received = parse_frame(frame), fast.FrameParser(DST).parse(frame)
    assert received is not None
    assert len(frame) == 14 + min(keep, len(original) - 14)
    assert received.trimmed == packet.trimmed == state
    assert received.payload_end - received.payload_offset == packet.original_payload_bytes == 4096
    assert packet.icrc_ok is None
    assert received.nominal_bytes == len(original) - 54
    assert (received.psn24, received.ev) == (0x123456, 0x0001_0003)
    assert fast.trimmed_fields(frame) == (2, 7, 999)
    assert isinstance(packet.ext, Request)
    assert (packet.ext.reth is None) == (keep < 124)
    if keep >= 124:
        assert fast.data_fields(frame) == fast.data_fields(original)


def test_a_trimmed_packet_without_timestamp_needs_its_message_number_only() -> None:
    packet = parse_frame(data_frame(bytes(1024)))
    assert isinstance(packet.ext, Request)
    assert packet.outer is not None
    plain = emit_frame(sized(replace(packet, ext=replace(packet.ext, tseth=None))))
    frame = bytearray(switching.trim(plain, DEFAULT_DSCP.trimmed, 108)[:118])
    frame[18:20] = (118 - 54).to_bytes(2, "big")
    received = fast.FrameParser(DST).parse(bytes(frame))
    assert received is not None
    assert fast.trimmed_fields(bytes(frame)) == (2, 7, None)
    cut = parse_frame(bytes(frame))
    assert cut.ext == Request(packet.ext.meth, None, None)


def test_a_packet_trimmed_before_its_timestamp_is_refused() -> None:
    frame = bytearray(switching.trim(data_frame(), DEFAULT_DSCP.trimmed, 108)[:121])
    frame[18:20] = (121 - 54).to_bytes(2, "big")
    parser = fast.FrameParser(DST)
    assert parser.parse(bytes(frame)) is None
    assert parser.drops == {"bad_length": 1}
    assert reason_of(bytes(frame)) == "bad_length"


def test_a_trimmed_packet_longer_than_it_ever_was_is_refused() -> None:
    frame = bytearray(switching.trim(data_frame(bytes(8)), DEFAULT_DSCP.trimmed, 4224) + b"more")
    frame[18:20] = (len(frame) - 54).to_bytes(2, "big")
    parser = fast.FrameParser(DST)
    assert parser.parse(bytes(frame)) is None
    assert parser.drops == {"bad_length": 1}
    assert reason_of(bytes(frame)) == "bad_length"


def test_more_pad_than_payload_is_refused() -> None:
    packet = parse_frame(data_frame(b"", Opcode.WRITE_ONLY))
    frame = emit_frame(replace(packet, bth=replace(packet.bth, pad=1)))[:-5]
    frame += icrc_of(frame[54:])
    parser = fast.FrameParser(DST)
    assert parser.parse(frame) is None
    assert parser.drops == {"bad_length": 1}
    assert reason_of(frame) == "bad_length"


@pytest.mark.parametrize("payload", [b"more", b"odd"])
def test_a_control_packet_with_a_payload_is_refused(payload: bytes) -> None:
    frame = emit_frame(sized(replace(parse_frame(sack_frame()), payload=payload)))
    parser = fast.FrameParser(DST)
    assert parser.parse(frame) is None
    assert parser.drops == {"bad_length": 1}
    assert reason_of(frame) == "bad_length"


def test_only_a_trimmed_packet_may_end_before_its_address() -> None:
    frame = data_frame()[:130]
    bth = parse_frame(data_frame()).bth
    assert Request.parse(frame, 114, bth, is_cut=True).reth is None
    with pytest.raises(WireError, match="truncated"):
        Request.parse(frame, 114, bth, is_cut=False)


def test_trimming_below_what_names_a_packet_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 108"):
        switching.trim(data_frame(), DEFAULT_DSCP.trimmed, 107)


def test_a_short_packet_in_the_trimmed_class_is_refused_as_trimmed_though_nothing_was_cut() -> None:
    frame = switching.trim(data_frame(b"", Opcode.WRITE_ONLY), DEFAULT_DSCP.trimmed)
    received = fast.FrameParser(DST).parse(frame)
    assert received is not None
    assert received.trimmed == fast.TRIMMED
    assert parse_frame(frame).trimmed == fast.TRIMMED


def test_a_control_packet_in_the_trimmed_class_is_whole_if_its_icrc_says_so() -> None:
    frame = switching.trim(sack_frame(), DEFAULT_DSCP.trimmed, 200)
    received = fast.FrameParser(DST).parse(frame)
    assert received is not None
    assert received.trimmed == parse_frame(frame).trimmed == fast.UNTRIMMED
    parser = fast.FrameParser(DST)
    assert parser.parse(switching.trim(sack_frame(), DEFAULT_DSCP.trimmed, 120)) is None
    assert parser.drops == {"bad_length": 1}


def test_a_payload_cut_without_the_trimmed_class_is_refused() -> None:
    frame = switching.trim(data_frame(), DEFAULT_DSCP.trimmable)
    parser = fast.FrameParser(DST)
    assert parser.parse(frame) is None
    assert parser.drops == {"bad_length": 1}
    assert reason_of(frame) == "bad_length"


def test_the_operator_chooses_the_codepoints() -> None:
    dscp = DscpMap(trimmed=20)
    frame = switching.trim(data_frame(), 20)
    assert parse_frame(frame, dscp=dscp).trimmed == fast.TRIMMED
    received = fast.FrameParser(DST, dscp=dscp).parse(frame)
    assert received is not None
    assert received.trimmed == fast.TRIMMED
    assert reason_of(frame) == "bad_length"


def test_summaries() -> None:
    sent = data_frame()
    lines = [
        summary(parse_frame(sent)),
        summary(parse_frame(switching.trim(switching.mark_ce(sent), DEFAULT_DSCP.trimmed_lasthop))),
        summary(parse_frame(sack_frame())),
        summary(parse_frame(data_frame(b"abc", Opcode.WRITE_ONLY_IMM, outer_dst=OUTER_DST[:4] + bytes(12), dscp=63))),
        summary(parse_frame(_control(Opcode.NACK, fast.pack_nack(reason=1, entropy=3, nack_psn=9, tx_timestamp=0)))),
        summary(parse_frame(_control(Opcode.ACKNOWLEDGE, fast.pack_aeth(0x62, 8)))),
        summary(parse_frame(_control(Opcode.PROBE_REQUEST, fast.pack_peth(5, 0)))),
        summary(parse_frame(_control(Opcode.ENDPOINT_REQUEST, fast.pack_erth(0, 0x1FE, 0)))),
        summary(parse_frame(_control(Opcode.ENDPOINT_RESPONSE, fast.pack_eeth(1, 0)))),
        summary(parse_frame(_control(Opcode.SACK, _probe_answer()))),
    ]
    to, nowhere = "ev 0x00010003 via 4400>8403>4401>4401", "ev 0x00010003 via none"
    assert lines == [
        f"trimmable WRITE_MIDDLE qp 77 psn 1193046 {to}, 4096 B, msn 7, va 0x100000, ackreq",
        f"trimmed_lasthop CE WRITE_MIDDLE qp 77 psn 1193046 {to}, 4096 B cut off, msn 7, va 0x100000, ackreq",
        f"control SACK qp 64 psn 4 {to}, cack 4, ack +7, base +1, bitmap 0x76, echo 0x00010003, mark SKIP_ONCE, ooo 5",
        f"dscp 63 WRITE_ONLY_IMM qp 77 psn 1193046 {nowhere}, 3 B, msn 7, va 0x100000, rqmsn 2, imm 0xdeadbeef, ackreq",
        f"control NACK qp 3 psn 4 {to}, TRIMMED, refused psn 9, echo 0x00000003",
        f"control ACKNOWLEDGE qp 3 psn 4 {to}, NAK_REMOTE_ACCESS, msn 8",
        f"control PROBE_REQUEST qp 3 psn 4 {to}, probe 5",
        f"control ENDPOINT_REQUEST qp 3 psn 4 {to}, PORT_STATUS_UPDATE, ports 0x1fe",
        f"control ENDPOINT_RESPONSE qp 3 psn 4 {to}, EV_PROBE",
        f"control SACK qp 3 psn 4 {to}, cack 9, answers probe 48879, base +1, bitmap 0x0, echo 0x00000000",
    ]


def _control(opcode: int, ext: bytes) -> bytes:
    return fast.build_control(template(dscp=DEFAULT_DSCP.control, ecn=Ecn.NOT_ECT), opcode, 3, 4, ext)


def _probe_answer() -> bytes:
    return fast.pack_sack(
        mark=0, ack_psn_offset=0, entropy=0, cack_psn=9, sack_offset=1, bitmap=0, tx_timestamp=0, ooo_count=0,
        rcvd_units=0, probe_id=0xBEEF,
    )  # fmt: skip


def test_an_unknown_reason_is_shown_as_a_number() -> None:
    frame = _control(Opcode.NACK, fast.pack_nack(reason=0x77, entropy=3, nack_psn=9, tx_timestamp=0))
    assert set(NackReason).isdisjoint({0x77})
    assert "0x77" in summary(parse_frame(frame))


def test_ethernet_addresses_are_those_of_the_sender_and_its_switch() -> None:
    packet = parse_frame(data_frame())
    assert (packet.ethernet.source, packet.ethernet.destination) == (MAC_A, MAC_B)
