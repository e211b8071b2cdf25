"""Traffic, probes and path commands as a user types them, on one standing fabric; effects read from path counters.

What must be timed goes over the keeper's socket: a command line takes a second to start on a busy machine.
"""

import json
import signal
import time
from contextlib import contextmanager, suppress

import pytest
from machine import Machine, eventually

from mrcemu.cli.common import TOPOLOGIES, read_topology
from mrcemu.errors import UnfitEnvironmentError
from mrcemu.keeper import client
from mrcemu.topology import timing

pytestmark = pytest.mark.netns
LINK = "p0-t0-0:p0-t1-1"  # under EV 0x10 of h0 > h3, and of no other path between the two
DEAD_EV = 0x10
IN_FLIGHT_S = 0.3  # ten times the round trip under load: what was sent before a deny is over
PLANE_1 = ("--mask", "0xf", "--value", "1")


@pytest.fixture(scope="module")
def machine():
    machine = Machine()
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture(scope="module")
def standing(machine):
    machine.good("up", "tiny")
    return machine


@pytest.fixture
def tiny(standing):
    """The tiny fabric, whole, with nothing denied, before and after."""
    yield standing
    keeper(standing, "link reset", "*")
    if keeper(standing, "connections")["denylists"]:
        keeper(standing, "ev allow", all=True)


def keeper(machine, verb, *targets, name="tiny", **args):
    return client.ask(machine.state_dir(name), verb, targets, args, timeout_s=30)


def ask(machine, *words):
    return json.loads(machine.good(*words, "--name", "tiny", "--json"))


def table(machine):
    """Paths of the one running connection by EV."""
    connections = keeper(machine, "connections")["connections"]
    return {path["ev"]: path for path in connections[0]["paths"]} if connections else {}


def sent(machine):
    return {ev: path["sent"] for ev, path in table(machine).items()}


@contextmanager
def traffic(machine, *options, to_end=False):
    """A bw h0 > h3 that runs while the block does, then until it is done (result in the dict) or Ctrl-C ends it."""
    words = options or ("-D", "10min")
    process = machine.start("bw", "h0", "h3", "--name", "tiny", "-s", "64KiB", "--json", *words)
    result = {}
    try:
        assert eventually(lambda: sum(sent(machine).values()) > 0)
        yield result
        if to_end:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            result.update(json.loads(out))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_ev_list_shows_the_paths_of_a_running_bw_and_nothing_afterwards(tiny):
    with traffic(tiny):
        (connection,) = ask(tiny, "ev", "list")["connections"]
        reverse = ask(tiny, "ev", "list", "--src", "h3")["connections"]
        shown = tiny.good("ev", "list", "--name", "tiny")
    paths = {path["ev"]: path for path in connection["paths"]}
    assert (connection["src"], connection["dst"], sorted(paths)) == ("h0", "h3", [0x0, 0x1, 0x10, 0x11])
    assert paths[0x11]["hops"] == ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h3"]
    assert paths[0x11]["srv6"] == "fcbb:bbbb:4400:8401:4401:c401::"
    for path in paths.values():
        assert (path["sent"] > 0) == path["active"]
        assert path["active"] or path["rtt_ns"] is None
    assert [(c["src"], c["dst"], c["workload"]) for c in reverse] == [("h3", "h0", None)]
    assert "fcbb:bbbb:4400:8401:4401:c401::" in shown
    assert "backup" in shown
    assert ask(tiny, "ev", "list")["connections"] == []


def test_a_denied_plane_carries_nothing_more_and_an_allowed_one_is_used_again(tiny):
    with traffic(tiny, "-D", "4s", to_end=True) as result:
        denied = keeper(tiny, "ev deny", mask=0xF, value=1)
        assert (denied["evs"], set(denied["hosts"]) >= {"h0", "h3"}) == ([0x1, 0x11], True)
        time.sleep(IN_FLIGHT_S)
        before = table(tiny)
        time.sleep(0.3)
        after = table(tiny)
        assert {before[ev]["state"] for ev in (0x1, 0x11)} == {"DENIED"}
        assert [after[ev]["sent"] - before[ev]["sent"] for ev in (0x1, 0x11)] == [0, 0]
        assert sum(after[ev]["sent"] - before[ev]["sent"] for ev in (0x0, 0x10)) > 0
        keeper(tiny, "ev allow", mask=0xF, value=1)
        assert eventually(lambda: sum(sent(tiny)[ev] - after[ev]["sent"] for ev in (0x1, 0x11)) > 100)
    assert (result["corrupted_bytes"], result["qp_errors"], result["complete"]) == (0, 0, True)


def test_a_denied_path_is_replaced_in_its_plane(tiny):
    with traffic(tiny):
        ev = next(ev for ev, path in table(tiny).items() if path["active"] and path["plane"] == 0)
        other = DEAD_EV - ev
        tiny.good("ev", "deny", hex(ev), "--src", "h0", "--name", "tiny")
        time.sleep(IN_FLIGHT_S)
        before = sent(tiny)
        time.sleep(0.3)
        after = sent(tiny)
    assert after[ev] == before[ev]
    assert after[other] > before[other]
    lists = ask(tiny, "ev", "list")["denylists"]
    assert tiny.good("ev", "allow", hex(ev), "--name", "tiny").startswith("allowed on h0: EV")
    assert lists == {"h0": [{"mask": 0xFFFFFFFF, "value": ev}]}


