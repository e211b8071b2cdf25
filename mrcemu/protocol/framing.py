"""From a path and a class of packet to the bytes in front of it: templates, made once per EV and kept on its entry.

Owns addresses and MACs of one NIC, and which DSCP class a packet rides. Refuses packet contents (wire.fast packs them).
"""

from __future__ import annotations

from dataclasses import dataclass

from mrcemu.protocol.config import TransportConfig
from mrcemu.protocol.ev import EvEntry
from mrcemu.wire.fast import FrameTemplate
from mrcemu.wire.opcodes import Ecn


@dataclass(frozen=True, slots=True)
class NicIdentity:
    """Who a NIC is: host number, inner address (16 bytes), and per plane its own and its T0's MAC (6 bytes)."""

    host: int
    address: bytes
    port_macs: tuple[bytes, ...]
    gateway_macs: tuple[bytes, ...]


class Framer:
    """Templates towards one peer address."""

    __slots__ = ("_control_dscp", "_data_dscp", "_identity", "_peer_address", "_retx_dscp", "_udp_port")

    def __init__(self, identity: NicIdentity, peer_address: bytes, config: TransportConfig) -> None:
        self._identity = identity
        self._peer_address = peer_address
        dscp = config.dscp
        self._control_dscp = dscp.control
        self._data_dscp = dscp.trimmable if config.trimmable else dscp.no_trim
        self._retx_dscp = dscp.trimmable_retx if config.trimmable else dscp.no_trim
        self._udp_port = config.udp_port

    def make(self, plane: int, destination: bytes | None, ev: int, dscp: int, ecn: int) -> FrameTemplate:
        """A template over any SRv6 destination; with none, of plain frames to the peer, which switches hash."""
        return FrameTemplate(
            dst_mac=self._identity.gateway_macs[plane],
            src_mac=self._identity.port_macs[plane],
            outer_src=None if destination is None else self._identity.address,
            outer_dst=destination,
            inner_src=self._identity.address,
            inner_dst=self._peer_address,
            ev=ev,
            dscp=dscp,
            ecn=ecn,
            udp_dport=self._udp_port,
        )

    def _for_entry(self, entry: EvEntry, dscp: int, ecn: int) -> FrameTemplate:
        return self.make(entry.plane, entry.path.outer_destination, entry.ev, dscp, ecn)

    def data(self, entry: EvEntry) -> FrameTemplate:
        """First transmissions and probes."""
        template = entry.data_template
        if template is None:
            template = entry.data_template = self._for_entry(entry, self._data_dscp, Ecn.ECT0)
        return template

    def retransmission(self, entry: EvEntry) -> FrameTemplate:
        template = entry.retx_template
        if template is None:
            template = entry.retx_template = self._for_entry(entry, self._retx_dscp, Ecn.ECT0)
        return template

    def control(self, entry: EvEntry) -> FrameTemplate:
        """SACK, NACK, Transport ACK, endpoint responses: never marked, never trimmed."""
        template = entry.control_template
        if template is None:
            template = entry.control_template = self._for_entry(entry, self._control_dscp, Ecn.NOT_ECT)
        return template
