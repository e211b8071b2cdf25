"""Makes a plan real through netlink, reads it back, and unmakes it by its record.

`apply` returns the open sockets (`Nodes`) through which faults, counters and tables work later. `undo` needs nothing
but a journal, may run after any kind of death, any number of times. Refuses decisions: what to build is in `plan.py`.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import encode, namespaces, ops, processes
from mrcemu.fabric.netlink import BATCH, NetlinkSocket
from mrcemu.fabric.nodes import Nodes, raise_first
from mrcemu.fabric.plan import Needs, Plan
from mrcemu.fabric.processes import ProcessId
from mrcemu.fabric.verify import verify

# Called with (done, total, what) as building goes on.
Progress = Callable[[int, int, str], None]

# Free memory to leave to everything else when deciding whether a fabric fits.
RESERVE_BYTES = 256 << 20


def apply(planned: Plan, progress: Progress | None = None) -> Nodes:
    """Build everything a plan holds. Record it first (`journal.create`); on any error undo by that record.

    UnfitEnvironmentError if the machine cannot hold it, a feature is missing, or what is read back differs.
    """
    check_fits(planned.needs)
    report = progress or (lambda done, total, what: None)
    nodes = Nodes()
    try:
        _make_namespaces(planned, nodes, report)
        _make_veths(planned, report)
        for number, (node, operations) in enumerate(planned.node_ops.items(), 1):
            nodes.run(node, operations)
            report(number, len(planned.node_ops), "ports, queues and routes")
        _settle(planned, nodes)
        verify(planned, nodes)
    except BaseException:
        nodes.close()
        raise
    return nodes


def undo(names: Sequence[str], recorded: Iterable[ProcessId] = ()) -> None:
    """Unmake a fabric: recorded processes, those in its namespaces, then the namespaces with all links. Idempotent."""
    inodes = [inode for name in names if (inode := namespaces.inode_of(name)) is not None]
    processes.end({*recorded, *processes.inside_namespaces(inodes)}, grace_s=1.0)
    for name in names:
        namespaces.remove(name)


def check_fits(needs: Needs) -> None:
    """UnfitEnvironmentError if memory or the descriptor limit is too small.

    The neighbour table needs no check: its ceiling (gc_thresh3, 1,024) has left permanent entries out since Linux 5.0;
    2,048 of them were held under it (tests/netns/test_fabric_lifecycle.py holds 1,152).
    """
    free = _available_bytes() - RESERVE_BYTES
    if needs.memory_bytes > free:
        raise UnfitEnvironmentError(
            f"the fabric needs about {needs.memory_bytes >> 20} MiB of kernel memory; {max(0, free) >> 20} are free",
            "use a smaller topology or a larger machine",
        )
    _ensure_descriptors(needs.descriptors)


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def _ensure_descriptors(needed: int) -> None:
    """Raise the soft limit of open files where it is too low; the hard limit is the real one."""
    wanted = needed + len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UnfitEnvironmentError(f"the fabric needs {wanted} open files, the limit is {hard}", f"ulimit -n {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _make_namespaces(planned: Plan, nodes: Nodes, report: Progress) -> None:
    """Namespaces and their settings, a socket opened inside each while we are there anyway."""
    with namespaces.returning_home():
        for number, (node, name) in enumerate(planned.namespaces.items(), 1):
            settings = [(sysctl.key, sysctl.value, sysctl.optional) for sysctl in planned.namespace_sysctls(node)]
            namespaces.create_and_enter(name, settings)
            nodes.add(node, NetlinkSocket())
            report(number, len(planned.namespaces), "namespaces")


def _make_veths(planned: Plan, report: Progress) -> None:
    """All pairs, each end made in its namespace, from a socket that belongs to neither."""
    with ExitStack() as stack:
        fds = {}
        for node, name in planned.namespaces.items():
            fds[node] = os.open(namespaces.path_of(name), os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fds[node])
        sock = NetlinkSocket()
        stack.callback(sock.close)
        operations = planned.veth_ops
        for start in range(0, len(operations), BATCH):
            batch = operations[start : start + BATCH]
            raise_first(sock.run([encode.veth(op, fds[op.lower.node], fds[op.upper.node]) for op in batch]), batch)
            report(start + len(batch), len(operations), "links")


def _settle(planned: Plan, nodes: Nodes) -> None:
    """Bring every port to operational state UP now, so that a packet sent the moment we return is not lost."""
    for node, specs in planned.ports_by_node.items():
        nodes.run(node, [ops.SyncOperstate(spec) for spec in specs])
