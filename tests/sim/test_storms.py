"""Random mixtures of faults from a seed: whatever comes together, every message arrives once, intact and in order.

12 storms by default; MRCEMU_STORMS=1000 for a long run. Retries are endless, so that only a stall can fail.
"""

from __future__ import annotations

import os

import pytest
from sim_support import EIGHT, MS, TINY, Transfer, one_way, trim_rule

from mrcemu.rng import Rng
from mrcemu.sim.pair import Crossing, Rule, Verdict, kill_plane, random_loss

STORMS = int(os.environ.get("MRCEMU_STORMS", "12"))
LIMIT_RTOS = 400


def random_delay(rng: Rng, max_extra_ns: int) -> Rule:
    def delay(crossing: Crossing) -> Verdict:
        crossing.delay_ns += rng.below(max_extra_ns)
        return Verdict.PASS

    return delay


def random_copies(rng: Rng) -> Rule:
    def duplicate(crossing: Crossing) -> Verdict:
        crossing.copies = 1 + (rng.below(5) == 0)
        return Verdict.PASS

    return duplicate


def random_rules(rng: Rng, transfer: Transfer) -> list[Rule]:
    """Each fault with a chance of its own; at most one plane dies, both ways or on the way back."""
    planes = transfer.topology.planes
    choices = (
        random_loss((1 + rng.below(10)) / 100, rng.child("loss")),
        trim_rule(random_loss(0.1, rng.child("trim")), lasthop=rng.below(2) == 0),
        random_delay(rng.child("delay"), 1 + rng.below(2 * transfer.base_rtt_ns)),
        random_copies(rng.child("copies")),
    )
    rules = [rule for rule in choices if rng.below(2)]
    dead = kill_plane(rng.below(planes))
    fate = rng.below(4)
    return rules + ([dead] if fate == 0 else [one_way(1, dead)] if fate == 1 else [])


def play_with_ports(rng: Rng, transfer: Transfer) -> None:
    """Cables come and go at both ends, noticed now or later; all are back at the end."""
    planes = transfer.topology.planes
    for _ in range(rng.below(6)):
        transfer.pair.set_port(rng.below(2), rng.below(planes), rng.below(2) == 0, rng.below(3) * MS)
        transfer.run(rng.below(5 * transfer.base_rtt_ns))
    for side in (0, 1):
        for plane in range(planes):
            transfer.pair.set_port(side, plane, up=True)


@pytest.mark.parametrize("seed", range(STORMS))
def test_a_storm_delays_everything_and_loses_nothing(seed: int) -> None:
    rng = Rng(seed + 9999)
    transfer = Transfer(
        (TINY, EIGHT)[rng.below(2)],
        seed=seed,
        size=(1, 5000, 1 << 16, 100_001)[rng.below(4)],
        depth=8,
        qps=1 + rng.below(3),
        first_psn=(0, (1 << 24) - 20)[rng.below(2)],
        adaptive_skip=rng.below(2) == 0,
        mpr_units=1 + rng.below(8),
        ev_min_active=rng.below(3),
        exp_retries=25,
    )
    for rule in random_rules(rng, transfer):
        transfer.rule(rule)
    transfer.write(8, imm=rng.below(2) == 0)
    play_with_ports(rng, transfer)
    transfer.run_to_end(LIMIT_RTOS * transfer.rto_ns).assert_delivered()
