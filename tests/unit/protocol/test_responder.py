"""The receiving half: placement, window edges, SACK triggers, refusals, completions (protocol sources section 3)."""

from __future__ import annotations

import pytest
from transport_kit import BASE_VA, PEER_QPN, REGION_BYTES, RKEY, Bench, Control, trim

from mrcemu.protocol.events import MessageArrived, QpFailed
from mrcemu.protocol.memory import Access, MemoryRegion
from mrcemu.rng import Rng
from mrcemu.wire.fast import FLAG_ACKREQ, FLAG_RTX
from mrcemu.wire.opcodes import AethSyndrome, NackReason, Opcode, SackMark

FIRST, MIDDLE, LAST, ONLY_IMM = Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY_IMM
MPR = 1024


def message(bench: Bench, first_psn: int, packets: int, msn: int = 0, size: int = 64) -> list[bytes]:
    """The frames of one message, its payload a different byte in each packet."""
    frames = []
    for index in range(packets):
        opcode = FIRST if index == 0 else LAST if index == packets - 1 else MIDDLE
        payload = bytes([index & 0xFF]) * size
        frames.append(bench.data(first_psn + index, payload, opcode=opcode, msn=msn, offset=index * size))
    return frames


def only(answers: list[Control], opcode: int) -> list[Control]:
    return [item for item in answers if item.opcode == opcode]


# -- placement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_packets_are_placed_where_reth_says_in_any_order(seed: int) -> None:
    bench = Bench()
    frames = message(bench, 0, 200)
    Rng(seed).shuffle(frames)
    assert sum(bench.receive(frame) for frame in frames) == 200 * 64
    assert bench.memory(0, 200 * 64) == b"".join(bytes([index]) * 64 for index in range(200))
    assert bench.memory(200 * 64, 64) == bytes(64)
    assert [event.msn for event in bench.of(MessageArrived)] == [0]
    assert bench.canaries_intact


def test_a_packet_is_in_memory_before_those_ahead_of_it_arrive() -> None:
    bench = Bench()
    bench.receive(bench.data(17, b"early", offset=300))
    assert bench.memory(300, 5) == b"early"
    assert bench.of(MessageArrived) == []


@pytest.mark.parametrize("size", [1, 2, 3, 5, 4095])
def test_padding_is_never_written(size: int) -> None:
    bench = Bench()
    bench.region.view[:] = b"\xee" * REGION_BYTES
    assert bench.receive(bench.data(0, b"x" * size, offset=8)) == size
    assert bench.memory(0, size + 16) == b"\xee" * 8 + b"x" * size + b"\xee" * 8


def test_an_empty_write_places_nothing_and_completes() -> None:
    bench = Bench()
    assert bench.receive(bench.data(0, b"", flags=FLAG_ACKREQ)) == 0
    assert [event.msn for event in bench.of(MessageArrived)] == [0]
    assert [item.opcode for item in bench.answers()] == [Opcode.SACK, Opcode.ACKNOWLEDGE]


def test_the_last_byte_of_a_region_can_be_written() -> None:
    bench = Bench()
    assert bench.receive(bench.data(0, b"end", offset=REGION_BYTES - 3)) == 3
    assert bench.memory(REGION_BYTES - 3, 3) == b"end"


def test_the_region_observer_sees_each_payload_once() -> None:
    bench = Bench()
    seen: list[tuple[int, int, int, bytes]] = []
    bench.region.observer = lambda *args: seen.append(args)
    frame = bench.data(0, b"abc", msn=0, offset=40)
    bench.receive(frame)
    bench.receive(frame)
    assert seen == [(3, 0, 40, b"abc")]


# -- duplicates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("psn", [0, 5])
def test_a_duplicate_is_answered_and_never_written_again(psn: int) -> None:
    """PSN 0 is below the cumulative point, PSN 5 already marked above it."""
    bench = Bench()
    bench.receive(bench.data(0, b"first"))
    bench.receive(bench.data(5, b"fifth", offset=64))
    bench.answers()
    bench.region.view[:] = bytes(REGION_BYTES)
    assert bench.receive(bench.data(psn, b"again", offset=128, flags=FLAG_RTX)) == 0
    assert bench.memory(0, 256) == bytes(256)
    answers = bench.answers()
    assert len(only(answers, Opcode.SACK)) == 1
    assert len(only(answers, Opcode.ACKNOWLEDGE)) == (1 if psn == 0 else 0)
    assert bench.qp.responder.counters.duplicates == 1


