"""A frame as one record: headers, payload, and what can be said of it as a whole.

Owns the meaning that `frame` reads from bytes and writes to bytes. Refuses both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mrcemu.wire.ethernet import Ethernet
from mrcemu.wire.ev import ev_from_ecmp_fields, ev_from_fields
from mrcemu.wire.headers import Aeth, Bth, Eeth, Erth, ImmDt, Meth, Neth, Peth, Reth, Seth, Tseth
from mrcemu.wire.ipv6 import Ipv6, Udp
from mrcemu.wire.opcodes import IMMEDIATE_OPCODES, UNTRIMMED
from mrcemu.wire.srv6 import SegmentRoutingHeader, usids


@dataclass(frozen=True, slots=True)
class Request:
    """The extension headers of a data packet; `reth` and `imm` are None too where a switch cut them off."""

    meth: Meth
    tseth: Tseth | None
    reth: Reth | None
    imm: ImmDt | None = None

    @classmethod
    def parse(cls, frame: bytes, offset: int, bth: Bth, is_cut: bool) -> Self:
        """Read the headers that `bth` announces; of a trimmed packet (`is_cut`) RETH and ImmDt may be missing."""
        meth = Meth.parse(frame, offset)
        tseth = Tseth.parse(frame, offset + Meth.SIZE) if bth.ts else None
        offset += Meth.SIZE + (Tseth.SIZE if bth.ts else 0)
        reth = None if is_cut and offset + Reth.SIZE > len(frame) else Reth.parse(frame, offset)
        offset += Reth.SIZE
        if bth.opcode not in IMMEDIATE_OPCODES or (is_cut and offset + ImmDt.SIZE > len(frame)):
            return cls(meth, tseth, reth)
        return cls(meth, tseth, reth, ImmDt.parse(frame, offset))

    def emit(self) -> bytes:
        return b"".join(header.emit() for header in (self.meth, self.tseth, self.reth, self.imm) if header is not None)


Extension = Request | Seth | Neth | Peth | Erth | Eeth | Aeth


@dataclass(frozen=True, slots=True)
class Packet:
    """What a frame says.

    `outer` is None in a frame of ECMP mode (or a decapsulated one). `payload` is what the frame holds; in a trimmed
    packet that is a rest of `original_payload_bytes`, often nothing. `icrc_ok` is None where there is no iCRC to check
    (trimmed). Lengths inside the headers are kept as they are: `sized` computes them.
    """

    ethernet: Ethernet
    outer: Ipv6 | None
    inner: Ipv6
    udp: Udp
    bth: Bth
    ext: Extension
    payload: bytes = b""
    original_payload_bytes: int = 0
    trimmed: int = UNTRIMMED
    icrc_ok: bool | None = True
    srh: SegmentRoutingHeader | None = None

    @property
    def ev(self) -> int:
        """The entropy value the packet rides on: 32 bits, without an outer header the 16 of the UDP source port."""
        if self.outer is None:
            return ev_from_ecmp_fields(self.udp.source_port)
        return ev_from_fields(self.inner.flow_label, self.udp.source_port)

    @property
    def carrier(self) -> Ipv6:
        """The header switches touch: class and congestion marks are read from it."""
        return self.outer or self.inner

    @property
    def usids(self) -> tuple[int, ...]:
        """The uSIDs still to visit; none without an outer header."""
        return usids(self.outer.destination) if self.outer else ()
