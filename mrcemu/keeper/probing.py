"""`probe` and `trace`: EV probes to the far NIC, and along one path hop by hop.

Owns how many probes a verdict takes. A probe goes along its EV and the far NIC answers by the same T1, so that silence
says something about that path alone: it counts as unreachable after `FURTHER_ROUNDS` more. Best effort, connectionless,
in the control class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from mrcemu.errors import UsageError
from mrcemu.keeper.hosts import Hosts
from mrcemu.keeper.orders import pair_of, probe_count
from mrcemu.keeper.protocol import Request
from mrcemu.keeper.verbs import Emit
from mrcemu.topology.addressing import Path, all_paths, path_for_ev, usid
from mrcemu.topology.model import Tier, Topology

PROBES_PER_HOP = 3
FURTHER_ROUNDS = 2


class Probing:
    """The probing verbs of one keeper."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._topology = hosts.topology

    # -- probe ----------------------------------------------------------------------------------------------------

    async def probe(self, request: Request, _emit: Emit) -> Mapping[str, Any]:
        """RTT and reachability of one EV or of every EV between two hosts."""
        src, dst = pair_of(self._topology, request.args)
        count = probe_count(request.args)
        wanted = request.args.get("ev")
        paths = all_paths(self._topology, src, dst) if wanted is None else (self._path(src, dst, wanted),)
        await self._hosts.start(src, dst)
        rtts: dict[int, list[int]] = {path.ev: [] for path in paths}
        sent = dict.fromkeys(rtts, 0)
        for _ in range(count):
            await self._round(src, dst, list(rtts), rtts, sent)
        for _ in range(FURTHER_ROUNDS):
            silent = [ev for ev, answers in rtts.items() if not answers]
            if not silent:
                break
            await self._round(src, dst, silent, rtts, sent)
        rows = [_probe_row(path, sent[path.ev], rtts[path.ev]) for path in paths]
        unreachable = [row["ev"] for row in rows if not row["answered"]]
        return {"src": f"h{src}", "dst": f"h{dst}", "evs": rows, "unreachable": unreachable}

    async def _round(
        self, src: int, dst: int, evs: list[int], rtts: dict[int, list[int]], sent: dict[int, int]
    ) -> None:  # fmt: skip
        """One probe on each EV, all at once."""
        answers = await asyncio.gather(*(self._hosts.ask(src, "probe", peer=dst, ev=ev) for ev in evs))
        for ev, answer in zip(evs, answers, strict=True):
            sent[ev] += 1
            if answer["rtt_ns"] is not None:
                rtts[ev].append(answer["rtt_ns"])

    def _path(self, src: int, dst: int, ev: Any) -> Path:
        if isinstance(ev, bool) or not isinstance(ev, int):
            raise UsageError(f"an EV is a number, found {ev!r}")
        try:
            return path_for_ev(self._topology, src, dst, ev)
        except ValueError as error:
            raise UsageError(f"{error} (mrcemu paths h{src} h{dst} lists them)") from None

    # -- trace ----------------------------------------------------------------------------------------------------

    async def trace(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """Probe along one path hop by hop: each switch turns it back by its uSID list, then the far NIC answers."""
        src, dst = pair_of(self._topology, request.args)
        path = self._path(src, dst, request.args.get("ev", 0))
        await self._hosts.start(src, dst)
        hops = []
        for number, node in enumerate(path.nodes[1:], start=1):
            row = await self._trace_hop(src, dst, path, number)
            hops.append({"hop": number, "node": node, **row})
            emit(hops[-1])
        ended_at = next((hop["node"] for hop in hops if not hop["answered"]), None)
        return {"ev": path.ev, "plane": path.plane, "srv6": path.srv6, "hops": hops, "ended_at": ended_at}

    async def _trace_hop(self, src: int, dst: int, path: Path, number: int) -> dict[str, Any]:
        last = number == len(path.nodes) - 1
        rtts: list[int] = []
        for _ in range(PROBES_PER_HOP):
            if last:
                answer = await self._hosts.ask(src, "probe", peer=dst, ev=path.ev)
            else:
                turned = turn_back(self._topology, src, path, number)
                answer = await self._hosts.ask(src, "self_probe", ev=path.ev, usids=turned)
            if answer["rtt_ns"] is not None:
                rtts.append(answer["rtt_ns"])
        return {"answered": len(rtts), "sent": PROBES_PER_HOP, "rtt_ns": min(rtts, default=None)}


def turn_back(topology: Topology, src: int, path: Path, number: int) -> list[int]:
    """The uSID list that goes `number` hops along a path and returns to the sender: T0; T0 T1 T0; T0 T1 T0' T1 T0."""
    home = usid(Tier.HOST, path.plane, topology.downlink_of_host(src))
    out = list(path.usids[:number])
    return [*out, *out[-2::-1], home]


def _probe_row(path: Path, sent: int, rtts: Sequence[int]) -> dict[str, Any]:
    return {
        "ev": path.ev,
        "plane": path.plane,
        "hops": list(path.nodes),
        "srv6": path.srv6,
        "sent": sent,
        "answered": len(rtts),
        "rtt_ns": {"min": min(rtts), "median": int(median(rtts)), "max": max(rtts)} if rtts else None,
    }
