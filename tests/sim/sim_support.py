"""Writes between two NICs on a virtual clock, checked byte by byte: what the tests of transfers use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.protocol.events import EvChanged, Event, MessageArrived, PacketLost, QpFailed, WriteCompleted
from mrcemu.protocol.memory import MemoryRegion
from mrcemu.protocol.qp import Qp
from mrcemu.sim.pair import Crossing, Rule, Verdict, VirtualPair
from mrcemu.topology import timing
from mrcemu.topology.model import Topology
from mrcemu.wire.opcodes import DATA_OPCODES, DscpMap
from mrcemu.workload.pattern import PatternCheck, PatternSource

EIGHT = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)
MS = 1_000_000
RKEY = 1
FIRST_QPN = 3
BTH_OPCODE = 102  # offset of the opcode in a frame
DSCP = DscpMap()

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Sent:
    """One frame that left a NIC, whatever became of it."""

    now_ns: int
    source: int
    plane: int
    ev: int
    opcode: int


class Transfer:
    """A pair of hosts, `qps` connections, and writes from the first to the second (or, by `write(back=True)`, back).

    Each QP owns `depth` slots of `size` bytes in one region at the receiver; every payload is compared as it lands.
    """

    def __init__(
        self,
        topology: Topology = EIGHT,
        *,
        hosts: tuple[int, int] | None = None,
        seed: int = 1,
        size: int = 1 << 20,
        depth: int = 4,
        qps: int = 1,
        first_psn: int = 0,
        **overrides: object,
    ) -> None:
        src, dst = hosts or (0, topology.host_count - 1)
        hops = 2 if topology.is_t0_local(src, dst) else 4
        self.config: TransportConfig = replace(for_topology(topology, hops), **overrides)  # type: ignore[arg-type]
        self.topology = topology
        self.size, self.depth = size, depth
        self.pair = VirtualPair(topology, src, dst, seed, self.config)
        self.sent: list[Sent] = []
        self.placed: list[tuple[int, int, int]] = []  # (time, QPN, bytes)
        self.pair.taps.append(self._record)
        self.pairs = self.pair.connect(FIRST_QPN, first_psn, qps)
        self.qpns = list(range(FIRST_QPN, FIRST_QPN + qps))
        self._checks = [self._register(side) for side in (0, 1)]
        self.posted = dict.fromkeys(self.qpns, 0)

    def _register(self, side: int) -> dict[int, PatternCheck]:
        region_bytes = self.size * self.depth * len(self.qpns)
        region = MemoryRegion(RKEY, 0, memoryview(bytearray(region_bytes)))
        checks = {
            qpn: PatternCheck(qpn, self.size, self.depth, index * self.size * self.depth)
            for index, qpn in enumerate(self.qpns)
        }

        def observe(qpn: int, msn: int, offset: int, payload: bytes) -> None:
            checks[qpn].on_placed(qpn, msn, offset, payload)
            if side == 1:
                self.placed.append((self.pair.clock.now_ns, qpn, len(payload)))

        region.observer = observe
        self.pair.sides[side].nic.regions.register(region)
        return checks

    def _record(self, crossing: Crossing) -> None:
        self.sent.append(
            Sent(crossing.now_ns, crossing.source, crossing.plane, crossing.ev, crossing.frame[BTH_OPCODE])
        )

    # -- doing ----------------------------------------------------------------------------------------------------

    @property
    def requester(self) -> Qp:
        return self.pairs[0][0]

    @property
    def responder(self) -> Qp:
        return self.pairs[0][1]

    @property
    def now_ns(self) -> int:
        return self.pair.clock.now_ns

    @property
    def base_rtt_ns(self) -> int:
        return self.config.base_rtt_ns

    @property
    def rto_ns(self) -> int:
        return self.config.rto_ns

    def write(self, count: int = 1, *, imm: bool = False, back: bool = False) -> Transfer:
        """Post `count` messages on every QP."""
        nic = self.pair.sides[1 if back else 0].nic
        for index, qpn in enumerate(self.qpns):
            for _ in range(count):
                msn = self.posted[qpn]
                slot = index * self.depth + msn % self.depth
                va, now = slot * self.size, self.now_ns
                nic.post_write(qpn, msn, PatternSource(qpn, msn), self.size, va, RKEY, now, 1000 + msn if imm else None)
                self.posted[qpn] = msn + 1
        return self

    def run(self, duration_ns: int) -> Transfer:
        self.pair.run_for(duration_ns)
        return self

    def run_to_end(self, limit_ns: int = 120 * 10**9) -> Transfer:
        """Run until every message posted is completed or its QP failed, at most `limit_ns`."""
        end = self.now_ns + limit_ns
        while self.now_ns < end and any(qp.requester.outstanding_messages for both in self.pairs for qp in both):
            self.run(self.base_rtt_ns)
        return self

    def rule(self, rule: Rule) -> None:
        self.pair.rules.append(rule)

    # -- seeing ---------------------------------------------------------------------------------------------------

    def of(self, kind: type[E], side: int = 0) -> list[E]:
        return [event for event in self.pair.sides[side].events if isinstance(event, kind)]

    @property
    def losses(self) -> list[PacketLost]:
        return self.of(PacketLost)

    @property
    def ev_changes(self) -> list[EvChanged]:
        return self.of(EvChanged)

    @property
    def failures(self) -> tuple[int, int]:
        """QpFailed events at the requester and the responder."""
        return len(self.of(QpFailed, 0)), len(self.of(QpFailed, 1))

    def data_sent(self, since_ns: int = 0, until_ns: int = 1 << 62, source: int = 0) -> list[Sent]:
        """Data frames that left a NIC in a span of time."""
        return [
            frame
            for frame in self.sent
            if frame.source == source and frame.opcode in DATA_OPCODES and since_ns <= frame.now_ns < until_ns
        ]

    def planes_used(self, since_ns: int, until_ns: int = 1 << 62, source: int = 0) -> set[int]:
        return {frame.plane for frame in self.sent if frame.source == source and since_ns <= frame.now_ns < until_ns}

    def rate_share(self, since_ns: int, until_ns: int) -> float:
        """Payload placed in a span of time as a share of what all planes can carry."""
        placed = sum(size for now, _, size in self.placed if since_ns <= now < until_ns)
        line_bps = timing.line_payload_bps(self.topology, self.topology.planes)
        return placed * 8 * timing.NS / (until_ns - since_ns) / line_bps

    def assert_delivered(self, *, back: bool = False) -> None:
        """Every message posted arrived once, complete, in order and byte for byte, and the requester knows."""
        source, target = (1, 0) if back else (0, 1)
        assert self.failures == (0, 0), (self.of(QpFailed, 0), self.of(QpFailed, 1))
        region = self.pair.sides[target].nic.regions.check(RKEY, 0, 0)
        assert region is not None
        for qpn in self.qpns:
            order = list(range(self.posted[qpn]))
            done = [event.msn for event in self.of(WriteCompleted, source) if event.qpn == qpn]
            arrived = [event.msn for event in self.of(MessageArrived, target) if event.qpn == qpn]
            assert done == arrived == order
            check = self._checks[target][qpn]
            assert check.checked_bytes == self.posted[qpn] * self.size  # nothing is placed twice
            assert check.corrupted_bytes == 0
            assert check.check_region(region, self.posted[qpn]) == 0


def trim_rule(is_hit: Rule, *, lasthop: bool = False) -> Rule:
    """A rule: data frames for which `is_hit` says DROP lose their payload instead of their life."""

    def rule(crossing: Crossing) -> Verdict:
        if crossing.frame[BTH_OPCODE] in DATA_OPCODES and is_hit(crossing) is Verdict.DROP:
            cut = bytearray(crossing.frame[: 14 + 128])
            word = int.from_bytes(cut[14:18], "big") & ~(0x3F << 22)
            cut[14:18] = (word | (DSCP.trimmed_lasthop if lasthop else DSCP.trimmed) << 22).to_bytes(4, "big")
            cut[18:20] = (len(cut) - 54).to_bytes(2, "big")
            crossing.frame = bytes(cut)
        return Verdict.PASS

    return rule


def mark_rule(ev: int) -> Rule:
    """A rule: data frames on one EV arrive with ECN-CE."""

    def rule(crossing: Crossing) -> Verdict:
        if crossing.ev == ev and crossing.frame[BTH_OPCODE] in DATA_OPCODES:
            frame = bytearray(crossing.frame)
            frame[15] |= 0x30
            crossing.frame = bytes(frame)
        return Verdict.PASS

    return rule


def one_way(source: int, rule: Rule) -> Rule:
    """A rule that judges only the frames of one side."""
    return lambda crossing: rule(crossing) if crossing.source == source else Verdict.PASS


def data_only(rule: Rule) -> Rule:
    """A rule that judges only data frames."""
    return lambda crossing: rule(crossing) if crossing.frame[BTH_OPCODE] in DATA_OPCODES else Verdict.PASS
