"""What the wire tests share: addresses, frames, random headers and packets, and slow second implementations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from hypothesis import strategies as st

from mrcemu.wire import fast
from mrcemu.wire.bits import Bits, Header
from mrcemu.wire.ethernet import Ethernet
from mrcemu.wire.frame import Packet, Request, sized
from mrcemu.wire.headers import Aeth, Bth, Eeth, Erth, ImmDt, Meth, Neth, Peth, Reth, Seth, Tseth
from mrcemu.wire.ipv6 import Ipv6, Udp
from mrcemu.wire.layout import NEXT_HEADER_IPV6, NEXT_HEADER_ROUTING
from mrcemu.wire.opcodes import DATA_OPCODES, DEFAULT_DSCP, IMMEDIATE_OPCODES, Opcode
from mrcemu.wire.srv6 import SegmentRoutingHeader

SRC = bytes.fromhex("fd4d5243000000000000000000000001")
DST = bytes.fromhex("fd4d5243000000000000000000000006")
OUTER_DST = bytes.fromhex("fcbbbbbb4400840344014401" + "00" * 4)
MAC_A = bytes.fromhex("020000000001")
MAC_B = bytes.fromhex("020000000002")

CONTROL: dict[Opcode, type[Header]] = {
    Opcode.ACKNOWLEDGE: Aeth,
    Opcode.ENDPOINT_REQUEST: Erth,
    Opcode.ENDPOINT_RESPONSE: Eeth,
    Opcode.SACK: Seth,
    Opcode.NACK: Neth,
    Opcode.PROBE_REQUEST: Peth,
}
HEADERS = (Bth, Meth, Tseth, Reth, ImmDt, Seth, Neth, Peth, Erth, Eeth, Aeth, Ipv6, Udp, Ethernet)


def template(ev: int = 0x0001_0003, dscp: int = DEFAULT_DSCP.trimmable, **changes: Any) -> fast.FrameTemplate:
    values: dict[str, Any] = {
        "dst_mac": MAC_B, "src_mac": MAC_A, "outer_src": SRC, "outer_dst": OUTER_DST, "inner_src": SRC,
        "inner_dst": DST, "ev": ev, "dscp": dscp,
    }  # fmt: skip
    return fast.FrameTemplate(**(values | changes))


def data_frame(payload: bytes = bytes(4096), opcode: int = Opcode.WRITE_MIDDLE, **changes: Any) -> bytes:
    imm = 0xDEADBEEF if opcode in IMMEDIATE_OPCODES else None
    return fast.build_data(
        template(**changes),
        opcode,
        0x4D,
        0x123456,
        fast.FLAG_ACKREQ,
        2,
        7,
        999,
        0x10_0000,
        0xABCD,
        1 << 20,
        payload,
        imm,
    )


def sack_frame(**changes: Any) -> bytes:
    ext = fast.pack_sack(
        mark=1, ack_psn_offset=7, entropy=0x0001_0003, cack_psn=4, sack_offset=1, bitmap=0x76, tx_timestamp=0x1234,
        ooo_count=5, rcvd_units=0xA5,
    )  # fmt: skip
    return fast.build_control(template(dscp=DEFAULT_DSCP.control, **changes), Opcode.SACK, 0x40, 4, ext)


def uints(width: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << width) - 1)


def _values(bits: Bits) -> st.SearchStrategy[object]:
    if bits.kind is bytes:
        return st.binary(min_size=bits.width // 8, max_size=bits.width // 8)
    if bits.kind is bool:
        return st.booleans()
    half = 1 << (bits.width - 1)
    return st.integers(-half, half - 1) if bits.kind == "signed" else uints(bits.width)


def headers(header: type[Header], **fixed: object) -> st.SearchStrategy[Header]:
    """Any value of a header class, some of its fields fixed."""
    drawn = {bits.name: _values(bits) for bits in header.LAYOUT if bits.name}
    return st.builds(header, **(drawn | {name: st.just(value) for name, value in fixed.items()}))


def _any(header: type[Header], **fixed: object) -> st.SearchStrategy[Any]:
    """The same, drawn as bytes: one draw instead of one a field, for whole packets."""
    raw = st.binary(min_size=header.SIZE, max_size=header.SIZE)
    return raw.map(lambda drawn: replace(cast(Any, header.parse(drawn)), **fixed))


@st.composite
def _extensions(draw: st.DrawFn, opcode: int, tseth: bool | None) -> Any:
    if opcode not in DATA_OPCODES:
        return draw(_any(CONTROL[Opcode(opcode)]))
    has_tseth = draw(st.booleans()) if tseth is None else tseth
    imm = draw(_any(ImmDt)) if opcode in IMMEDIATE_OPCODES else None
    return Request(draw(_any(Meth)), draw(_any(Tseth)) if has_tseth else None, draw(_any(Reth)), imm)


@st.composite
def packets(
    draw: st.DrawFn, standard: bool = True, opcodes: Iterable[int] = tuple(Opcode), tseth: bool | None = None
) -> Packet:
    """An untrimmed packet that its receiver accepts; unless `standard`, perhaps decapsulated or with an SRH."""
    opcode = draw(st.sampled_from(sorted(opcodes)))
    untrimmed = st.sampled_from([0, 8, 10, 46, 63])
    shape = "outer" if standard else draw(st.sampled_from(["outer", "bare", "srh"]))
    outer = draw(_any(Ipv6, version=6, next_header=NEXT_HEADER_IPV6, dscp=draw(untrimmed)))
    inner = draw(_any(Ipv6, version=6, next_header=17, destination=DST, dscp=draw(untrimmed)))
    srh = None
    if shape == "srh":
        outer = replace(outer, next_header=NEXT_HEADER_ROUTING)
        segments = tuple(draw(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=3)))
        srh = SegmentRoutingHeader(NEXT_HEADER_IPV6, draw(st.integers(0, len(segments) - 1)), segments)
    return sized(
        Packet(
            ethernet=draw(_any(Ethernet, ethertype=0x86DD)),
            outer=None if shape == "bare" else outer,
            inner=inner,
            udp=draw(_any(Udp, destination_port=draw(st.sampled_from([4791, 4971])))),
            bth=draw(_any(Bth, opcode=opcode, version=0)),
            ext=draw(_extensions(opcode, tseth)),
            payload=draw(st.binary(max_size=300)) if opcode in DATA_OPCODES else b"",
            srh=srh,
        )
    )


def slow_icrc(inner: bytes) -> bytes:
    """The iCRC bit by bit, straight from the rule: nothing shared with the code under test."""
    masked = bytearray(b"\xff" * 8 + inner)
    masked[8] |= 0x0F  # traffic class
    for index in (9, 10, 11):  # rest of traffic class, flow label
        masked[index] = 0xFF
    masked[8 + 7] = 0xFF  # hop limit
    masked[8 + 46] = masked[8 + 47] = 0xFF  # UDP checksum
    masked[8 + 52] = 0xFF  # BTH byte 4
    register = 0xFFFFFFFF
    for byte in masked:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)  # 0x04C11DB7, reflected
    return (register ^ 0xFFFFFFFF).to_bytes(4, "little")
