"""The receiving half of a QP: packets in any order into memory, SACKs, NACKs and Transport ACKs back.

Owns the five SACK triggers, duplicates, refusals, the order of completions. Asks `window` what arrived before and
`memory` whether a packet may be placed. Protocol sources section 3. What it wants sent is left in `control` for the QP:
the path is chosen when a frame leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from mrcemu.errors import QpError
from mrcemu.protocol import events
from mrcemu.protocol.config import MAX_MPR_UNITS, MPR_UNIT_PSNS, TransportConfig
from mrcemu.protocol.memory import MemoryRegion, RegionTable
from mrcemu.protocol.window import Arrival, ReceiveWindow
from mrcemu.wire import fast
from mrcemu.wire import psn as wire_psn
from mrcemu.wire.opcodes import IMMEDIATE_OPCODES, LAST_OPCODES, AethSyndrome, NackReason, Opcode, SackMark

# Beyond this many unsent control frames the oldest reports are stale and dropped (every SACK repeats what it reports).
MAX_CONTROL_BACKLOG = 1024
OOO_SATURATION = 0x7FFF
RCVD_UNIT_BYTES = 256


@dataclass(frozen=True, slots=True)
class ControlFrame:
    """A control packet waiting for a path: everything but the EV it will ride."""

    opcode: int
    psn: int
    ext: bytes
    rtx: bool = False


@dataclass(slots=True)
class ResponderCounters:
    """What a responder counts over its life."""

    packets: int = 0
    bytes_placed: int = 0
    duplicates: int = 0
    beyond_window: int = 0
    trimmed: int = 0
    marked: int = 0
    access_errors: int = 0
    sacks_sent: int = 0
    nacks_sent: int = 0
    messages: int = 0


class Responder:
    """Receives RDMA Writes for one QP; see the module docstring."""

    def __init__(
        self,
        qpn: int,
        peer_qpn: int,
        config: TransportConfig,
        regions: RegionTable,
        emit_event: Callable[[events.Event], None],
        fail: Callable[[str, int], None],
        first_psn: int = 0,
    ) -> None:
        self._qpn = qpn
        self._peer_qpn = peer_qpn
        self._config = config
        self._regions = regions
        self._event = emit_event
        self._fail = fail
        self.window = ReceiveWindow(first_psn, config.mpr_psns)
        self.control: deque[ControlFrame] = deque(maxlen=MAX_CONTROL_BACKLOG)
        self.counters = ResponderCounters()
        self.receives_posted: int | None = None  # entries for immediates; None: the application does not count them
        self._rcvd_bytes = 0
        self._sack_credit_bytes = 0
        self._completed_msn = 0
        self._ends: list[tuple[int, int, int | None]] = []  # heap of (last PSN, MSN, immediate)
        self._threshold_bytes = config.sack_threshold_bytes
        self._min_add_bytes = config.sack_min_add_bytes
        self._mpr_in_sacks = config.mpr_units if config.dynamic_mpr else 0  # units; 0: dynamic MPR off
        self._stashed_imms = 0  # immediates that arrived before everything that precedes them

    # -- data -----------------------------------------------------------------------------------------------------

    def resize_window(self, mpr_units: int) -> None:
        """Offer another window, in units of 128 PSNs; SACKs carry it from now on. QpError unless dynamic MPR is on."""
        if not self._config.dynamic_mpr:
            raise QpError("the two ends did not agree on dynamic MPR")
        if not 1 <= mpr_units <= MAX_MPR_UNITS:
            raise QpError(f"an MPR is 1 .. {MAX_MPR_UNITS} units, got {mpr_units}")
        self.window.resize(mpr_units * MPR_UNIT_PSNS)
        self._mpr_in_sacks = mpr_units

    def receive_data(self, packet: fast.Received, now_ns: int) -> int:
        """Take one data packet; payload bytes newly placed (0: duplicate, refused or trimmed)."""
        psn = wire_psn.expand(packet.psn24, self.window.expected)
        arrival = self.window.classify(psn)
        if packet.trimmed:
            self._refuse_trimmed(packet, psn, arrival)
            return 0
        _, msn16, timestamp, va, rkey, _ = fast.data_fields(packet.frame)
        if arrival is not Arrival.NEW:
            self._answer_known(packet, psn, arrival, timestamp or 0)
            return 0
        length = packet.payload_end - packet.payload_offset
        region = self._regions.check(rkey, va, length)
        if region is None:
            self._refuse_access(psn, now_ns)
            return 0
        msn = wire_psn.expand16(msn16, self._completed_msn)
        self._place(region, packet, va, msn)
        if packet.opcode in LAST_OPCODES:
            imm = fast.immediate(packet.frame, packet.payload_offset) if packet.opcode in IMMEDIATE_OPCODES else None
            heappush(self._ends, (psn, msn, imm))
            if imm is not None and not self._stash_immediate(now_ns):
                return 0
        advanced = self.window.mark(psn)
        self.counters.packets += 1
        self.counters.bytes_placed += length
        self._rcvd_bytes += packet.nominal_bytes
        # The SACK goes first: a Transport ACK frees the packet whose RTT the SACK would have measured.
        self._maybe_sack(packet, psn, timestamp or 0, length)
        if advanced and self._ends:
            self._complete(now_ns)
        return length

    def _place(self, region: MemoryRegion, packet: fast.Received, va: int, msn: int) -> None:
        """Write the payload where RETH says, at once, in whatever order packets arrive (sources 3.4)."""
        offset = va - region.base_va
        payload = packet.frame[packet.payload_offset : packet.payload_end]
        region.view[offset : offset + len(payload)] = payload
        if region.observer is not None:
            region.observer(self._qpn, msn, offset, payload)

    def _complete(self, now_ns: int) -> None:
        """Messages whose last packet, and all before it, have arrived: complete in order, acknowledge once."""
        ends = self._ends
        cack = self.window.cack
        done = False
        while ends and ends[0][0] <= cack:
            _, msn, imm = heappop(ends)
            self._stashed_imms -= imm is not None
            if imm is not None and not self._take_receive(now_ns):
                return
            self._completed_msn = msn + 1
            self.counters.messages += 1
            self._event(events.MessageArrived(now_ns, self._qpn, msn, imm))
            done = True
        if done:
            self._transport_ack()

    def _stash_immediate(self, now_ns: int) -> bool:
        """Count one more immediate in flight; beyond what was advertised the QP is in error (sources 2.4, 3.8)."""
        self._stashed_imms += 1
        if self._stashed_imms <= self._config.max_imm_in_flight:
            return True
        self._nak(AethSyndrome.NAK_INVALID_REQUEST, self.window.cack)
        self._fail(f"more than {self._config.max_imm_in_flight} immediates in flight", now_ns)
        return False

    def _take_receive(self, now_ns: int) -> bool:
        """Use one posted receive for an immediate; without one the QP is in error (no RNR in MRC, sources 3.8)."""
        if self.receives_posted is None:
            return True
        if self.receives_posted == 0:
            self._nak(AethSyndrome.NAK_INVALID_REQUEST, self.window.cack)
            self._fail("an immediate arrived and no receive was posted", now_ns)
            return False
        self.receives_posted -= 1
        return True

    # -- answers --------------------------------------------------------------------------------------------------

    def _mark_of(self, packet: fast.Received) -> SackMark:
        """What a packet's congestion mark says of its path; counted."""
        if not packet.ecn_ce:
            return SackMark.NONE
        self.counters.marked += 1
        return SackMark.SKIP_ONCE

    def _maybe_sack(self, packet: fast.Received, psn: int, timestamp: int, length: int) -> None:
        """The SACK triggers: bytes received, AckReq, CE, rtx (sources 3.5)."""
        self._sack_credit_bytes += max(length, self._min_add_bytes)
        if packet.ecn_ce or packet.ackreq or packet.rtx or self._sack_credit_bytes >= self._threshold_bytes:
            self._sack(packet, psn, timestamp, self._mark_of(packet))

    def _sack(self, packet: fast.Received, psn: int, timestamp: int, mark: int, probe_id: int | None = None) -> None:
        """Queue one SACK echoing the packet's EV, timestamp and rtx bit."""
        window = self.window
        cack = window.cack
        offset, bitmap = window.report()
        self._sack_credit_bytes = 0
        ext = fast.pack_sack(
            mark=mark,
            ack_psn_offset=_clamp16(psn - cack),
            entropy=packet.ev,
            cack_psn=cack,
            sack_offset=offset,
            bitmap=bitmap,
            tx_timestamp=timestamp,
            ooo_count=min(window.ooo_count, OOO_SATURATION),
            rcvd_units=-(-self._rcvd_bytes // RCVD_UNIT_BYTES),
            mpr_units=self._mpr_in_sacks,
            probe_id=probe_id,
            spdcid=self._qpn & 0xFFFF,
            dpdcid=self._peer_qpn & 0xFFFF,
        )
        self.counters.sacks_sent += 1
        self.control.append(ControlFrame(Opcode.SACK, cack, ext, rtx=packet.rtx))

    def receive_probe(self, packet: fast.Received, probe_id: int, timestamp: int) -> None:
        """Answer a reliability probe with a SACK (pr = 1), and repeat the Transport ACK: it may be lost (ours)."""
        self._sack(packet, self.window.cack, timestamp, self._mark_of(packet), probe_id)
        if self._completed_msn:
            self._transport_ack()

    def _transport_ack(self) -> None:
        ext = fast.pack_aeth(AethSyndrome.ACK, self._completed_msn)
        self.control.append(ControlFrame(Opcode.ACKNOWLEDGE, self.window.cack, ext))

    def _answer_known(self, packet: fast.Received, psn: int, arrival: Arrival, timestamp: int) -> None:
        """Duplicates are never written again (sources 3.3); beyond the window is refused (sources 3.2)."""
        if arrival is Arrival.BEYOND:
            self.counters.beyond_window += 1
            self._nack(packet, psn, NackReason.PSN_OOR_WINDOW, timestamp)
            return
        self.counters.duplicates += 1
        self._sack(packet, psn, timestamp, self._mark_of(packet))
        if arrival is Arrival.DUPLICATE and self._completed_msn:
            self._transport_ack()

    def _refuse_trimmed(self, packet: fast.Received, psn: int, arrival: Arrival) -> None:
        """A trimmed packet asks for its payload again, unless that has arrived meanwhile (sources 3.10)."""
        self.counters.trimmed += 1
        timestamp = fast.trimmed_fields(packet.frame)[2] or 0
        if arrival in (Arrival.DUPLICATE, Arrival.DUPLICATE_ABOVE):
            self._sack(packet, psn, timestamp, SackMark.NONE)
        elif arrival is Arrival.NEW and self._config.trim_nack:
            reason = NackReason.TRIMMED_LASTHOP if packet.trimmed == fast.TRIMMED_LASTHOP else NackReason.TRIMMED
            self._nack(packet, psn, reason, timestamp)

    def _nack(self, packet: fast.Received, psn: int, reason: int, timestamp: int) -> None:
        ext = fast.pack_nack(
            reason=reason,
            entropy=packet.ev,
            nack_psn=psn,
            tx_timestamp=timestamp,
            spdcid=self._qpn & 0xFFFF,
            dpdcid=self._peer_qpn & 0xFFFF,
        )
        self.counters.nacks_sent += 1
        self.control.append(ControlFrame(Opcode.NACK, psn, ext, rtx=packet.rtx))

    def _refuse_access(self, psn: int, now_ns: int) -> None:
        """rkey, bounds or access failed: semantic, so a Transport NAK, and the QP is in error (sources 3.9)."""
        self.counters.access_errors += 1
        self._nak(AethSyndrome.NAK_REMOTE_ACCESS, psn)
        self._fail("peer wrote outside its registered memory", now_ns)

    def _nak(self, syndrome: int, psn: int) -> None:
        ext = fast.pack_aeth(syndrome, self._completed_msn)
        self.control.append(ControlFrame(Opcode.ACKNOWLEDGE, psn, ext))


def _clamp16(offset: int) -> int:
    return max(-0x8000, min(0x7FFF, offset))
