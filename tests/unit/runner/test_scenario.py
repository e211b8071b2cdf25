"""A scenario is checked completely before anything is built; each refusal names file, line and key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mrcemu.errors import ConfigError
from mrcemu.protocol.config import TransportConfig
from mrcemu.runner.scenario import Scenario, load_scenario
from mrcemu.runner.settings import SETTINGS
from mrcemu.topology.ecmp import ECMP, SRV6

ROOT = Path(__file__).parents[3]
GOOD = """\
name: t1-switch-loss
about: a T1 switch dies and comes back under a cross-T1 transfer
topology: ../topologies/eight-plane.yaml
transport: {kind: mrc, qps: 1, evs: auto}
capture: [p2-t0-0:p2-t1-1]
workload:
  - {id: w, kind: write_bw, src: h0, dst: h12, size: 1MiB, depth: 16, duration: 12s}
timeline:
  - {at: 8s, do: switch up p2-t1-1}
  - {at: 3s, do: switch down p2-t1-1}
expect:
  - goodput(w, 4s..8s) >= 0.97 * goodput(w, 1s..3s)
  - recovery_time(w, 3s) <= 20 * base_rtt
  - corrupted_bytes == 0
  - qp_errors == 0
"""


def read(path: str) -> str:
    return (ROOT / path).read_text()


def load(text: str = GOOD, *overrides: str) -> Scenario:
    return load_scenario(text, "scenarios/a.yaml", read, overrides)


def refused(text: str, *overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, *overrides)
    return caught.value


def test_the_documented_example_loads() -> None:
    scenario = load()
    w = scenario.workload[0]
    assert (scenario.name, scenario.topology.name, scenario.seed) == ("t1-switch-loss", "eight-plane", 1)
    assert (w.src, w.dst, w.size_bytes, w.depth, w.duration_ns, w.start_ns) == ("h0", "h12", 1 << 20, 16, 12 * 10**9, 0)
    assert [(a.at_ns, a.verb) for a in scenario.timeline] == [(3 * 10**9, "switch down"), (8 * 10**9, "switch up")]
    assert [e.comparison for e in scenario.expect] == [">=", "<=", "==", "=="]
    assert (scenario.transport.evs, scenario.transport.settings) == (None, {})
    assert scenario.duration_ns == 12 * 10**9


def test_what_may_be_left_out_has_its_default() -> None:
    workload = "{id: w, kind: write_bw, src: h0, dst: h3, size: 1B, duration: 1s}"
    short = f"name: s\ntopology: ../topologies/tiny.yaml\nworkload:\n- {workload}\n"
    scenario = load(short)
    assert (scenario.workload[0].depth, scenario.transport.kind, scenario.transport.qps) == (16, "mrc", 1)
    assert (scenario.capture, scenario.timeline, scenario.expect, scenario.about) == ((), (), (), "")


def test_an_entry_of_the_timeline_may_list_several_commands() -> None:
    text = GOOD.replace("do: switch down p2-t1-1", "do: [switch down p2-t1-1, 'link flap h0:p3 --period 1s --count 2']")
    assert [a.verb for a in load(text).timeline] == [
        "switch down", "link down", "link up", "link down", "link up", "switch up",
    ]  # fmt: skip


def test_overrides_reach_scenario_and_topology() -> None:
    scenario = load(
        GOOD, "transport.qps=4", "topology.link_rate.nic=3mbit", "topology.link_rate.fabric=3mbit", "seed=7"
    )
    assert (scenario.transport.qps, scenario.topology.nic_rate_bps, scenario.seed) == (4, 3 * 10**6, 7)
    assert scenario.inputs["transport"]["qps"] == 4


def test_transport_settings_become_config_fields_in_base_units() -> None:
    text = GOOD.replace("evs: auto", "evs: 32, skip: adaptive, probe_interval: 5ms, active_share: 50%, mpr: 16")
    transport = load(text).transport
    assert transport.evs == 32
    assert transport.settings == {
        "adaptive_skip": True, "probe_interval_ns": 5_000_000, "active_share": 0.5, "mpr_units": 16,
    }  # fmt: skip


def test_forwarding_is_srv6_unless_ecmp_is_asked_for() -> None:
    assert load().transport.forwarding == SRV6
    for mode in (SRV6, ECMP):
        transport = load(GOOD.replace("kind: mrc", f"kind: mrc, forwarding: {mode}")).transport
        assert (transport.forwarding, transport.settings) == (mode, {"forwarding": mode})


def test_every_setting_is_a_field_of_the_transport_config() -> None:
    assert {setting.field for setting in SETTINGS.values()} <= {f.name for f in dataclasses.fields(TransportConfig)}


WORK = "kind: write_bw, src: h0"


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "allowed"),
    [
        ("about:", "abuot:", 2, "abuot", "about, "),
        ("name: t1-switch-loss", "name: ../x", 1, "name", "letters, digits"),
        ("eight-plane", "nine-plane", 3, "topology", "a topology file"),
        ("kind: mrc", "kind: roce", 4, "transport.kind", "roce is not available in this version"),
        ("kind: mrc", "kind: tcp", 4, "transport.kind", "mrc"),
        ("evs: auto", "evs: 257", 4, "transport.evs", "auto, or a whole number from 1 to 256"),
        ("evs: auto", "evz: 3", 4, "transport.evz", "kind, qps, evs, timeout_code"),
        ("evs: auto", "forwarding: hash", 4, "transport.forwarding", "srv6 (the sender names every hop) | ecmp"),
        ("evs: auto", "skip: often", 4, "transport.skip", "literal"),
        ("evs: auto", "probe_interval: 5", 4, "transport.probe_interval", "a time with a unit"),
        ("p2-t0-0:p2-t1-1", "p9-t0-0:p9-t1-1", 5, "capture.0", "a name that exists"),
        (WORK, "kind: incast, sources: 4, src: h0", 7, "workload.0.kind", "incast is not available in this version"),
        (WORK, "kind: ping, src: h0", 7, "workload.0.kind", "write_bw"),
        (WORK, "kind: write_bw, src: h16", 7, "workload.0.src", "h0 .. h15"),
        ("dst: h12", "dst: h0", 7, "workload.0.dst", "another host"),
        ("id: w", "id: goodput", 7, "workload.0.id", "no word of the expect language"),
        ("id: w", "id: p99", 7, "workload.0.id", "no word of the expect language"),
        ("size: 1MiB", "size: 1000", 7, "workload.0.size", "a size with a unit"),
        ("size: 1MiB", "size: 0B", 7, "workload.0.size", "1B to 1GiB"),
        ("duration: 12s", "duration: 12", 7, "workload.0.duration", "a time with a unit"),
        ("duration: 12s", "duration: 0s", 7, "workload.0.duration", "above zero"),
        ("depth: 16", "depth: 0", 7, "workload.0.depth", "from 1 to 1024"),
        ("at: 8s", "at: 12s", 9, "timeline.0.at", "before the end of the run at 12s"),
        ("at: 8s", "at: 8", 9, "timeline.0.at", "a time with a unit"),
        ("switch up p2-t1-1", "switch up p9-t1-1", 9, "timeline.0.do", "a name that exists, e.g. p7-t1-1"),
        ("switch up p2-t1-1", "port up h0:p8", 9, "timeline.0.do", "a name that exists, e.g. h0:p"),
        ("switch up p2-t1-1", "link loss p2-t0-0:p2-t1-1 1%", 9, "timeline.0.do", "not available in this version"),
        ("switch up p2-t1-1", "[switch up p2-t1-1, oops]", 9, "timeline.0.do.1", "link down | link up"),
        ("switch up p2-t1-1", "[]", 9, "timeline.0.do", "a command such as"),
        ("corrupted_bytes == 0", "corupted_bytes == 0", 14, "expect.2", "nearest: corrupted_bytes"),
        ("qp_errors == 0", "goodput(x) >= 1mbit", 15, "expect.3", "workloads: w"),
        ("20 * base_rtt", "20", 13, "expect.1", "a unit of time"),
    ],
)
def test_a_fault_in_the_file_names_line_key_and_what_is_allowed(
    old: str, new: str, line: int, key: str, allowed: str
) -> None:
    error = refused(GOOD.replace(old, new, 1))
    assert (error.file, error.line, error.key) == ("scenarios/a.yaml", line, key)
    assert allowed in error.allowed


def test_a_fault_in_the_topology_names_the_topology_file() -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario(GOOD, "scenarios/a.yaml", lambda path: read(path).replace("planes: 8", "planes: 80"))
    assert (caught.value.file, caught.value.key) == ("scenarios/../topologies/eight-plane.yaml", "planes")


def test_a_bad_topology_override_is_named_as_such() -> None:
    error = refused(GOOD, "topology.planes=80")
    assert (error.file, error.key) == ("--set planes=80", "planes")


def test_two_workloads_need_two_ids() -> None:
    line = GOOD.splitlines()[6]
    assert refused(GOOD.replace(line, f"{line}\n{line}")).key == "workload.1.id"


def test_no_workload_is_refused() -> None:
    assert refused(GOOD, "workload=[]").key == "workload"


def test_expectations_are_judged_on_all_workloads_spans() -> None:
    line = GOOD.splitlines()[6]
    second = line.replace("id: w", "id: v, start: 6s").replace("12s", "9s")
    scenario = load(GOOD.replace(line, f"{line}\n{second}").replace("qp_errors == 0", "goodput(v, 13s..15s) > 0"))
    assert scenario.duration_ns == 15 * 10**9
