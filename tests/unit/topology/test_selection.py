"""Which EVs a QP is given: all there are, or a number of them, no plane favoured."""

from collections import Counter
from dataclasses import replace

from mrcemu.topology.addressing import plane_of_ev
from mrcemu.topology.model import Topology
from mrcemu.topology.selection import select_evs

EIGHT = Topology("eight", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)


def test_every_distinct_path_is_given_where_they_are_few():
    evs = select_evs(EIGHT, 0, 12, None)
    assert len(evs) == len(set(evs)) == 32


def test_planes_differ_by_one_path_at_most_whatever_the_number():
    for wanted in range(1, 33):
        planes = Counter(plane_of_ev(ev) for ev in select_evs(EIGHT, 0, 12, wanted))
        counts = [planes[plane] for plane in range(8)]
        assert sum(counts) == wanted
        assert max(counts) - min(counts) <= 1


def test_a_fabric_of_more_paths_than_a_profile_holds_leaves_no_plane_out():
    huge = replace(EIGHT, t1_per_plane=64)
    planes = Counter(plane_of_ev(ev) for ev in select_evs(huge, 0, 12, None))
    assert planes == dict.fromkeys(range(8), 32)


def test_inside_a_t0_each_plane_has_one_path():
    assert len(select_evs(EIGHT, 0, 1, None)) == 8
