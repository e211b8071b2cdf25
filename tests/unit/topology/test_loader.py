"""What a topology file may say, what it may not, and that both come with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.errors import ConfigError
from mrcemu.topology import timing
from mrcemu.topology.addressing import all_paths
from mrcemu.topology.loader import dump_topology, load_topology, topology_from_dict
from mrcemu.topology.model import QueueSpec

SHIPPED = Path(__file__).parents[3] / "topologies"
GOOD = (SHIPPED / "eight-plane.yaml").read_text()
QUEUE = "{data: 64KiB, last_hop: 96KiB, ecn_min: 16KiB, ecn_max: 48KiB, control: 16KiB}"


def refused(*overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_topology(GOOD, "f.yaml", overrides)
    return caught.value


@pytest.mark.parametrize(
    ("name", "hosts", "switches", "cross_paths"),
    [
        ("eight-plane", 16, 64, 32),
        ("wide", 4, 160, 128),
        ("four-plane", 16, 32, 16),
        ("tiny", 4, 8, 4),
        ("single-plane", 16, 8, 4),
    ],
)
def test_shipped_topologies_have_the_promised_size(name: str, hosts: int, switches: int, cross_paths: int) -> None:
    text = (SHIPPED / f"{name}.yaml").read_text()
    topology = load_topology(text, f"{name}.yaml")
    assert (topology.name, len(topology.hosts), len(topology.switches)) == (name, hosts, switches)
    assert len(all_paths(topology, 0, topology.host_count - 1)) == cross_paths
    assert text.startswith("# ")


def test_every_shipped_topology_is_known_here() -> None:
    assert len(list(SHIPPED.glob("*.yaml"))) == 5


def test_values_arrive_in_base_units() -> None:
    topology = load_topology(GOOD, "f.yaml", ["link_rate.fabric=50mbit", "link_delay=1.2ms", f"queue={QUEUE}"])
    assert (topology.nic_rate_bps, topology.fabric_rate_bps, topology.link_delay_ns) == (25 * 10**6, 5 * 10**7, 1200000)
    assert topology.queue == QueueSpec(64 << 10, 96 << 10, 16 << 10, 48 << 10, 16 << 10)


def test_keys_with_defaults_may_be_left_out() -> None:
    lines = GOOD.splitlines()
    short = "\n".join(line for line in lines if line.split(":")[0] not in ("queue", "trimming", "mtu", "srv6", "scale"))
    assert load_topology(short) == load_topology(GOOD)


@pytest.mark.parametrize(
    ("override", "key", "allowed"),
    [
        ("planes=0", "planes", "from 1 to 16"),
        ("planes=17", "planes", "from 1 to 16"),
        ("t1_per_plane=1025", "t1_per_plane", "from 1 to 1024"),
        ("t0_per_plane=0", "t0_per_plane", "from 1 to 1024"),
        ("hosts_per_t0=many", "hosts_per_t0", "from 1 to 1024"),
        ("mtu=1500", "mtu", "256 | 512 | 1024 | 2048 | 4096"),
        ("mtu=9000", "mtu", "256 | 512"),
        ("link_rate.nic=25", "link_rate.nic", "a rate with a unit"),
        ("link_rate.nic=0mbit", "link_rate.nic", "10kbit to 1600gbit"),
        ("link_rate=25mbit", "link_rate", "a mapping with the keys nic, fabric"),
        ("link_delay=2", "link_delay", "auto, or a time"),
        ("link_delay=2s", "link_delay", "at most 1s"),
        ("queue=big", "queue", "auto, or a mapping with the keys data"),
        ("trimming.size=107", "trimming.size", "from 108"),
        ("trimming.enabled=yes", "trimming.enabled", "true | false"),
        ("srv6.block=fcbb::/16", "srv6.block", "exactly /32"),
        ("srv6.block=fcbb:bbbb::1/32", "srv6.block", "exactly /32"),
        ("srv6.block=10.0.0.0/8", "srv6.block", "exactly /32"),
        ("srv6.block=fe80::/32", "srv6.block", "not link-local"),
        ("srv6.block=fd4d:5243::/32", "srv6.block", "hosts' own"),
        ("name=../x", "name", "a-z, 0-9"),
        ("sid_list=[p0-t1-0]", "sid_list", "t0_per_plane"),
    ],
)
def test_the_impossible_is_refused_with_what_is_allowed(override: str, key: str, allowed: str) -> None:
    error = refused(override)
    assert (error.key, error.file) == (key, f"--set {override}")
    assert allowed in error.allowed


def test_the_bounds_themselves_are_accepted() -> None:
    low = load_topology(GOOD, overrides=["planes=1", "t0_per_plane=1", "t1_per_plane=1", "hosts_per_t0=1"])
    high = load_topology(GOOD, overrides=["planes=16", "t0_per_plane=1024", "t1_per_plane=1024", "hosts_per_t0=1024"])
    assert (low.host_count, high.host_count) == (1, 1 << 20)


def test_a_bdp_below_eight_frames_is_refused_and_the_delay_it_names_is_enough() -> None:
    error = refused("link_delay=0ms")
    assert error.key == "link_delay"
    assert "frames a plane" in error.found
    least = error.allowed.split("link_delay of ")[1].split(" ")[0]
    topology = load_topology(GOOD, overrides=[f"link_delay={least}"])
    assert 8 <= timing.plane_bdp_bytes(topology) / topology.data_frame_bytes < 8.1


def test_a_fabric_far_slower_than_the_nic_is_refused_for_its_bdp() -> None:
    error = refused("link_rate.fabric=2mbit")
    assert error.key == "link_rate"
    assert "at least 8 frames" in error.allowed


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("data=33KB", "queue.data"),
        ("last_hop=33KB", "queue.last_hop"),
        ("control=1KB", "queue.control"),
        ("ecn_max=16KiB", "queue.ecn_max"),
        ("ecn_max=65KiB", "queue.ecn_max"),
    ],
)
def test_queues_too_small_or_out_of_order_are_refused(change: str, key: str) -> None:
    assert refused(f"queue={QUEUE}", f"queue.{change}").key == key


def test_the_longest_header_stack_passes_and_one_byte_less_is_refused() -> None:
    assert load_topology(GOOD, overrides=["link_mtu=4224"]).link_mtu_bytes == 4224
    error = refused("link_mtu=4223")
    assert error.key == "link_mtu"
    assert "at least 4224" in error.allowed


def test_a_trimmed_size_that_could_never_trim_is_refused() -> None:
    assert load_topology(GOOD, overrides=["mtu=256", "trimming.size=383"]).trimming.size_bytes == 383
    assert refused("mtu=256", "trimming.size=384").key == "trimming.size"


@given(
    planes=st.integers(1, 16),
    rate=st.integers(1, 800_000),
    delay=st.sampled_from(["auto", "5s", "900ms", "5ms", "7us"]),
    queue=st.sampled_from(["auto", QUEUE]),
)
def test_dump_and_read_back_is_the_same_topology(planes: int, rate: int, delay: str, queue: str) -> None:
    overrides = [f"planes={planes}", f"link_rate={{nic: {rate}mbit, fabric: {rate}mbit}}", f"queue={queue}"]
    try:
        topology = load_topology(GOOD, overrides=[*overrides, f"link_delay={delay}"])
    except ConfigError as error:
        if error.key != "link_delay":
            raise
        return
    assert topology_from_dict(json.loads(json.dumps(dump_topology(topology)))) == topology
