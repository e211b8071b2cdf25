"""Processes named so that a reused pid is never mistaken for them: pid and start time.

Owns /proc/PID and pidfds. Refuses names and patterns: nothing is ever ended because of what it is called.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

# How long a process may take to clean up after SIGTERM before it is killed; a keeper tears a fabric down in 0.1 s.
GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process beyond doubt: pid and start time in clock ticks since boot (field 22 of /proc/PID/stat)."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Still running; a zombie is not."""
        return process_id(self.pid) == self


def process_id(pid: int) -> ProcessId | None:
    """The identity of a running process, None if there is none or only a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]))


def own_process_id() -> ProcessId:
    found = process_id(os.getpid())
    assert found is not None  # this very process runs
    return found


def end(processes: Iterable[ProcessId], grace_s: float = GRACE_S) -> None:
    """SIGTERM, wait for at most `grace_s` in all, SIGKILL; the calling process is never among them."""
    held = [(process, _pidfd(process)) for process in processes if process.pid != os.getpid()]
    fds = [fd for _, fd in held if fd is not None]
    try:
        _signal(fds, signal.SIGTERM)
        _signal(_still_running(fds, grace_s), signal.SIGKILL)
        _still_running(fds, grace_s)
    finally:
        for fd in fds:
            os.close(fd)


def _pidfd(process: ProcessId) -> int | None:
    """A descriptor of exactly this process: opened first, identity checked after, so no other can slip in."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.alive:
        return fd
    os.close(fd)
    return None


def _signal(fds: Iterable[int], number: signal.Signals) -> None:
    for fd in fds:
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            continue


def _still_running(fds: list[int], wait_s: float) -> list[int]:
    """Descriptors whose process has not ended within `wait_s`."""
    deadline = time.monotonic() + wait_s
    running = list(fds)
    while running and (left := deadline - time.monotonic()) > 0:
        ended, _, _ = select.select(running, [], [], left)
        running = [fd for fd in running if fd not in ended]
    return running


def inside_namespaces(inodes: Iterable[int]) -> list[ProcessId]:
    """Processes whose network namespace is one of these (by inode): shells and tools someone left in a node."""
    wanted = set(inodes)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            inode = os.stat(f"/proc/{entry}/ns/net").st_ino
        except OSError:
            continue  # gone meanwhile, or a kernel thread
        if inode in wanted and (process := process_id(int(entry))) is not None:
            found.append(process)
    return found
