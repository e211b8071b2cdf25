"""Links, NIC ports and switches that fail and come back, and the healing of ports that someone else brought back.

The kernel forgets the static routes and neighbours of a port that goes administratively down; coming up means putting
them back, in one batch, from the same plan that built them. Every port remembers *why* it is down, so raising a
switch does not raise a link that was taken down on its own. Owns nothing on disk; refuses loss, delay and freezing
(those belong to the trimming program on each port).

Which end fails: always one only, because that kills both directions and both ends lose carrier. For a NIC link it is
the switch's end, so that the host sees carrier loss as from a dead switch port; for a fabric link the T0's; for a
switch all of its own.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from mrcemu.errors import UnfitEnvironmentError, UsageError
from mrcemu.fabric import encode, ops
from mrcemu.fabric.netlink import NetlinkError
from mrcemu.fabric.nodes import Nodes
from mrcemu.fabric.ops import PortSpec
from mrcemu.fabric.plan import Plan
from mrcemu.fabric.readback import link_state
from mrcemu.fabric.watch import LinkEvent, LinkWatch
from mrcemu.topology.model import Link

_LINK, _SWITCH = "link", "switch"


class FaultPlane:
    """Faults on one built fabric. Every call is idempotent and returns when it was done, in monotonic nanoseconds."""

    def __init__(self, planned: Plan, nodes: Nodes) -> None:
        self._plan = planned
        self._nodes = nodes
        self._why_down: dict[str, set[str]] = {name: set() for name in planned.ports}
        self._fallen: set[int] = set()  # ports seen down, whose tables the kernel has dropped
        self._lock = threading.RLock()

    def link_down(self, name: str) -> int:
        """Kill a link in both directions; `name` as in `Link.name`. UsageError names the nearest links."""
        return self._lower([self._failing_end(self._link(name))], _LINK)

    def link_up(self, name: str) -> int:
        """Bring a link back, unless its switch is down."""
        return self._raise([self._failing_end(self._link(name))], _LINK)

    def port_down(self, host: int, plane: int) -> int:
        """Kill a NIC port: the switch's end goes down, the host sees carrier loss."""
        return self.link_down(f"h{host}:p{plane}")

    def port_up(self, host: int, plane: int) -> int:
        return self.link_up(f"h{host}:p{plane}")

    def switch_down(self, name: str) -> int:
        """Kill a switch: all of its ports go down."""
        return self._lower(self._switch_ports(name), _SWITCH)

    def switch_up(self, name: str) -> int:
        """Bring a switch back with all its tables, except ports of links that were taken down on their own."""
        ports = self._switch_ports(name)
        with self._lock:
            self._nodes.run(name, [self._plan.sid_route(name)], restore=True)
            return self._raise(ports, _SWITCH)

    def switch_reboot_begin(self, name: str) -> int:
        """A switch loses power: ports down and every table it had is forgotten, its own SID too."""
        done = self.switch_down(name)
        with self._lock:
            messages = encode.encode(self._plan.sid_removal(name))
            self._nodes[name].run(messages)  # already gone if it reboots twice
        return done

    def switch_reboot_end(self, name: str) -> int:
        """The switch is back: tables reinstalled, ports up."""
        return self.switch_up(name)

    def why_down(self, port_name: str) -> frozenset[str]:
        """Why a port is down on purpose: "link", "switch", both, or neither."""
        return frozenset(self._why_down[port_name])

    def links_down(self) -> list[str]:
        """Names of the links that are down on purpose, because of themselves or of a switch."""
        return sorted({self._plan.links_by_port[port].name for port, why in self._why_down.items() if why})

    def heal(self, watch: LinkWatch) -> list[str]:
        """Read pending link events; put back the tables of ports that came up by any means; returns their names."""
        with self._lock:
            events = watch.drain()
            risen = self._all_ports() if events is None else self._risen(events)
            return [spec.port.name for spec in risen if self._heal_port(spec)]

    def _heal_port(self, spec: PortSpec) -> bool:
        """Put a port's tables back if it is up; False if it is down, also if it falls meanwhile or is gone."""
        if not self._is_up(spec):
            return False
        try:
            self._nodes.run(spec.node, self._plan.port_tables(spec.port.name), restore=True)
        except UnfitEnvironmentError as error:
            # "Network is down": it fell meanwhile. If it is up again already, an event that says so is on its way.
            if error.errno != errno.ENETDOWN and self._is_up(spec):
                raise
            return False
        # Up although we hold it down: someone raised it by hand, and what the kernel does is the truth.
        self._why_down[spec.port.name].clear()
        self._fallen.discard(spec.ifindex)
        self._settle_peers([spec])
        return True

    def _risen(self, events: Iterable[LinkEvent]) -> list[PortSpec]:
        """Ports that were down and whose later event says up."""
        risen: dict[int, None] = {}
        for event in events:
            if event.ifindex not in self._plan.ports_by_ifindex:
                continue
            if not event.admin_up:
                self._fallen.add(event.ifindex)
            elif event.ifindex in self._fallen:
                risen[event.ifindex] = None
        return [self._plan.ports_by_ifindex[ifindex] for ifindex in risen]

    def _all_ports(self) -> list[PortSpec]:
        return list(self._plan.ports.values())

    def _is_up(self, spec: PortSpec) -> bool:
        """Admin up now; a port someone deleted is not."""
        try:
            [body] = self._nodes[spec.node].run_one(encode.get_link(spec.ifindex))
        except NetlinkError as error:
            if error.errno != errno.ENODEV:
                raise
            return False
        return link_state(body).admin_up

    def _lower(self, ports: Sequence[PortSpec], why: str) -> int:
        with self._lock:
            for spec in ports:
                self._why_down[spec.port.name].add(why)
                self._fallen.add(spec.ifindex)
            self._nodes.run(ports[0].node, [ops.LinkDown(spec) for spec in ports])
            done_ns = time.monotonic_ns()
            self._settle_peers(ports)
        return done_ns

    def _raise(self, ports: Sequence[PortSpec], why: str) -> int:
        with self._lock:
            for spec in ports:
                self._why_down[spec.port.name].discard(why)
            self._restore([spec for spec in ports if not self._why_down[spec.port.name]])
        return time.monotonic_ns()

    def _restore(self, ports: Sequence[PortSpec]) -> None:
        """Up, neighbours, routes and settled state, one batch a node; then the far ends are settled too."""
        by_node: dict[str, list[ops.Operation]] = {}
        for spec in ports:
            by_node.setdefault(spec.node, []).extend(self._plan.port_restore(spec.port.name))
            self._fallen.discard(spec.ifindex)
        for node, operations in by_node.items():
            self._nodes.run(node, operations, restore=True)
        self._settle_peers(ports)

    def _settle_peers(self, ports: Sequence[PortSpec]) -> None:
        """Make the far ends see the change now; left alone the kernel may take a second."""
        for spec in ports:
            peer = self._plan.peer(spec)
            self._nodes.run(peer.node, [ops.SyncOperstate(peer)])

    def _link(self, name: str) -> Link:
        link = self._plan.topology.links_by_name.get(name)
        if link is None:
            raise UsageError(f"no link {name!r}", get_close_matches(name, self._plan.topology.links_by_name))
        return link

    def _failing_end(self, link: Link) -> PortSpec:
        return self._plan.ports[(link.upper if link.is_nic else link.lower).name]

    def _switch_ports(self, name: str) -> tuple[PortSpec, ...]:
        if name not in self._plan.switches_by_name:
            raise UsageError(f"no switch {name!r}", get_close_matches(name, self._plan.switches_by_name))
        return self._plan.ports_by_node[name]
