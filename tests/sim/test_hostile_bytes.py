"""Any bytes through `Nic.receive_frame`: no exception, no write outside the region, bounded state, no silent death.

20,000 frames by default; MRCEMU_FUZZ_FRAMES=1000000 for a long run. Seeds are valid frames of every opcode; they are
mutated (mostly with the iCRC made right again, so that the bytes reach the transport), cut, spliced, or random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mrcemu.protocol.config import for_topology
from mrcemu.protocol.events import Event, MessageArrived, QpFailed, WriteCompleted
from mrcemu.protocol.framing import NicIdentity
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.protocol.nic import Nic
from mrcemu.protocol.qp import QpSetup
from mrcemu.rng import Rng
from mrcemu.topology.addressing import all_paths, host_address, path_for_ev
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.icrc import icrc_of
from mrcemu.wire.opcodes import Ecn, EndpointOp, Opcode
from mrcemu.workload.pattern import PatternSource

FRAMES = int(os.environ.get("MRCEMU_FUZZ_FRAMES", "20000"))
SHARDS = 5
TOPOLOGY = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
PEER = 15
QPNS = (3, 4, 5, 6)
RKEY, BASE_VA, REGION_BYTES, FENCE = 0x77, 1 << 40, 1 << 14, 512
INNER, UDP_LENGTH, PAYLOAD_LENGTHS = 54, slice(98, 100), (slice(18, 20), slice(58, 60))


class Target:
    """A NIC with live QPs, each sending and receiving; a QP that failed is replaced by a fresh one."""

    def __init__(self, seed: int) -> None:
        self.config = replace(for_topology(TOPOLOGY), exp_retries=25)
        macs = tuple(bytes((2, 0, 0, 0, 0, plane)) for plane in range(8))
        self.nic = Nic(TOPOLOGY, NicIdentity(0, host_address(0).packed, macs, macs), self.config, Rng(seed))
        self.backing = bytearray(b"\xa5" * (REGION_BYTES + 2 * FENCE))
        self.nic.regions.register(MemoryRegion(RKEY, BASE_VA, memoryview(self.backing)[FENCE : FENCE + REGION_BYTES]))
        self.now_ns = 0
        self.failures = 0
        for qpn in QPNS:
            self.open(qpn)

    def open(self, qpn: int) -> None:
        paths = all_paths(TOPOLOGY, 0, PEER)
        self.nic.create_qp(QpSetup(qpn, qpn, host_address(PEER).packed, paths, self.config))
        for message in range(4):
            self.nic.post_write(qpn, message, PatternSource(qpn, message), 50_000, 0, 9, self.now_ns)

    def step(self, frame: bytes, port: int) -> int:
        """One frame in, whatever is wanted out, a little time; events are judged."""
        placed = self.nic.receive_frame(port, frame, self.now_ns)
        self.now_ns += 500_000
        timer = self.nic.next_timer_ns()
        if timer is not None and timer <= self.now_ns:
            self.nic.handle_timer(self.now_ns)
        self.nic.frames_to_send(self.now_ns, 0xFF)
        while (event := self.nic.next_event()) is not None:
            self.judge(event)
        return placed

    def judge(self, event: Event) -> None:
        if isinstance(event, QpFailed):
            assert event.reason
            qp = self.nic.qps[event.qpn]
            assert qp.error == event.reason
            self.failures += 1
            self.nic.frames_to_send(self.now_ns, 0)  # its last words
            self.nic.destroy_qp(event.qpn)
            self.open(event.qpn)
        elif isinstance(event, WriteCompleted):
            assert 0 <= event.msn < 4 or event.length
        elif isinstance(event, MessageArrived):
            assert event.imm is None or 0 <= event.imm < 1 << 32

    def check(self) -> None:
        """Fences stand and nothing grew without bound."""
        assert self.backing[:FENCE] == self.backing[-FENCE:] == b"\xa5" * FENCE
        for qp in self.nic.qps.values():
            assert len(qp.responder.control) <= 1024
            assert qp.requester.inflight_packets <= self.config.mpr_psns
            assert qp.requester.outstanding_messages <= 4
            # Of all planes: a forged port update may have shrunk the window below what is already under way.
            assert 0 <= qp.congestion.inflight_bytes <= int(1.5 * self.config.plane_bdp_bytes) * TOPOLOGY.planes
            window = qp.responder.window
            assert window.ooo_count <= self.config.mpr_psns
            assert window.highest - window.cack <= self.config.mpr_psns
        assert sum(len(entry.flights) for qp in self.nic.qps.values() for entry in qp.spray.entries.values()) < 20_000


# -- frames ---------------------------------------------------------------------------------------------------------


def template(ev: int, dscp: int, ecn: int = Ecn.ECT0) -> fast.FrameTemplate:
    src, dst = host_address(PEER).packed, host_address(0).packed
    return fast.FrameTemplate(
        dst_mac=bytes(6),
        src_mac=bytes(6),
        outer_src=src,
        outer_dst=path_for_ev(TOPOLOGY, PEER, 0, ev).destination,
        inner_src=src,
        inner_dst=dst,
        ev=ev,
        dscp=dscp,
        ecn=ecn,
    )


DATA, CE, CONTROL = template(0x12, 8), template(0x23, 8, Ecn.CE), template(0x05, 46, Ecn.NOT_ECT)


def data_seeds(rng: Rng, qpn: int) -> Iterator[bytes]:
    for opcode in range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1):
        imm = 7 if opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM) else None
        for head in (DATA, CE):
            size = rng.below(300)
            va = BASE_VA + rng.below(REGION_BYTES - 300)
            psn = rng.below(64)
            flags = (0, fast.FLAG_ACKREQ, fast.FLAG_RTX)[rng.below(3)]
            yield fast.build_data(head, opcode, qpn, psn, flags, 0, psn, 1, va, RKEY, size, bytes(size), imm)


def control_seeds(rng: Rng, qpn: int) -> Iterator[bytes]:
    psn, ev = rng.below(60), rng.below(8) | rng.below(4) << 4
    common = {"tx_timestamp": 0, "ooo_count": 0, "rcvd_units": 0, "entropy": ev}
    for probe_id in (None, rng.below(1 << 16)):
        ext = fast.pack_sack(
            mark=rng.below(3), ack_psn_offset=rng.below(60), cack_psn=psn - 30, sack_offset=1, bitmap=rng.u64(),
            probe_id=probe_id, **common,
        )  # fmt: skip
        yield fast.build_control(CONTROL, Opcode.SACK, qpn, psn, ext, rtx=rng.below(2) == 0)
    reason = (1, 2, 6, 7, 10, 11)[rng.below(6)]
    ext = fast.pack_nack(reason=reason, entropy=ev, nack_psn=psn, tx_timestamp=0)
    yield fast.build_control(CONTROL, Opcode.NACK, qpn, psn, ext)
    yield fast.build_control(CONTROL, Opcode.ACKNOWLEDGE, qpn, psn, fast.pack_aeth(0x1F, rng.below(5)))
    yield fast.build_control(CONTROL, Opcode.PROBE_REQUEST, qpn, 0, fast.pack_peth(rng.below(1 << 16), 0))
    op = EndpointOp(rng.below(2))
    yield fast.build_control(CONTROL, Opcode.ENDPOINT_REQUEST, 2, psn, fast.pack_erth(op, rng.below(1 << 32), 0))
    yield fast.build_control(CONTROL, Opcode.ENDPOINT_RESPONSE, 2, psn, fast.pack_eeth(op, 0))


def seeds(rng: Rng) -> list[bytes]:
    return [frame for qpn in QPNS for make in (data_seeds, control_seeds) for frame in make(rng, qpn)]


def mend_lengths(frame: bytearray) -> None:
    """Make the three length fields agree with the bytes there are."""
    if len(frame) >= 118:
        for at, length in zip((*PAYLOAD_LENGTHS, UDP_LENGTH), (len(frame) - 54, *[len(frame) - 94] * 2), strict=True):
            frame[at] = length.to_bytes(2, "big")


def mend_icrc(frame: bytearray) -> None:
    """Put the right iCRC at the end, so that the parser lets the frame in."""
    if len(frame) >= 118:
        frame[-4:] = icrc_of(bytes(frame[INNER:-4]))


def flip(frame: bytearray, rng: Rng, low: int) -> None:
    for _ in range(1 + rng.below(4)):
        frame[low + rng.below(len(frame) - low)] = rng.below(256)


def mutate_transport(frame: bytearray, rng: Rng) -> bytearray:
    flip(frame, rng, 102)
    mend_icrc(frame)
    return frame


def mutate_headers(frame: bytearray, rng: Rng) -> bytearray:
    flip(frame, rng, 0)
    return frame


def mutate_inside(frame: bytearray, rng: Rng) -> bytearray:
    flip(frame, rng, INNER)
    mend_icrc(frame)
    return frame


def mutate_class(frame: bytearray, rng: Rng) -> bytearray:
    frame[14], frame[15] = 0x60 | rng.below(16), rng.below(256)
    return frame[: 14 + 40 + rng.below(len(frame))] if rng.below(2) else frame


def mutate_trim(frame: bytearray, rng: Rng) -> bytearray:
    """Cut to any length, marked trimmed, outer length right."""
    del frame[60 + rng.below(len(frame) - 60) :]
    word = int.from_bytes(frame[14:18], "big") & ~(0x3F << 22) | (16, 18)[rng.below(2)] << 22
    frame[14:18] = word.to_bytes(4, "big")
    frame[18:20] = (len(frame) - 54).to_bytes(2, "big")
    return frame


def truncate(frame: bytearray, rng: Rng) -> bytearray:
    return frame[: rng.below(len(frame))]


def resize(frame: bytearray, rng: Rng) -> bytearray:
    """Longer or shorter, with lengths and iCRC made right."""
    if rng.below(2):
        del frame[103 + rng.below(len(frame) - 103) :]
    frame += bytes(rng.below(64))
    mend_lengths(frame)
    mend_icrc(frame)
    return frame


def noise(frame: bytearray, rng: Rng) -> bytearray:
    return bytearray(rng.below(256) for _ in range(rng.below(220)))


def unchanged(frame: bytearray, rng: Rng) -> bytearray:
    return frame


MUTATIONS: list[Callable[[bytearray, Rng], bytearray]] = [
    mutate_transport, mutate_transport, mutate_transport, mutate_inside, mutate_headers, mutate_class, mutate_trim,
    truncate, resize, noise, unchanged, unchanged,
]  # fmt: skip


# -- tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_bytes_crash_a_nic_or_write_outside_its_region(shard: int) -> None:
    rng = Rng(4242 + shard)
    target = Target(shard)
    corpus = seeds(rng)
    placed = 0
    for index in range(FRAMES // SHARDS):
        if index % 500 == 0:
            corpus = seeds(rng)
            target.check()
        frame = MUTATIONS[rng.below(len(MUTATIONS))](bytearray(corpus[rng.below(len(corpus))]), rng)
        placed += target.step(bytes(frame), rng.below(8)) > 0
    target.check()
    # The fuzzing reached the transport: frames were placed, refused and survived, and QPs failed with reasons.
    assert placed > FRAMES // SHARDS // 200
    assert target.failures > 0
    assert {"icrc", "truncated"} <= set(target.nic.parser.drops)


@pytest.mark.parametrize("length", [0, 1, 13, 14, 53, 54, 93, 101, 102, 113, 114, 117])
def test_short_frames_are_dropped_and_counted(length: int) -> None:
    target = Target(1)
    frame = fast.build_control(CONTROL, Opcode.ACKNOWLEDGE, 3, 0, fast.pack_aeth(0x1F, 1))
    target.step(frame[:length], 0)
    assert sum(target.nic.parser.drops.values()) == 1
    assert target.failures == 0


def test_every_single_byte_changed_without_mending_the_icrc_changes_nothing_in_memory() -> None:
    """Bytes the iCRC masks (inner class, flow label, hop limit, UDP checksum, BTH reserved) and outer ones aside."""
    target = Target(1)
    frame = fast.build_data(DATA, Opcode.WRITE_ONLY, 3, 0, 0, 0, 0, 1, BASE_VA, RKEY, 8, b"\xff" * 8)
    masked = {54, 55, 56, 57, 61, 100, 101, 106}
    for at in range(INNER, len(frame)):
        if at not in masked:
            broken = bytearray(frame)
            broken[at] ^= 0x40
            assert target.step(bytes(broken), 0) == 0
    assert target.nic.qps[3].responder.window.expected == 0
    assert target.step(frame, 0) == 8


def test_a_frame_from_another_host_cannot_reach_a_qp() -> None:
    target = Target(1)
    frame = bytearray(fast.build_data(DATA, Opcode.WRITE_ONLY, 3, 0, 0, 0, 0, 1, BASE_VA, RKEY, 8, b"\xff" * 8))
    frame[62:78] = host_address(7).packed
    mend_icrc(frame)
    assert target.step(bytes(frame), 0) == 0
    assert target.nic.unknown_qp_drops == 1
