"""Scapy layers for MRC: `import mrcemu.wire.scapy_layers` makes `Ether(frame)` decode a whole MRC frame.

Written from the bit tables in scapy's own fields, apart from `headers`, so that each is a second opinion on the other.
Owns decoding by hand and building odd packets; refuses speed. Scapy is a development dependency: nothing else in the
package imports this module or scapy. Layers: Ether / IPv6 / IPv6 / UDP / MrcBth / extension headers / payload, with pad
and iCRC at the end; only one IPv6 in ECMP mode. Loading `scapy.contrib.roce` afterwards takes port 4791 away; `bind()`
takes it back.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Any, ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    IntField,
    ShortField,
    SignedShortField,
    StrLenField,
    TrailerField,
    X3BytesField,
    XBitField,
    XByteField,
    XIntField,
    XLEIntField,
    XLongField,
    XShortField,
    XStrFixedLenField,
)
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, bind_layers, split_bottom_up

from mrcemu.wire.icrc import icrc_of
from mrcemu.wire.ipv6 import Ipv6, Udp
from mrcemu.wire.layout import ICRC_BYTES
from mrcemu.wire.opcodes import (
    DATA_OPCODES,
    DEFAULT_DSCP,
    DEFAULT_UDP_PORTS,
    IMMEDIATE_OPCODES,
    AethSyndrome,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)

_TRIMMED = frozenset({DEFAULT_DSCP.trimmed, DEFAULT_DSCP.trimmed_lasthop})


def _names(codes: Any) -> dict[int, str]:
    return {int(code): code.name for code in codes}


def _is_trimmed(bth: Packet) -> bool:
    """Whether the outermost IPv6 header says that a switch cut this data packet (default DSCP values)."""
    layer, traffic_class = bth.underlayer, 0
    while layer is not None:
        if isinstance(layer, IPv6):
            traffic_class = layer.tc
        layer = layer.underlayer
    return bth.opcode in DATA_OPCODES and traffic_class >> 2 in _TRIMMED


class MrcBth(Packet):
    """Base transport header; owns the iCRC at the end of the packet, computed when it is left out."""

    name = "MRC BTH"
    fields_desc: ClassVar[list[Any]] = [
        ByteEnumField("opcode", int(Opcode.WRITE_ONLY), _names(Opcode)),
        BitField("solicited", 0, 1),
        BitField("migreq", 0, 1),
        BitField("padcount", 0, 2),
        BitField("version", 0, 4),
        XShortField("pkey", 0xFFFF),
        XByteField("variant", 0),
        X3BytesField("dqpn", 0),
        BitField("ackreq", 0, 1),
        BitField("reserved", 0, 1),
        BitField("rtx", 0, 1),
        BitField("ts", 0, 1),
        BitField("invariant", 0, 4),
        XBitField("psn", 0, 24),
        # From the end of the packet inwards.
        ConditionalField(TrailerField(XLEIntField("icrc", None)), lambda bth: not _is_trimmed(bth)),
        ConditionalField(
            TrailerField(StrLenField("pad", b"", length_from=lambda bth: bth.padcount)),
            lambda bth: bth.padcount > 0 and not _is_trimmed(bth),
        ),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.getfieldval("icrc") is None and not _is_trimmed(self) and isinstance(self.underlayer, UDP):
            body = pkt + pay[:-ICRC_BYTES]
            return body + icrc_of(self._inner_start(self.underlayer, len(body)) + body)
        return pkt + pay

    @staticmethod
    def _inner_start(udp: Any, body_bytes: int) -> bytes:
        """The IPv6 and UDP headers the iCRC covers, as far as it covers them."""
        ip = udp.underlayer
        size = Udp.SIZE + body_bytes + ICRC_BYTES
        source, destination = (IPv6Address(address).packed for address in (ip.src, ip.dst))
        return Ipv6(source, destination, payload_bytes=size).emit() + Udp(udp.sport, udp.dport, size).emit()


class _Extension(Packet):
    """An extension header of a data packet, which looks in the BTH for what follows it."""

    def bth(self) -> Any:
        layer: Any = self.underlayer
        while not isinstance(layer, MrcBth):
            layer = layer.underlayer
        return layer


class MrcMeth(_Extension):
    """Message numbers of a request."""

    name = "MRC METH"
    fields_desc: ClassVar[list[Any]] = [ShortField("rqmsn", 0), ShortField("msn", 0)]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return MrcTseth if self.bth().ts else MrcReth


class MrcTseth(_Extension):
    """Timestamp of a request."""

    name = "MRC TSETH"
    fields_desc: ClassVar[list[Any]] = [
        ShortField("tx_timestamp", 0),
        BitField("tsr", 1, 1),
        BitField("reserved", 0, 11),
        BitField("ftype", 1, 4),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return MrcReth


class MrcReth(_Extension):
    """Where the payload goes."""

    name = "MRC RETH"
    fields_desc: ClassVar[list[Any]] = [XLongField("va", 0), XIntField("rkey", 0), IntField("dma_bytes", 0)]

    def guess_payload_class(self, payload: bytes) -> Any:
        return MrcImmDt if self.bth().opcode in IMMEDIATE_OPCODES else self.default_payload_class(payload)


class MrcImmDt(Packet):
    """Immediate data."""

    name = "MRC ImmDt"
    fields_desc: ClassVar[list[Any]] = [XIntField("immediate", 0)]


class MrcSeth(Packet):
    """SACK and CC_STATE. In an answer to a probe (pr) `ack_psn_offset` is the probe id."""

    name = "MRC SETH + CC_STATE"
    fields_desc: ClassVar[list[Any]] = [
        BitField("type", 0, 4),
        BitField("next", 0, 5),
        BitEnumField("m", 0, 2, _names(SackMark)),
        BitField("reserved1", 0, 3),
        BitField("pr", 0, 1),
        BitField("reserved2", 0, 1),
        SignedShortField("ack_psn_offset", 0),
        XIntField("entropy", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        XByteField("reserved3", 0),
        X3BytesField("cack_psn", 0),
        BitField("cc_type", 0, 4),
        BitField("cc_fl", 0, 4),
        ByteField("mpr", 0),
        SignedShortField("sack_offset", 0),
        XLongField("bitmap", 0),
        ShortField("tx_timestamp", 0),
        BitField("reserved4", 0, 1),
        BitField("ooo_count", 0, 15),
        BitField("r_c", 0, 1),
        BitField("rcv_cwnd_pen", 0, 7),
        BitField("rcvd_bytes", 0, 24),
    ]


class MrcNeth(Packet):
    """NACK."""

    name = "MRC NETH"
    fields_desc: ClassVar[list[Any]] = [
        XShortField("reserved1", 0),
        ByteEnumField("reason", 0, _names(NackReason)),
        ByteField("vendor_info", 0),
        XIntField("entropy", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        XByteField("reserved2", 0),
        X3BytesField("nack_psn", 0),
        BitField("cc_type", 2, 4),
        BitField("cc_fl", 0, 4),
        XByteField("reserved3", 0),
        ShortField("tx_timestamp", 0),
    ]


class MrcPeth(Packet):
    """Reliability probe."""

    name = "MRC PETH"
    fields_desc: ClassVar[list[Any]] = [
        X3BytesField("reserved1", 0),
        ByteField("vendor_info", 0),
        ShortField("probe_id", 0),
        XShortField("reserved2", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        ShortField("tx_timestamp", 0),
        BitField("tsr", 1, 1),
        BitField("reserved3", 0, 11),
        BitField("ftype", 1, 4),
    ]


class MrcErth(Packet):
    """Endpoint request."""

    name = "MRC ERTH"
    fields_desc: ClassVar[list[Any]] = [
        BitField("type", 0, 4),
        BitField("next", 0, 5),
        BitField("reserved1", 0, 5),
        BitEnumField("op", 0, 2, _names(EndpointOp)),
        XByteField("reserved2", 0),
        ByteField("vendor_info", 0),
        XIntField("port_status_mask", 0),
        XIntField("reserved3", 0),
        ShortField("tx_timestamp", 0),
        BitField("tsr", 1, 1),
        BitField("reserved4", 0, 11),
        BitField("ftype", 1, 4),
    ]


class MrcEeth(Packet):
    """Endpoint response."""

    name = "MRC EETH"
    fields_desc: ClassVar[list[Any]] = [
        BitField("type", 0, 4),
        BitField("next", 0, 5),
        BitField("reserved1", 0, 3),
        BitEnumField("op", 0, 2, _names(EndpointOp)),
        BitField("reserved2", 0, 2),
        XStrFixedLenField("reserved3", bytes(26), 26),
        ShortField("tx_timestamp", 0),
        XStrFixedLenField("reserved4", bytes(6), 6),
    ]


class MrcAeth(Packet):
    """Transport acknowledge."""

    name = "MRC AETH"
    fields_desc: ClassVar[list[Any]] = [ByteEnumField("syndrome", 0x1F, _names(AethSyndrome)), X3BytesField("msn", 0)]


_LAYERS: dict[int, type[Packet]] = dict.fromkeys(DATA_OPCODES, MrcMeth) | {
    int(Opcode.ACKNOWLEDGE): MrcAeth,
    int(Opcode.ENDPOINT_REQUEST): MrcErth,
    int(Opcode.ENDPOINT_RESPONSE): MrcEeth,
    int(Opcode.SACK): MrcSeth,
    int(Opcode.NACK): MrcNeth,
    int(Opcode.PROBE_REQUEST): MrcPeth,
}


def bind() -> None:
    """Attach the layers to UDP's MRC ports, ahead of all other guesses; harmless when repeated.

    Ahead, because the source port carries entropy: one of 53 is no DNS.
    """
    for port in DEFAULT_UDP_PORTS:
        split_bottom_up(UDP, MrcBth, dport=port)
        UDP.payload_guess.insert(0, ({"dport": port}, MrcBth))


for _opcode, _layer in _LAYERS.items():
    bind_layers(MrcBth, _layer, opcode=_opcode)
bind()
