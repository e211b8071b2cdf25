"""What an operator may ask of NICs while they run: their connections, their denylists, their events as they happen.

Owns the rows of connections and of live events, and which events a watcher gets. Refuses requests and channels: the
worker calls in here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import IntEnum
from typing import Any

from mrcemu.endpoint.host import HostEndpoint
from mrcemu.endpoint.jobs import HostJobs
from mrcemu.endpoint.state import path_rows
from mrcemu.protocol import events
from mrcemu.protocol.denylist import DenyEntry
from mrcemu.protocol.nic import Nic
from mrcemu.topology.addressing import host_address
from mrcemu.topology.model import Topology

Row = dict[str, Any]


class WatchLevel(IntEnum):
    """How much a watcher gets: each level includes those below."""

    NOTHING = 0
    STATES = 1  # paths, ports, timers, failed QPs
    LOSSES = 2  # each lost or trimmed packet and each retransmission as well


_LEVEL: dict[type[events.Event], WatchLevel] = {
    events.EvChanged: WatchLevel.STATES,
    events.PortChanged: WatchLevel.STATES,
    events.PeerPortsChanged: WatchLevel.STATES,
    events.TimerExpired: WatchLevel.STATES,
    events.QpFailed: WatchLevel.STATES,
    events.PacketLost: WatchLevel.LOSSES,
    events.NackReceived: WatchLevel.LOSSES,
    events.Retransmitted: WatchLevel.LOSSES,
    events.LossWasSpurious: WatchLevel.LOSSES,
}
LEVEL_OF_KIND = {kind.__name__: level for kind, level in _LEVEL.items()}


class EventTap:
    """Hands rows of the events a watcher wants to `push`; costs one comparison an event while nobody watches."""

    def __init__(self, topology: Topology, push: Callable[[Row], None]) -> None:
        self.level = WatchLevel.NOTHING
        self._push = push
        self._names = _names(topology)

    def on_event(self, host: int, nic: Nic, event: events.Event) -> None:
        """Push the event if somebody asked for its kind."""
        if self.level and _LEVEL.get(type(event), self.level + 1) <= self.level:
            self._push(self._row(host, nic, event))

    def _row(self, host: int, nic: Nic, event: events.Event) -> Row:
        row = {"kind": type(event).__name__, "host": f"h{host}", **asdict(event)}
        qp = nic.qps.get(event.qpn)
        if isinstance(event, events.PeerPortsChanged):
            row["peer"] = self._names[event.peer]
        elif qp is not None:
            row["peer"] = self._names[qp.setup.peer_address]
        return row


def _names(topology: Topology) -> Mapping[bytes, str]:
    return {host_address(host).packed: f"h{host}" for host in range(topology.host_count)}


def connection_rows(topology: Topology, number: int, host: HostEndpoint, jobs: HostJobs, now_ns: int) -> list[Row]:
    """One row per QP of a host; `workload` is None at the end that only answers."""
    names = _names(topology)
    return [
        {
            "qpn": qp.qpn,
            "src": f"h{number}",
            "dst": names[qp.setup.peer_address],
            "workload": jobs.workload_of(qp.qpn),
            "error": qp.error,
            "paths": path_rows(qp, now_ns),
        }
        for qp in host.nic.qps.values()
    ]


def denylist_rows(nic: Nic) -> list[Row]:
    """The entries of a NIC's denylist, oldest first."""
    return [{"mask": entry.mask, "value": entry.value} for entry in nic.denylist.entries]


def deny(nic: Nic, mask: int, value: int, now_ns: int) -> Row:
    """Deny what matches on all QPs, present and future; how many paths of the present ones that is."""
    entry = DenyEntry(mask, value)
    nic.deny(entry, now_ns)
    return {"listed": True, "paths": _matching(nic, entry)}


def allow(nic: Nic, mask: int, value: int, now_ns: int) -> Row:
    """Take an entry off the list; `listed` False if it was not there (then nothing changed)."""
    entry = DenyEntry(mask, value)
    return {"listed": nic.allow(entry, now_ns), "paths": _matching(nic, entry)}


def _matching(nic: Nic, entry: DenyEntry) -> int:
    return sum(entry.matches(ev) for qp in nic.qps.values() for ev in qp.spray.entries)
