"""Names and globs of targets."""

import pytest

from mrcemu.errors import UsageError
from mrcemu.topology.model import Topology
from mrcemu.topology.names import expand_links, expand_ports, expand_switches, nearest, split_port

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)


def test_a_glob_matches_in_the_order_of_the_topology():
    assert expand_switches(TINY, "p1-*") == ("p1-t0-0", "p1-t0-1", "p1-t1-0", "p1-t1-1")
    assert expand_links(TINY, "p*-t0-1:p*-t1-0") == ("p0-t0-1:p0-t1-0", "p1-t0-1:p1-t1-0")


def test_the_ends_of_a_fabric_link_may_come_in_either_order():
    assert expand_links(TINY, "p1-t1-0:p1-t0-1") == ("p1-t0-1:p1-t1-0",)
    assert expand_links(TINY, "p1-t1-0:p1-t0-*") == ("p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0")


@pytest.mark.parametrize("written", ["h3:p1", "h3:1"])
def test_a_plane_is_written_with_or_without_its_letter(written):
    assert expand_ports(TINY, written) == ("h3:p1",)


def test_a_glob_of_ports_covers_the_planes_of_a_host():
    assert expand_ports(TINY, "h0:*") == ("h0:p0", "h0:p1")


@pytest.mark.parametrize(
    ("expand", "wrong", "near"),
    [
        (expand_links, "h3:p9", "h3:p1"),
        (expand_ports, "h9:p1", "h3:p1"),
        (expand_switches, "p0-t2-1", "p0-t1-1"),
        (expand_switches, "p7-*", "p0-t0-0"),
    ],
)
def test_no_match_is_an_error_that_lists_the_nearest(expand, wrong, near):
    with pytest.raises(UsageError) as caught:
        expand(TINY, wrong)
    assert caught.value.exit_code == 2
    assert repr(wrong) in str(caught.value)
    assert near in caught.value.near


def test_nearest_falls_back_to_what_exists():
    assert nearest("zzzzzz", ["a", "b"]) == ("a", "b")


def test_a_port_name_splits_into_host_and_plane():
    assert split_port("h12:p7") == (12, 7)
