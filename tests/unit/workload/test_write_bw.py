"""write_bw keeps its depth, counts what completes, stops when told; its payload betrays every misplaced byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mrcemu.errors import QpError
from mrcemu.protocol.events import QpFailed, WriteCompleted
from mrcemu.protocol.memory import MemoryRegion, PayloadSource
from mrcemu.rng import Rng
from mrcemu.workload.pattern import PERIOD_BYTES, PatternCheck, PatternSource, expected, start_of
from mrcemu.workload.write_bw import MAX_LATENCIES, WriteBwSender, WriteBwSpec

MTU = 4096


class RecordingNic:
    """Takes posts and remembers them; a QP in `broken` refuses."""

    def __init__(self) -> None:
        self.posts: list[tuple[int, int, int, int, int, int]] = []
        self.sources: list[PayloadSource] = []
        self.broken: set[int] = set()

    def post_write(
        self, qpn: int, wr_id: int, source: PayloadSource, length: int, va: int, rkey: int, now_ns: int
    ) -> int:
        if qpn in self.broken:
            raise QpError(f"QPN {qpn}: in error")
        self.posts.append((qpn, wr_id, length, va, rkey, now_ns))
        self.sources.append(source)
        return wr_id


def sender(
    qpns: tuple[int, ...] = (3, 4), depth: int = 3, size: int = 10_000, stop_ns: int = 10**9, count: int | None = None
) -> tuple[WriteBwSender, RecordingNic]:
    nic = RecordingNic()
    spec = WriteBwSpec("w", qpns, size, depth, 77, stop_ns, count)
    return WriteBwSender(spec, nic), nic  # type: ignore[arg-type]


def completed(qpn: int, msn: int, now_ns: int = 100, posted_ns: int = 0) -> WriteCompleted:
    return WriteCompleted(now_ns, qpn, msn, msn, 10_000, posted_ns)


# -- the sender -----------------------------------------------------------------------------------------------------


def test_start_posts_depth_messages_on_each_qp_into_slots_of_its_own() -> None:
    bw, nic = sender()
    bw.start(5)
    assert [(qpn, wr, va // 10_000) for qpn, wr, _, va, _, _ in nic.posts] == [
        (3, 0, 0), (3, 1, 1), (3, 2, 2), (4, 0, 3), (4, 1, 4), (4, 2, 5),
    ]  # fmt: skip
    assert {(length, rkey, now) for _, _, length, _, rkey, now in nic.posts} == {(10_000, 77, 5)}
    assert bw.outstanding == 6


def test_each_completion_posts_the_next_message_and_reuses_the_slot_that_is_free() -> None:
    bw, nic = sender(qpns=(3,))
    bw.start(0)
    for msn in range(10):
        bw.on_completed(completed(3, msn))
        assert bw.outstanding == 3
    slots = [va // 10_000 for _, _, _, va, _, _ in nic.posts]
    assert slots == [msn % 3 for msn in range(13)]
    assert [wr for _, wr, *_ in nic.posts] == list(range(13))
    assert bw.completed == 10


def test_after_its_stop_nothing_is_posted_and_the_rest_runs_out() -> None:
    bw, nic = sender(stop_ns=1000)
    bw.start(0)
    bw.on_completed(completed(3, 0, now_ns=999))
    assert len(nic.posts) == 7
    for qpn, msns in ((3, (1, 2, 3)), (4, (0, 1, 2))):
        for msn in msns:
            bw.on_completed(completed(qpn, msn, now_ns=1000))
    assert len(nic.posts) == 7
    assert bw.outstanding == 0
    assert bw.completed == 7


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_a_count_bounds_the_messages_of_each_qp(count: int) -> None:
    bw, nic = sender(count=count)
    bw.start(0)
    done = 0
    while bw.outstanding:
        bw.on_completed(completed(3, done))
        bw.on_completed(completed(4, done))
        done += 1
    assert [wr for qpn, wr, *_ in nic.posts if qpn == 4] == list(range(count))
    assert bw.completed == 2 * count


def test_a_failed_qp_is_left_alone_and_the_others_go_on() -> None:
    bw, nic = sender()
    bw.start(0)
    bw.on_failed(QpFailed(1, 3, "retry counter exceeded"))
    assert bw.outstanding == 3
    bw.on_completed(completed(3, 0))
    bw.on_completed(completed(4, 0))
    assert [qpn for qpn, *_ in nic.posts[6:]] == [4]


def test_a_qp_that_refuses_a_post_counts_as_failed() -> None:
    bw, nic = sender()
    nic.broken = {4}
    bw.start(0)
    assert bw.states[4].failed
    assert not bw.states[3].failed
    assert bw.outstanding == 3


def test_latencies_run_from_post_to_completion_and_are_bounded() -> None:
    bw, _ = sender(qpns=(3,))
    bw.start(0)
    bw.on_completed(completed(3, 0, now_ns=900, posted_ns=250))
    assert bw.latencies_ns == [650]
    for msn in range(1, MAX_LATENCIES + 10):
        bw.on_completed(completed(3, msn))
    assert len(bw.latencies_ns) == MAX_LATENCIES


def test_messages_carry_the_pattern_of_their_qp_and_number() -> None:
    bw, nic = sender()
    bw.start(0)
    for (qpn, wr, *_), source in zip(nic.posts, nic.sources, strict=True):
        assert bytes(source.read(5000, 300)) == expected(qpn, wr, 5000, 300)


# -- the pattern ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, PERIOD_BYTES - 1, PERIOD_BYTES, 1 << 20, (1 << 30) - MTU])
def test_a_source_reads_what_the_check_expects_at_any_offset(offset: int) -> None:
    for qpn, msn in ((3, 0), (0xFFFFFF, 0xFFFF), (4, 70_000)):
        assert bytes(PatternSource(qpn, msn).read(offset, MTU)) == expected(qpn, msn, offset, MTU)


def test_the_pattern_is_one_stream_however_it_is_cut() -> None:
    whole = expected(9, 4, 0, 60_000)
    rng, at, pieces = Rng(1), 0, []
    while at < 60_000:
        length = min(1 + rng.below(5000), 60_000 - at)
        pieces.append(expected(9, 4, at, length))
        at += length
    assert b"".join(pieces) == whole


def test_neighbouring_messages_qps_and_packets_differ() -> None:
    seen = {
        expected(qpn, msn, offset, 64) for qpn in range(3, 9) for msn in range(20) for offset in range(0, 40960, MTU)
    }
    assert len(seen) == 6 * 20 * 10
    assert len({start_of(qpn, msn) for qpn in range(3, 19) for msn in range(100)}) > 1500


# -- the check ------------------------------------------------------------------------------------------------------

QPN, SIZE, DEPTH, BASE = 5, 9000, 3, 20_000


def place(
    check: PatternCheck, msn: int, change: Callable[[bytes], bytes] = bytes, shift: int = 0, of: int = QPN
) -> None:
    """Deliver one message in packets, each through `change`, at an offset shifted by `shift`."""
    for at in range(0, SIZE, MTU):
        payload = expected(of, msn, at, min(MTU, SIZE - at))
        check.on_placed(QPN, msn, BASE + msn % DEPTH * SIZE + at + shift, change(payload))


def test_what_arrives_as_sent_is_counted_and_clean() -> None:
    check = PatternCheck(QPN, SIZE, DEPTH, BASE)
    for msn in range(7):
        place(check, msn)
    assert (check.checked_bytes, check.corrupted_bytes) == (7 * SIZE, 0)


def test_one_changed_byte_is_one_corrupted_byte() -> None:
    check = PatternCheck(QPN, SIZE, DEPTH, BASE)
    place(check, 4, lambda payload: payload[:-1] + bytes([payload[-1] ^ 1]))
    assert check.corrupted_bytes == 3  # one in each of the three packets


@pytest.mark.parametrize("shift", [1, 64, MTU, SIZE, -MTU, 1 << 20])
def test_payload_at_a_wrong_place_is_corrupted(shift: int) -> None:
    check = PatternCheck(QPN, SIZE, DEPTH, BASE)
    place(check, 1, shift=shift)
    assert check.corrupted_bytes > 0.9 * SIZE


def test_payload_of_another_qp_is_corrupted() -> None:
    check = PatternCheck(QPN, SIZE, DEPTH, BASE)
    place(check, 1, of=QPN + 1)
    assert check.corrupted_bytes > 0.9 * SIZE


def filled_region(messages: int) -> tuple[PatternCheck, MemoryRegion]:
    memory = bytearray(BASE + DEPTH * SIZE)
    for msn in range(messages):
        at = BASE + msn % DEPTH * SIZE
        memory[at : at + SIZE] = expected(QPN, msn, 0, SIZE)
    return PatternCheck(QPN, SIZE, DEPTH, BASE), MemoryRegion(1, 0, memoryview(memory))


@pytest.mark.parametrize("messages", [0, 1, 2, 3, 4, 11])
def test_a_region_holds_the_last_message_of_each_slot(messages: int) -> None:
    check, region = filled_region(messages)
    assert check.check_region(region, messages) == 0


@pytest.mark.parametrize("at", [0, SIZE - 1, SIZE, DEPTH * SIZE - 1])
def test_a_changed_byte_in_a_region_is_found(at: int) -> None:
    check, region = filled_region(8)
    region.view[BASE + at] ^= 0xFF
    assert check.check_region(region, 8) == 1


def test_a_message_that_never_arrived_is_found() -> None:
    check, region = filled_region(7)
    assert check.check_region(region, 8) > 0.9 * SIZE


def test_messages_larger_than_one_read_are_checked_to_their_end() -> None:
    size = 200_001
    memory = bytearray(b"".join(expected(QPN, 0, at, min(MTU, size - at)) for at in range(0, size, MTU)))
    memory[-1] ^= 1
    check = PatternCheck(QPN, size, 1)
    assert check.check_region(MemoryRegion(1, 0, memoryview(memory)), 1) == 1
