"""IPv6 and UDP headers as records. The traffic class is read as its two parts, DSCP and ECN."""

from __future__ import annotations

from dataclasses import dataclass

from mrcemu.wire.bits import Bits, Header, octets
from mrcemu.wire.layout import HOP_LIMIT, NEXT_HEADER_UDP


@dataclass(frozen=True, slots=True)
class Ipv6(Header):
    """RFC 8200; `payload_bytes` is everything after these 40 bytes, addresses are 16 bytes."""

    LAYOUT = (
        Bits("version", 4),
        Bits("dscp", 6),
        Bits("ecn", 2),
        Bits("flow_label", 20),
        Bits("payload_bytes", 16),
        Bits("next_header", 8),
        Bits("hop_limit", 8),
        octets("source", 16),
        octets("destination", 16),
    )

    source: bytes
    destination: bytes
    dscp: int = 0
    ecn: int = 0
    flow_label: int = 0
    payload_bytes: int = 0
    next_header: int = NEXT_HEADER_UDP
    hop_limit: int = HOP_LIMIT
    version: int = 6

    @property
    def traffic_class(self) -> int:
        return self.dscp << 2 | self.ecn


@dataclass(frozen=True, slots=True)
class Udp(Header):
    """RFC 768; `length_bytes` counts these 8 bytes too. Checksum 0: RoCE relies on the iCRC instead."""

    LAYOUT = (Bits("source_port", 16), Bits("destination_port", 16), Bits("length_bytes", 16), Bits("checksum", 16))

    source_port: int
    destination_port: int
    length_bytes: int = 0
    checksum: int = 0
