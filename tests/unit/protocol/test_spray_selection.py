"""Which path the next packet takes: equal planes, same-plane replacement, one turn for a mark (sources 4.2 to 4.6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from transport_kit import EIGHT, TINY

from mrcemu.protocol.config import for_topology
from mrcemu.protocol.ev import EvEntry, EvInput, EvState
from mrcemu.protocol.spray import MAX_EVS, Spray
from mrcemu.rng import Rng
from mrcemu.topology.addressing import Path, all_paths
from mrcemu.topology.model import Topology

ALL = 0xFF


def make_spray(
    topology: Topology = EIGHT,
    *,
    seed: int = 1,
    changes: list[tuple[int, str, str, str]] | None = None,
    **overrides: object,
) -> Spray:
    def record(entry: EvEntry, old: EvState, new: EvState, signal: str) -> None:
        if changes is not None:
            changes.append((entry.ev, old.value, new.value, signal))

    config = replace(for_topology(topology), **overrides)  # type: ignore[arg-type]
    return Spray(all_paths(topology, 0, topology.host_count - 1), config, Rng(seed), record)


def pick(spray: Spray, room: int = ALL, avoid: EvEntry | None = None) -> EvEntry:
    entry = spray.select(room, avoid)
    assert entry is not None
    return entry


def active_by_plane(spray: Spray) -> list[int]:
    return [len(spray.in_service(plane)) for plane in range(8)]


def lose(spray: Spray, entry: EvEntry, now_ns: int = 0) -> bool:
    return spray.apply(entry, EvInput.LOSS, "test", now_ns)


# -- plane shares ---------------------------------------------------------------------------------------------------


def test_planes_take_strict_turns_when_all_have_room() -> None:
    spray = make_spray()
    for _ in range(1000):
        assert {pick(spray).plane for _ in range(8)} == set(range(8))


@pytest.mark.parametrize("seed", range(4))
def test_plane_shares_stay_equal_under_random_room(seed: int) -> None:
    spray, rng = make_spray(seed=seed), Rng(seed + 100)
    shares: Counter[int] = Counter()
    for _ in range(60_000):
        room = rng.below(ALL) + 1
        entry = pick(spray, room)
        assert room >> entry.plane & 1
        shares[entry.plane] += 1
    assert sorted(shares) == list(range(8))
    assert max(shares.values()) - min(shares.values()) < 0.04 * 60_000 / 8


def test_a_plane_that_drains_slower_gets_only_what_it_has_room_for() -> None:
    spray = make_spray()
    shares = Counter(pick(spray, ALL if turn % 4 == 0 else ALL & ~1).plane for turn in range(7000))
    assert 0 < shares[0] <= 7000 / 4
    rest = [shares[plane] for plane in range(1, 8)]
    assert max(rest) - min(rest) <= 0.1 * min(rest)


def test_all_evs_of_a_plane_carry_the_same_number_of_packets() -> None:
    spray = make_spray(active_share=1.0)
    sent = Counter(pick(spray).ev for _ in range(32 * 100))
    assert len(sent) == 32
    assert max(sent.values()) - min(sent.values()) <= 2


def test_a_room_without_a_usable_plane_selects_nothing_and_disturbs_nothing() -> None:
    spray, twin = make_spray(), make_spray()
    spray.allow_planes(0b11)
    twin.allow_planes(0b11)
    for _ in range(50):
        assert spray.select(0) is None
        assert spray.select(0b1100) is None
        assert pick(spray).ev == pick(twin).ev


def test_the_order_inside_a_plane_is_reshuffled_and_follows_the_seed() -> None:
    def order(seed: int) -> list[int]:
        spray = make_spray(seed=seed, active_share=1.0, reshuffle_turns=2)
        return [pick(spray, 1).ev for _ in range(64)]

    first = order(1)
    assert first == order(1) != order(2)
    rounds = {tuple(first[at : at + 4]) for at in range(0, 64, 4)}
    assert len(rounds) > 1


def test_two_qps_sharing_paths_do_not_march_in_step() -> None:
    a, b = make_spray(seed=1), make_spray(seed=2)
    same = sum(pick(a).ev == pick(b).ev for _ in range(2000))
    assert same < 1000


# -- planes up at both ends -----------------------------------------------------------------------------------------


def test_masked_planes_carry_nothing_and_the_rest_share_equally() -> None:
    spray = make_spray()
    spray.allow_planes(ALL & ~0b101)
    shares = Counter(pick(spray).plane for _ in range(6000))
    assert set(shares) == {1, 3, 4, 5, 6, 7}
    assert set(shares.values()) == {1000}
    assert spray.usable_plane_count == 6


def test_an_unmasked_plane_takes_part_again_at_once() -> None:
    spray = make_spray()
    spray.allow_planes(0b1)
    assert pick(spray).plane == 0
    spray.allow_planes(ALL)
    assert {pick(spray).plane for _ in range(8)} == set(range(8))


def test_no_plane_allowed_selects_nothing() -> None:
    spray = make_spray()
    spray.allow_planes(0)
    assert spray.select(ALL) is None
    assert (spray.usable_planes, spray.usable_plane_count) == (0, 0)


# -- replacement and floor ------------------------------------------------------------------------------------------


def test_the_active_set_takes_the_configured_share_of_each_plane() -> None:
    assert active_by_plane(make_spray()) == [3] * 8  # of four paths a plane
    assert active_by_plane(make_spray(active_share=0.5)) == [2] * 8
    assert active_by_plane(make_spray(active_share=0.01)) == [1] * 8


def test_a_lost_ev_is_replaced_by_a_backup_of_its_own_plane() -> None:
    spray = make_spray()
    entry = pick(spray, 1 << 5)
    assert lose(spray, entry)
    assert entry.state is EvState.ASSUMED_BAD
    assert active_by_plane(spray) == [3] * 8
    assert all(member.plane == 5 for member in spray.in_service(5))
    assert entry not in spray.in_service(5)


def test_a_path_that_leaves_does_not_disturb_the_turns_of_the_others() -> None:
    for gone_at in range(3):
        spray = make_spray(reshuffle_turns=1 << 30)
        rotation = list(spray.in_service(0))
        assert pick(spray, 1) is rotation[0]
        lose(spray, rotation[gone_at])
        stay = [entry for entry in rotation[1:] if entry is not rotation[gone_at]]
        assert [pick(spray, 1) for _ in stay] == stay


def test_without_backups_a_plane_goes_on_with_fewer_and_keeps_its_share() -> None:
    spray = make_spray()
    for count_after in (3, 2, 1):
        assert lose(spray, pick(spray, 1))
        assert active_by_plane(spray) == [count_after] + [3] * 7
    shares = Counter(pick(spray).plane for _ in range(800))
    assert set(shares.values()) == {100}


def test_a_plane_without_any_path_left_is_unusable_until_one_returns() -> None:
    spray = make_spray()
    gone = [pick(spray, 1) for _ in range(1)]
    lose(spray, gone[0])
    while (entry := spray.select(1)) is not None:
        lose(spray, entry)
        gone.append(entry)
    assert len(gone) == 4
    assert not spray.usable_planes & 1
    assert {pick(spray).plane for _ in range(70)} == set(range(1, 8))
    spray.apply(gone[2], EvInput.PROBED, "probe", 9)
    assert pick(spray, 1) is gone[2]


def test_evs_that_return_fill_the_plane_to_its_target_and_no_further() -> None:
    spray = make_spray()
    gone = []
    for _ in range(3):
        gone.append(pick(spray, 1))
        lose(spray, gone[-1])
    for index, entry in enumerate(gone):
        spray.apply(entry, EvInput.PROBED, "probe", 5)
        assert entry.state is EvState.GOOD
        assert active_by_plane(spray)[0] == min(3, 2 + index)
    assert spray.active_count == 24


def test_a_returned_backup_replaces_the_next_loss() -> None:
    spray = make_spray()
    first = pick(spray, 1)
    lose(spray, first)
    spray.apply(first, EvInput.PROBED, "probe", 1)  # a backup now: its place is taken
    assert first not in spray.in_service(0)
    lose(spray, pick(spray, 1))
    assert first in spray.in_service(0)


def test_a_loss_on_a_backup_marks_it_bad_so_that_it_replaces_nothing() -> None:
    spray = make_spray()
    backup = next(entry for entry in spray.entries.values() if entry.plane == 0 and not entry.active)
    assert lose(spray, backup)
    lose(spray, pick(spray, 1))
    assert active_by_plane(spray)[0] == 2


@pytest.mark.parametrize("floor", [1, 5, 8, 20])
def test_the_floor_keeps_that_many_evs_in_service_and_counts_each_refusal(floor: int) -> None:
    spray = make_spray(ev_min_active=floor)
    for entry in list(spray.entries.values()):
        lose(spray, entry)
    assert spray.active_count == floor
    assert spray.floor_hits == floor
    assert spray.select(ALL) is not None


def test_the_default_floor_is_a_quarter_of_all_evs() -> None:
    spray = make_spray()
    for entry in list(spray.entries.values()):
        lose(spray, entry)
    assert spray.active_count == 8


def test_at_the_floor_a_backup_still_replaces() -> None:
    spray = make_spray(ev_min_active=24)
    entry = pick(spray, 1)
    assert lose(spray, entry)
    assert spray.active_count == 24
    assert spray.floor_hits == 0


def test_deny_ignores_the_floor_and_allow_brings_back() -> None:
    changes: list[tuple[int, str, str, str]] = []
    spray = make_spray(changes=changes, ev_min_active=24)
    for entry in list(spray.entries.values()):
        spray.apply(entry, EvInput.DENY, "controller", 0)
    assert spray.active_count == 0
    assert spray.select(ALL) is None
    denied = next(iter(spray.entries.values()))
    assert not lose(spray, denied)
    assert not spray.apply(denied, EvInput.PROBED, "probe", 1)
    assert spray.apply(denied, EvInput.ALLOW, "controller", 2)
    assert pick(spray) is denied
    assert changes[-1] == (denied.ev, "DENIED", "GOOD", "controller")


# -- SKIP -----------------------------------------------------------------------------------------------------------


def mark(spray: Spray, entry: EvEntry) -> None:
    spray.apply(entry, EvInput.MARK, "mark", 0)


@pytest.mark.parametrize("marks", [1, 2, 7])
def test_a_mark_costs_exactly_one_turn_however_often_it_is_repeated(marks: int) -> None:
    spray, twin = make_spray(reshuffle_turns=1 << 30), make_spray(reshuffle_turns=1 << 30)
    rotation = [pick(twin, 1).ev for _ in range(12)]
    victim = spray.in_service(0)[1]
    for _ in range(marks):
        mark(spray, victim)
    got = [pick(spray, 1).ev for _ in range(11)]
    at = rotation.index(victim.ev)
    assert got == rotation[:at] + rotation[at + 1 :]
    assert victim.state is EvState.GOOD


def test_one_packet_restores_at_most_one_skipped_ev() -> None:
    spray = make_spray(active_share=1.0, reshuffle_turns=1 << 30)
    members = list(spray.in_service(0))
    for entry in members[:3]:
        mark(spray, entry)
    restored = []
    for _ in range(3):
        before = {entry.ev for entry in members if entry.state is EvState.SKIP}
        chosen = pick(spray, 1)
        assert chosen.state is EvState.GOOD
        after = {entry.ev for entry in members if entry.state is EvState.SKIP}
        assert after <= before
        restored.append(len(before) - len(after))
    assert max(restored) == 1
    assert sum(restored) >= 1


def test_when_all_are_skipped_the_scan_comes_round_to_the_one_it_restored() -> None:
    spray = make_spray()
    members = list(spray.in_service(3))
    for entry in members:
        mark(spray, entry)
    chosen = pick(spray, 1 << 3)
    assert chosen.state is EvState.GOOD
    assert [entry.state for entry in members].count(EvState.SKIP) == len(members) - 1


def test_a_plane_whose_evs_are_all_skipped_keeps_its_share() -> None:
    spray = make_spray()
    shares: Counter[int] = Counter()
    for _ in range(800):
        for entry in spray.in_service(0):
            mark(spray, entry)
        shares[pick(spray).plane] += 1
    assert set(shares.values()) == {100}


def test_a_restored_ev_is_reported_as_its_turn() -> None:
    changes: list[tuple[int, str, str, str]] = []
    spray = make_spray(changes=changes)
    victim = spray.in_service(0)[0]
    mark(spray, victim)
    for _ in range(3):
        pick(spray, 1)
    assert changes == [(victim.ev, "GOOD", "SKIP", "mark"), (victim.ev, "SKIP", "GOOD", "turn")]


def skipped_turns(spray: Spray, victim: EvEntry) -> int:
    """Rotations of plane 0 in which the victim is passed over until it carries a packet."""
    others = len(spray.in_service(0)) - 1
    picks = 0
    while pick(spray, 1) is not victim:
        picks += 1
    return picks // others


def test_adaptive_skipping_doubles_with_each_consecutive_mark_and_an_unmarked_ack_ends_the_run() -> None:
    spray = make_spray(adaptive_skip=True, reshuffle_turns=1 << 30)
    victim = spray.in_service(0)[2]
    while pick(spray, 1) is not victim:
        pass
    costs = []
    for _ in range(5):
        mark(spray, victim)
        costs.append(skipped_turns(spray, victim) - 1)
    assert costs == [1, 2, 4, 8, 16]
    spray.clear_mark_run(victim)
    mark(spray, victim)
    assert skipped_turns(spray, victim) - 1 == 1


def test_adaptive_skipping_is_bounded() -> None:
    spray = make_spray(adaptive_skip=True, reshuffle_turns=1 << 30)
    victim = spray.in_service(0)[0]
    for _ in range(500):
        mark(spray, victim)
        spray.apply(victim, EvInput.TURN, "test", 0)
    mark(spray, victim)
    assert skipped_turns(spray, victim) <= 65


# -- avoid ----------------------------------------------------------------------------------------------------------


def test_a_retransmission_avoids_the_path_that_lost_it() -> None:
    spray = make_spray()
    for _ in range(200):
        victim = spray.in_service(2)[0]
        assert pick(spray, 1 << 2, avoid=victim) is not victim


def test_avoid_yields_when_the_plane_has_no_other_path() -> None:
    spray = make_spray(active_share=0.01)
    only = spray.in_service(2)[0]
    assert pick(spray, 1 << 2, avoid=only) is only


def test_avoid_does_not_disturb_the_planes() -> None:
    spray = make_spray()
    shares = Counter(pick(spray, avoid=spray.in_service(0)[0]).plane for _ in range(800))
    assert set(shares.values()) == {100}


# -- refusals -------------------------------------------------------------------------------------------------------


def test_a_qp_without_paths_or_with_too_many_is_refused() -> None:
    config, path = for_topology(TINY), all_paths(TINY, 0, 3)[0]
    many = [replace_ev(path, ev) for ev in range(MAX_EVS + 1)]
    for paths in ([], many):
        with pytest.raises(ValueError, match="1 to 256 paths"):
            Spray(paths, config, Rng(1), lambda *_: None)
    assert Spray(many[:MAX_EVS], config, Rng(1), lambda *_: None).active_count == 192


def replace_ev(path: Path, ev: int) -> Path:
    return Path(ev, path.plane, path.uplink, path.usids, path.destination, path.hops, path.nodes)


def test_random_inputs_keep_every_set_consistent() -> None:
    """20,000 random inputs: active ones are GOOD or SKIP, counts agree, planes never mix, nothing is lost."""
    spray, rng = make_spray(ev_min_active=1), Rng(77)
    inputs = list(EvInput)
    entries = list(spray.entries.values())
    for step in range(20_000):
        spray.apply(entries[rng.below(len(entries))], inputs[rng.below(len(inputs))], "fuzz", step)
        if step % 3 == 0:
            chosen = spray.select(rng.below(256))
            assert chosen is None or chosen.active
        if step % 50 == 0:
            check_consistent(spray)
    check_consistent(spray)


def check_consistent(spray: Spray) -> None:
    members = [entry for plane in range(8) for entry in spray.in_service(plane)]
    assert len(members) == len(set(members)) == spray.active_count
    assert {entry for entry in spray.entries.values() if entry.active} == set(members)
    out_of_service = {entry for entry in members if entry.state in (EvState.ASSUMED_BAD, EvState.DENIED)}
    assert not out_of_service
    for plane in range(8):
        assert all(entry.plane == plane for entry in spray.in_service(plane))
        assert len(spray.in_service(plane)) <= 3
        assert bool(spray.usable_planes >> plane & 1) == bool(spray.in_service(plane))
