"""The endpoints a keeper can ask: those of a run in progress, and those it starts itself when a request needs them.

Owns which process answers for a host. A host has one NIC: while a run has endpoints for it, requests go to those; other
hosts get endpoints of the keeper's own group. Both groups share one clock. Refuses what is asked of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mrcemu.endpoint.group import EndpointError, EndpointGroup
from mrcemu.keeper.places import host_place

if TYPE_CHECKING:
    from mrcemu.fabric.net import MrcNet

DEFAULT_SEED = 1


class Hosts:
    """Endpoints by host number. `of_run` is the group of a run in progress, if the keeper belongs to one."""

    def __init__(self, net: MrcNet, of_run: EndpointGroup | None = None) -> None:
        self.topology = net.topology
        self._net = net
        self._of_run = of_run
        self.epoch_ns = of_run.epoch_ns if of_run is not None else time.monotonic_ns()
        self._own = EndpointGroup(net.topology, DEFAULT_SEED, self.epoch_ns)
        self._lock = asyncio.Lock()

    @property
    def groups(self) -> list[EndpointGroup]:
        return [self._own] if self._of_run is None else [self._of_run, self._own]

    @property
    def running(self) -> list[int]:
        """Numbers of the hosts that have an endpoint now."""
        return sorted({host for group in self.groups for host in group.hosts})

    def now_ns(self) -> int:
        """The endpoints' clock."""
        return time.monotonic_ns() - self.epoch_ns

    async def start(self, *hosts: int) -> None:
        """Have endpoints on these hosts; UnfitEnvironmentError if one cannot start."""
        if self._of_run is not None:
            await self._of_run.settled()
        async with self._lock:
            missing = [host for host in dict.fromkeys(hosts) if host not in self.running]
            if missing:
                known = set(self._own.pids)
                await self._own.start([host_place(self._net, host) for host in missing])
                for pid in set(self._own.pids) - known:
                    self._net.journal.add_process(pid)

    async def ask(self, host: int, verb: str, **arguments: Any) -> Any:
        """One request to the endpoint of a host; EndpointError if it has none or refuses."""
        for group in self.groups:
            if host in group.hosts:
                return await group.ask(host, verb, **arguments)
        raise EndpointError(f"h{host} has no endpoint")

    async def ask_all(self, verb: str, **arguments: Any) -> list[Any]:
        """One request to every endpoint process; their answers."""
        return [answer for group in self.groups for answer in await group.ask_all(verb, **arguments)]

    async def connect(self, src: int, dst: int, qpn: int) -> None:
        """Create QP number `qpn` at both ends, with every path between them."""
        await asyncio.gather(
            self.ask(src, "create_qp", peer=dst, qpn=qpn), self.ask(dst, "create_qp", peer=src, qpn=qpn)
        )

    async def progress(self, host: int) -> Mapping[str, Any]:
        """Senders and bytes placed of one host."""
        answer: Mapping[str, Any] = (await self.ask(host, "progress"))[str(host)]
        return answer

    async def stop(self) -> None:
        """End the keeper's own endpoints; a run's are its own business."""
        await self._own.stop()
