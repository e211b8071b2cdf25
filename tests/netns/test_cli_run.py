"""`mrcemu run` as a user meets it: the built command on a real fabric, with everything that may come between.

Whatever ends a run, nothing of it stays: namespaces, mounts, state and processes are compared with nothing at all.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from machine import EXECUTABLE, NOTHING, PATIENCE_S, Machine, eventually

from mrcemu.capture.pcapng import read_pcapng
from mrcemu.runner.results import exit_code_of
from mrcemu.topology.addressing import path_for_ev
from mrcemu.topology.loader import load_topology
from mrcemu.wire import srv6
from mrcemu.wire.frame import parse_frame
from mrcemu.wire.opcodes import DATA_OPCODES

pytestmark = pytest.mark.netns

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
TRAFFIC_PACKETS = 200  # above what calibration sends
SHORT = """\
name: short
topology: {topologies}/tiny.yaml
workload:
  - {{id: w, kind: write_bw, src: h0, dst: h3, size: 64KiB, duration: {duration}}}
timeline: [{timeline}]
expect:
  - corrupted_bytes == 0
  - {expect}
"""
INTERRUPTED = 130


@pytest.fixture(scope="module")
def shared():
    machine = Machine()
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture
def machine(shared):
    """A machine on which nothing stands before, and nothing may stand after."""
    assert shared.left_behind() == NOTHING
    yield shared
    left = shared.left_behind()
    shared.end_started()
    shared.mrcemu("down", "--all")
    assert left == NOTHING


def write_scenario(folder, *, name="short", duration="1s", timeline="", expect="qp_errors == 0", replace=("", "")):
    path = folder / f"{name}.yaml"
    text = SHORT.format(topologies=TOPOLOGIES, duration=duration, timeline=timeline, expect=expect)
    path.write_text(text.replace("name: short", f"name: {name}").replace(*replace))
    return path


def start(machine, scenario, folder, *options, **kwargs):
    return machine.start("run", str(scenario), "-o", str(folder), "--allow-unfaithful", *options, **kwargs)


def run(machine, scenario, folder, *options, **kwargs):
    return machine.mrcemu("run", str(scenario), "-o", str(folder), "--allow-unfaithful", *options, **kwargs)


def result_in(folder):
    return json.loads((folder / "result.json").read_text())


def sent_packets(machine, name):
    """Packets h0 has sent; 0 while the run is not ready to be asked."""
    if not (machine.state_dir(name) / "keeper.sock").exists():
        return 0
    done = machine.mrcemu("status", name, "--json")
    ports = json.loads(done.stdout)["ports"] if done.returncode == 0 else []
    return sum(port["tx_packets"] for port in ports if port["name"].startswith("h0:"))


def wait_for_traffic(machine, name="short"):
    assert eventually(lambda: sent_packets(machine, name) > TRAFFIC_PACKETS)


def finish(process, patience_s=PATIENCE_S):
    out, err = process.communicate(timeout=patience_s)
    return process.returncode, out, err


# -- interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_run_keeps_partial_results_and_leaves_nothing(machine, tmp_path, number):
    process = start(machine, write_scenario(tmp_path, duration="40s"), tmp_path / "out")
    wait_for_traffic(machine)
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, "Traceback" in err) == (INTERRUPTED, False)
    assert "verdict: partial" in out
    result = result_in(tmp_path / "out")
    assert result["verdict"] == "partial"
    assert result["workloads"]["w"]["bytes"] > 0
    assert result["workloads"]["w"]["corrupted_bytes"] == 0
    assert 0 < len(result["series"]["goodput_bps"]["w"]) < 40 * 20
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("pause_s", [0, 0.3])
def test_an_impatient_second_ctrl_c_changes_nothing_about_that(machine, tmp_path, pause_s):
    process = start(machine, write_scenario(tmp_path, duration="40s"), tmp_path / "out")
    wait_for_traffic(machine)
    process.send_signal(signal.SIGINT)
    time.sleep(pause_s)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == INTERRUPTED
    assert result_in(tmp_path / "out")["verdict"] == "partial"


@pytest.mark.parametrize(
    ("number", "appeared", "later_s"),
    [
        (signal.SIGINT, "journal.json", 0),
        (signal.SIGTERM, "journal.json", 0.1),
        (signal.SIGINT, "keeper.sock", 0),
        (signal.SIGTERM, "keeper.sock", 0.4),
    ],
)
def test_a_signal_before_the_traffic_leaves_neither_fabric_nor_folder(machine, tmp_path, number, appeared, later_s):
    scenario = write_scenario(tmp_path, replace=("tiny.yaml", "eight-plane.yaml"))
    process = start(machine, scenario, tmp_path / "out")
    # No pause between looks: building takes a fraction of a second.
    while not (machine.state_dir("short") / appeared).exists():
        assert process.poll() is None
    time.sleep(later_s)
    process.send_signal(number)
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, out, "Traceback" in err) == (INTERRUPTED, "", False)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_outstanding_messages_drain_ends_the_wait(machine, tmp_path):
    cut = "{at: 1s, do: [port down h0:p0, port down h0:p1]}"
    process = start(machine, write_scenario(tmp_path, duration="1500ms", timeline=cut), tmp_path / "out")
    assert eventually(lambda: down_ports(machine) == {"h0:p0", "h0:p1"})
    time.sleep(1.5)  # the half second that the workload had left is over: now the run waits for what is outstanding
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert finish(process)[0] == INTERRUPTED
    assert time.monotonic() - begun < 10  # of the 20 s it may wait, and a report
    assert result_in(tmp_path / "out")["verdict"] == "partial"


def down_ports(machine):
    if not (machine.state_dir("short") / "keeper.sock").exists():
        return set()
    done = machine.mrcemu("status", "short", "--json")
    links = json.loads(done.stdout)["links"] if done.returncode == 0 else []
    return {link["name"] for link in links if link["state"] == "down"}


def test_a_killed_run_is_no_obstacle_and_down_all_removes_it_with_its_endpoints(machine, tmp_path):
    process = start(machine, write_scenario(tmp_path, duration="40s"), tmp_path / "out")
    wait_for_traffic(machine)
    process.kill()
    process.communicate()
    again = run(machine, write_scenario(tmp_path), tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert machine.good("down", "--all") == "removed: short\n"
    assert machine.good("down", "--all") == "nothing stands\n"
    assert machine.left_behind() == NOTHING


def test_ctrl_c_ends_all_scenarios_of_a_command(machine, tmp_path):
    first, second = write_scenario(tmp_path, duration="40s"), write_scenario(tmp_path, name="second")
    process = machine.start("run", str(first), str(second), "-o", str(tmp_path / "out"), "--json")
    wait_for_traffic(machine)
    process.send_signal(signal.SIGINT)
    code, out, _ = finish(process)
    assert code == INTERRUPTED
    assert [document["verdict"] for document in json.loads(out)] == ["partial"]
    assert not (tmp_path / "out" / "second").exists()


# -- a second terminal ------------------------------------------------------------------------------------------------


def test_a_second_terminal_works_on_a_run_in_progress(machine, tmp_path):
    process = start(machine, write_scenario(tmp_path, duration="16s"), tmp_path / "out")
    wait_for_traffic(machine)
    assert machine.status()["name"] == "short"
    machine.good("link", "flap", "p0-t0-0:p0-t1-1", "--period", "200ms", "--count", "3")
    machine.good("capture", "h0:p0", "-w", str(tmp_path / "second.pcapng"), "--duration", "300ms")
    assert "p1@" in machine.exec("h3", "ip", "-br", "link")
    trace = json.loads(machine.good("trace", "h1", "h2", "--ev", "0x10", "--json"))
    assert (trace["ended_at"], len(trace["hops"])) == (None, 4)
    bw = json.loads(machine.good("bw", "h1", "h2", "--duration", "1s", "--json"))
    assert (bw["corrupted_bytes"], bw["bytes"] > 0) == (0, True)
    assert process.poll() is None  # all of that was during the run
    code, out, err = finish(process, 60)
    assert code == 0, out + err
    assert len(read_pcapng((tmp_path / "second.pcapng").read_bytes()).frames) > 0
    assert result_in(tmp_path / "out")["workloads"]["w"]["corrupted_bytes"] == 0


def test_down_from_a_second_terminal_ends_a_run_with_partial_results(machine, tmp_path):
    process = start(machine, write_scenario(tmp_path, duration="40s"), tmp_path / "out")
    wait_for_traffic(machine)
    machine.good("down", "short")
    finish(process)
    assert result_in(tmp_path / "out")["verdict"] == "partial"


def test_keep_shows_the_verdict_and_leaves_the_fabric_until_ctrl_c(machine, tmp_path):
    process = start(machine, write_scenario(tmp_path), tmp_path / "out", "--keep")
    while "until Ctrl-C" not in (line := process.stderr.readline()):
        assert line
    assert result_in(tmp_path / "out")["verdict"] == "pass"
    assert "p0" in machine.exec("h0", "ip", "-br", "link")
    process.send_signal(signal.SIGINT)
    code, out, _ = finish(process)
    assert (code, "verdict: pass" in out) == (0, True)


# -- results ----------------------------------------------------------------------------------------------------------


def test_a_failing_expectation_is_exit_1_and_shown_with_what_was_measured(machine, tmp_path):
    done = run(machine, write_scenario(tmp_path, expect="goodput(w) >= 100gbit"), tmp_path / "out")
    result = result_in(tmp_path / "out")
    assert (result["verdict"], done.returncode) == ("fail", exit_code_of("fail"))
    failed = next(line for line in done.stdout.splitlines() if "goodput(w)" in line)
    assert "FAIL" in failed
    assert "mbit" in failed.partition("100gbit")[2]
    assert f"report: {tmp_path / 'out' / 'report.html'}" in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


def test_json_prints_the_result_and_nothing_else(machine, tmp_path):
    done = run(machine, write_scenario(tmp_path), tmp_path / "out", "--json")
    assert json.loads(done.stdout) == result_in(tmp_path / "out")


def test_several_scenarios_get_subfolders_and_the_worst_exit_code(machine, tmp_path):
    good, bad = write_scenario(tmp_path), write_scenario(tmp_path, name="bad", expect="goodput(w) >= 100gbit")
    done = machine.mrcemu("run", str(bad), str(good), "-o", str(tmp_path / "out"), "--allow-unfaithful")
    assert done.returncode == 1, done.stderr
    assert result_in(tmp_path / "out" / "short")["verdict"] == "pass"
    assert result_in(tmp_path / "out" / "bad")["verdict"] == "fail"


def test_repeated_runs_get_numbered_folders_and_a_changed_key_counts(machine, tmp_path):
    changes = ("--repeat", "2", "--set", "topology.mtu=1024", "--set", "transport.qps=2", "--seed", "7")
    done = run(machine, write_scenario(tmp_path), tmp_path / "out", *changes, "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == ["short", "short-2"]
    for result in (*json.loads(done.stdout), result_in(tmp_path / "out" / "short-2")):
        assert result["seed"] == 7
        assert result["inputs"]["topology"]["mtu_bytes"] == 1024
        assert len(result["evs"]) == 2


def test_results_of_an_earlier_run_are_never_overwritten(machine, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    done = run(machine, write_scenario(tmp_path), tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not empty" in done.stderr
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["precious"]


def test_default_results_folders_differ_and_belong_to_the_user_who_called_sudo(machine, tmp_path):
    scenario = write_scenario(tmp_path, replace=("expect:", "capture: [h0:p0]\nexpect:"))
    sudo = {**os.environ, "SUDO_UID": "65534", "SUDO_GID": "65533"}
    options = ("--allow-unfaithful", "--repeat", "2", "--set", "workload.0.duration=500ms")
    done = machine.mrcemu("run", str(scenario), *options, cwd=tmp_path, env=sudo)
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "results").iterdir())
    assert len(folders) == 2
    written = [tmp_path / "results", *folders, *(file for folder in folders for file in folder.iterdir())]
    assert {file.name for file in written} >= {"result.json", "events.jsonl", "report.html", "capture.pcapng"}
    assert {(file.stat().st_uid, file.stat().st_gid) for file in written} == {(65534, 65533)}


# -- captures ---------------------------------------------------------------------------------------------------------


def test_a_capture_of_a_run_holds_exactly_the_frames_of_its_paths_whole_and_right(machine, tmp_path):
    """Messages of 64 bytes, one packet each: every frame fits the capture's cut, so that its iCRC can be checked."""
    small = ("size: 64KiB,", "size: 64B, depth: 1,")
    scenario = write_scenario(tmp_path, duration="2s", replace=small)
    text = scenario.read_text().replace("expect:", "capture: ['h0:p*', 'h3:p*']\nexpect:")
    scenario.write_text(text)
    done = run(machine, scenario, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    result = result_in(tmp_path / "out")
    assert all(capture["dropped"] == 0 for capture in result["captures"])
    capture = read_pcapng((tmp_path / "out" / "capture.pcapng").read_bytes())
    times = [frame.time_ns for _, frame in capture.frames]
    assert times == sorted(times)
    seen = [(capture.taps[tap].name, frame) for tap, frame in capture.frames if frame.data[20] == 41]
    packets = [(tap, frame.outgoing, parse_frame(frame.data)) for tap, frame in seen]  # WireError on a bad checksum
    sent = [(tap, p) for tap, outgoing, p in packets if tap.startswith("h0:") and outgoing and is_data(p)]
    got = [(tap, p) for tap, outgoing, p in packets if tap.startswith("h3:") and not outgoing and is_data(p)]
    assert len(sent) == len({packet.bth.psn for _, packet in sent}) == result["workloads"]["w"]["messages"]
    assert sorted((p.bth.psn, tap[-1]) for tap, p in sent) == sorted((p.bth.psn, tap[-1]) for tap, p in got)
    check_destinations(sent, got)


def is_data(packet):
    return packet.bth.opcode in DATA_OPCODES


def check_destinations(sent, got):
    """Outer destinations: those of the EVs' paths as sent, each shifted by the three switches when received."""
    topology = load_topology((TOPOLOGIES / "tiny.yaml").read_text(), "tiny.yaml")
    by_psn = {}
    for tap, packet in sent:
        path = path_for_ev(topology, 0, 3, packet.ev)
        assert packet.outer.destination == path.destination
        assert tap == f"h0:p{path.plane}"
        by_psn[packet.bth.psn] = path.destination
    assert {tap for tap, _ in sent} == {"h0:p0", "h0:p1"}
    for _, packet in got:
        assert packet.outer.destination == srv6.shift(srv6.shift(srv6.shift(by_psn[packet.bth.psn])))


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def public():
    """A folder that anybody may look into; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_check_needs_no_root_and_builds_nothing(machine, public):
    scenario = write_scenario(public)
    done = machine.run(*as_nobody(), *EXECUTABLE, "run", "--check", str(scenario))
    assert (done.returncode, done.stdout) == (0, f"{scenario}: ok (1 workloads, 0 faults, 2 expectations, 1 s)\n")
    refused = machine.run(*as_nobody(), *EXECUTABLE, "run", str(scenario), cwd=public)
    assert (refused.returncode, "sudo mrcemu run" in refused.stderr) == (3, True)
    assert [item.name for item in public.iterdir()] == [scenario.name]


def as_nobody():
    """Another user, who may read (the interpreter is often in root's own folder) and nothing else."""
    if shutil.which("setpriv") is None:
        pytest.skip("becoming another user needs setpriv (util-linux)")
    may_read = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    return ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *may_read, "--")


def test_bad_input_is_refused_before_anything_is_built(machine, tmp_path):
    scenario = write_scenario(tmp_path, replace=("dst: h3", "dst: h9"))
    done = run(machine, scenario, tmp_path / "out")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{scenario}:4: workload.0.dst" in done.stderr
    assert not (tmp_path / "out").exists()
