"""Each kind of workload takes its own keys; how long a counted one lasts follows from the topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrcemu.errors import ConfigError
from mrcemu.runner.scenario import load_scenario
from mrcemu.runner.workloads import WorkloadSpec

ROOT = Path(__file__).parents[3]
LAT = "{id: l, kind: write_lat, src: h0, dst: h12, size: 64B, count: 100}"


def load(workload: str) -> WorkloadSpec:
    text = f"name: s\ntopology: ../topologies/eight-plane.yaml\nworkload:\n  - {workload}\nexpect: []\n"
    return load_scenario(text, "scenarios/a.yaml", lambda path: (ROOT / path).read_text()).workload[0]


def test_write_lat_has_one_message_outstanding_and_a_count() -> None:
    spec = load(LAT)
    assert (spec.kind, spec.depth, spec.count, spec.size_bytes) == ("write_lat", 1, 100, 64)


def test_write_lat_may_last_a_time_instead() -> None:
    spec = load(LAT.replace("count: 100", "duration: 2s"))
    assert (spec.count, spec.duration_ns) == (None, 2 * 10**9)


def test_a_count_lasts_longer_than_its_exchanges_take_on_an_idle_fabric() -> None:
    cross, local = load(LAT), load(LAT.replace("h12", "h1"))
    assert 100 * 16_000_000 < cross.duration_ns < 100 * 40_000_000  # a round trip of 64 bytes takes 16.4 ms
    assert local.duration_ns == pytest.approx(cross.duration_ns / 2, rel=0.01)
    long = load(LAT.replace("64B", "8MiB"))
    assert long.duration_ns > 100 * 2 * (8 << 20) * 8 / 193.3e6 * 1e9


@pytest.mark.parametrize(
    ("workload", "key", "allowed"),
    [
        (LAT.replace("count", "depth: 2, count"), "workload.0.depth", "one message outstanding"),
        (LAT.replace("count: 100", "count: 100, duration: 2s"), "workload.0.count", "either duration or count"),
        (LAT.replace(", count: 100", ""), "workload.0", "either duration or count"),
        (LAT.replace("count: 100", "count: 0"), "workload.0.count", "from 1 to 100000"),
        (LAT.replace("size: 64B, count: 100", "size: 1GiB, count: 100000"), "workload.0.count", "at most 24 hours"),
        (LAT.replace("write_lat", "write_bw"), "workload.0.count", "count is for write_lat"),
        (LAT.replace("write_lat", "write_bw").replace(", count: 100", ""), "workload.0", "duration: 12s"),
    ],
)
def test_keys_of_another_kind_and_missing_ones_are_refused(workload: str, key: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(workload)
    assert (caught.value.line, caught.value.key) == (4, key)
    assert allowed in caught.value.allowed
