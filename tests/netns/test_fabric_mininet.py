"""The fabric as Mininet users know it: nodes, commands, links, and the prompt itself."""

import io
import os
import time

import fabric_support as kit
import pytest
from mininet.cli import CLI
from mininet.log import lg
from mininet.node import Node

from mrcemu.errors import UsageError
from mrcemu.fabric.net import MrcNet

pytestmark = pytest.mark.netns


@pytest.fixture(scope="module")
def net():
    with MrcNet(kit.TINY, kit.fabric_name("mn")) as built:
        yield built


def prompt(net, tmp_path, *lines):
    """What Mininet's prompt prints for some lines."""
    script = tmp_path / "script"
    script.write_text("".join(f"{line}\n" for line in lines))
    printed = io.StringIO()
    handler = lg.handlers[0]
    previous = handler.setStream(printed)
    try:
        with open(os.devnull, encoding="ascii") as nothing:
            CLI(net, stdin=nothing, script=str(script))
    finally:
        handler.setStream(previous)
    return printed.getvalue()


def test_building_starts_no_process(net):
    with MrcNet(kit.SMALLEST, kit.fabric_name("shells")) as other:
        assert all(node.shell is None for node in other.values())
        assert other.journal.recorded_processes() == []


def test_a_command_runs_in_its_node(net):
    assert "p1@" in net["h3"].cmd("ip -o link show p1")
    assert net["h3"].cmd("ip -o link show up0").startswith("Device")
    assert "up1@" in net.get("p1-t0-0").cmd("ip -o link show up1")
    assert net["h3"].cmd("cd /tmp && pwd").strip() == "/tmp"
    assert net["h3"].cmd("pwd").strip() == "/tmp"  # one shell, kept


def test_only_nodes_that_were_used_have_a_shell_and_it_is_recorded(net):
    net["h0"].cmd("true")
    assert net["h2"].shell is None
    assert net["h0"].pid in {process.pid for process in net.journal.recorded_processes()}


def test_popen_and_pexec_need_no_shell(net):
    out, err, code = net["h2"].pexec("cat /sys/class/net/lo/ifindex")
    assert (out, err, code) == ("1\n", "", 0)
    assert net["h2"].shell is None
    out, _, code = net["h2"].pexec(["ip", "-o", "link", "show", "p0"])
    assert "p0@" in out


def test_a_process_id_starts_the_shell_it_belongs_to(net):
    pid = net["p0-t1-1"].pid
    mine = os.stat(f"/proc/{pid}/ns/net").st_ino
    assert mine == os.stat(net.netns_path("p0-t1-1")).st_ino


def test_nodes_and_links_are_those_of_the_topology(net):
    assert sorted(net) == sorted(kit.TINY.nodes)
    assert [link.name for link in net.links] == [link.name for link in kit.TINY.links]
    assert net["h0"].intfNames() == ["p0", "p1"]
    assert net["h0"].intf("p1").MAC() == net.port_mac(kit.TINY.nic_link(0, 1).lower).hex(":")
    assert "02:4d:" in net["h0"].cmd("cat /sys/class/net/p1/address")


def test_the_prompt_lists_nodes_and_links(net, tmp_path):
    printed = prompt(net, tmp_path, "nodes", "links", "net", "dump", "intfs", "ports")
    assert "p1-t1-1" in printed
    assert "p0-t0-0-up1<->p0-t1-1-dn0 (OK OK)" in printed
    assert "h0-p0<->p0-t0-0-dn0 (OK OK)" in printed
    assert "<MrcHost h2: p0,p1 pid=None>" in printed


def test_the_prompt_runs_commands_in_nodes(net, tmp_path):
    assert "p0@" in prompt(net, tmp_path, "h1 ip -o link show p0")


def test_links_taken_down_at_the_prompt_are_faults_like_any_other(net, tmp_path):
    before = net.tables()
    printed = prompt(net, tmp_path, "link p0-t0-0 p0-t1-1 down", "links")
    assert "p0-t0-0-up1<->p0-t1-1-dn0 (DOWN DOWN)" in printed
    assert net.faults.links_down() == ["p0-t0-0:p0-t1-1"]
    prompt(net, tmp_path, "link p0-t1-1 p0-t0-0 up", "link h0 p1-t0-0 down", "link h0 p1-t0-0 up")
    assert net.tables() == before


def test_a_switch_stopped_and_started_at_the_prompt_is_whole_again(net, tmp_path):
    before = net.tables()
    prompt(net, tmp_path, "switch p0-t1-0 stop")
    assert not any(net.counters_of("p0-t1-0")[f"p0-t1-0:dn{t0}"].admin_up for t0 in range(2))
    prompt(net, tmp_path, "switch p0-t1-0 start")
    assert net.tables() == before


def test_a_link_that_does_not_exist_is_named(net):
    with pytest.raises(UsageError, match="h0 and h1 are not connected"):
        net.configLinkStatus("h0", "h1", "down")
    with pytest.raises(UsageError, match="no node 'h9'"):
        net.configLinkStatus("h9", "h1", "down")


def test_a_shell_that_ignores_hang_ups_does_not_hold_up_the_end():
    with MrcNet(kit.SMALLEST, kit.fabric_name("deaf")) as net:
        shell = net["h0"]
        shell.cmd("trap '' HUP TERM")
        shell.sendCmd("sleep 1000")
        process = shell.shell
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    assert process.returncode is not None
    assert shell not in [*Node.inToNode.values(), *Node.outToNode.values()]


def test_before_building_and_after_stopping_there_is_nothing_to_ask():
    net = MrcNet(kit.SMALLEST, kit.fabric_name("unbuilt"))
    with pytest.raises(UsageError, match="not built"):
        net.counters()
    net.build()
    net.stop()
    with pytest.raises(UsageError, match="not built"):
        net.netns_path("h0")
    net.build()  # and again
    net.stop()