def test_what_is_denied_before_a_connection_exists_is_never_used(tiny):
    tiny.good("ev", "deny", *PLANE_1, "--src", "h0", "--name", "tiny")
    with traffic(tiny):
        assert eventually(lambda: sum(sent(tiny).values()) > 200)
        counts = sent(tiny)
    assert counts[0x1] == counts[0x11] == 0
    assert counts[0x0] + counts[0x10] > 0


def test_an_entry_that_is_not_listed_or_matches_no_path_is_refused(tiny):
    for words, said in (
        (("ev", "allow", "0x10", "--src", "h0"), "nothing is denied"),
        (("ev", "deny", "0x22", "--src", "h0"), "matches no path of this fabric"),
        (("ev", "deny", "--mask", "0xf", "--src", "h0"), "both --mask and --value"),
        (("ev", "deny", "0x10", "--src", "h9"), "no host 'h9'"),
    ):
        done = tiny.mrcemu(*words, "--name", "tiny")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


def test_watch_tells_of_a_link_failure_and_ctrl_c_ends_it(tiny):
    with traffic(tiny):
        ev = next(ev for ev, path in table(tiny).items() if path["active"])
        t0, t1 = table(tiny)[ev]["hops"][1:3]
        watching = tiny.start("ev", "watch", "--losses", "--json", "--name", "tiny")
        assert watching.stderr.readline() == "watching; Ctrl-C ends\n"
        keeper(tiny, "link down", f"{t0}:{t1}")
        seen = []
        while not seen or seen[-1]["kind"] != "EvChanged":
            seen.append(json.loads(watching.stdout.readline()))
        assert eventually(lambda: table(tiny)[ev]["state"] == "ASSUMED_BAD")
        path = table(tiny)[ev]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=30) == 0
    lost = [event for event in seen if event["kind"] == "PacketLost"]
    assert {event["ev"] for event in lost} == {ev}
    changed = seen[-1]
    assert (changed["host"], changed["peer"], changed["ev"], changed["new"]) == ("h0", "h3", ev, "ASSUMED_BAD")
    assert abs(changed["unix_s"] - time.time()) < 60
    assert (path["retired"], path["active"], path["lost"] > 0) == (1, False, True)
    assert 0 <= path["next_probe_ns"] < 10 * 10**9


def test_watch_tells_of_a_port_and_of_the_peer_hearing_it(tiny):
    with traffic(tiny):
        watching = tiny.start("ev", "watch", "--for", "1500ms", "--name", "tiny")
        assert watching.stderr.readline() == "watching; Ctrl-C ends\n"
        keeper(tiny, "port down", "h0:p1")
        shown, _ = watching.communicate(timeout=30)
        keeper(tiny, "port up", "h0:p1")
    assert watching.returncode == 0
    assert "h0  port p1 down" in shown
    assert "h3  hears from h0: ports up p0" in shown


def test_probe_finds_exactly_the_dead_path(tiny):
    whole = ask(tiny, "probe", "h0", "h3", "--fail")
    assert (whole["unreachable"], len(whole["evs"])) == ([], 4)
    assert all(row["answered"] == row["sent"] == 3 for row in whole["evs"])
    keeper(tiny, "link down", LINK)
    broken = ask(tiny, "probe", "h0", "h3", "-c", "1")
    assert broken["unreachable"] == [DEAD_EV]
    failed = tiny.mrcemu("probe", "h0", "h3", "--fail", "--name", "tiny")
    assert failed.returncode == 1
    assert "unreachable" in failed.stdout
    assert "3 of 4 paths answer" in failed.stdout
    assert ask(tiny, "probe", "h0", "h3", "--ev", "0x11", "--fail")["unreachable"] == []


def test_a_trace_ends_where_the_link_is_down(tiny):
    keeper(tiny, "link down", LINK)
    broken = ask(tiny, "trace", "h0", "h3", "--ev", hex(DEAD_EV))
    assert [(hop["node"], hop["answered"] > 0) for hop in broken["hops"]] == [
        ("p0-t0-0", True), ("p0-t1-1", False), ("p0-t0-1", False), ("h3", False),
    ]  # fmt: skip
    assert broken["ended_at"] == "p0-t1-1"
    beside = ask(tiny, "trace", "h0", "h3", "--ev", "0x0")
    assert beside["ended_at"] is None
    assert [hop["rtt_ns"] for hop in beside["hops"]] == sorted(hop["rtt_ns"] for hop in beside["hops"])


def test_a_trace_between_hosts_of_one_t0_has_two_hops(tiny):
    local = ask(tiny, "trace", "h0", "h1", "--ev", "1")
    assert [hop["node"] for hop in local["hops"]] == ["p1-t0-0", "h1"]
    assert local["ended_at"] is None


