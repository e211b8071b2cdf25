"""A fabric from the machine's point of view: nothing is left behind, nothing foreign is touched, whatever happens."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import fabric_support as kit
import pytest

from mrcemu.errors import UnfitEnvironmentError, UsageError
from mrcemu.fabric import apply, journal, namespaces, processes
from mrcemu.fabric.net import MrcNet
from mrcemu.topology.addressing import all_paths

pytestmark = pytest.mark.netns

HOLDER = """
import sys, time
from mrcemu.fabric.net import MrcNet
from mrcemu.topology.model import Topology
net = MrcNet(Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096), sys.argv[1])
net.build(progress=(lambda *_: time.sleep(0.01)) if "slowly" in sys.argv else None)
net["h0"].cmd("sleep 1000 &")
net["h1"].popen("sleep 1000")
print("built", flush=True)
time.sleep(1000)
"""


def own_names(name):
    """Everything of a fabric that can be seen: names, mounts, state, processes in its nodes."""
    mounts = Path("/proc/self/mountinfo").read_text()
    listed = os.listdir(namespaces.NETNS_DIR) if namespaces.NETNS_DIR.exists() else []
    return {
        "names": [entry for entry in listed if entry.startswith(f"mrc-{name}-")],
        "mounts": [line for line in mounts.splitlines() if f"/run/netns/mrc-{name}-" in line],
        "state": (journal.RUN_DIR / name).exists(),
    }


NOTHING = {"names": [], "mounts": [], "state": False}


def links_of(net):
    return {node: net[node].pexec("ip -o link")[0] for node in net.topology.nodes}


@pytest.fixture
def holder():
    """Start a process that builds a fabric and holds it; ended whatever happens."""
    started = []

    def start(name, *arguments):
        command = [sys.executable, "-c", HOLDER, name, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append((process, name))
        return process

    yield start
    for process, name in started:
        process.kill()
        process.wait()
        process.stdout.close()
        if (journal.RUN_DIR / name).exists():
            journal.down(name)


def test_fifty_cycles_leave_descriptors_names_mounts_and_processes_flat():
    name = kit.fabric_name("fifty")

    def cycle():
        with MrcNet(kit.SMALLEST, name) as net:
            net["h0"].cmd("true")

    cycle()
    before = set(os.listdir("/proc/self/fd")), children()
    for _ in range(50):
        cycle()
    assert (set(os.listdir("/proc/self/fd")), children()) == before
    assert own_names(name) == NOTHING


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_the_kernel_forgets_a_removed_fabric():
    """Namespaces die some time after their names; the count is approximate and shared, a leak of 240 is not."""
    before = kernel_namespaces()
    for _ in range(20):
        with MrcNet(kit.TINY, kit.fabric_name("gone")):
            pass
    assert kit.wait_until(lambda: kernel_namespaces() < before + 120, 20)


def kernel_namespaces():
    with open("/proc/slabinfo", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("net_namespace"))


def test_what_a_killed_holder_leaves_is_removed_by_its_record(holder):
    name = kit.fabric_name("killed")
    process = holder(name)
    assert process.stdout.readline() == b"built\n"
    record = journal.open_existing(name)
    inodes = [namespaces.inode_of(ns) for ns in record.plan.namespaces.values()]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert [standing.owner_alive for standing in journal.list_standing() if standing.name == name] == [False]
    left = processes.inside_namespaces(inodes)
    assert left  # at least the sleeper without a terminal outlives the holder
    journal.down(name)
    assert own_names(name) == NOTHING
    assert kit.wait_until(lambda: not any(process.alive for process in left))
    with pytest.raises(UsageError):
        journal.down(name)
    with MrcNet(kit.TINY, name):  # and the name is free at once
        pass


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.15, 0.2])
def test_a_holder_killed_in_the_middle_of_building_is_cleaned_up(holder, after_s):
    name = kit.fabric_name("half")
    process = holder(name, "slowly")
    assert kit.wait_until((journal.RUN_DIR / name / "journal.json").exists, 10)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    journal.down(name)
    assert own_names(name) == NOTHING


def test_down_ends_a_living_holder_too(holder):
    name = kit.fabric_name("alive")
    process = holder(name)
    assert process.stdout.readline() == b"built\n"
    journal.down(name)
    assert process.wait(5) == -signal.SIGTERM
    assert own_names(name) == NOTHING


def test_stacked_mounts_are_unmounted_until_none_is_left():
    name = kit.fabric_name("stack")
    net = MrcNet(kit.SMALLEST, name)
    net.build()
    for _ in range(3):
        path = net.netns_path("h0")
        subprocess.run(["mount", "--bind", path, path], check=True)
    net.stop()
    assert own_names(name) == NOTHING


def test_a_lost_record_of_processes_and_half_removed_names_do_not_stop_down():
    name = kit.fabric_name("torn")
    net = MrcNet(kit.TINY, name)
    net.build()
    namespaces.remove(net.plan.namespaces["h1"])
    (net.journal.directory / "processes").unlink(missing_ok=True)
    net.stop()
    net.stop()
    assert own_names(name) == NOTHING


def test_two_fabrics_stand_side_by_side_and_do_not_hear_each_other():
    first, second = (MrcNet(kit.TINY, kit.fabric_name(which)) for which in ("one", "two"))
    with first, second, kit.host_ports(first) as here, kit.host_ports(second) as there:
        assert not set(first.plan.ports_by_ifindex) & set(second.plan.ports_by_ifindex)
        path = all_paths(kit.TINY, 0, 3)[0]
        kit.send(here, first, 0, 0, path.destination, b"only here")
        assert [key for key, _ in kit.received(here, b"only here")] == [(3, 0)]
        assert kit.received(there, b"only here", 0.05, at_least=0) == []
        before = second.tables()
        first.faults.switch_down("p0-t0-0")
        assert second.handle_event(second.event_fds()[0]) == []
        first["p0-t1-0"].cmd("ip link set dn0 down; ip link set dn0 up")
        assert second.handle_event(second.event_fds()[0]) == []
        assert second.tables() == before
        first.stop()
        assert all(port.oper_up for port in second.counters().values())
        assert second.tables() == before


def test_foreign_namespaces_links_and_processes_of_similar_names_survive():
    name = kit.fabric_name("near")
    foreign = f"mrc-{name}-h99"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    sleeper = subprocess.Popen(["ip", "netns", "exec", foreign, "sleep", "1000"])
    try:
        with MrcNet(kit.TINY, name):
            pass
        assert os.path.exists(namespaces.path_of(foreign))
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_a_foreign_namespace_in_the_way_is_refused_and_untouched():
    name = kit.fabric_name("taken")
    foreign = f"mrc-{name}-p0-t0-0"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        with pytest.raises(UsageError, match=foreign):
            MrcNet(kit.SMALLEST, name).build()
        assert own_names(name)["names"] == [foreign]
        assert not own_names(name)["state"]
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_a_name_that_stands_is_refused_and_the_fabric_unharmed():
    name = kit.fabric_name("twice")
    with MrcNet(kit.SMALLEST, name) as net:
        with pytest.raises(UsageError, match="already stands"):
            MrcNet(kit.TINY, name).build()
        assert all(port.oper_up for port in net.counters().values())
        with pytest.raises(UsageError, match="already built"):
            net.build()


@pytest.mark.parametrize("stage", ["_make_veths", "_settle", "verify"])
@pytest.mark.parametrize("error", [UnfitEnvironmentError("a test", "none"), KeyboardInterrupt()])
def test_a_failure_while_building_leaves_nothing(monkeypatch, stage, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(apply, stage, fail)
    name, before = kit.fabric_name("fails"), len(os.listdir("/proc/self/fd"))
    with pytest.raises(type(error)):
        MrcNet(kit.TINY, name).build()
    assert own_names(name) == NOTHING
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_kernels_refusal_names_the_operation(monkeypatch):
    monkeypatch.setattr(apply.encode, "veth", lambda *_: apply.encode.link_flags(99_999_999, True))
    with pytest.raises(UnfitEnvironmentError, match="CreateVeth h0:p0: No such device") as caught:
        MrcNet(kit.SMALLEST, kit.fabric_name("refused")).build()
    assert caught.value.errno == 19


def test_the_record_outlives_the_topology_file_and_knows_the_plan():
    name = kit.fabric_name("record")
    net = MrcNet(kit.TINY, name, topology_text="name: tiny\n")
    net.build()
    try:
        found = journal.open_existing(name)
        assert found.topology_text == "name: tiny\n"
        assert found.plan == net.plan
        assert found.owner.pid == os.getpid()
        [standing] = [entry for entry in journal.list_standing() if entry.name == name]
        assert (standing.topology, standing.owner_alive) == ("tiny", True)
    finally:
        net.stop()


def test_too_few_descriptors_are_refused_by_name():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from mrcemu.fabric.apply import check_fits\n"
        "from mrcemu.fabric.plan import Needs\n"
        "check_fits(Needs(0, 0, 224))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "open files, the limit is 64; fix: ulimit -n" in done.stderr


def test_a_low_soft_limit_of_descriptors_is_raised():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 4096))\n"
        "import sys; sys.path.insert(0, sys.argv[1]); import fabric_support as kit\n"
        "from mrcemu.fabric.net import MrcNet\n"
        "with MrcNet(kit.TINY, kit.fabric_name('few')) as net: print(len(net.counters()))\n"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(2 * len(kit.TINY.links)), done.stderr


def test_more_memory_than_the_machine_has_is_refused_before_anything_exists():
    huge = kit.Topology("huge", 16, 64, 64, 64, kit.RATE, kit.RATE, 4000, 4096)
    with pytest.raises((UnfitEnvironmentError, UsageError), match=r"memory|fit"):
        MrcNet(huge, kit.fabric_name("huge")).build()
    assert own_names(kit.fabric_name("huge")) == NOTHING


def test_more_permanent_neighbours_than_the_tables_ceiling_are_held():
    many = kit.Topology("many", 16, 4, 8, 2, kit.RATE, kit.RATE, 4000, 4096)
    ceiling = int(Path("/proc/sys/net/ipv6/neigh/default/gc_thresh3").read_text())
    with MrcNet(many, kit.fabric_name("many")) as net:
        assert all(port.oper_up for port in net.counters().values())
        held = sum(len(tables.neighbours) for tables in net.tables().values())
        assert held == net.plan.needs.neighbours == 16 * (8 + 2 * 4 * 8)
    if held <= ceiling:
        pytest.skip(f"this machine's ceiling is {ceiling}: nothing to show")


def test_progress_is_reported_and_ends_at_the_whole():
    steps = []
    net = MrcNet(kit.TINY, kit.fabric_name("steps"))
    net.build(progress=lambda done, total, what: steps.append((what, done, total)))
    net.stop()
    last = {what: (done, total) for what, done, total in steps}
    assert last == {
        "namespaces": (12, 12), "links": (16, 16), "ports, queues and routes": (12, 12),
    }  # fmt: skip


EMPTY_RUN = 'umount -R /run/netns 2>/dev/null; mount -t tmpfs run /run && exec "$@"'
PRIVATE_RUN = ["unshare", "--mount", "--propagation", "private", "sh", "-c", EMPTY_RUN, "sh"]
COUNT_MOUNTS = """
import sys; sys.path.insert(0, sys.argv[1]); import fabric_support as kit
from mrcemu.fabric.net import MrcNet
def count():
    print(sum(line.split()[4] == "/run/netns" for line in open("/proc/self/mountinfo")), end=" ")
