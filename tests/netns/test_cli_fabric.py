"""The command line driven as a user drives it: the executable in a subprocess, real fabrics, results seen from outside.

Everything runs with a /run of its own (machine.py), so that `down --all` means the fabrics of this file and no other.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machine import NOTHING, PATIENCE_S, Machine, eventually

from mrcemu.capture.pcapng import read_pcapng

pytestmark = pytest.mark.netns
LINK = "p0-t0-0:p0-t1-1"


@pytest.fixture(scope="module")
def machine():
    machine = Machine()
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture
def clean(machine):
    """A machine on which nothing stands, before and after."""
    machine.good("down", "--all")
    yield machine
    machine.good("down", "--all")


@pytest.fixture
def tiny(machine):
    """The tiny fabric, standing and whole; built once unless a test removed it."""
    status = machine.status()
    if "fabrics" in status:
        machine.good("down", "--all")
        machine.good("up", "tiny")
    elif any(link["state"] == "down" for link in status["links"]):
        machine.good("link", "reset", "*")
    return machine


def link_states(machine, *words):
    return {link["name"]: link["state"] for link in machine.status(*words)["links"]}


def down_links(machine):
    return {name for name, state in link_states(machine).items() if state == "down"}


def tables(machine):
    """Routes and permanent neighbours of every switch of tiny, as `ip` prints them."""
    return {
        node: (
            sorted(machine.ip(node, "-6", "route", "show", "table", "all").splitlines()),
            sorted(machine.ip(node, "-6", "neigh", "show", "nud", "permanent").splitlines()),
        )
        for node in (f"p{plane}-t{tier}-{index}" for plane in (0, 1) for tier in (0, 1) for index in (0, 1))
    }


def carrier(machine, node, ifname):
    return "LOWER_UP" in machine.ip(node, "-o", "link", "show", ifname)


def keeper_pid(machine, *words):
    return machine.status(*words)["keeper"]["pid"]


def test_status_equals_the_kernel_at_every_port(tiny):
    status = tiny.status()
    assert len(status["ports"]) == 2 * len(status["links"]) == 32
    for node in status["nodes"]:
        kernel = {item["ifname"]: item for item in json.loads(tiny.exec(node["name"], "ip", "-j", "link"))}
        ports = [port for port in status["ports"] if port["node"] == node["name"]]
        assert {port["ifname"] for port in ports} == set(kernel) - {"lo"}
        for port in ports:
            seen = kernel[port["ifname"]]
            assert (port["ifindex"], port["mac"]) == (seen["ifindex"], seen["address"])
            assert port["oper_up"] == (seen["operstate"] == "UP")
            assert node["namespace"] in tiny.run("ip", "netns", "list").stdout


def test_status_counts_what_is_sent(tiny):
    before = {port["name"]: port for port in tiny.status()["ports"]}
    send_frames(tiny, "h1", "p1", 25)
    after = {port["name"]: port for port in tiny.status()["ports"]}
    assert after["h1:p1"]["tx_packets"] - before["h1:p1"]["tx_packets"] == 25
    assert after["p1-t0-0:dn1"]["rx_packets"] - before["p1-t0-0:dn1"]["rx_packets"] == 25
    assert after["h1:p0"]["tx_packets"] == before["h1:p0"]["tx_packets"]


def test_status_for_people_shows_the_names_commands_take(tiny):
    shown = tiny.good("status", "--ports")
    for name in ("h3:p1", LINK, "p1-t0-1:up0", "mrc-tiny-h0", "25mbit"):
        assert name in shown


def test_a_link_goes_down_at_both_ends_and_comes_back_with_its_tables(tiny):
    before = tables(tiny)
    assert tiny.good("link", "down", LINK) == f"{LINK} down\n"
    assert down_links(tiny) == {LINK}
    assert not carrier(tiny, "p0-t0-0", "up1")
    assert not carrier(tiny, "p0-t1-1", "dn0")
    tiny.good("link", "up", LINK)
    assert down_links(tiny) == set()
    assert tables(tiny) == before


def test_a_glob_takes_exactly_its_links_down(tiny):
    tiny.good("link", "down", "p*-t0-1:p*-t1-0")
    assert down_links(tiny) == {"p0-t0-1:p0-t1-0", "p1-t0-1:p1-t1-0"}


def test_a_nic_port_down_is_carrier_loss_at_the_host_in_that_plane_only(tiny):
    tiny.good("port", "down", "h3:1")
    assert not carrier(tiny, "h3", "p1")
    assert "NO-CARRIER,BROADCAST,MULTICAST,UP" in tiny.ip("h3", "-o", "link", "show", "p1")
    assert carrier(tiny, "h3", "p0")
    assert down_links(tiny) == {"h3:p1"}
    tiny.good("port", "up", "h3:p1")
    assert carrier(tiny, "h3", "p1")


def test_a_switch_goes_down_with_all_its_links_and_comes_back(tiny):
    before = tables(tiny)
    tiny.good("switch", "down", "p1-t1-0")
    assert down_links(tiny) == {"p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"}
    states = {node["name"]: node["state"] for node in tiny.status()["nodes"]}
    assert [name for name, state in states.items() if state == "down"] == ["p1-t1-0"]
    tiny.good("switch", "up", "p1-t1-0")
    assert tables(tiny) == before


def test_a_switch_reboots_and_has_its_tables_again(tiny):
    before = tables(tiny)
    start = time.monotonic()
    tiny.good("switch", "reboot", "p0-t0-1", "--for", "300ms")
    assert time.monotonic() - start >= 0.3
    assert down_links(tiny) == set()
    assert tables(tiny) == before


def test_flaps_end_with_the_link_up_and_the_same_tables(tiny):
    before = tables(tiny)
    done = tiny.mrcemu("link", "flap", LINK, "--period", "50ms", "--count", "20")
    assert done.returncode == 0
    assert done.stderr.count("flap ") == 20
    assert down_links(tiny) == set()
    assert tables(tiny) == before


def test_ctrl_c_ends_a_flap_with_the_link_up(tiny):
    flap = tiny.start("link", "flap", LINK, "--period", "400ms")
    assert flap.stderr.readline().startswith("flap 1")
    flap.send_signal(signal.SIGINT)
    assert flap.wait(PATIENCE_S) == 130
    assert down_links(tiny) == set()
    flap.communicate()


def test_a_second_terminal_is_answered_while_a_link_flaps_and_may_reset_it(tiny):
    flap = tiny.start("link", "flap", LINK, "--period", "400ms")
    assert flap.stderr.readline().startswith("flap 1")
    assert tiny.status()["name"] == "tiny"
    refused = tiny.mrcemu("link", "down", LINK)
    assert (refused.returncode, "flapping" in refused.stderr) == (2, True)
    tiny.good("link", "reset", LINK)
    assert flap.wait(PATIENCE_S) == 2
    assert down_links(tiny) == set()
    flap.communicate()


@pytest.mark.parametrize(("node", "ifname"), [("p0-t0-0", "up1"), ("p0-t1-1", "dn0"), ("p1-t0-0", "dn0"), ("h0", "p1")])
def test_the_keeper_heals_what_was_flapped_by_hand(tiny, node, ifname):
    before = tables(tiny)
    for _ in range(5):
        tiny.ip(node, "link", "set", ifname, "down")
        tiny.ip(node, "link", "set", ifname, "up")
    assert eventually(lambda: tables(tiny) == before)
    assert eventually(lambda: down_links(tiny) == set())


def send_frames(machine, node, ifname, count):
    program = (
        f"import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('{ifname}', 0))\n"
        f"for n in range({count}): s.send(bytes([2]) * 12 + bytes([0x88, 0xb5]) + n.to_bytes(4, 'big') + bytes(50))"
    )
    machine.exec(node, sys.executable, "-c", program)


def test_a_capture_holds_exactly_what_was_sent_once_per_port(tiny, tmp_path):
    path = tmp_path / "flight.pcapng"
    capture = tiny.start("capture", "h0:p0", "p0-t0-0:dn0", "-w", str(path), "--filter", "ether proto 0x88b5")
    assert capture.stderr.readline().startswith("capturing at 2 ports")
    send_frames(tiny, "h0", "p0", 300)
    capture.send_signal(signal.SIGINT)
    out, _ = capture.communicate(timeout=PATIENCE_S)
    assert capture.returncode == 0
    assert "600 frames at 2 ports, 0 lost" in out
    recorded = read_pcapng(path.read_bytes())
    assert [tap.name for tap in recorded.taps] == ["h0:p0", "p0-t0-0:dn0"]
    for tap, outgoing in ((0, True), (1, False)):
        mine = [frame for number, frame in recorded.frames if number == tap]
        assert [int.from_bytes(frame.data[14:18], "big") for frame in mine] == list(range(300))
        assert {frame.outgoing for frame in mine} == {outgoing}
    assert path.stat().st_uid == int(os.environ.get("SUDO_UID", "0"))


def test_a_capture_ends_by_time_by_count_and_when_its_fabric_goes(tiny, tmp_path):
    tiny.good("capture", LINK, "-w", str(tmp_path / "a.pcapng"), "--duration", "200ms")
    counted = tiny.start("capture", "h0:p0", "-w", str(tmp_path / "b.pcapng"), "--count", "3")
    counted.stderr.readline()
    send_frames(tiny, "h0", "p0", 10)
    assert "3 frames" in counted.communicate(timeout=PATIENCE_S)[0]
    left = tiny.start("capture", "h0:p0", "-w", str(tmp_path / "c.pcapng"))
    left.stderr.readline()
    tiny.good("down")
    left.communicate(timeout=PATIENCE_S)
    assert left.returncode == 0
    assert read_pcapng((tmp_path / "c.pcapng").read_bytes()).taps[0].name == "h0:p0"


def test_a_capture_file_is_not_replaced_unasked(tiny, tmp_path):
    path = tmp_path / "a.pcapng"
    path.write_text("precious")
    done = tiny.mrcemu("capture", "h0:p0", "-w", str(path), "--duration", "1s")
    assert (done.returncode, path.read_text()) == (2, "precious")
    assert "exists already" in done.stderr


def test_exec_gives_output_and_exit_code_of_the_command(tiny):
    assert "up0" in tiny.exec("p0-t0-0", "ip", "-br", "link")
    assert tiny.mrcemu("exec", "h0", "--", "sh", "-c", "exit 7").returncode == 7
    assert tiny.mrcemu("exec", "h0", "--", "no-such-tool").returncode == 2


def test_a_shell_opens_in_the_node(tiny):
    done = tiny.mrcemu("shell", "p1-t1-0", input="ip -br link; exit 5\n")
    assert done.returncode == 5
    assert "dn1" in done.stdout


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["exec", "h9", "--", "true"], "h3"),
        (["link", "down", "p0-t0-0:p0-t1-7"], "p0-t0-0:p0-t1-1"),
        (["port", "down", "h3:p7"], "h3:p1"),
        (["switch", "down", "p0-t1-5"], "p0-t1-1"),
        (["capture", "h3:p7", "-w", "/tmp/never.pcapng"], "h3:p1"),
    ],
)
def test_a_target_that_does_not_exist_lists_the_nearest_and_changes_nothing(tiny, words, near):
    done = tiny.mrcemu(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert near in done.stderr
    assert done.stderr.count("\n") == 1
    assert down_links(tiny) == set()


def test_paths_of_the_standing_fabric(tiny):
    listed = json.loads(tiny.good("paths", "h0", "h3", "--json"))
    assert listed["count"] == 4


def test_a_taken_name_is_refused_and_the_first_fabric_unharmed(tiny):
    pid = keeper_pid(tiny)
    done = tiny.mrcemu("up", "tiny")
    assert (done.returncode, "already stands" in done.stderr) == (2, True)
    assert keeper_pid(tiny) == pid
    assert down_links(tiny) == set()


def test_two_fabrics_side_by_side_do_not_touch_each_other(clean):
    clean.good("up", "tiny", "--name", "one")
    clean.good("up", "tiny", "--name", "two")
    assert [item["name"] for item in clean.status()["fabrics"]] == ["one", "two"]
    unclear = clean.mrcemu("link", "down", LINK)
    assert (unclear.returncode, "several fabrics stand" in unclear.stderr) == (2, True)
    clean.good("link", "down", LINK, "--name", "two")
    assert link_states(clean, "one")[LINK] == "up"
    assert link_states(clean, "two")[LINK] == "down"
    indexes = [port["ifindex"] for name in ("one", "two") for port in clean.status(name)["ports"]]
    assert len(set(indexes)) == 64
    clean.good("down", "two")
    assert set(link_states(clean).values()) == {"up"}


def test_after_the_keeper_was_killed_down_removes_everything(clean):
    clean.good("up", "tiny")
    os.kill(keeper_pid(clean), signal.SIGKILL)
    fault = clean.mrcemu("link", "down", LINK)
    assert (fault.returncode, "keeper of tiny is not running" in fault.stderr) == (3, True)
    assert "mrcemu down tiny" in fault.stderr
    assert clean.mrcemu("status").returncode == 3
    clean.good("down")
    assert clean.left_behind() == NOTHING


def test_after_the_keeper_was_killed_up_works_at_once(clean):
    clean.good("up", "tiny")
    os.kill(keeper_pid(clean), signal.SIGKILL)
    done = clean.mrcemu("up", "tiny")
    assert done.returncode == 0
    assert "killed run" in done.stderr
    assert down_links(clean) == set()


def test_down_all_twice_leaves_nothing(clean):
    clean.good("up", "tiny", "--name", "one")
    clean.good("up", "tiny", "--name", "two")
    os.kill(keeper_pid(clean, "one"), signal.SIGKILL)
    assert clean.good("down", "--all") == "removed: one, two\n"
    assert clean.good("down", "--all") == "nothing stands\n"
    assert clean.left_behind() == NOTHING


def test_down_ends_what_still_runs_in_a_node(clean):
    clean.good("up", "tiny")
    sleeper = clean.start("exec", "h0", "--", "sleep", "60")
    assert eventually(lambda: Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n")
    clean.good("down")
    assert sleeper.wait(PATIENCE_S) != 0
    sleeper.communicate()
    assert clean.left_behind() == NOTHING


def test_a_topology_file_deleted_meanwhile_is_not_needed(clean, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(Path("topologies/tiny.yaml").read_text().replace("name: tiny", "name: mine"))
    clean.good("up", str(path))
    path.unlink()
    assert clean.status()["name"] == "mine"
    clean.good("link", "down", LINK)
    clean.good("down", "mine")
    assert clean.left_behind() == NOTHING


def test_ctrl_c_while_building_removes_everything(clean):
    up = clean.start("up", "eight-plane")
    assert eventually((clean.state_dir("eight-plane") / "journal.json").exists)
    up.send_signal(signal.SIGINT)
    assert up.wait(PATIENCE_S) == 130
    up.communicate()
    assert clean.left_behind() == NOTHING


def test_a_build_nobody_waits_for_any_more_is_removed(clean):
    up = clean.start("up", "eight-plane")
    assert eventually((clean.state_dir("eight-plane") / "journal.json").exists)
    up.kill()
    up.communicate()
    assert eventually(lambda: clean.left_behind() == NOTHING)


def test_a_keeper_killed_while_building_is_one_line_and_down_removes_the_rest(clean):
    up = clean.start("up", "eight-plane")
    journal = clean.state_dir("eight-plane") / "journal.json"
    assert eventually(journal.exists)
    os.kill(json.loads(journal.read_text())["owner"]["pid"], signal.SIGKILL)
    _, err = up.communicate(timeout=PATIENCE_S)
    assert up.returncode == 3
    assert err.splitlines()[-1].startswith("mrcemu: the keeper did not start")
    clean.good("down", "--all")
    assert clean.left_behind() == NOTHING


def test_the_mininet_prompt_and_a_second_terminal_share_one_fabric(clean):
    prompt = clean.start("mn", "tiny", stdin=subprocess.PIPE)
    assert eventually((clean.state_dir("tiny") / "keeper.sock").exists)
    prompt.stdin.write("link p0-t0-0 p0-t1-1 down\n")
    prompt.stdin.flush()
    assert eventually(lambda: down_links(clean) == {LINK})
    clean.good("link", "up", LINK)
    assert json.loads(clean.good("bw", "h0", "h3", "--iters", "20", "--json"))["corrupted_bytes"] == 0
    out, err = prompt.communicate("link p0-t0-0 p9 up\nh0 ip -br link\nexit\n", timeout=PATIENCE_S)
    assert prompt.returncode == 0
    assert "no node 'p9'" in err
    assert "p0@" in out + err
    assert clean.left_behind() == NOTHING


def test_down_ends_a_mininet_prompt_too(clean):
    prompt = clean.start("mn", "tiny", stdin=subprocess.PIPE)
    assert eventually((clean.state_dir("tiny") / "keeper.sock").exists)
    clean.good("down", "tiny")
    prompt.communicate(timeout=PATIENCE_S)
    assert clean.left_behind() == NOTHING
