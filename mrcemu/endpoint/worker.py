"""The worker process: any number of hosts on one loop, told what to do over a control channel.

`python -m mrcemu.endpoint.worker FD` is its entry. It is started by exec, so it inherits no netlink object, thread or
event loop. It ends when told to, or when the channel closes: if its parent dies, so does it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mrcemu.endpoint import control
from mrcemu.endpoint.clock import RunClock
from mrcemu.endpoint.filters import random_drop_filter
from mrcemu.endpoint.host import HostEndpoint, HostSpec
from mrcemu.endpoint.jobs import HostJobs
from mrcemu.endpoint.loop import EndpointLoop
from mrcemu.endpoint.messages import LineChannel
from mrcemu.endpoint.state import host_report, path_rows, peak_bps
from mrcemu.errors import MrcEmuError
from mrcemu.protocol.config import TransportConfig, for_topology
from mrcemu.protocol.events import Event, EvProbed
from mrcemu.protocol.qp import QpSetup
from mrcemu.rng import Rng
from mrcemu.topology.addressing import destination_bytes, host_address, plane_of_ev
from mrcemu.topology.ecmp import path_of_ev
from mrcemu.topology.loader import topology_from_dict
from mrcemu.topology.model import Topology
from mrcemu.topology.selection import select_evs
from mrcemu.topology.timing import CROSS_T1_HOPS

PR_SET_TIMERSLACK = 29
PR_SET_PDEATHSIG = 1
TIMER_SLACK_NS = 1000
# An emulated NIC must not wait behind a compiler: timer lag is invariant F4.
PRIORITY = -10

Request = dict[str, Any]


class Worker:
    """Dispatches requests to hosts; one table of verbs."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        self._hosts: dict[int, HostEndpoint] = {}
        self._jobs: dict[int, HostJobs] = {}
        self._waiting_probes: dict[tuple[int, int], int] = {}
        self._topology: Topology
        self._config: TransportConfig  # of the longest paths; each QP has its own
        self._settings: Request = {}
        self._tap: control.EventTap
        self.clock: RunClock
        self.loop: EndpointLoop

    # -- requests -------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        """Answer what was asked; stop when the channel is gone."""
        for request in self._channel.read():
            self._answer(request)
        if self._channel.closed:
            self.loop.stop()

    def _answer(self, request: Request) -> None:
        try:
            verb = _VERBS.get(request.get("do", ""))
            if verb is None:
                raise ValueError(f"unknown verb {request.get('do')!r}")
            result = verb(self, request)
        except (MrcEmuError, ValueError, KeyError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
            self._channel.write({"id": request.get("id"), "ok": False, "error": text})
            return
        if result is not _LATER:
            self._channel.write({"id": request.get("id"), "ok": True, "result": result})

    def _open(self, request: Request) -> Request:
        """Set the clock, the fabric and the hosts of this process."""
        self._topology = topology_from_dict(request["topology"])
        self._settings = request.get("config", {})
        self._config = replace(for_topology(self._topology), **self._settings)
        self.clock = RunClock(request["epoch_ns"])
        self.loop = EndpointLoop(self.clock)
        self.loop.watch(self._channel.fileno(), self.on_readable)
        self._tap = control.EventTap(self._topology, lambda row: self._channel.write({"event": row}))
        self._watch(request)
        rng = Rng(request["seed"])
        for item in request["hosts"]:
            spec = HostSpec(
                item["host"],
                item["netns"],
                tuple(bytes.fromhex(mac) for mac in item["port_macs"]),
                tuple(bytes.fromhex(mac) for mac in item["gateway_macs"]),
            )
            child = rng.child(f"h{spec.host}")
            host = HostEndpoint(self._topology, spec, self.clock, self._config, child)
            self._hosts[spec.host] = host
            jobs = self._jobs[spec.host] = HostJobs(host, self._config)
            host.on_event = self._event_handler(spec.host, host, jobs)
            self.loop.add_host(host, self._config.base_rtt_ns)
        return {"hosts": sorted(self._hosts), "base_rtt_ns": self._config.base_rtt_ns}

    def _event_handler(self, number: int, host: HostEndpoint, jobs: HostJobs) -> Callable[[Event], None]:
        tap, nic = self._tap, host.nic

        def handle(event: Event) -> None:
            jobs.on_event(event)
            if isinstance(event, EvProbed):
                self._finish_probe(number, event)
            if tap.level:
                tap.on_event(number, nic, event)

        return handle

    def _create_qp(self, request: Request) -> Request:
        host, peer = request["host"], request["peer"]
        hops = 2 if self._topology.is_t0_local(host, peer) else CROSS_T1_HOPS
        settings = {**self._settings, **request.get("config", {})}
        config = replace(for_topology(self._topology, hops), **settings)
        evs = request.get("evs") or select_evs(self._topology, host, peer, None, config.forwarding)
        paths = tuple(path_of_ev(self._topology, host, peer, ev) for ev in evs)
        qpn = request["qpn"]
        self._hosts[host].nic.create_qp(
            QpSetup(
                qpn,
                qpn,
                host_address(peer).packed,
                paths,
                config,
                request.get("psn", 0),
                request.get("psn", 0),
            ),
            self.clock.now_ns(),
        )
        return {"qpn": qpn, "paths": len(paths)}

    def _destroy_qp(self, request: Request) -> None:
        self._hosts[request["host"]].nic.destroy_qp(request["qpn"])

    def _receive(self, request: Request) -> None:
        self._jobs[request["host"]].receive(
            request["workload"], request["qpns"], request["size"], request["depth"], request["rkey"]
        )

    def _send(self, request: Request) -> None:
        jobs = self._jobs[request["host"]]
        sender = jobs.prepare_send(
            request["workload"],
            tuple(request["qpns"]),
            request["size"],
            request["depth"],
            request["rkey"],
            request["stop_ns"],
            request.get("count"),
        )
        self.loop.at(request.get("start_ns", 0), sender.start)

    def _ping_pong(self, request: Request) -> None:
        """One side of write_lat; `begins` says which."""
        side = self._jobs[request["host"]].prepare_ping_pong(
            request["workload"],
            request["qpn"],
            request["size"],
            request["rkey"],
            request["begins"],
            request["stop_ns"],
            request.get("count"),
        )
        self.loop.at(request.get("start_ns", 0), side.start)

    def _latencies(self, request: Request) -> list[int]:
        """Every latency a workload has measured on a host, in ns."""
        return self._jobs[request["host"]].senders[request["workload"]].latencies_ns

    def _stop_sending(self, request: Request) -> None:
        self._jobs[request["host"]].stop_sending(request["workload"], self.clock.now_ns())

    def _progress(self, request: Request) -> Request:
        """Per host: what has been sent, completed, placed; cheap enough to ask ten times a second."""
        return {str(host): jobs.progress() for host, jobs in self._jobs.items()}

    def _paths(self, request: Request) -> list[Request]:
        return path_rows(self._hosts[request["host"]].nic.qps[request["qpn"]], self.clock.now_ns())

    def _connections(self, request: Request) -> list[Request]:
        """Every QP of this process with its path table."""
        now_ns = self.clock.now_ns()
        return [
            row
            for number, host in self._hosts.items()
            for row in control.connection_rows(self._topology, number, host, self._jobs[number], now_ns)
        ]

    def _denylists(self, request: Request) -> dict[str, list[Request]]:
        return {f"h{number}": control.denylist_rows(host.nic) for number, host in self._hosts.items()}

    def _deny(self, request: Request) -> Request:
        nic = self._hosts[request["host"]].nic
        return control.deny(nic, request["mask"], request["value"], self.clock.now_ns())

    def _allow(self, request: Request) -> Request:
        nic = self._hosts[request["host"]].nic
        return control.allow(nic, request["mask"], request["value"], self.clock.now_ns())

    def _watch(self, request: Request) -> None:
        """Push events of the kinds of `level` from now on."""
        self._tap.level = control.WatchLevel(request.get("level", 0))

    def _rtt_samples(self, request: Request) -> list[int]:
        """The newest unambiguous RTT of each path of a QP that has one, in ns."""
        qp = self._hosts[request["host"]].nic.qps[request["qpn"]]
        return [entry.rtt_ns for entry in qp.spray.entries.values() if entry.rtt_ns]

    def _workload_report(self, request: Request) -> Request:
        """What one workload did on a host, with its region checked."""
        peak = peak_bps(self._hosts[request["host"]].recorder, request["qpns"])
        return {**self._jobs[request["host"]].report(request["workload"], request["qpns"]), "peak_bps": peak}

    def _forget(self, request: Request) -> None:
        """Drop a workload, its region and its QPs."""
        self._jobs[request["host"]].forget(request["workload"])
        self._hosts[request["host"]].recorder.forget(request["qpns"])
        for qpn in request["qpns"]:
            self._hosts[request["host"]].nic.destroy_qp(qpn)

    def _receiver_loss(self, request: Request) -> None:
        """Drop a share (0 .. 1) of arriving frames before the sockets of a host; 0 ends it."""
        for port in self._hosts[request["host"]].ports:
            random_drop_filter(port, request["share"])

    def _probe(self, request: Request) -> object:
        host, peer, ev = request["host"], request["peer"], request["ev"]
        ops = self._hosts[host].nic.endpoint_ops
        now_ns = self.clock.now_ns()
        timeout_ns = request.get("timeout_ns", 4 * self._config.base_rtt_ns)
        probe = ops.probe_peer(host_address(peer).packed, ev, now_ns, timeout_ns)
        self._waiting_probes[host, probe] = request["id"]
        return _LATER

    def _self_probe(self, request: Request) -> object:
        """A probe along uSIDs that lead back to this host; `ev` bits 20-23 say how many links it crosses."""
        host, usids = request["host"], tuple(request["usids"])
        ev = request["ev"] | len(usids) << 20
        ops = self._hosts[host].nic.endpoint_ops
        probe = ops.probe_self(
            plane_of_ev(ev),
            destination_bytes(self._topology, usids),
            ev,
            self.clock.now_ns(),
            request.get("timeout_ns", 4 * self._config.base_rtt_ns),
        )
        self._waiting_probes[host, probe] = request["id"]
        return _LATER

    def _finish_probe(self, host: int, event: EvProbed) -> None:
        request_id = self._waiting_probes.pop((host, event.request_id), None)
        if request_id is not None:
            self._channel.write({"id": request_id, "ok": True, "result": {"rtt_ns": event.rtt_ns, "ev": event.ev}})

    def _collect(self, request: Request) -> Request:
        """Everything measured in this process, once, at the end."""
        hosts = {str(number): host_report(host, self._jobs[number]) for number, host in self._hosts.items()}
        return {"hosts": hosts, "loop_steps": self.loop.steps}

    def _bye(self, request: Request) -> None:
        self.loop.stop()

    def close(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(HostEndpoint.close, self._hosts.values()))


_LATER = object()  # the answer is written when it is known

_VERBS: dict[str, Callable[[Worker, Request], object]] = {
    "open": Worker._open,
    "create_qp": Worker._create_qp,
    "destroy_qp": Worker._destroy_qp,
    "receive": Worker._receive,
    "send": Worker._send,
    "ping_pong": Worker._ping_pong,
    "latencies": Worker._latencies,
    "stop_sending": Worker._stop_sending,
    "progress": Worker._progress,
    "paths": Worker._paths,
    "connections": Worker._connections,
    "denylists": Worker._denylists,
    "deny": Worker._deny,
    "allow": Worker._allow,
    "watch": Worker._watch,
    "rtt_samples": Worker._rtt_samples,
    "workload_report": Worker._workload_report,
    "forget": Worker._forget,
    "receiver_loss": Worker._receiver_loss,
    "probe": Worker._probe,
    "self_probe": Worker._self_probe,
    "collect": Worker._collect,
    "bye": Worker._bye,
}


def _prepare_process() -> None:
    """Precise sleeps, a raised priority, no terminal interrupts (the parent decides), no life after the parent's."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        # With autogrouping, priorities count only inside a session; this one is the session's.
        Path("/proc/self/autogroup").write_text(str(PRIORITY), encoding="ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(arguments: list[str]) -> int:
    """Entry of the process: the first request must be `open`, then the loop runs."""
    _prepare_process()
    sock = socket.socket(fileno=int(arguments[0]))
    channel = LineChannel(sock)
    worker = Worker(channel)
    sock.setblocking(True)
    peeked = sock.recv(1, socket.MSG_PEEK)  # wait for `open`
    while peeked and not hasattr(worker, "loop") and not channel.closed:
        for request in channel.read():
            worker._answer(request)
        if not hasattr(worker, "loop"):
            peeked = sock.recv(1, socket.MSG_PEEK)
    if hasattr(worker, "loop"):
        worker.loop.run()
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