count()
with MrcNet(kit.SMALLEST, "first"):
    count()
    with MrcNet(kit.SMALLEST, "second"):
        count()
    count()
count()
"""


def test_the_mount_on_run_netns_is_taken_back_with_the_last_fabric():
    """In a mount namespace with an empty /run, as after boot."""
    command = [*PRIVATE_RUN, sys.executable, "-c", COUNT_MOUNTS, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "1", "1", "1", "0"], done.stderr


TWO_KILLED = """
import os, sys; sys.path.insert(0, sys.argv[1]); import fabric_support as kit
from mrcemu.fabric.net import MrcNet
first, second = MrcNet(kit.SMALLEST, "first"), MrcNet(kit.TINY, "second")
first.build(); second.build()
os.kill(os.getpid(), 9)
"""
DOWN_ALL = """
import os
from mrcemu.fabric import journal
print([standing.owner_alive for standing in journal.list_standing()], journal.down_all(), journal.down_all())
print(os.listdir("/run/netns"), os.listdir("/run/mrcemu"))
print([line for line in open("/proc/self/mountinfo") if "/run/netns" in line])
"""


def test_down_all_clears_what_killed_runs_left_and_may_be_repeated():
    script = 'python=$1 tests=$2; "$python" -c "$3" "$tests"; "$python" -c "$4"'
    command = [*PRIVATE_RUN, "sh", "-c", script, "sh", sys.executable, str(Path(__file__).parent), TWO_KILLED, DOWN_ALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "[False, False] ['first', 'second'] []", "[] ['.lock']", "[]",
    ], done.stderr  # fmt: skip


def test_without_root_one_line_says_so():
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import fabric_support as kit\n"
        "from mrcemu.errors import UnfitEnvironmentError\n"
        "from mrcemu.fabric.net import MrcNet\n"
        "os.seteuid(65534)\n"
        "try: MrcNet(kit.SMALLEST, 'user').build()\n"
        "except UnfitEnvironmentError as error: print(error.exit_code, error)\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "3 building a fabric needs root; fix: sudo\n", done.stderr


def test_a_foreign_namespace_keeps_the_mount_on_run_netns():
    foreign = kit.fabric_name("foreign")
    with MrcNet(kit.SMALLEST, kit.fabric_name("under")):
        subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        subprocess.run(["ip", "netns", "exec", foreign, "true"], check=True)
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_watching_costs_one_descriptor_and_no_name_in_the_hosts_namespace():
    before = subprocess.run(["ip", "netns", "list-id"], capture_output=True, text=True, check=True).stdout
    with MrcNet(kit.TINY, kit.fabric_name("ids")) as net:
        assert len(net.event_fds()) == 1
        assert select.select(net.event_fds(), [], [], 0)[0] == []
        now = subprocess.run(["ip", "netns", "list-id"], capture_output=True, text=True, check=True).stdout
    assert now == before
