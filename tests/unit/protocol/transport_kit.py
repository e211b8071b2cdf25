"""One NIC and the frames of an imaginary peer: what the unit tests of the transport are written with.

A `Bench` owns a real `Nic` on host 0 with one QP towards the last host (another T0, so four hops). Everything goes
through the call contract as bytes: what the peer says is built here, what the NIC sends is parsed as the peer would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.protocol.events import Event
from mrcemu.protocol.framing import NicIdentity
from mrcemu.protocol.memory import BufferSource, MemoryRegion, PayloadSource
from mrcemu.protocol.nic import Nic
from mrcemu.protocol.qp import Qp, QpSetup
from mrcemu.rng import Rng
from mrcemu.topology.addressing import all_paths, host_address, path_for_ev
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.opcodes import ENDPOINT_QPN, AethSyndrome, DscpMap, Ecn, Opcode

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)
EIGHT = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
MTU = 4096
LOCAL_QPN, PEER_QPN = 3, 0x012345
RKEY = 0x1234
BASE_VA = 0x7F00_0000_0000
REGION_BYTES = 1 << 16
CANARY_BYTES = 256
CANARY = b"\xa5"
DSCP = DscpMap()

E = TypeVar("E", bound=Event)


def identity(topology: Topology, host: int) -> NicIdentity:
    macs = tuple(bytes((2, 0, 0, 0, host, plane)) for plane in range(topology.planes))
    gateways = tuple(bytes((2, 1, 0, 0, host, plane)) for plane in range(topology.planes))
    return NicIdentity(host, host_address(host).packed, macs, gateways)


@dataclass(frozen=True, slots=True)
class Data:
    """One data packet as the peer reads it."""

    plane: int
    opcode: int
    psn: int
    ev: int
    rtx: bool
    ackreq: bool
    dscp: int
    dest_qpn: int
    rqmsn: int
    msn: int
    va: int
    rkey: int
    dma_bytes: int
    payload: bytes
    imm: int | None


@dataclass(frozen=True, slots=True)
class Control:
    """One packet without payload as the peer reads it; `fields` are those of its extension header."""

    plane: int
    opcode: int
    psn: int
    ev: int
    rtx: bool
    dscp: int
    dest_qpn: int
    fields: tuple[int, ...]

    @property
    def cack(self) -> int:
        return self.fields[4]

    @property
    def reported(self) -> set[int]:
        """24-bit PSNs a SACK reports as received by its bitmap."""
        base = self.fields[4] + self.fields[5]
        return {base + bit & 0xFFFFFF for bit in range(64) if self.fields[6] >> bit & 1}


_FIELDS = {
    Opcode.SACK: fast.sack_fields,
    Opcode.NACK: fast.nack_fields,
    Opcode.ACKNOWLEDGE: fast.aeth_fields,
    Opcode.PROBE_REQUEST: fast.peth_fields,
    Opcode.ENDPOINT_REQUEST: fast.erth_fields,
    Opcode.ENDPOINT_RESPONSE: fast.eeth_fields,
}


class Bench:
    """See the module docstring. `overrides` are fields of `TransportConfig`."""

    def __init__(
        self,
        topology: Topology = EIGHT,
        *,
        seed: int = 1,
        send_psn: int = 0,
        receive_psn: int = 0,
        **overrides: object,
    ) -> None:
        self.topology = topology
        self.peer = topology.host_count - 1
        self.config: TransportConfig = replace(for_topology(topology), **overrides)  # type: ignore[arg-type]
        self.nic = Nic(topology, identity(topology, 0), self.config, Rng(seed))
        self.now_ns = 0
        self.events: list[Event] = []
        self._parser = fast.FrameParser(host_address(self.peer).packed)
        self._templates: dict[tuple[int, int, int, int], fast.FrameTemplate] = {}
        self._backing = bytearray(CANARY * (REGION_BYTES + 2 * CANARY_BYTES))
        view = memoryview(self._backing)[CANARY_BYTES : CANARY_BYTES + REGION_BYTES]
        view[:] = bytes(REGION_BYTES)
        self.region = MemoryRegion(RKEY, BASE_VA, view)
        self.nic.regions.register(self.region)
        self.qp: Qp = self.nic.create_qp(self.setup(LOCAL_QPN, send_psn, receive_psn))

    def setup(self, qpn: int, send_psn: int = 0, receive_psn: int = 0) -> QpSetup:
        peer = host_address(self.peer).packed
        paths = all_paths(self.topology, 0, self.peer)
        return QpSetup(qpn, PEER_QPN, peer, paths, self.config, send_psn, receive_psn)

    @property
    def canaries_intact(self) -> bool:
        """Whether the bytes around the region are untouched."""
        fence = CANARY * CANARY_BYTES
        return self._backing[:CANARY_BYTES] == fence and self._backing[-CANARY_BYTES:] == fence

    def memory(self, offset: int, length: int) -> bytes:
        return bytes(self.region.view[offset : offset + length])

    # -- the NIC --------------------------------------------------------------------------------------------------

    def post(self, length: int, source: PayloadSource | None = None, imm: int | None = None, wr_id: int = 0) -> int:
        source = source or BufferSource(bytes(length))
        return self.nic.post_write(LOCAL_QPN, wr_id, source, length, BASE_VA, RKEY, self.now_ns, imm)

    def receive(self, frame: bytes, port: int = 0) -> int:
        placed = self.nic.receive_frame(port, frame, self.now_ns)
        self._collect()
        return placed

    def timer(self, now_ns: int | None = None) -> None:
        if now_ns is not None:
            self.now_ns = now_ns
        self.nic.handle_timer(self.now_ns)
        self._collect()

    def port(self, port: int, up: bool) -> None:
        self.nic.port_changed(port, up, self.now_ns)
        self._collect()

    def run_timers(self, until_ns: int) -> list[Data | Control]:
        """Let time pass from timer to timer with a deaf peer; everything sent meanwhile."""
        sent = self.sent()
        while (due := self.nic.next_timer_ns()) is not None and due <= until_ns:
            self.timer(max(due, self.now_ns + 1))
            sent += self.sent()
        self.now_ns = until_ns
        return sent

    def _collect(self) -> None:
        while (event := self.nic.next_event()) is not None:
            self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def frames(self, room: int | None = None, limit: int = 1 << 20) -> list[tuple[int, bytes, bool]]:
        """Everything the NIC wants to send now, as (plane, bytes, is control)."""
        room = (1 << self.topology.planes) - 1 if room is None else room
        out: list[tuple[int, bytes, bool]] = []
        while len(out) < limit and (more := self.nic.frames_to_send(self.now_ns, room)):
            out += more
        self._collect()
        return out

    def sent(self, room: int | None = None, limit: int = 1 << 20) -> list[Data | Control]:
        return [self.read(plane, frame) for plane, frame, _ in self.frames(room, limit)]

    def sent_data(self, room: int | None = None, limit: int = 1 << 20) -> list[Data]:
        return [item for item in self.sent(room, limit) if isinstance(item, Data)]

    def answers(self) -> list[Control]:
        """Control packets the NIC sends now; fails if data is among them."""
        items = self.sent()
        assert all(isinstance(item, Control) for item in items), items
        return [item for item in items if isinstance(item, Control)]

    def read(self, plane: int, frame: bytes) -> Data | Control:
        packet = self._parser.parse(frame)
        assert packet is not None, self._parser.drops
        common = (plane, packet.opcode, packet.psn24, packet.ev, packet.rtx)
        if packet.opcode in _FIELDS:
            fields = _FIELDS[Opcode(packet.opcode)](frame)
            return Control(*common, packet.dscp, packet.dest_qpn, fields)
        rqmsn, msn, _, va, rkey, dma = fast.data_fields(frame)
        has_imm = packet.opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM)
        imm = fast.immediate(frame, packet.payload_offset) if has_imm else None
        payload = frame[packet.payload_offset : packet.payload_end]
        return Data(
            *common, packet.ackreq, packet.dscp, packet.dest_qpn, rqmsn, msn, va, rkey, dma, payload, imm
        )  # fmt: skip

    # -- the peer -------------------------------------------------------------------------------------------------

    def template(self, ev: int, dscp: int, ecn: int, src: int | None = None) -> fast.FrameTemplate:
        """Frames of a host (by default the peer) to this NIC along one EV."""
        src = self.peer if src is None else src
        key = (ev, dscp, ecn, src)
        if key not in self._templates:
            address = host_address(src).packed
            self._templates[key] = fast.FrameTemplate(
                dst_mac=bytes(6),
                src_mac=bytes(6),
                outer_src=address,
                outer_dst=path_for_ev(self.topology, self.peer, 0, ev).destination,
                inner_src=address,
                inner_dst=host_address(0).packed,
                ev=ev,
                dscp=dscp,
                ecn=ecn,
            )
        return self._templates[key]

    def data(
        self,
        psn: int,
        payload: bytes = b"x" * 64,
        *,
        opcode: int = Opcode.WRITE_ONLY,
        msn: int | None = None,
        offset: int = 0,
        va: int | None = None,
        rkey: int = RKEY,
        flags: int = 0,
        ev: int = 0,
        imm: int | None = None,
        ce: bool = False,
        timestamp: int = 0x1357,
    ) -> bytes:
        """A data packet of the peer; by default a whole message (MSN = PSN) written at `offset` of the region."""
        rtx = flags & fast.FLAG_RTX
        template = self.template(ev, DSCP.trimmable_retx if rtx else DSCP.trimmable, Ecn.CE if ce else Ecn.ECT0)
        return fast.build_data(
            template,
            opcode,
            LOCAL_QPN,
            psn,
            flags,
            0,
            (psn if msn is None else msn) & 0xFFFF,
            timestamp,
            BASE_VA + offset if va is None else va,
            rkey,
            len(payload),
            payload,
            imm,
        )

    def control(
        self, opcode: int, psn: int, ext: bytes, *, rtx: bool = False, ev: int = 0, qpn: int = LOCAL_QPN
    ) -> bytes:
        return fast.build_control(self.template(ev, DSCP.control, Ecn.NOT_ECT), opcode, qpn, psn, ext, rtx)

    def sack(
        self,
        cack: int,
        received: Sequence[int] = (),
        *,
        offset: int = 1,
        bitmap: int | None = None,
        ack_psn_offset: int = 0,
        entropy: int = 0,
        mark: int = 0,
        probe_id: int | None = None,
        rtx: bool = False,
        mpr_units: int = 0,
    ) -> bytes:
        """A SACK whose bitmap, from cack + offset, reports the PSNs in `received` (or is `bitmap`)."""
        if bitmap is None:
            bitmap = sum(1 << psn - cack - offset for psn in received)
        ext = fast.pack_sack(
            mark=mark,
            ack_psn_offset=ack_psn_offset,
            entropy=entropy,
            cack_psn=cack,
            sack_offset=offset,
            bitmap=bitmap,
            tx_timestamp=0,
            ooo_count=0,
            rcvd_units=0,
            mpr_units=mpr_units,
            probe_id=probe_id,
        )
        return self.control(Opcode.SACK, cack, ext, rtx=rtx)

    def nack(self, reason: int, psn: int, entropy: int = 0) -> bytes:
        ext = fast.pack_nack(reason=reason, entropy=entropy, nack_psn=psn, tx_timestamp=0)
        return self.control(Opcode.NACK, psn, ext)

    def ack(self, msn: int, psn: int, syndrome: int = AethSyndrome.ACK) -> bytes:
        """A Transport ACK: `msn` messages done, all up to and including `psn` received."""
        return self.control(Opcode.ACKNOWLEDGE, psn, fast.pack_aeth(syndrome, msn))

    def probe(self, probe_id: int, *, ev: int = 0, ce: bool = False, timestamp: int = 0) -> bytes:
        template = self.template(ev, DSCP.trimmable, Ecn.CE if ce else Ecn.ECT0)
        return fast.build_control(template, Opcode.PROBE_REQUEST, LOCAL_QPN, 0, fast.pack_peth(probe_id, timestamp))

    def endpoint_request(
        self, op: int, request_id: int, mask: int = 0, *, src: int | None = None, timestamp: int = 0
    ) -> bytes:
        template = self.template(0, DSCP.control, Ecn.NOT_ECT, src)
        ext = fast.pack_erth(op, mask, timestamp)
        return fast.build_control(template, Opcode.ENDPOINT_REQUEST, ENDPOINT_QPN, request_id, ext)

    def endpoint_response(self, op: int, request_id: int, *, src: int | None = None) -> bytes:
        template = self.template(0, DSCP.control, Ecn.NOT_ECT, src)
        return fast.build_control(template, Opcode.ENDPOINT_RESPONSE, ENDPOINT_QPN, request_id, fast.pack_eeth(op, 0))


def trim(frame: bytes, *, lasthop: bool = False, keep_ip_bytes: int = 128) -> bytes:
    """What a switch leaves of a data frame whose payload found no room: outer length and class rewritten, tail gone."""
    cut = bytearray(frame[: 14 + keep_ip_bytes])
    set_outer_dscp(cut, DSCP.trimmed_lasthop if lasthop else DSCP.trimmed)
    cut[18:20] = (len(cut) - 54).to_bytes(2, "big")
    return bytes(cut)


def set_outer_dscp(frame: bytearray, dscp: int) -> None:
    word = int.from_bytes(frame[14:18], "big")
    frame[14:18] = (word & ~(0x3F << 22) | dscp << 22).to_bytes(4, "big")
