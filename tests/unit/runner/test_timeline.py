"""Timeline commands compile to single actions on names that exist, in time order."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.errors import UsageError
from mrcemu.keeper import verbs
from mrcemu.runner.timeline import NOT_YET, VERBS, FaultAction, compile_timeline, parse_actions
from mrcemu.topology.loader import load_topology

TINY = load_topology((Path(__file__).parents[3] / "topologies" / "tiny.yaml").read_text())
MS = 10**6


def actions(text: str, at_ns: int = 0) -> tuple[FaultAction, ...]:
    return parse_actions(text, at_ns, TINY)


@pytest.mark.parametrize(
    ("text", "verb", "targets"),
    [
        ("link down p1-t0-0:p1-t1-1", "link down", ("p1-t0-0:p1-t1-1",)),
        ("link up p1-t1-1:p1-t0-0", "link up", ("p1-t0-0:p1-t1-1",)),
        ("link down h0:p1", "link down", ("h0:p1",)),
        ("link reset p1-t0-0:*", "link reset", ("p1-t0-0:p1-t1-0", "p1-t0-0:p1-t1-1")),
        ("port down h3:p1", "port down", ("h3:p1",)),
        ("port up h3:1", "port up", ("h3:p1",)),
        ("port down h*:p0", "port down", ("h0:p0", "h1:p0", "h2:p0", "h3:p0")),
        ("switch down p1-t1-*", "switch down", ("p1-t1-0", "p1-t1-1")),
        ("  switch   up  p1-t1-0 ", "switch up", ("p1-t1-0",)),
    ],
)
def test_a_command_names_its_targets(text: str, verb: str, targets: tuple[str, ...]) -> None:
    assert actions(text, 5) == (FaultAction(5, verb, targets, text),)


def test_a_flap_is_pairs_that_end_with_the_link_up() -> None:
    found = actions("link flap h0:p0 --period 200ms --duty 25% --count 3", 1000 * MS)
    assert [a.at_ns // MS for a in found] == [1000, 1050, 1200, 1250, 1400, 1450]
    assert [a.verb for a in found] == ["link down", "link up"] * 3


def test_a_flap_is_once_and_half_of_the_period_by_default() -> None:
    assert [a.at_ns for a in actions("link flap h0:p0 --period 1s")] == [0, 500 * MS]


def test_a_reboot_begins_and_ends() -> None:
    found = actions("switch reboot p0-t1-0 --for 2s", 7)
    assert [(a.at_ns, a.verb) for a in found] == [(7, "switch reboot-begin"), (7 + 2000 * MS, "switch reboot-end")]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "link down | link up"),
        ("link", "link down | link up"),
        ("explode p0-t1-0", "link down | link up"),
        ("switch down", "switch down TARGET"),
        ("link flap h0:p0", "missing --period"),
        ("link flap h0:p0 --period 200", "--period: a time with a unit"),
        ("link flap h0:p0 --period 9ms", "at least 10ms"),
        ("link flap h0:p0 --period 200ms --duty 0.5", "--duty: a percentage"),
        ("link flap h0:p0 --period 200ms --duty 100%", "below 100%"),
        ("link flap h0:p0 --period 200ms --duty 0%", "above 0%"),
        ("link flap h0:p0 --period 200ms --count 0", "--count: a whole number from 1"),
        ("link flap h0:p0 --period", "link flap TARGET --period VALUE"),
        ("link flap h0:p0 --period 1s --period 2s", "link flap TARGET"),
        ("link down h0:p0 --for 2s", "link down TARGET"),
        ("link down h0:p0 h1:p0", "link down TARGET"),
        ("switch reboot p0-t1-0", "missing --for"),
        ("switch reboot p0-t1-0 --for 0s", "--for: a time above zero"),
        ("link loss h0:p0 1%", "not available in this version"),
        ("switch freeze p0-t1-0", "not available in this version"),
        ("link down 'h0:p0", "VERB TARGET"),
    ],
)
def test_a_bad_command_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    with pytest.raises(ValueError) as caught:
        actions(text)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "text", ["switch down p9-t1-0", "port down h0:p2", "link down p0-t0-0:p1-t1-0", "port up h4:p0"]
)
def test_a_target_that_does_not_exist_lists_the_nearest(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        actions(text)
    assert caught.value.near


def test_compiled_actions_are_in_time_order_and_keep_the_written_order_within_an_instant() -> None:
    first, second, third = (actions(f"port down h{i}:p0", at)[0] for i, at in ((0, 9), (1, 5), (2, 9)))
    assert compile_timeline([first, second, third]) == (second, first, third)


def test_every_compiled_verb_is_one_the_keeper_executes() -> None:
    assert set(VERBS) <= set(verbs.VERBS)
    assert set(NOT_YET) == set(verbs.NOT_YET)


@given(period=st.integers(10, 5000), duty=st.integers(1, 99), count=st.integers(1, 20))
def test_flaps_alternate_and_never_overlap(period: int, duty: int, count: int) -> None:
    found = actions(f"link flap h0:p0 --period {period}ms --duty {duty}% --count {count}")
    assert [a.verb for a in found] == ["link down", "link up"] * count
    assert all(a.at_ns < b.at_ns for a, b in itertools.pairwise(found))
    assert found[-1].at_ns < count * period * MS
