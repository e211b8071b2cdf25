"""Paths of ECMP mode: distinct source ports, plane in the low bits, never mistaken for those of SRv6 mode."""

import dataclasses

import pytest

from mrcemu.topology import timing
from mrcemu.topology.addressing import MAX_INDEX, MAX_PLANES, all_paths, ev_of, host_address, plane_of_ev
from mrcemu.topology.ecmp import ECMP, SRV6, hashed_ev, hashed_paths, is_hashed, path_of_ev, paths_between, possible_evs
from mrcemu.topology.model import Topology
from mrcemu.topology.selection import select_evs

RATE = 25_000_000
EIGHT = Topology("eight", 8, 4, 4, 4, RATE, RATE, 4000, 4096)
WIDE = dataclasses.replace(EIGHT, t1_per_plane=32)


@pytest.mark.parametrize(("topology", "count"), [(EIGHT, 128), (WIDE, 256)])
def test_a_qp_gets_four_evs_an_uplink_and_256_at_most_equally_many_a_plane(topology, count):
    paths = hashed_paths(topology, 0, 12)
    assert len({path.ev for path in paths}) == len(paths) == count
    assert {sum(path.plane == plane for path in paths) for plane in range(8)} == {count // 8}
    assert all(plane_of_ev(path.ev) == path.plane for path in paths)


def test_a_path_names_what_is_known_and_no_more():
    path = path_of_ev(EIGHT, 0, 12, hashed_ev(3, 5))
    assert path.nodes == ("h0", "p3-t0-0", "?", "p3-t0-3", "h12")
    assert (path.hops, path.uplink, path.usids, path.srv6, path.outer_destination) == (4, -1, (), "", None)
    assert path.destination == host_address(12).packed


def test_between_hosts_on_one_t0_there_is_one_path_a_plane():
    paths = hashed_paths(EIGHT, 0, 1, wanted=64)
    assert [path.plane for path in paths] == list(range(8))
    assert {(path.hops, path.nodes[1:]) for path in paths if path.plane == 2} == {(2, ("p2-t0-0", "h1"))}


def test_no_ev_belongs_to_both_modes():
    assert not any(is_hashed(ev_of(plane, uplink)) for plane in range(MAX_PLANES) for uplink in range(MAX_INDEX))
    assert all(is_hashed(hashed_ev(plane, index)) for plane in range(MAX_PLANES) for index in range(1024))
    assert hashed_ev(15, 1023) == 0xFFFF


def test_an_ev_of_either_mode_is_found_by_its_value():
    for path in (*all_paths(EIGHT, 0, 12), *hashed_paths(EIGHT, 0, 12)):
        assert path_of_ev(EIGHT, 0, 12, path.ev) == path
    with pytest.raises(ValueError, match="no plane"):
        path_of_ev(EIGHT, 0, 12, hashed_ev(8, 0))
    with pytest.raises(ValueError, match="no path"):
        path_of_ev(EIGHT, 0, 12, 0x10000 << 4)


def test_the_mode_decides_what_a_qp_gets_that_names_no_evs():
    assert paths_between(EIGHT, 0, 12, SRV6) == all_paths(EIGHT, 0, 12)
    assert paths_between(EIGHT, 0, 12, ECMP) == hashed_paths(EIGHT, 0, 12)


@pytest.mark.parametrize(("wanted", "count"), [(None, 128), (1, 1), (20, 20), (200, 200), (256, 256)])
def test_a_number_of_evs_is_taken_from_all_planes_in_turn(wanted, count):
    evs = select_evs(EIGHT, 0, 12, wanted, ECMP)
    assert len(set(evs)) == len(evs) == count
    assert [plane_of_ev(ev) for ev in evs[:8]] == list(range(8))[:count]
    assert set(evs) <= set(possible_evs(EIGHT))


def test_a_plain_frame_is_forty_bytes_shorter_and_the_line_carries_more():
    assert timing.line_payload_bps(EIGHT, 8, SRV6) == timing.line_payload_bps(EIGHT, 8)
    assert timing.line_payload_bps(EIGHT, 8, ECMP) == 8 * RATE * 4096 / (4096 + 102)
