"""Scapy as a second opinion: it reads our frames to the same values and builds the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw
from wire_kit import DST, data_frame, packets

from mrcemu.wire import scapy_layers as layers
from mrcemu.wire import switching
from mrcemu.wire.frame import Packet, Request, emit_frame
from mrcemu.wire.opcodes import Opcode

layers.bind()  # the RoCE module of scapy, loaded by another test, claims the same port

# Our field name -> scapy's, where they differ.
SETH_NAMES = {"mark": "m", "probe": "pr", "restore_cwnd": "r_c", "rcvd_units": "rcvd_bytes", "mpr_units": "mpr"}
BTH_NAMES = {"migreq": "migreq", "pad": "padcount", "p_key": "pkey", "dest_qpn": "dqpn"}
LAYERS: dict[str, type[ScapyPacket]] = {
    "Seth": layers.MrcSeth, "Neth": layers.MrcNeth, "Peth": layers.MrcPeth, "Erth": layers.MrcErth,
    "Eeth": layers.MrcEeth, "Aeth": layers.MrcAeth, "Meth": layers.MrcMeth, "Tseth": layers.MrcTseth,
    "Reth": layers.MrcReth, "ImmDt": layers.MrcImmDt,
}  # fmt: skip


def same_fields(header: Any, layer: ScapyPacket, names: dict[str, str]) -> None:
    for bits in header.LAYOUT:
        if bits.name:
            assert layer.getfieldval(names.get(bits.name, bits.name)) == getattr(header, bits.name), bits.name


@given(packets())
def test_scapy_reads_every_field_as_we_do(packet: Packet) -> None:
    decoded = Ether(emit_frame(packet))
    outer, inner = decoded.getlayer(IPv6, 1), decoded.getlayer(IPv6, 2)
    for ours, theirs in ((packet.outer, outer), (packet.inner, inner)):
        assert ours is not None
        assert theirs is not None
        assert (theirs.tc, theirs.fl, theirs.plen) == (ours.traffic_class, ours.flow_label, ours.payload_bytes)
        assert (theirs.nh, theirs.hlim) == (ours.next_header, ours.hop_limit)
    udp = decoded[UDP]
    assert (udp.sport, udp.dport, udp.len) == (
        packet.udp.source_port,
        packet.udp.destination_port,
        packet.udp.length_bytes,
    )
    bth = decoded[layers.MrcBth]
    same_fields(packet.bth, bth, BTH_NAMES)
    assert bth.icrc == int.from_bytes(emit_frame(packet)[-4:], "little")
    ext = packet.ext
    parts = [ext.meth, ext.tseth, ext.reth, ext.imm] if isinstance(ext, Request) else [ext]
    for header in filter(None, parts):
        same_fields(header, decoded[LAYERS[type(header).__name__]], SETH_NAMES)
    assert (bytes(decoded[Raw]) if Raw in decoded else b"") == packet.payload


@given(packets())
def test_scapy_writes_a_frame_back_and_finds_the_same_icrc(packet: Packet) -> None:
    frame = emit_frame(packet)
    decoded = Ether(frame)
    assert bytes(decoded) == frame
    decoded[layers.MrcBth].icrc = None
    assert bytes(decoded) == frame


@pytest.mark.parametrize("keep", [108, 128])
def test_scapy_reads_a_trimmed_packet_without_expecting_an_icrc(keep: int) -> None:
    frame = switching.trim(data_frame(), 16, keep)
    decoded = Ether(frame)
    assert decoded[layers.MrcBth].icrc is None
    assert decoded[layers.MrcTseth].tx_timestamp == 999
    assert (layers.MrcReth in decoded) == (keep == 128)
    assert bytes(decoded) == frame


def test_a_frame_built_by_hand_in_scapy_is_one_of_ours() -> None:
    frame = data_frame(b"abc", Opcode.WRITE_ONLY)
    stack = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    stack /= IPv6(src="fd4d:5243::1", dst="fcbb:bbbb:4400:8403:4401:4401::", tc=0x22, fl=1)
    stack /= IPv6(src="fd4d:5243::1", dst="fd4d:5243::6", tc=0x22, fl=1)
    stack /= UDP(sport=3, dport=4791, chksum=0)
    stack /= layers.MrcBth(opcode=0xCA, padcount=1, pad=b"\0", dqpn=0x4D, ackreq=1, ts=1, psn=0x123456)
    stack /= layers.MrcMeth(rqmsn=2, msn=7) / layers.MrcTseth(tx_timestamp=999)
    stack /= layers.MrcReth(va=0x100000, rkey=0xABCD, dma_bytes=1 << 20) / Raw(b"abc")
    assert bytes(stack) == frame
    assert DST in frame