@pytest.mark.parametrize("command", ["trace", "probe"])
@pytest.mark.parametrize(("dst", "ev"), [("h3", "0x20"), ("h3", "2"), ("h1", "0x10"), ("h3", "0x100000"), ("h3", "-1")])
def test_an_ev_without_a_path_is_refused(tiny, command, dst, ev):
    done = tiny.mrcemu(command, "h0", dst, "--ev", ev, "--name", "tiny")
    assert (done.returncode, done.stdout) == (2, "")
    assert "names no path from h0" in done.stderr


def test_bw_sweeps_every_size_in_the_columns_of_ib_write_bw(tiny):
    shown = tiny.good("bw", "h0", "h3", "-a", "-n", "2", "-t", "2", "--name", "tiny").splitlines()
    assert "scale 4000" in shown[0]
    assert "#bytes  #iterations  BW peak[MB/sec]  BW average[MB/sec]  MsgRate[Mpps]" in shown[1]
    rows = [line.split() for line in shown[2:]]
    assert [int(row[0]) for row in rows] == [1 << power for power in range(1, 24)]
    assert {(row[1], row[8]) for row in rows} == {("2", "0")}
    averages = [float(row[3]) for row in rows]
    assert averages[0] < averages[12] < averages[-1]


def test_bidirectional_bw_moves_checked_bytes_both_ways_at_once(tiny):
    one = ask(tiny, "bw", "h0", "h3", "-D", "1s", "-s", "64KiB")
    both = ask(tiny, "bw", "h0", "h3", "-D", "1s", "-s", "64KiB", "-b", "-q", "2")
    assert [(d["src"], d["dst"]) for d in both["directions"]] == [("h0", "h3"), ("h3", "h0")]
    assert all(d["bytes"] == d["messages"] * 65536 > 0 for d in both["directions"])
    assert both["bytes"] == sum(d["bytes"] for d in both["directions"])
    assert both["goodput_bps"] > 1.2 * one["line_payload_bps"]
    assert (both["corrupted_bytes"], one["corrupted_bytes"], both["qp_errors"]) == (0, 0, 0)


def test_ctrl_c_takes_a_bw_back_and_leaves_no_connection(tiny):
    process = tiny.start("bw", "h0", "h3", "-D", "60s", "--name", "tiny")
    assert eventually(lambda: sum(sent(tiny).values()) > 0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert keeper(tiny, "connections")["connections"] == []


def test_lat_prints_the_columns_of_ib_write_lat(tiny):
    shown = tiny.good("lat", "h0", "h3", "-n", "10", "--name", "tiny").splitlines()
    assert "scale 4000" in shown[0]
    assert shown[1].split("  ")[-7:] == [
        "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]",
        "99% percentile[usec]", "99.9% percentile[usec]",
    ]  # fmt: skip
    size, iterations, least, most, typical, *_ = map(float, shown[2].split())
    assert (size, iterations, len(shown)) == (2, 10, 3)
    assert 0 < least <= typical <= most


def test_crossing_the_second_tier_costs_the_two_extra_hops(machine, standing):
    topology, _ = read_topology("eight-plane")
    machine.good("up", "eight-plane")
    try:
        cross, local = (
            json.loads(machine.good("lat", "h0", dst, "-n", "40", "--json", "--name", "eight-plane"))
            for dst in ("h12", "h1")
        )
    finally:
        machine.good("down", "eight-plane")
    frame = topology.data_frame_bytes - topology.mtu_bytes + 4  # two bytes and two of padding
    hop = frame * 8 * timing.NS // topology.fabric_rate_bps + timing.link_delay_ns(topology)
    assert cross["iterations"] == local["iterations"] == 40
    assert cross["latency_ns"]["typical"] - local["latency_ns"]["typical"] == pytest.approx(2 * hop, rel=0.2)


def test_a_run_in_progress_shows_its_paths_and_measures_latency(machine, standing, tmp_path):
    topology = TOPOLOGIES / "tiny.yaml"
    file = tmp_path / "latency.yaml"
    file.write_text(f"""\
name: latency
topology: {topology}
workload:
  - {{id: w, kind: write_bw, src: h0, dst: h3, size: 64KiB, duration: 4s}}
  - {{id: l, kind: write_lat, src: h1, dst: h2, size: 64B, count: 30}}
expect:
  - latency(l, p50) >= 8ms
  - corrupted_bytes == 0
  - qp_errors == 0
""")
    process = machine.start("run", str(file), "-o", str(tmp_path / "out"), "--allow-unfaithful", "--json")

    seen = set()

    def all_seen():
        with suppress(UnfitEnvironmentError):  # not there yet
            rows = keeper(machine, "connections", name="latency")["connections"]
            seen.update((row["src"], row["dst"], row["workload"]) for row in rows)
        return {("h0", "h3", "w"), ("h1", "h2", "l"), ("h2", "h1", "l")} <= seen

    assert eventually(all_seen)
    assert keeper(machine, "probe", name="latency", src="h0", dst="h3")["unreachable"] == []
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["workloads"]["l"]["messages"] == 30
    assert result["workloads"]["l"]["bytes"] == 30 * 64
    assert result["workloads"]["l"]["latency_ns"]["min"] > 8_000_000
