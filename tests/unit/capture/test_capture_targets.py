"""Which taps a target name means."""

import pytest

from mrcemu.capture.targets import taps_for
from mrcemu.errors import UsageError
from mrcemu.topology.model import Topology

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 50_000_000, 4000, 4096)


def labels(*targets):
    return [tap.label for tap in taps_for(TINY, targets, lambda node: f"/run/netns/mrc-x-{node}")]


def test_a_fabric_link_is_both_its_ports():
    assert labels("p0-t0-0:p0-t1-1") == ["p0-t0-0:up1", "p0-t1-1:dn0"]


def test_a_nic_port_is_one_tap():
    assert labels("h3:p1") == ["h3:p1"]


def test_a_port_named_twice_is_tapped_once():
    assert labels("p0-t0-0:up1", "p0-t0-0:p0-t1-1", "p0-t0-0:up?") == ["p0-t0-0:up1", "p0-t1-1:dn0", "p0-t0-0:up0"]


def test_a_tap_carries_namespace_interface_and_rate():
    (tap,) = taps_for(TINY, ["p1-t0-1:up0"], lambda node: f"/run/netns/mrc-x-{node}")
    assert (tap.netns_path, tap.ifname, tap.rate_bps) == ("/run/netns/mrc-x-p1-t0-1", "up0", 50_000_000)


def test_a_name_that_does_not_exist_lists_the_nearest():
    with pytest.raises(UsageError) as caught:
        labels("p0-t0-0:p0-t1-7")
    assert "p0-t0-0:p0-t1-0" in caught.value.near
