"""Plain frames of ECMP mode: built, read by both codecs alike, marked, trimmed, damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from wire_kit import DST, MAC_A, MAC_B, SRC, packets, slow_icrc

from mrcemu.errors import WireError
from mrcemu.wire import fast, scapy_layers, switching
from mrcemu.wire.frame import Packet, emit_frame, parse_frame, sized, summary
from mrcemu.wire.opcodes import DATA_OPCODES, DEFAULT_DSCP, Opcode
from mrcemu.wire.plain import encapsulated

EV = 0xC012


def template(ev: int = EV, dscp: int = DEFAULT_DSCP.trimmable) -> fast.FrameTemplate:
    return fast.FrameTemplate(dst_mac=MAC_B, src_mac=MAC_A, inner_src=SRC, inner_dst=DST, ev=ev, dscp=dscp)


def plain_frame(payload: bytes = bytes(4096), ev: int = EV, opcode: int = Opcode.WRITE_MIDDLE) -> bytes:
    return fast.build_data(template(ev), opcode, 0x4D, 0x123456, fast.FLAG_ACKREQ, 2, 7, 999, 16, 17, 1 << 20, payload)


def fields(received: fast.Received | None) -> tuple[object, ...]:
    assert received is not None
    return tuple(getattr(received, name) for name in received.__slots__)


def hot(frame: bytes, *earlier: bytes) -> str:
    """The reason for which the hot path refuses a frame, empty if it takes it; the same after `earlier` frames."""
    verdicts = set()
    for known in ((), earlier):
        parser = fast.FrameParser(DST)
        for other in known:
            assert parser.parse(other) is not None
        parser.drops.clear()
        taken = parser.parse(frame) is not None
        assert taken == (not parser.drops)
        verdicts.add("".join(parser.drops))
    [verdict] = verdicts
    return verdict


def cold(frame: bytes) -> str:
    try:
        summary(parse_frame(frame))
    except WireError as error:
        return error.reason
    return ""


def agree(frame: bytes, *earlier: bytes) -> None:
    verdict = hot(frame, *earlier)
    if verdict not in {"not_srv6", "not_mine"}:  # the cold path has no address of its own, and reads SRHs
        assert verdict == cold(frame)


def without_outer(packet: Packet) -> Packet:
    """A packet as a sender in ECMP mode would send it."""
    return sized(replace(packet, outer=None, inner=replace(packet.inner, flow_label=0)))


def test_a_plain_frame_is_laid_out_as_specified() -> None:
    frame = fast.build_data(
        template(), Opcode.WRITE_ONLY, 0x4D, 0x123456, fast.FLAG_ACKREQ | fast.FLAG_RTX, 0, 7, 0x0999, 0x100000, 0xABCD,
        3, b"abc",
    )  # fmt: skip
    packet = bytes.fromhex(
        "62200000 0034 11 40" + SRC.hex() + DST.hex() + "c012 12b7 0034 0000"  # no flow label, EV in the source port
        "ca 10 ffff 00 00004d b0 123456 0000 0007 0999 8001 0000000000100000 0000abcd 00000003 616263 00"
    )
    assert frame == MAC_B + MAC_A + b"\x86\xdd" + packet + slow_icrc(packet)


@given(packets(opcodes=DATA_OPCODES, tseth=True))
def test_both_paths_read_the_same_from_any_plain_frame(packet: Packet) -> None:
    ours = without_outer(packet)
    frame = emit_frame(ours)
    assert parse_frame(frame) == ours
    parser = fast.FrameParser(DST)
    for _ in range(2):  # the second time by its start
        received = parser.parse(frame)
        assert received is not None
        assert (received.opcode, received.dest_qpn, received.psn24) == (
            ours.bth.opcode,
            ours.bth.dest_qpn,
            ours.bth.psn,
        )
        assert (received.ev, received.src, received.dscp) == (ours.udp.source_port, ours.inner.source, ours.inner.dscp)
        assert received.frame[received.payload_offset : received.payload_end] == ours.payload
        assert received.nominal_bytes == ours.udp.length_bytes + 40
    assert len(parser._known) == 1


@given(packets())
def test_a_plain_frame_means_what_it_would_with_an_outer_header(packet: Packet) -> None:
    frame = emit_frame(without_outer(packet))
    parser = fast.FrameParser(DST)
    assert fields(parser.parse(frame)) == fields(parser.parse(encapsulated(frame)))


def test_the_flow_label_of_a_plain_frame_is_no_part_of_its_ev() -> None:
    frame = bytearray(plain_frame())
    frame[15:18] = frame[15] | 0x0F, 0xFF, 0xFF
    received = fast.FrameParser(DST).parse(bytes(frame))
    assert received is not None
    assert received.ev == parse_frame(bytes(frame)).ev == EV


def test_a_mark_is_taken_from_the_only_header_and_the_icrc_holds() -> None:
    received = fast.FrameParser(DST).parse(switching.mark_ce(plain_frame()))
    assert received is not None
    assert received.ecn_ce
    assert not fast.FrameParser(DST).parse(plain_frame()).ecn_ce  # type: ignore[union-attr]


@pytest.mark.parametrize("keep", [108, 128])
@pytest.mark.parametrize(
    ("dscp", "state"), [(DEFAULT_DSCP.trimmed, fast.TRIMMED), (DEFAULT_DSCP.trimmed_lasthop, fast.TRIMMED_LASTHOP)]
)
def test_a_trimmed_plain_frame_still_says_which_packet_it_was(keep: int, dscp: int, state: int) -> None:
    cut = switching.trim(plain_frame(), dscp, keep)
    assert len(cut) == 14 + keep
    received, packet = fast.FrameParser(DST).parse(cut), parse_frame(cut)
    assert received is not None
    assert (received.trimmed, received.psn24, received.ev) == (state, 0x123456, EV)
    assert received.payload_end - received.payload_offset == 4096 == packet.original_payload_bytes
    assert packet.trimmed == state
    assert fast.FrameParser(DST).parse(plain_frame()).nominal_bytes == received.nominal_bytes  # type: ignore[union-attr]


@given(packets(), st.data())
def test_damaged_plain_frames_are_judged_alike_by_both_paths(packet: Packet, data: st.DataObject) -> None:
    good = emit_frame(without_outer(packet))
    changed = bytearray(good)
    if data.draw(st.booleans()):
        changed = bytearray(
            switching.trim(good, data.draw(st.sampled_from([8, 16, 18])), data.draw(st.integers(108, 140)))
        )
    offsets = st.sampled_from([14, 18, 19, 20, 58, 59, 62, 63, 70, 74]) | st.integers(0, len(changed) - 1)
    for offset in data.draw(st.lists(offsets, max_size=3)):
        changed[offset] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        changed = changed[: data.draw(st.integers(0, len(changed)))] + data.draw(st.binary(max_size=8))
    if changed[20:21] == b"\x11":
        agree(bytes(changed), good)
    else:
        hot(bytes(changed), good)  # never raises


def test_each_damaged_bit_and_each_shorter_frame_is_judged_alike() -> None:
    for good in (plain_frame(bytes(24)), switching.trim(plain_frame(), DEFAULT_DSCP.trimmed)):
        for size in range(len(good)):
            agree(good[:size], good)
        for position in range(len(good) * 8):
            damaged = bytearray(good)
            damaged[position // 8] ^= 1 << position % 8
            if damaged[20] == good[20]:
                agree(bytes(damaged), good)


@given(st.binary(max_size=200))
def test_bytes_that_look_plain_never_raise(tail: bytes) -> None:
    parser = fast.FrameParser(DST)
    frame = MAC_B + MAC_A + b"\x86\xdd" + tail
    frame = frame[:20] + b"\x11" + frame[21:]
    assert parser.parse(frame) is None
    assert sum(parser.drops.values()) == 1


def test_an_ev_that_no_udp_port_holds_and_half_an_outer_header_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bits"):
        template(ev=0x10000)
    with pytest.raises(ValueError, match="two addresses"):
        fast.FrameTemplate(
            dst_mac=MAC_B, src_mac=MAC_A, outer_src=SRC, inner_src=SRC, inner_dst=DST, ev=EV, dscp=8
        )  # fmt: skip


def test_scapy_reads_and_writes_plain_frames_with_the_same_icrc() -> None:
    frame = plain_frame(b"abcde", opcode=Opcode.WRITE_ONLY)
    decoded = Ether(frame)
    bth = decoded[scapy_layers.MrcBth]
    assert (decoded[IPv6].fl, bth.psn, decoded.getlayer(IPv6, 2)) == (0, 0x123456, None)
    bth.icrc = None
    assert bytes(decoded) == frame
    cut = Ether(switching.trim(plain_frame(), DEFAULT_DSCP.trimmed))
    assert cut[scapy_layers.MrcBth].icrc is None
