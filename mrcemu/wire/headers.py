"""Every MRC header, one class each, its bits listed in wire order.

Owns the layouts (MRC 1.0 as four independent codecs agree on it; conflicts and choices in docs/protocol.md) and no rule
about when a header is sent. `bits.Header` gives each `SIZE`, `parse`, `emit` and `emit_into`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrcemu.wire.bits import Bits, Header, flag, reserved, signed
from mrcemu.wire.opcodes import DEFAULT_P_KEY

TIMESTAMP_PRESENT = 1  # ftype

# The start that SETH, NETH, PETH, ERTH and EETH share: header type and next header, both 0 in MRC 1.0.
_TYPE = reserved(4)
_NEXT = reserved(5)
_CDCIDS = (Bits("spdcid", 16), Bits("dpdcid", 16))
# The timestamp word of requests: `tsr` set = the unit is the implementation's (ours: 128 ns x time scale).
_TIMESTAMP = (Bits("tx_timestamp", 16), flag("tsr"), reserved(11), Bits("ftype", 4))


@dataclass(frozen=True, slots=True)
class Bth(Header):
    """Base transport header, 12 B. SE before M as IBTA has it (sources differ; M is never set)."""

    LAYOUT = (
        Bits("opcode", 8),
        flag("solicited"),
        flag("migreq"),
        Bits("pad", 2),
        Bits("version", 4),
        Bits("p_key", 16),
        reserved(8),  # variant: masked in the iCRC
        Bits("dest_qpn", 24),
        flag("ackreq"),
        reserved(1),
        flag("rtx"),
        flag("ts"),
        reserved(4),  # invariant: covered by the iCRC
        Bits("psn", 24),
    )

    opcode: int
    dest_qpn: int
    psn: int
    ackreq: bool = False
    rtx: bool = False  # a retransmission, or the echo of one in a SACK
    ts: bool = False  # a TSETH follows the METH
    pad: int = 0
    solicited: bool = False
    migreq: bool = False
    version: int = 0
    p_key: int = DEFAULT_P_KEY


@dataclass(frozen=True, slots=True)
class Meth(Header):
    """Message numbers of a request, 4 B. RQMSN counts WriteIMMs and means nothing for a plain write."""

    LAYOUT = (Bits("rqmsn", 16), Bits("msn", 16))

    rqmsn: int
    msn: int


@dataclass(frozen=True, slots=True)
class Tseth(Header):
    """Timestamp of a request, 4 B."""

    LAYOUT = _TIMESTAMP

    tx_timestamp: int
    tsr: bool = True
    ftype: int = TIMESTAMP_PRESENT


@dataclass(frozen=True, slots=True)
class Reth(Header):
    """Where this packet's payload goes, 16 B: its own address, the whole message's length."""

    LAYOUT = (Bits("va", 64), Bits("rkey", 32), Bits("dma_bytes", 32))

    va: int
    rkey: int
    dma_bytes: int


@dataclass(frozen=True, slots=True)
class ImmDt(Header):
    """Immediate data, 4 B."""

    LAYOUT = (Bits("immediate", 32),)

    immediate: int


@dataclass(frozen=True, slots=True)
class Seth(Header):
    """SACK, 28 B, with CC_STATE, 8 B, behind it: 36 B.

    In the answer to a probe (`probe`, the pr bit) the field of `ack_psn_offset` holds the probe id: see `probe_id`.
    """

    LAYOUT = (
        _TYPE,
        _NEXT,
        Bits("mark", 2),
        reserved(3),
        flag("probe"),
        reserved(1),
        signed("ack_psn_offset", 16),
        Bits("entropy", 32),
        *_CDCIDS,
        reserved(8),
        Bits("cack_psn", 24),
        Bits("cc_type", 4),
        Bits("cc_fl", 4),
        Bits("mpr_units", 8),
        signed("sack_offset", 16),
        Bits("bitmap", 64),
        # CC_STATE
        Bits("tx_timestamp", 16),
        reserved(1),
        Bits("ooo_count", 15),
        flag("restore_cwnd"),
        Bits("rcv_cwnd_pen", 7),
        Bits("rcvd_units", 24),
    )

    ack_psn_offset: int  # PSN that triggered this SACK, counted from cack_psn
    entropy: int  # EV of that packet
    cack_psn: int
    sack_offset: int  # PSN of bit 0 of the bitmap, counted from cack_psn
    bitmap: int  # bit i, the lowest first: that PSN + i is received
    tx_timestamp: int = 0  # reflected
    ooo_count: int = 0
    rcvd_units: int = 0  # 256 B
    mark: int = 0
    probe: bool = False
    mpr_units: int = 0  # 128 PSNs; 0 = static
    rcv_cwnd_pen: int = 0
    restore_cwnd: bool = False
    cc_type: int = 0
    cc_fl: int = 0
    spdcid: int = 0
    dpdcid: int = 0

    @property
    def probe_id(self) -> int | None:
        """The id of the probe this SACK answers, None if it answers none."""
        return self.ack_psn_offset & 0xFFFF if self.probe else None


@dataclass(frozen=True, slots=True)
class Neth(Header):
    """NACK, 20 B."""

    LAYOUT = (
        reserved(16),
        Bits("reason", 8),
        Bits("vendor_info", 8),
        Bits("entropy", 32),
        *_CDCIDS,
        reserved(8),
        Bits("nack_psn", 24),
        Bits("cc_type", 4),
        Bits("cc_fl", 4),
        reserved(8),
        Bits("tx_timestamp", 16),
    )

    reason: int
    entropy: int
    nack_psn: int
    tx_timestamp: int = 0  # reflected
    vendor_info: int = 0
    cc_type: int = 2
    cc_fl: int = 0
    spdcid: int = 0
    dpdcid: int = 0


@dataclass(frozen=True, slots=True)
class Peth(Header):
    """Reliability probe, 16 B."""

    LAYOUT = (reserved(24), Bits("vendor_info", 8), Bits("probe_id", 16), reserved(16), *_CDCIDS, *_TIMESTAMP)

    probe_id: int
    tx_timestamp: int = 0
    tsr: bool = True
    ftype: int = TIMESTAMP_PRESENT
    vendor_info: int = 0
    spdcid: int = 0
    dpdcid: int = 0


@dataclass(frozen=True, slots=True)
class Erth(Header):
    """Endpoint request, 16 B. Bit N of the mask is port N, counted from 1; set = reachable."""

    LAYOUT = (
        _TYPE,
        _NEXT,
        reserved(5),
        Bits("op", 2),
        reserved(8),
        Bits("vendor_info", 8),
        Bits("port_status_mask", 32),
        reserved(32),
        *_TIMESTAMP,
    )

    op: int
    port_status_mask: int = 0
    tx_timestamp: int = 0
    tsr: bool = True
    ftype: int = TIMESTAMP_PRESENT
    vendor_info: int = 0


@dataclass(frozen=True, slots=True)
class Eeth(Header):
    """Endpoint response, 36 B. `op` in bits 3:2 of byte 1 (one source of three says 5:4)."""

    LAYOUT = (
        _TYPE, _NEXT, reserved(3), Bits("op", 2), reserved(2), reserved(26 * 8), Bits("tx_timestamp", 16), reserved(48),
    )  # fmt: skip

    op: int
    tx_timestamp: int = 0  # reflected


@dataclass(frozen=True, slots=True)
class Aeth(Header):
    """Transport acknowledge, 4 B."""

    LAYOUT = (Bits("syndrome", 8), Bits("msn", 24))

    syndrome: int
    msn: int
