"""The Ethernet header: 14 bytes, no VLAN tag; the frame check sequence is the link's business."""

from __future__ import annotations

from dataclasses import dataclass

from mrcemu.wire.bits import Bits, Header, octets
from mrcemu.wire.layout import ETHERTYPE_IPV6


@dataclass(frozen=True, slots=True)
class Ethernet(Header):
    """Destination and source MAC (6 bytes each), EtherType."""

    LAYOUT = (octets("destination", 6), octets("source", 6), Bits("ethertype", 16))

    destination: bytes
    source: bytes
    ethertype: int = ETHERTYPE_IPV6
