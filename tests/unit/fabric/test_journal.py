"""Records on disk in a directory of the test's own: round trips, indexes, names. Needs no privileges."""

import json
import os
import subprocess
import sys
import time

import pytest

from mrcemu.errors import UsageError
from mrcemu.fabric import journal, namespaces, processes
from mrcemu.fabric.plan import plan
from mrcemu.topology.model import QueueSpec, Topology, TrimmingSpec

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)
ODD = Topology(
    "odd", 1, 1, 1, 1, 10, 20, 1, 1024, link_delay_ns=7, queue=QueueSpec(1, 2, 3, 4, 5),
    trimming=TrimmingSpec(enabled=False, size_bytes=96), srv6_block="fc00:1::/32",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _own_directories(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "RUN_DIR", tmp_path / "run")
    monkeypatch.setattr(namespaces, "NETNS_DIR", tmp_path / "netns")
    monkeypatch.setattr(namespaces, "prepare_directory", lambda: False)


@pytest.mark.parametrize("topology", [TINY, ODD])
def test_a_recorded_topology_comes_back_whole(topology):
    made = journal.create(topology, "x", topology_text="text")
    found = journal.open_existing("x")
    assert found.plan == made.plan
    assert found.plan.topology == topology
    assert found.topology_text == "text"


def test_standing_fabrics_never_share_an_index():
    plans = [journal.create(TINY, name).plan for name in ("a", "b", "c")]
    taken = [ifindex for planned in plans for ifindex in planned.ports_by_ifindex]
    assert len(set(taken)) == len(taken)
    assert min(taken) == journal.FIRST_IFINDEX


def test_the_indexes_of_a_removed_fabric_are_used_again():
    bases = [journal.create(TINY, name).plan.ifindex_base for name in ("a", "b", "c")]
    journal.remove(journal.open_existing("b"))
    assert journal.create(TINY, "d").plan.ifindex_base == bases[1]
    assert journal.create(TINY, "e").plan.ifindex_base > bases[2]


def test_more_ports_than_indexes_are_refused(monkeypatch):
    monkeypatch.setattr(journal, "LAST_IFINDEX", journal.FIRST_IFINDEX + 40)
    journal.create(TINY, "a")
    with pytest.raises(UsageError, match="do not fit"):
        journal.create(TINY, "b")
    assert [standing.name for standing in journal.list_standing()] == ["a"]


def test_an_unknown_name_is_refused_with_those_that_stand():
    journal.create(TINY, "one")
    with pytest.raises(UsageError, match="standing: one"):
        journal.open_existing("two")


@pytest.mark.parametrize("name", ["../one", "", "a/b", "."])
def test_a_name_cannot_lead_out_of_the_directory(name):
    for call in (journal.open_existing, journal.down):
        with pytest.raises(UsageError):
            call(name)


def test_nothing_stands_where_there_is_no_directory():
    assert journal.list_standing() == []
    assert journal.down_all() == []


def test_a_record_is_written_before_anything_is_made_and_replaced_whole():
    made = journal.create(TINY, "x")
    made.set_owner(processes.ProcessId(1, 2))
    assert sorted(path.name for path in made.directory.iterdir()) == ["journal.json"]
    record = json.loads((made.directory / "journal.json").read_text())
    assert record["owner"] == {"pid": 1, "start_ticks": 2}


def test_recorded_processes_come_back_in_order():
    made = journal.create(TINY, "x")
    assert made.recorded_processes() == []
    made.add_process(os.getpid())
    made.add_process(2**22 + 1)  # never runs
    assert journal.open_existing("x").recorded_processes() == [processes.own_process_id()]


def test_a_dead_owner_is_seen_as_dead_even_if_its_number_is_in_use():
    made = journal.create(TINY, "x")
    assert journal.list_standing()[0].owner_alive
    made.set_owner(processes.ProcessId(os.getpid(), 1))
    assert not journal.list_standing()[0].owner_alive


def test_a_directory_that_a_killed_run_left_without_a_record_is_taken_over():
    (journal.RUN_DIR / "x").mkdir(parents=True)
    assert journal.create(TINY, "x").plan.fabric == "x"


def test_removal_needs_no_plan(monkeypatch):
    removed = []
    monkeypatch.setattr(journal, "undo", lambda names, _: removed.extend(names))
    made = journal.create(TINY, "x")
    made.record["topology"] = {"name": "of another version"}
    journal._write_record(made.directory, made.record)
    made.set_owner(processes.ProcessId(os.getpid(), 1))
    journal.down("x")
    assert removed == list(plan(TINY, "x", 1000).namespaces.values())
    assert journal.list_standing() == []


def test_a_directory_without_a_record_is_not_a_fabric():
    journal.create(TINY, "x")
    (journal.RUN_DIR / "stray").mkdir()
    assert [standing.name for standing in journal.list_standing()] == ["x"]


def test_only_the_recorded_process_is_ended():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        right = processes.process_id(sleeper.pid)
        processes.end([processes.ProcessId(right.pid, right.start_ticks + 1)])
        assert sleeper.poll() is None
        processes.end([right])
        assert sleeper.wait(5) == -15
        assert not right.alive
        processes.end([right])
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_that_ignores_the_polite_signal_is_killed_after_the_grace():
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(100)"
    sleeper = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert sleeper.stdout.readline() == b"deaf\n"
        begun = time.monotonic()
        processes.end([processes.process_id(sleeper.pid)], grace_s=0.2)
        assert sleeper.wait(5) == -9
        assert 0.2 <= time.monotonic() - begun < 2
    finally:
        sleeper.kill()
        sleeper.wait()
        sleeper.stdout.close()


def test_ending_processes_never_ends_oneself():
    processes.end([processes.own_process_id()])
