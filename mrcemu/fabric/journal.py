"""What stands, on disk: /run/mrcemu/NAME/ records a fabric before it is made, so that it can always be removed.

Owns the state directory, the lock over it, and the choice of interface indexes. `down` removes what a record names and
nothing else, whether its owner still runs, was killed, or its topology file is long gone. Refuses the kernel objects
themselves: `apply.undo` unmakes them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mrcemu.errors import UnfitEnvironmentError, UsageError
from mrcemu.fabric import namespaces, processes
from mrcemu.fabric.apply import undo
from mrcemu.fabric.plan import Plan, check_fabric_name, plan
from mrcemu.fabric.processes import ProcessId
from mrcemu.topology.model import QueueSpec, Topology, TrimmingSpec

RUN_DIR = Path("/run/mrcemu")
_RECORD = "journal.json"
_PROCESSES = "processes"
_OWNS_MOUNT = ".netns-mount"
# Interface indexes of all standing fabrics come from this range: above any host interface, below 65,536 so that a
# table indexed by interface stays small.
FIRST_IFINDEX, LAST_IFINDEX = 1000, 65535


@dataclass(frozen=True, slots=True)
class Standing:
    """One recorded fabric as `status` lists it."""

    name: str
    topology: str
    owner: ProcessId
    owner_alive: bool
    created_unix_s: float
    directory: Path


class Journal:
    """The record of one fabric. Make it with `create`, find it with `open_existing`."""

    def __init__(self, directory: Path, record: dict[str, Any]) -> None:
        self.directory = directory
        self.record = record

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def owner(self) -> ProcessId:
        """The process that holds the fabric (the keeper, or whoever built it)."""
        return ProcessId(**self.record["owner"])

    @property
    def topology_text(self) -> str:
        """The topology file as it was when the fabric was built; empty if it was not built from a file."""
        return str(self.record["topology_text"])

    @cached_property
    def plan(self) -> Plan:
        """The plan the fabric was built from, from the record alone."""
        return plan(topology_from_dict(self.record["topology"]), self.name, self.record["ifindex_base"])

    @property
    def namespaces(self) -> list[str]:
        """The names to be removed, recorded as such: removal must not depend on planning the same way as then."""
        return list(self.record["namespaces"])

    def set_owner(self, owner: ProcessId) -> None:
        """Record another process as the owner, e.g. after a fork."""
        self.record["owner"] = asdict(owner)
        _write_record(self.directory, self.record)

    def add_process(self, pid: int) -> None:
        """Record a process that `down` has to end: a shell, a worker. It must be running.

        Not synced to the disk: a record has to survive the death of processes, not of the machine.
        """
        process = processes.process_id(pid)
        if process is not None:
            with open(self.directory / _PROCESSES, "a", encoding="ascii") as file:
                file.write(f"{process.pid} {process.start_ticks}\n")

    def recorded_processes(self) -> list[ProcessId]:
        """Everything recorded beside the owner, running or not."""
        try:
            lines = (self.directory / _PROCESSES).read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []
        return [ProcessId(*map(int, line.split())) for line in lines]


def create(topology: Topology, name: str, topology_text: str = "") -> Journal:
    """Record a fabric that is about to be made, with interface indexes of its own.

    UsageError if a fabric of this name stands, or if namespaces of its names exist that no record of ours names.
    """
    check_fabric_name(name)
    with locked():
        directory = RUN_DIR / name
        if (directory / _RECORD).exists():
            raise UsageError(f"a fabric named {name!r} already stands; `mrcemu down {name}` removes it")
        base = _free_ifindex_base(2 * len(topology.links))
        planned = plan(topology, name, base)
        _refuse_foreign_namespaces(planned)
        record = {
            "name": name,
            "created_unix_s": time.time(),
            "owner": asdict(processes.own_process_id()),
            "ifindex_base": base,
            "ifindex_count": planned.ifindex_count,
            "namespaces": list(planned.namespaces.values()),
            "topology": asdict(topology),
            "topology_text": topology_text,
        }
        directory.mkdir(mode=0o755, exist_ok=True)  # a killed run may have left it without a record
        try:
            _write_record(directory, record)
            if namespaces.prepare_directory():
                (RUN_DIR / _OWNS_MOUNT).touch()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    return Journal(directory, record)


def open_existing(name: str) -> Journal:
    """The record of a standing fabric; UsageError lists the names that stand."""
    with suppress(FileNotFoundError):
        check_fabric_name(name)
        return Journal(RUN_DIR / name, _read_record(RUN_DIR / name))
    names = _recorded_names()
    raise UsageError(f"no fabric named {name!r} stands" + (f"; standing: {', '.join(names)}" if names else ""))


def list_standing() -> list[Standing]:
    """Every recorded fabric, by name."""
    found = []
    for name in _recorded_names():
        with suppress(FileNotFoundError):  # removed meanwhile
            journal = Journal(RUN_DIR / name, _read_record(RUN_DIR / name))
            topology, created = journal.record["topology"]["name"], journal.record["created_unix_s"]
            found.append(Standing(name, topology, journal.owner, journal.owner.alive, created, journal.directory))
    return found


def remove(journal: Journal) -> None:
    """Forget a fabric whose kernel objects are gone, and the directories nothing needs any more."""
    with locked():
        shutil.rmtree(journal.directory, ignore_errors=True)
        if not _recorded_names():
            _remove_shared_state()


def down(name: str) -> None:
    """Remove a fabric by its record: end its owner and processes, unmake it, forget it. UsageError if none stands."""
    journal = open_existing(name)
    processes.end([journal.owner])
    undo(journal.namespaces, journal.recorded_processes())  # nothing to do where its owner has cleaned up itself
    remove(journal)


def down_all() -> list[str]:
    """Remove every recorded fabric, also what killed runs left behind; returns the names."""
    names = _recorded_names()
    for name in names:
        with suppress(UsageError):  # removed meanwhile by someone else
            down(name)
    return names


@contextmanager
def locked() -> Iterator[None]:
    """The one lock over the state directory; waits for whoever holds it."""
    try:
        RUN_DIR.mkdir(mode=0o755, exist_ok=True)
        fd = os.open(RUN_DIR / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError as error:
        raise UnfitEnvironmentError(f"cannot write {RUN_DIR}", "run as root (sudo)", error.errno) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def topology_from_dict(record: dict[str, Any]) -> Topology:
    """The reverse of `dataclasses.asdict` on a `Topology`."""
    values = dict(record)
    values["queue"] = QueueSpec(**values["queue"]) if values["queue"] else None
    values["trimming"] = TrimmingSpec(**values["trimming"])
    return Topology(**values)


def _recorded_names() -> list[str]:
    try:
        return sorted(entry.name for entry in RUN_DIR.iterdir() if (entry / _RECORD).exists())
    except FileNotFoundError:
        return []


def _read_record(directory: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
    return record


def _write_record(directory: Path, record: dict[str, Any]) -> None:
    """Whole or not at all, and on the disk before this returns."""
    draft = directory / (_RECORD + ".new")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / _RECORD)


def _refuse_foreign_namespaces(planned: Plan) -> None:
    taken = [name for name in planned.namespaces.values() if os.path.lexists(namespaces.path_of(name))]
    if taken:
        raise UsageError(
            f"{namespaces.path_of(taken[0])} exists and no recorded fabric owns it; choose another fabric name"
        )


def _free_ifindex_base(count: int) -> int:
    """The lowest run of `count` indexes that no standing fabric has."""
    records = [_read_record(RUN_DIR / name) for name in _recorded_names()]
    taken = sorted((record["ifindex_base"], record["ifindex_base"] + record["ifindex_count"]) for record in records)
    base = FIRST_IFINDEX
    for start, end in taken:
        if base + count <= start:
            break
        base = max(base, end)
    if base + count - 1 > LAST_IFINDEX:
        raise UsageError(f"{count} ports do not fit beside the standing fabrics; remove one with `mrcemu down`")
    return base


def _remove_shared_state() -> None:
    """Nothing stands: take back the mount on /run/netns if we made it, and our own directory."""
    if (RUN_DIR / _OWNS_MOUNT).exists():
        namespaces.release_directory()
        (RUN_DIR / _OWNS_MOUNT).unlink()
    # The lock file stays: unlinking it would let two holders lock different files.
