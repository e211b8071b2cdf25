"""write_lat on a virtual clock: one message at a time each way, half the round trip, no answer to half a message."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mrcemu.errors import QpError
from mrcemu.protocol.events import MessageArrived, QpFailed, WriteCompleted
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.sim.pair import Crossing, Verdict, VirtualPair, kill_plane
from mrcemu.topology import timing
from mrcemu.topology.model import Topology
from mrcemu.wire.layout import ETHERNET_BYTES
from mrcemu.workload.pattern import PatternCheck
from mrcemu.workload.write_bw import MAX_LATENCIES
from mrcemu.workload.write_lat import WriteLatSide, WriteLatSpec

EIGHT = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
MS = 1_000_000
QPN, RKEY = 3, 9
FOREVER = 1 << 62


class PingPong:
    """Two sides on a VirtualPair; events reach them as a NIC's owner would hand them on."""

    def __init__(
        self, size: int, *, count: int | None = None, stop_ns: int = FOREVER, hosts: tuple[int, int] = (0, 12)
    ) -> None:
        self.pair = VirtualPair(EIGHT, *hosts, 1)
        self.pair.connect(QPN)
        self.checks = [self._register(index, size) for index in (0, 1)]
        self.sides = [
            WriteLatSide(WriteLatSpec("w", QPN, size, RKEY, index == 0, stop_ns, count), self.pair.sides[index].nic)
            for index in (0, 1)
        ]
        self._seen = [0, 0]

    def _register(self, index: int, size: int) -> tuple[PatternCheck, MemoryRegion]:
        check = PatternCheck(QPN, size, 1)
        region = MemoryRegion(RKEY, 0, memoryview(bytearray(size)), observer=check.on_placed)
        self.pair.sides[index].nic.regions.register(region)
        return check, region

    def run(self, duration_ns: int, step_ns: int = MS // 10) -> None:
        self.sides[0].start(self.pair.clock.now_ns)
        end_ns = self.pair.clock.now_ns + duration_ns
        while self.pair.clock.now_ns < end_ns:
            self.pair.run_for(step_ns)
            for index, side in enumerate(self.sides):
                events = self.pair.sides[index].events
                for event in events[self._seen[index] :]:
                    if isinstance(event, MessageArrived):
                        side.on_arrived(event)
                    elif isinstance(event, WriteCompleted):
                        side.on_completed(event)
                    elif isinstance(event, QpFailed):
                        side.on_failed(event)
                self._seen[index] = len(events)

    def corrupted(self) -> int:
        return sum(
            check.corrupted_bytes + check.check_region(region, side.arrived)
            for (check, region), side in zip(self.checks, self.sides, strict=True)
        )


def one_way_ns(hops: int, payload: int) -> int:
    return timing.one_way_delay_ns(EIGHT, hops, EIGHT.data_frame_bytes - EIGHT.mtu_bytes + payload)


@pytest.mark.parametrize(("hosts", "hops"), [((0, 12), 4), ((0, 1), 2)])
@pytest.mark.parametrize("size", [4, 4096])
def test_a_latency_is_the_one_way_time_of_the_message(hosts: tuple[int, int], hops: int, size: int) -> None:
    game = PingPong(size, count=20, hosts=hosts)
    game.run(1500 * MS)
    latencies = game.sides[0].latencies_ns
    assert len(latencies) == 20
    # Events are handed on every 0.1 ms, at each end.
    assert all(one_way_ns(hops, size) <= latency <= one_way_ns(hops, size) + MS // 10 for latency in latencies)


def test_a_message_of_many_packets_is_answered_when_its_last_byte_is_there_in_whatever_order() -> None:
    size = 100 * 4096
    game = PingPong(size, count=5)
    started: list[tuple[int, int]] = []  # (source, bytes of a frame) in order of leaving

    def note(crossing: Crossing) -> None:
        if not crossing.is_control and len(crossing.frame) > 1000:
            started.append((crossing.source, len(crossing.frame)))

    game.pair.taps.append(note)
    game.run(1500 * MS)
    assert game.sides[0].completed == 5
    assert [source for source, _ in started] == ([0] * 100 + [1] * 100) * 5
    assert game.corrupted() == 0


def test_exactly_count_exchanges_then_both_sides_are_done() -> None:
    game = PingPong(64, count=7)
    game.run(500 * MS)
    now_ns = game.pair.clock.now_ns
    assert [(side.posted, side.arrived, side.acknowledged) for side in game.sides] == [(7, 7, 7)] * 2
    assert all(side.done(now_ns) and side.outstanding == 0 for side in game.sides)


def test_after_its_stop_no_exchange_begins_and_the_last_one_is_answered() -> None:
    game = PingPong(64, stop_ns=100 * MS)
    game.run(300 * MS)
    assert game.sides[0].posted == game.sides[0].arrived > 4
    assert game.sides[0].done(game.pair.clock.now_ns)
    posted = game.sides[0].posted
    game.run(100 * MS)
    assert game.sides[0].posted == posted


def test_a_stop_from_outside_ends_it_and_the_answering_side_still_answers() -> None:
    game = PingPong(64)
    game.run(100 * MS)
    for side in game.sides:
        side.stop(game.pair.clock.now_ns)
    assert not game.sides[0].done(game.pair.clock.now_ns)
    game.run(100 * MS)
    assert game.sides[0].arrived == game.sides[0].posted == game.sides[1].posted


def test_a_lost_message_delays_its_exchange_and_corrupts_nothing() -> None:
    game = PingPong(4096, count=30)
    dropped: list[int] = []

    def drop_one(crossing: Crossing) -> Verdict:
        if not dropped and crossing.now_ns > 100 * MS and len(crossing.frame) > 1000 and crossing.source == 1:
            dropped.append(crossing.now_ns)
            return Verdict.DROP
        return Verdict.PASS

    game.pair.rules.append(drop_one)
    game.run(2000 * MS)
    latencies = sorted(game.sides[0].latencies_ns)
    assert dropped
    assert len(latencies) == 30
    assert latencies[-1] > 2 * latencies[-2]
    assert game.corrupted() == 0


def test_on_a_dead_fabric_both_the_failed_side_and_its_exchange_end() -> None:
    game = PingPong(64, count=3)
    game.pair.rules.extend(kill_plane(plane) for plane in range(8))
    game.run(20_000 * MS, step_ns=10 * MS)
    assert game.sides[0].failed
    assert game.sides[0].done(game.pair.clock.now_ns)
    assert game.sides[0].latencies_ns == []


@dataclass
class DeafNic:
    """Takes posts, or refuses them."""

    broken: bool = False
    posts: int = 0

    def post_write(self, *_: object) -> int:
        if self.broken:
            raise QpError("QPN 3: in error")
        self.posts += 1
        return self.posts


def side(nic: DeafNic, *, begins: bool, count: int | None = None) -> WriteLatSide:
    return WriteLatSide(WriteLatSpec("w", QPN, 64, RKEY, begins, FOREVER, count), nic)  # type: ignore[arg-type]


def test_the_answering_side_never_begins() -> None:
    nic = DeafNic()
    answering = side(nic, begins=False)
    answering.start(0)
    assert nic.posts == 0
    assert answering.done(0)


def test_a_refused_post_ends_the_side() -> None:
    nic = DeafNic(broken=True)
    beginning = side(nic, begins=True)
    beginning.start(0)
    assert beginning.failed
    assert beginning.done(0)


def test_memory_of_latencies_is_bounded() -> None:
    beginning = side(DeafNic(), begins=True)
    beginning.start(0)
    for msn in range(MAX_LATENCIES + 10):
        beginning.on_arrived(MessageArrived(10 * msn, QPN, msn, None))
    assert len(beginning.latencies_ns) == MAX_LATENCIES
    assert beginning.completed == MAX_LATENCIES + 10


def test_a_frame_holds_one_message_and_its_headers() -> None:
    """What `one_way_ns` assumes of the size of a frame."""
    game = PingPong(4, count=1)
    sizes: list[int] = []
    game.pair.taps.append(lambda crossing: None if crossing.is_control else sizes.append(len(crossing.frame)))
    game.run(50 * MS)
    assert sizes[0] >= ETHERNET_BYTES
    assert sizes[0] - 4 == EIGHT.data_frame_bytes - EIGHT.mtu_bytes
