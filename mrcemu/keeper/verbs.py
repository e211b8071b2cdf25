"""Every change a fabric can be asked for after it stands: one table, verb to what its targets are and what happens.

Owns the meaning of targets and of timed verbs (flap, reboot). Refuses sockets: the keeper calls in here. The functions
of the table act on one name and return when the kernel had done it, in CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mrcemu.errors import UsageError
from mrcemu.topology.model import Topology
from mrcemu.topology.names import expand_links, expand_ports, expand_switches, nearest, split_port

if TYPE_CHECKING:
    from mrcemu.fabric.net import MrcNet

Emit = Callable[[Mapping[str, Any]], None]

MIN_FLAP_PERIOD_NS = 10_000_000  # ours: 100 flaps a second; a faster one would measure the event loop, not the fabric
MAX_TIME_NS = 24 * 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Verb:
    """`expand` turns one typed target into names; `act` changes one name at once and returns done-at nanoseconds."""

    expand: Callable[[Topology, str], tuple[str, ...]]
    act: Callable[[MrcNet, str], int]


VERBS: dict[str, Verb] = {
    "link down": Verb(expand_links, lambda net, name: net.faults.link_down(name)),
    "link up": Verb(expand_links, lambda net, name: net.faults.link_up(name)),
    "link reset": Verb(expand_links, lambda net, name: net.faults.link_up(name)),
    "port down": Verb(expand_ports, lambda net, name: net.faults.port_down(*split_port(name))),
    "port up": Verb(expand_ports, lambda net, name: net.faults.port_up(*split_port(name))),
    "switch down": Verb(expand_switches, lambda net, name: net.faults.switch_down(name)),
    "switch up": Verb(expand_switches, lambda net, name: net.faults.switch_up(name)),
    "switch reboot-begin": Verb(expand_switches, lambda net, name: net.faults.switch_reboot_begin(name)),
    "switch reboot-end": Verb(expand_switches, lambda net, name: net.faults.switch_reboot_end(name)),
}
# Verbs that take time; `Keeper.perform` runs them. They begin and end with verbs of the table.
FLAP, REBOOT = "link flap", "switch reboot"
NOT_YET = ("link loss", "link rate", "link delay", "link corrupt", "link blackhole", "switch freeze")


def expand_targets(topology: Topology, verb: str, targets: Sequence[str]) -> tuple[str, ...]:
    """Names a verb's targets stand for, each once; UsageError for an unknown verb, or a target that matches nothing."""
    if verb in NOT_YET:
        raise UsageError(f"`{verb}` is not available in this version")
    known = {**{name: entry.expand for name, entry in VERBS.items()}, FLAP: expand_links, REBOOT: expand_switches}
    if verb not in known:
        raise UsageError(f"no verb {verb!r}", nearest(verb, tuple(known)))
    if not targets:
        raise UsageError(f"`{verb}` needs at least one target")
    return tuple(dict.fromkeys(name for target in targets for name in known[verb](topology, target)))


def act(net: MrcNet, verb: str, names: Sequence[str]) -> int:
    """Do an immediate verb on every name; returns when the last was done."""
    return max(VERBS[verb].act(net, name) for name in names)


@dataclass(frozen=True, slots=True)
class FlapPlan:
    """A flap: every `period_ns` the links go down for `down_ns`, then up; `count` times, or until ended if None."""

    period_ns: int
    down_ns: int
    count: int | None


def flap_plan(args: Mapping[str, Any]) -> FlapPlan:
    """Check a flap's arguments `period_ns`, `duty` (share of the period the link is down) and `count`; UsageError."""
    period, duty, count = args.get("period_ns"), args.get("duty", 0.5), args.get("count")
    if not isinstance(period, int) or not MIN_FLAP_PERIOD_NS <= period <= MAX_TIME_NS:
        raise UsageError("a flap's period is from 10ms to 24 hours")
    if not isinstance(duty, (int, float)) or not 0 < duty < 1:
        raise UsageError("a flap's duty, the share of the period the link is down, is between 0% and 100%")
    if count is not None and (not isinstance(count, int) or count < 1):
        raise UsageError("a flap's count is at least 1")
    return FlapPlan(period, int(period * duty), count)


def reboot_time_ns(args: Mapping[str, Any]) -> int:
    """How long a rebooting switch stays away, from `for_ns`; UsageError."""
    wanted = args.get("for_ns")
    if not isinstance(wanted, int) or not 0 < wanted <= MAX_TIME_NS:
        raise UsageError("a reboot lasts from 1ns to 24 hours")
    return wanted


async def flap(net: MrcNet, names: Sequence[str], plan: FlapPlan, emit: Emit) -> int:
    """Run a flap; however it ends, the links are up.

    Each cycle starts on the grid of the period, so lateness never adds up; a late cycle still stays down in full.
    """
    start = time.monotonic_ns()
    cycle = 0
    done = start
    try:
        while plan.count is None or cycle < plan.count:
            await _until(start + cycle * plan.period_ns)
            down_at = act(net, "link down", names)
            await _until(down_at + plan.down_ns)
            done = act(net, "link up", names)
            cycle += 1
            emit({"cycle": cycle, "down_at_ns": down_at, "up_at_ns": done})
    finally:
        done = max(done, act(net, "link up", names))
    return done


async def reboot(net: MrcNet, names: Sequence[str], for_ns: int) -> int:
    """Ports down and tables gone, `for_ns` later everything reinstalled; being ended early brings them back at once."""
    start = time.monotonic_ns()
    done = start
    try:
        act(net, "switch reboot-begin", names)
        await _until(start + for_ns)
    finally:
        done = act(net, "switch reboot-end", names)
    return done


async def _until(when_ns: int) -> None:
    await asyncio.sleep(max(0, when_ns - time.monotonic_ns()) / 1e9)
