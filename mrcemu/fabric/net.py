"""`MrcNet`: the fabric as a Mininet network, and the only way a fabric is built.

`up`, `run`, the Mininet prompt and the tests all go through `MrcNet(topology, name).build()`: it records the fabric,
applies the plan in netlink batches, and gives Mininet its familiar objects without running a command. Owns the life
of one fabric; refuses to be built twice. The node, link and interface classes are in `mn.py`.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from mininet.net import Mininet

from mrcemu.errors import UnfitEnvironmentError, UsageError
from mrcemu.fabric import apply, counters, namespaces, tables
from mrcemu.fabric import journal as journals
from mrcemu.fabric.counters import PortCounters
from mrcemu.fabric.faults import FaultPlane
from mrcemu.fabric.mn import MrcHost, MrcIntf, MrcLink, MrcSwitch
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.plan import Plan
from mrcemu.fabric.watch import LinkWatch
from mrcemu.topology.model import Port, Topology

_T = TypeVar("_T")


class MrcNet(Mininet):  # type: ignore[misc]  # Mininet carries no types
    """One fabric. `build` makes it, `stop` removes it; as a context manager it does both.

    `faults` (a `FaultPlane`), `plan` and `journal` exist between `build` and `stop`.
    """

    # Mininet's own initialisation raises limits of the whole machine; ours asks for what it needs (apply.check_fits).
    inited = True

    def __init__(self, topology: Topology, name: str | None = None, topology_text: str = "") -> None:
        super().__init__(
            topo=None, build=False, controller=None, host=MrcHost, switch=MrcSwitch, link=MrcLink, intf=MrcIntf,
        )  # fmt: skip
        self.topology = topology
        self.name = name if name is not None else topology.name
        self._topology_text = topology_text
        self._journal: journals.Journal | None = None
        self._nodes: Nodes | None = None
        self._faults: FaultPlane | None = None
        self._watch: LinkWatch | None = None
        self._healer: _Healer | None = None

    @property
    def journal(self) -> journals.Journal:
        return self._existing(self._journal)

    @property
    def plan(self) -> Plan:
        return self.journal.plan

    @property
    def nodes_io(self) -> Nodes:
        """The netlink sockets, one in each node's namespace."""
        return self._existing(self._nodes)

    @property
    def faults(self) -> FaultPlane:
        return self._existing(self._faults)

    def build(self, progress: apply.Progress | None = None) -> None:
        """Make the fabric; when this returns every port carries packets. Whatever goes wrong, nothing stays behind.

        UsageError if the name is taken; UnfitEnvironmentError if the machine cannot do it.
        """
        if self._journal is not None:
            raise UsageError(f"fabric {self.name!r} is already built")
        _require_root()
        self._journal = journals.create(self.topology, self.name, self._topology_text)
        try:
            self._nodes = apply.apply(self.plan, progress)
            self._faults = FaultPlane(self.plan, self._nodes)
            self._watch = LinkWatch(self.plan.namespaces.values())
            self._add_mininet_objects()
        except BaseException:
            self._tear_down()
            raise
        self.built = True

    def start(self) -> None:
        """Build if need be, and heal ports in the background, for scripts and the prompt that run no event loop."""
        if self._journal is None:
            self.build()
        if self._healer is None:
            self._healer = _Healer(self.event_fds()[0], self.handle_event)

    def stop(self) -> None:
        """Remove the fabric: shells, namespaces, links, record. Harmless when repeated."""
        for node in (*self.hosts, *self.switches):
            node.terminate()
        self._tear_down()

    def __enter__(self) -> MrcNet:
        self.build()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def netns_path(self, node: str) -> str:
        """ "/run/netns/mrc-NAME-NODE"; UsageError for a node that does not exist."""
        if node not in self.plan.namespaces:
            raise UsageError(f"no node {node!r} in {self.name}")
        return namespaces.path_of(self.plan.namespaces[node])

    def port_mac(self, port: Port) -> bytes:
        """The six bytes of a port's MAC address."""
        return self.plan.ports[port.name].mac

    def port_ifindex(self, port: Port) -> int:
        """A port's interface index, unique over all standing fabrics."""
        return self.plan.ports[port.name].ifindex

    def counters(self) -> dict[str, PortCounters]:
        """Counters and states of all ports, by port name ("h3:p5", "p5-t0-2:up0")."""
        return counters.read(self.plan, self.nodes_io)

    def counters_of(self, node: str) -> dict[str, PortCounters]:
        """The same for one node's ports."""
        return counters.read_node(self.plan, self.nodes_io, node)

    def tables(self) -> dict[str, tables.NodeTables]:
        """Routes, neighbours and queues of all nodes, comparable."""
        return tables.snapshot(self.plan, self.nodes_io)

    def event_fds(self) -> list[int]:
        """Descriptors to poll for reading; hand the readable ones to `handle_event`."""
        return [self._existing(self._watch).fileno()]

    def handle_event(self, fd: int) -> list[str]:
        """Heal the ports that came up since; returns their names. `fd` is one of `event_fds`."""
        return self.faults.heal(self._existing(self._watch))

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Mininet's `link A B up|down`: all links between two nodes, through the same faults as everything else."""
        for node in (src, dst):
            if node not in self:
                raise UsageError(f"no node {node!r} in {self.name}")
        links = self.linksBetween(self[src], self[dst])
        if not links:
            raise UsageError(f"{src} and {dst} are not connected")
        change = self.faults.link_up if status == "up" else self.faults.link_down
        for link in links:
            change(link.name)

    def _add_mininet_objects(self) -> None:
        for node in self.topology.nodes:
            add = self.addHost if node in self.topology.hosts else self.addSwitch
            add(node, net=self)
        for link in self.topology.links:
            ends = {"intfName1": link.lower.ifname, "intfName2": link.upper.ifname}
            macs = {"addr1": _mac_text(self.port_mac(link.lower)), "addr2": _mac_text(self.port_mac(link.upper))}
            self.addLink(link.lower.node, link.upper.node, name=link.name, **ends, **macs)

    def _forget_mininet_objects(self) -> None:
        for collection in (self.hosts, self.switches, self.links, self.nameToNode):
            collection.clear()

    def _tear_down(self) -> None:
        if self._healer is not None:
            self._healer.stop()
        for holder in (self._watch, self._nodes):
            if holder is not None:
                holder.close()
        if self._journal is not None:
            apply.undo(self._journal.namespaces, self._journal.recorded_processes())
            journals.remove(self._journal)
        self._healer = self._watch = self._nodes = self._faults = self._journal = None
        self._forget_mininet_objects()
        self.built = False

    def _existing(self, thing: _T | None) -> _T:
        if thing is None:
            raise UsageError(f"fabric {self.name!r} is not built")
        return thing


class _Healer:
    """A thread that waits for link events and heals; ended by a byte through a pipe."""

    def __init__(self, fd: int, handle: Callable[[int], Any]) -> None:
        self._fd, self._handle = fd, handle
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="mrcemu-healer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        os.write(self._wake_write, b"x")
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._wake_read], [], [])
            if self._wake_read in ready:
                return
            self._handle(self._fd)


def _mac_text(mac: bytes) -> str:
    return mac.hex(":")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise UnfitEnvironmentError("building a fabric needs root", "sudo")