def test_duplicates_do_not_count_as_received_bytes() -> None:
    bench = Bench()
    for _ in range(5):
        bench.receive(bench.data(0, b"x" * 4096, flags=FLAG_ACKREQ))
    units = {item.fields[9] for item in only(bench.answers(), Opcode.SACK)}
    assert units == {-(-(4096 + 88) // 256)}


# -- window edges ---------------------------------------------------------------------------------------------------


def test_the_window_accepts_up_to_epsn_plus_mpr_minus_one() -> None:
    bench = Bench()
    assert bench.receive(bench.data(MPR - 1, b"edge")) == 4
    assert only(bench.answers(), Opcode.NACK) == []


@pytest.mark.parametrize("psn", [MPR, MPR + 1, 1 << 20, (1 << 23) - 1])
def test_beyond_the_window_is_refused_and_not_written(psn: int) -> None:
    bench = Bench()
    assert bench.receive(bench.data(psn, b"beyond", ev=0x13, msn=0, timestamp=0x4444)) == 0
    (nack,) = bench.answers()
    assert (nack.opcode, nack.dest_qpn, nack.psn) == (Opcode.NACK, PEER_QPN, psn)
    assert nack.fields == (NackReason.PSN_OOR_WINDOW, 0x13, psn, 0x4444)
    assert bench.memory(0, 16) == bytes(16)


@pytest.mark.parametrize("behind", [1, 1000, 1 << 20, 1 << 23])
def test_far_below_the_window_is_no_refusal_and_not_written(behind: int) -> None:
    bench = Bench(receive_psn=10)
    assert bench.receive(bench.data(10 - behind, b"old", msn=0)) == 0
    assert only(bench.answers(), Opcode.NACK) == []
    assert bench.memory(0, 4) == bytes(4)


def test_the_window_moves_with_the_cumulative_point() -> None:
    bench = Bench()
    bench.receive(bench.data(0))
    bench.answers()
    assert bench.receive(bench.data(MPR, b"edge")) == 4
    assert bench.receive(bench.data(MPR + 1, b"over")) == 0


def test_psns_are_received_across_the_wrap() -> None:
    bench = Bench(receive_psn=(1 << 24) - 3)
    frames = message(bench, (1 << 24) - 3, 6)
    for frame in reversed(frames):
        assert bench.receive(frame) == 64
    assert len(bench.of(MessageArrived)) == 1
    acks = only(bench.answers(), Opcode.ACKNOWLEDGE)
    assert [item.psn for item in acks] == [2]


# -- SACK triggers --------------------------------------------------------------------------------------------------


def test_one_sack_for_each_threshold_of_bytes() -> None:
    bench = Bench()
    counts = []
    for psn in range(12):
        bench.receive(bench.data(psn, b"x" * 4096, opcode=MIDDLE, msn=0))
        counts.append(len(bench.answers()))
    assert counts == [0, 0, 0, 1] * 3


def test_a_small_packet_counts_as_the_minimum() -> None:
    bench = Bench()
    counts = []
    for psn in range(32):
        bench.receive(bench.data(psn, b"x", opcode=MIDDLE, msn=0))
        counts.append(len(bench.answers()))
    assert counts == ([0] * 15 + [1]) * 2


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [({"flags": FLAG_ACKREQ}, 0), ({"flags": FLAG_RTX}, 0), ({"ce": True}, SackMark.SKIP_ONCE)],
    ids=["AckReq", "rtx", "CE"],
)
def test_each_trigger_answers_at_once_with_that_packets_ev_psn_and_timestamp(
    arguments: dict[str, object], mark: int
) -> None:
    bench = Bench()
    bench.receive(bench.data(0, opcode=FIRST, msn=0, ev=0x07))
    assert bench.answers() == []
    bench.receive(bench.data(2, opcode=MIDDLE, msn=0, ev=0x25, timestamp=0x2468, **arguments))  # type: ignore[arg-type]
    (sack,) = bench.answers()
    assert (sack.opcode, sack.dest_qpn) == (Opcode.SACK, PEER_QPN)
    got_mark, is_probe, ack_offset, entropy, cack, _, _, timestamp, ooo, *_ = sack.fields
    assert (got_mark, is_probe, entropy, cack, timestamp, ooo) == (mark, False, 0x25, 0, 0x2468, 1)
    assert cack + ack_offset == 2
    assert sack.rtx is (arguments.get("flags") == FLAG_RTX)
    assert sack.reported == {2}


def test_every_marked_packet_is_reported_with_its_own_ev() -> None:
    bench = Bench()
    for psn, ev in enumerate((0x00, 0x11, 0x22, 0x33)):
        bench.receive(bench.data(psn, opcode=MIDDLE, msn=0, ev=ev, ce=True))
    assert [(item.fields[0], item.fields[3]) for item in bench.answers()] == [
        (1, 0x00),
        (1, 0x11),
        (1, 0x22),
        (1, 0x33),
    ]


def test_a_marked_duplicate_still_steers() -> None:
    """CE says something about the path whatever the packet carried (sources 3.14)."""
    bench = Bench()
    bench.receive(bench.data(0, ev=0x00))
    bench.answers()
    bench.receive(bench.data(0, ev=0x31, ce=True, flags=FLAG_RTX))
    (sack,) = only(bench.answers(), Opcode.SACK)
    assert (sack.fields[0], sack.fields[3]) == (SackMark.SKIP_ONCE, 0x31)


def test_the_byte_counter_starts_over_with_every_sack() -> None:
    bench = Bench()
    for psn in range(3):
        bench.receive(bench.data(psn, b"x" * 4096, opcode=MIDDLE, msn=0))
    bench.receive(bench.data(3, opcode=MIDDLE, msn=0, flags=FLAG_ACKREQ))
    assert len(bench.answers()) == 1
    for psn in range(4, 7):
        bench.receive(bench.data(psn, b"x" * 4096, opcode=MIDDLE, msn=0))
    assert bench.answers() == []


def test_received_bytes_are_nominal_sizes_in_256_byte_units() -> None:
    bench = Bench()
    total = 0
    for psn, size in enumerate((0, 1, 100, 4096, 4095)):
        bench.receive(bench.data(psn, b"x" * size, opcode=MIDDLE, msn=0, flags=FLAG_ACKREQ))
        total += size + -size % 4 + 88
        (sack,) = bench.answers()
        assert sack.fields[9] == -(-total // 256)


def test_ooo_count_is_what_is_held_above_the_cumulative_point() -> None:
    bench = Bench()
    counts = []
    for psn in (1, 3, 2, 0):
        bench.receive(bench.data(psn, opcode=MIDDLE, msn=0, flags=FLAG_ACKREQ))
        counts.append(bench.answers()[0].fields[8])
    assert counts == [1, 2, 3, 0]


def test_a_spread_wider_than_one_bitmap_is_described_by_sacks_in_a_row() -> None:
    bench = Bench()
    held = set(range(1, 1000, 3))
    for psn in sorted(held):
        bench.receive(bench.data(psn, opcode=MIDDLE, msn=0, flags=FLAG_ACKREQ))
    bench.answers()
    reported: set[int] = set()
    for probe_id in range(1000 // 64 + 2):
        bench.receive(bench.probe(probe_id))
        reported |= bench.answers()[0].reported
    assert reported == held


# -- trimmed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasthop", "reason"), [(False, NackReason.TRIMMED), (True, NackReason.TRIMMED_LASTHOP)])
def test_a_trimmed_packet_is_refused_with_its_ev_psn_and_timestamp_and_marks_nothing(
    lasthop: bool, reason: int
) -> None:
    bench = Bench()
    frame = trim(bench.data(3, b"x" * 4096, ev=0x31, msn=0, timestamp=0x7777), lasthop=lasthop)
    assert bench.receive(frame) == 0
    (nack,) = bench.answers()
    assert (nack.opcode, nack.fields) == (Opcode.NACK, (reason, 0x31, 3, 0x7777))
    assert bench.receive(bench.data(3, b"whole")) == 5


def test_a_trimmed_packet_that_had_arrived_is_just_reported() -> None:
    bench = Bench()
    for psn in (0, 4):
        bench.receive(bench.data(psn, b"x" * 200))
    bench.answers()
    for psn in (0, 4):
        bench.receive(trim(bench.data(psn, b"x" * 200)))
        assert [item.opcode for item in bench.answers()] == [Opcode.SACK]


def test_a_trimmed_packet_beyond_the_window_is_not_asked_for_again() -> None:
    bench = Bench()
    bench.receive(trim(bench.data(MPR, b"x" * 4096, msn=0)))
    assert [item.fields[0] for item in only(bench.answers(), Opcode.NACK) if item.fields[0] != 0x0B] == []
    assert bench.qp.responder.window.highest == -1


def test_without_the_capability_a_trimmed_packet_meets_silence() -> None:
    bench = Bench(trim_nack=False)
    bench.receive(trim(bench.data(0, b"x" * 4096)))
    assert bench.answers() == []
    assert bench.qp.responder.counters.trimmed == 1


def test_trimmed_packets_do_not_count_as_received_bytes() -> None:
    bench = Bench()
    bench.receive(trim(bench.data(0, b"x" * 4096)))
    bench.answers()
    bench.receive(bench.data(0, b"", flags=FLAG_ACKREQ))
    assert bench.answers()[0].fields[9] == 1  # 88 nominal bytes, rounded up


# -- probes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ce", "mark"), [(False, SackMark.NONE), (True, SackMark.SKIP_ONCE)])
def test_a_probe_is_answered_by_a_sack_with_its_id_ev_and_mark(ce: bool, mark: int) -> None:
    bench = Bench()
    bench.receive(bench.data(1, opcode=MIDDLE, msn=0))
    bench.receive(bench.probe(0xBEEF, ev=0x23, ce=ce, timestamp=0x1111))
    (sack,) = bench.answers()
    got_mark, is_probe, probe_id, entropy, cack, _, _, timestamp, *_ = sack.fields
    assert (got_mark, is_probe, probe_id, entropy, timestamp) == (mark, True, 0xBEEF, 0x23, 0x1111)
    assert cack == 0xFFFFFF  # nothing yet: one before the first PSN
    assert sack.reported >= {1}


def test_a_probe_consumes_no_psn() -> None:
    bench = Bench()
    bench.receive(bench.probe(1))
    bench.answers()
    assert bench.receive(bench.data(0, b"first")) == 5
    assert bench.qp.responder.window.cack == 0


def test_a_probe_repeats_the_transport_ack_of_what_completed() -> None:
    bench = Bench()
    bench.receive(bench.data(0, msn=0))
    bench.answers()  # lost
    bench.receive(bench.probe(9))
    (ack,) = only(bench.answers(), Opcode.ACKNOWLEDGE)
    assert (ack.psn, ack.fields) == (0, (AethSyndrome.ACK, 1))


# -- completion -----------------------------------------------------------------------------------------------------


def test_one_transport_ack_covers_all_messages_a_hole_held_back() -> None:
    bench = Bench()
    for psn in (1, 2, 3):
        bench.receive(bench.data(psn))
    assert only(bench.answers(), Opcode.ACKNOWLEDGE) == []
    bench.receive(bench.data(0))
    (ack,) = only(bench.answers(), Opcode.ACKNOWLEDGE)
    assert (ack.dest_qpn, ack.psn, ack.fields) == (PEER_QPN, 3, (AethSyndrome.ACK, 4))
    assert [event.msn for event in bench.of(MessageArrived)] == [0, 1, 2, 3]


def test_the_sack_of_a_completing_packet_leaves_before_its_transport_ack() -> None:
    bench = Bench()
    bench.receive(bench.data(0, flags=FLAG_ACKREQ))
    assert [item.opcode for item in bench.answers()] == [Opcode.SACK, Opcode.ACKNOWLEDGE]


@pytest.mark.parametrize("seed", range(5))
def test_immediates_are_delivered_in_send_order_whatever_the_order_of_arrival(seed: int) -> None:
    bench = Bench()
    frames = []
    for msn in range(40):
        if msn % 3:
            frames.append(bench.data(msn, opcode=ONLY_IMM, msn=msn, imm=1000 + msn))
        else:
            frames.append(bench.data(msn, msn=msn))
    Rng(seed).shuffle(frames)
    for frame in frames:
        bench.receive(frame)
    expected = [(msn, 1000 + msn if msn % 3 else None) for msn in range(40)]
    assert [(event.msn, event.imm) for event in bench.of(MessageArrived)] == expected


def test_an_immediate_uses_one_posted_receive_and_a_plain_write_none() -> None:
    bench = Bench()
    bench.qp.responder.receives_posted = 2
    bench.receive(bench.data(0))
    bench.receive(bench.data(1, opcode=ONLY_IMM, imm=5))
    assert bench.qp.responder.receives_posted == 1
    assert bench.of(QpFailed) == []


def test_an_immediate_without_a_posted_receive_is_an_invalid_request_and_the_end() -> None:
    bench = Bench()
    bench.qp.responder.receives_posted = 1
    for psn in range(3):
        bench.receive(bench.data(psn, opcode=ONLY_IMM, imm=psn))
    assert [event.imm for event in bench.of(MessageArrived)] == [0]
    assert len(bench.of(QpFailed)) == 1
    naks = [item for item in only(bench.answers(), Opcode.ACKNOWLEDGE) if item.fields[0] != AethSyndrome.ACK]
    assert [item.fields for item in naks] == [(AethSyndrome.NAK_INVALID_REQUEST, 1)]


# -- access ---------------------------------------------------------------------------------------------------------

OUTSIDE = {
    "unknown key": {"rkey": RKEY + 1},
    "key zero": {"rkey": 0},
    "one byte before": {"va": BASE_VA - 1},
    "one byte after": {"va": BASE_VA + REGION_BYTES - 63},
    "all after": {"va": BASE_VA + REGION_BYTES},
    "address zero": {"va": 0},
    "end of the address space": {"va": (1 << 64) - 1},
    "wrapping into the region": {"va": (1 << 64) - 32},
}


@pytest.mark.parametrize("arguments", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_writing_outside_registered_memory_is_a_remote_access_error_once(arguments: dict[str, int]) -> None:
    bench = Bench()
    for psn in range(4):
        assert bench.receive(bench.data(psn, b"\xff" * 64, **arguments)) == 0  # type: ignore[arg-type]
    (failure,) = bench.of(QpFailed)
    assert "memory" in failure.reason
    (nak,) = bench.answers()
    assert (nak.opcode, nak.psn, nak.fields) == (Opcode.ACKNOWLEDGE, 0, (AethSyndrome.NAK_REMOTE_ACCESS, 0))
    assert bench.memory(0, REGION_BYTES) == bytes(REGION_BYTES)
    assert bench.canaries_intact


def test_a_region_without_the_right_refuses_remote_writes() -> None:
    bench = Bench()
    read_only = MemoryRegion(77, 0, memoryview(bytearray(64)), Access.LOCAL_WRITE)
    bench.nic.regions.register(read_only)
    bench.receive(bench.data(0, b"no", rkey=77, va=0))
    assert [item.fields[0] for item in bench.answers()] == [AethSyndrome.NAK_REMOTE_ACCESS]
    assert bytes(read_only.view) == bytes(64)


def test_a_deregistered_region_refuses() -> None:
    bench = Bench()
    bench.nic.regions.deregister(RKEY)
    assert bench.receive(bench.data(0, b"gone")) == 0
    assert len(bench.of(QpFailed)) == 1


def test_every_packet_is_checked_not_only_the_first() -> None:
    bench = Bench()
    bench.receive(bench.data(0, opcode=FIRST, msn=0))
    bench.receive(bench.data(1, opcode=LAST, msn=0, va=BASE_VA + REGION_BYTES - 10))
    assert len(bench.of(QpFailed)) == 1
    assert bench.canaries_intact


def test_a_bad_duplicate_is_not_an_access_error() -> None:
    bench = Bench()
    bench.receive(bench.data(0))
    bench.receive(bench.data(0, rkey=999))
    assert bench.of(QpFailed) == []


def test_registering_a_taken_key_or_read_only_memory_is_refused() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="in use"):
        bench.nic.regions.register(MemoryRegion(RKEY, 0, memoryview(bytearray(1))))
    with pytest.raises(ValueError, match="writable"):
        bench.nic.regions.register(MemoryRegion(1, 0, memoryview(bytes(1))))


# -- answers waiting ------------------------------------------------------------------------------------------------


def test_answers_wait_while_no_plane_is_up_and_stay_bounded() -> None:
    bench = Bench()
    for plane in range(8):
        bench.port(plane, up=False)
    for turn in range(3000):
        bench.receive(bench.data(0, flags=FLAG_ACKREQ, msn=0), port=turn % 8)
    assert bench.frames() == []
    bench.port(3, up=True)
    answers = [item for item in bench.answers() if item.opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE)]
    assert 0 < len(answers) <= 1024
    assert {item.plane for item in answers} == {3}


def test_answers_rotate_over_all_planes() -> None:
    bench = Bench()
    for _ in range(80):
        bench.receive(bench.data(5, msn=5, flags=FLAG_ACKREQ))
    planes = [item.plane for item in bench.answers()]
    assert {planes.count(plane) for plane in range(8)} == {10}
