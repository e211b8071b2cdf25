"""The hot path: the same bytes and the same meaning as the cold path, and its own limits."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_kit import (
    CONTROL,
    DST,
    MAC_A,
    MAC_B,
    OUTER_DST,
    SRC,
    data_frame,
    headers,
    packets,
    sack_frame,
    slow_icrc,
    template,
    uints,
)

from mrcemu.wire import fast, layout, switching
from mrcemu.wire.bits import Header
from mrcemu.wire.frame import Packet, Request, emit_frame, parse_frame
from mrcemu.wire.headers import Aeth, Eeth, Erth, Neth, Peth, Seth
from mrcemu.wire.opcodes import DATA_OPCODES, IMMEDIATE_OPCODES, Ecn, Opcode

BUFFERS: list[Callable[[bytes], bytes | bytearray | memoryview]] = [
    bytes, bytearray, lambda payload: memoryview(b"x" + payload)[1:],
]  # fmt: skip


def fields(received: fast.Received) -> tuple[object, ...]:
    return tuple(getattr(received, name) for name in received.__slots__)


def parsed(frame: bytes) -> fast.Received:
    """What a parser makes of a frame, the same whether it knows how the frame starts or not."""
    parser = fast.FrameParser(DST)
    received, again = parser.parse(frame), parser.parse(frame)
    assert received is not None, parser.drops
    assert again is not None, parser.drops
    assert fields(received) == fields(again)
    return again


def test_a_whole_frame_is_laid_out_as_specified() -> None:
    frame = fast.build_data(
        template(ev=0x00010003), Opcode.WRITE_ONLY, 0x4D, 0x123456, fast.FLAG_ACKREQ | fast.FLAG_RTX, 0, 7, 0x0999,
        0x100000, 0xABCD, 3, b"abc",
    )  # fmt: skip
    inner = bytes.fromhex(
        "62200001 0034 11 40" + SRC.hex() + DST.hex() + "0003 12b7 0034 0000"  # ECT(0), EV halves, 52 bytes of UDP
        "ca 10 ffff 00 00004d b0 123456 0000 0007 0999 8001 0000000000100000 0000abcd 00000003 616263 00"
    )
    outer = bytes.fromhex("62200001 005c 29 40") + SRC + OUTER_DST
    assert frame == MAC_B + MAC_A + b"\x86\xdd" + outer + inner + slow_icrc(inner)


@given(packets(opcodes=DATA_OPCODES, tseth=True), st.data())
def test_data_frames_are_those_of_the_cold_path(packet: Packet, data: st.DataObject) -> None:
    ext = packet.ext
    assert isinstance(ext, Request)
    assert ext.tseth is not None
    assert ext.reth is not None
    assert packet.outer is not None
    one = template(
        ev=packet.ev, dscp=packet.inner.dscp, ecn=packet.inner.ecn, hop_limit=packet.inner.hop_limit,
        udp_dport=packet.udp.destination_port, outer_src=packet.outer.source, outer_dst=packet.outer.destination,
        inner_src=packet.inner.source, dst_mac=packet.ethernet.destination, src_mac=packet.ethernet.source,
    )  # fmt: skip
    ours = replace(
        packet,
        outer=replace(
            packet.outer, dscp=packet.inner.dscp, ecn=packet.inner.ecn, flow_label=packet.inner.flow_label & 0xFFFF,
            hop_limit=packet.inner.hop_limit,
        ),
        inner=replace(packet.inner, flow_label=packet.inner.flow_label & 0xFFFF),
        udp=replace(packet.udp, checksum=0),
        bth=replace(packet.bth, solicited=False, migreq=False, p_key=0xFFFF),
        ext=replace(ext, tseth=replace(ext.tseth, tsr=True, ftype=1)),
    )  # fmt: skip
    flags = (fast.FLAG_ACKREQ if packet.bth.ackreq else 0) | (fast.FLAG_RTX if packet.bth.rtx else 0)
    unbounded_psn = packet.bth.psn + data.draw(st.integers(-2, 2)) * (1 << 24)
    wrapped = data.draw(st.sampled_from(BUFFERS))
    for _ in range(2):  # the second time from the template's memory
        frame = fast.build_data(
            one, packet.bth.opcode, packet.bth.dest_qpn, unbounded_psn, flags, ext.meth.rqmsn, ext.meth.msn,
            ext.tseth.tx_timestamp, ext.reth.va, ext.reth.rkey, ext.reth.dma_bytes, wrapped(packet.payload),
            ext.imm.immediate if ext.imm else None,
        )  # fmt: skip
        assert frame == emit_frame(ours)


@given(packets())
def test_both_paths_read_the_same_from_any_good_frame(packet: Packet) -> None:
    frame = emit_frame(packet)
    assert parse_frame(frame) == packet
    received = parsed(frame)
    assert packet.outer is not None
    assert received.frame is frame
    assert received.opcode == packet.bth.opcode
    assert (received.dest_qpn, received.psn24) == (packet.bth.dest_qpn, packet.bth.psn)
    assert (received.ackreq, received.rtx) == (packet.bth.ackreq, packet.bth.rtx)
    assert (received.dscp, received.ecn_ce) == (packet.outer.dscp, packet.outer.ecn == Ecn.CE)
    assert (received.ev, received.src) == (packet.ev, packet.inner.source)
    assert frame[received.payload_offset : received.payload_end] == packet.payload
    assert received.nominal_bytes == packet.udp.length_bytes + 40
    assert received.trimmed == fast.UNTRIMMED
    if isinstance(packet.ext, Request):
        _same_request(received, packet.ext)


def _same_request(received: fast.Received, ext: Request) -> None:
    assert ext.reth is not None
    timestamp = ext.tseth.tx_timestamp if ext.tseth else None
    expected = (ext.meth.rqmsn, ext.meth.msn, timestamp, ext.reth.va, ext.reth.rkey, ext.reth.dma_bytes)
    assert fast.data_fields(received.frame) == expected
    if received.opcode in IMMEDIATE_OPCODES:
        assert ext.imm is not None
        assert fast.immediate(received.frame, received.payload_offset) == ext.imm.immediate


def control(opcode: int, ext: bytes) -> bytes:
    return fast.build_control(template(), opcode, 3, 4, ext)


@given(headers(Seth, cc_type=0, cc_fl=0))
def test_sack_packing_and_reading_are_those_of_the_header(header: Header) -> None:
    assert isinstance(header, Seth)
    ext = fast.pack_sack(
        mark=header.mark, ack_psn_offset=header.ack_psn_offset, entropy=header.entropy, cack_psn=header.cack_psn,
        sack_offset=header.sack_offset, bitmap=header.bitmap, tx_timestamp=header.tx_timestamp,
        ooo_count=header.ooo_count, rcvd_units=header.rcvd_units, mpr_units=header.mpr_units,
        rcv_cwnd_pen=header.rcv_cwnd_pen, restore_cwnd=header.restore_cwnd, probe_id=header.probe_id,
        spdcid=header.spdcid, dpdcid=header.dpdcid,
    )  # fmt: skip
    assert ext == header.emit()
    assert fast.sack_fields(control(Opcode.SACK, ext)) == (
        header.mark, header.probe, header.probe_id if header.probe else header.ack_psn_offset, header.entropy,
        header.cack_psn, header.sack_offset, header.bitmap, header.tx_timestamp, header.ooo_count, header.rcvd_units,
        header.rcv_cwnd_pen, header.restore_cwnd, header.mpr_units,
    )  # fmt: skip


def test_sack_numbers_wrap_where_they_are_counted_without_bound() -> None:
    ext = fast.pack_sack(
        mark=0, ack_psn_offset=0, entropy=0, cack_psn=-1, sack_offset=1, bitmap=0, tx_timestamp=0, ooo_count=0,
        rcvd_units=(1 << 24) + 5,
    )  # fmt: skip
    assert (Seth.parse(ext).cack_psn, Seth.parse(ext).rcvd_units) == (0xFFFFFF, 5)


@given(st.data())
def test_other_packings_and_readings_are_those_of_their_headers(data: st.DataObject) -> None:
    byte, half, psn, word = (data.draw(uints(width)) for width in (8, 16, 24, 32))
    op = data.draw(uints(2))
    nack = fast.pack_nack(
        reason=byte, entropy=word, nack_psn=psn + (3 << 24), tx_timestamp=half, vendor_info=9, spdcid=8
    )
    assert nack == Neth(byte, word, psn, half, vendor_info=9, spdcid=8).emit()
    assert fast.nack_fields(control(Opcode.NACK, nack)) == (byte, word, psn, half)
    aeth = fast.pack_aeth(byte, psn - (1 << 24))
    assert aeth == Aeth(byte, psn).emit()
    assert fast.aeth_fields(control(Opcode.ACKNOWLEDGE, aeth)) == (byte, psn)
    peth = fast.pack_peth(half, byte, 7, 8)
    assert peth == Peth(half, byte, spdcid=7, dpdcid=8).emit()
    assert fast.peth_fields(control(Opcode.PROBE_REQUEST, peth)) == (half, byte)
    erth = fast.pack_erth(op, word, half)
    assert erth == Erth(op, word, half).emit()
    assert fast.erth_fields(control(Opcode.ENDPOINT_REQUEST, erth)) == (op, word, half)
    eeth = fast.pack_eeth(op, half)
    assert eeth == Eeth(op, half).emit()
    assert fast.eeth_fields(control(Opcode.ENDPOINT_RESPONSE, eeth)) == (op, half)


@pytest.mark.parametrize("opcode", list(CONTROL))
@pytest.mark.parametrize(("rtx", "ackreq"), [(False, False), (True, False), (False, True)])
def test_control_frames_carry_their_flags_and_nothing_behind_the_header(opcode: int, rtx: bool, ackreq: bool) -> None:
    ext = bytes(range(CONTROL[Opcode(opcode)].SIZE))
    one = template(ecn=Ecn.NOT_ECT, dscp=46)
    packet = parse_frame(fast.build_control(one, opcode, 0x40, -1, ext, rtx=rtx, ackreq=ackreq))
    assert (packet.bth.rtx, packet.bth.ackreq, packet.bth.ts) == (rtx, ackreq, False)
    assert (packet.bth.psn, packet.payload, packet.ext) == (0xFFFFFF, b"", CONTROL[Opcode(opcode)].parse(ext))
    assert packet.outer is not None
    assert (packet.outer.traffic_class, packet.inner.traffic_class) == (46 << 2, 46 << 2)


REFUSALS = {
    "truncated": lambda frame: frame[:-1],
    "not_ipv6": lambda frame: frame[:12] + b"\x08\x00" + frame[14:],
    "not_srv6": lambda frame: frame[:20] + b"\x00" + frame[21:],
    "not_udp": lambda frame: frame[:60] + b"\x06" + frame[61:],
    "not_mine": lambda frame: frame[:93] + b"\x99" + frame[94:],
    "bad_udp_port": lambda frame: frame[:96] + b"\x12\xb8" + frame[98:],
    "unknown_opcode": lambda frame: frame[:102] + b"\x0a" + frame[103:],
    "bad_version": lambda frame: frame[:103] + b"\x01" + frame[104:],
    "bad_length": lambda frame: frame + b"\x00",
    "bad_pad": lambda frame: frame[:58] + b"\x00\x3b" + frame[60:98] + b"\x00\x3b" + frame[100:],
    "icrc": lambda frame: frame[:-6] + b"\xff" + frame[-5:],
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refused_frame_is_counted_under_its_reason(reason: str) -> None:
    parser = fast.FrameParser(DST)
    frame = data_frame(b"payload!", Opcode.WRITE_ONLY)
    assert parser.parse(REFUSALS[reason](frame)) is None
    assert parser.drops == {reason: 1}
    assert parser.parse(frame) is not None


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "truncated"),
        (bytes(13), "truncated"),
        (bytes(12) + b"\x08\x06" + bytes(28), "not_ipv6"),  # ARP
        (bytes(12) + b"\x86\xdd\x60" + bytes(75), "not_srv6"),  # a multicast listener report
        (bytes(12) + b"\x86\xdd\x60" + bytes(6), "not_srv6"),
        (bytes(12) + b"\x86\xdd\x60" + bytes(5), "truncated"),  # before its next header
        (bytes(12) + b"\x86\xdd\x45", "not_ipv6"),
    ],
)
def test_short_foreign_frames_are_named_for_what_they_are(frame: bytes, reason: str) -> None:
    parser = fast.FrameParser(DST)
    assert parser.parse(frame) is None
    assert parser.drops == {reason: 1}


def test_the_transposed_udp_port_is_understood_and_others_on_request() -> None:
    assert fast.FrameParser(DST).parse(data_frame(udp_dport=4971)) is not None
    assert fast.FrameParser(DST).parse(data_frame(udp_dport=5000)) is None
    assert fast.FrameParser(DST, {5000}).parse(data_frame(udp_dport=5000)) is not None


def test_distinct_senders_cannot_make_the_parser_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrcemu.wire.fast_parse._MAX_KNOWN", 16)
    parser = fast.FrameParser(DST)
    for ev in range(100):
        assert parser.parse(sack_frame(ev=ev)) is not None
        assert len(parser._known) <= 16
    damaged = sack_frame(ev=1000)[:-1] + b"\x00"
    known = len(parser._known)
    assert parser.parse(damaged) is None
    assert len(parser._known) == known
    for ev in range(100):
        assert parser.parse(switching.trim(data_frame(ev=ev), 16)) is not None
        assert len(parser._known) <= 16


def test_random_payload_sizes_cannot_make_a_template_grow_without_bound() -> None:
    one = template()
    for size in range(300):
        frame = fast.build_data(one, Opcode.WRITE_ONLY, 3, size, 0, 0, 0, 0, 0, 0, size, bytes(size))
        assert parsed(frame).payload_end - parsed(frame).payload_offset == size
        assert len(one._heads) <= 64


def test_a_template_keeps_data_and_control_of_equal_length_apart() -> None:
    one = template()
    fast.build_control(one, Opcode.SACK, 3, 4, bytes(36))
    with pytest.raises(ValueError, match="no data packet"):
        fast.build_data(one, Opcode.SACK, 3, 4, 0, 0, 0, 0, 0, 0, 36, bytes(36))


@pytest.mark.parametrize("opcode", sorted(DATA_OPCODES))
def test_an_immediate_goes_with_the_imm_opcodes_and_no_others(opcode: int) -> None:
    wrong = None if opcode in IMMEDIATE_OPCODES else 5
    with pytest.raises(ValueError, match="no data packet"):
        fast.build_data(template(), opcode, 3, 4, 0, 0, 0, 0, 0, 0, 4, b"abcd", wrong)


def test_misuse_of_the_builders_is_refused() -> None:
    with pytest.raises(ValueError, match="no extension header of 35 bytes"):
        fast.build_control(template(), Opcode.SACK, 3, 4, bytes(35))
    with pytest.raises(ValueError, match="no extension header"):
        fast.build_control(template(), Opcode.WRITE_ONLY, 3, 4, bytes(24))
    with pytest.raises(struct.error):
        fast.build_data(template(), Opcode.WRITE_ONLY, 3, 4, 0, 0, 1 << 16, 0, 0, 0, 4, b"abcd")
    with pytest.raises(ValueError, match="16"):
        template(inner_dst=b"short")
    with pytest.raises(ValueError, match="DSCP"):
        template(dscp=64)
    with pytest.raises(ValueError, match="16 bytes"):
        fast.FrameParser(b"short")


def test_the_offsets_of_the_layout_follow_from_its_sizes() -> None:
    assert (layout.INNER_OFFSET, layout.UDP_OFFSET, layout.BTH_OFFSET, layout.EXT_OFFSET) == (54, 94, 102, 114)
    for opcode in range(256):
        sizes = {layout.extension_bytes(opcode, with_tseth) for with_tseth in (False, True)}
        assert (sizes != {0}) == (opcode in set(Opcode))
