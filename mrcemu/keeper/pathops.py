"""The `ev` verbs: path tables of what runs, the denylist of NICs, events as they happen.

Owns what an entry of the denylist may be on this fabric, to which hosts it goes, and who watches what. The NICs act;
see endpoint/control.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mrcemu.endpoint.control import LEVEL_OF_KIND, WatchLevel
from mrcemu.endpoint.group import EndpointError
from mrcemu.errors import UsageError
from mrcemu.keeper.hosts import Hosts
from mrcemu.keeper.protocol import Request
from mrcemu.keeper.verbs import Emit
from mrcemu.protocol.denylist import DenyEntry
from mrcemu.topology.addressing import ev_of
from mrcemu.topology.ecmp import possible_evs

EV_BITS = 32


class PathOps:
    """The path verbs of one keeper."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._topology = hosts.topology
        self._watchers: dict[int, tuple[WatchLevel, Emit]] = {}
        self._next_watcher = 0
        for group in hosts.groups:
            group.on_event = self._hand_on

    # -- tables ---------------------------------------------------------------------------------------------------

    async def connections(self, request: Request, _emit: Emit) -> Mapping[str, Any]:
        """Path tables of the QPs that run now: of their sending ends, or of every end that `src` and `dst` name."""
        wanted = {key: str(request.args[key]) for key in ("src", "dst") if request.args.get(key) is not None}
        for name in wanted.values():
            self._topology.host_index(name)
        rows = [row for answer in await self._hosts.ask_all("connections") for row in answer]
        if wanted:
            rows = [row for row in rows if all(row[key] == name for key, name in wanted.items())]
        else:
            rows = [row for row in rows if row["workload"] is not None]
        return {"connections": sorted(rows, key=lambda row: (row["qpn"], row["src"])), "denylists": await self._lists()}

    async def _lists(self) -> dict[str, list[dict[str, int]]]:
        """The denylists that hold something, by host name."""
        return {
            name: entries
            for answer in await self._hosts.ask_all("denylists")
            for name, entries in answer.items()
            if entries
        }

    # -- denylist -------------------------------------------------------------------------------------------------

    async def deny(self, request: Request, _emit: Emit) -> Mapping[str, Any]:
        """Deny paths on the NICs of the hosts named (started if need be), by default of all that run."""
        entry = self._entry(request.args)
        numbers = await self._named(request.args)
        answers = [await self._hosts.ask(n, "deny", mask=entry.mask, value=entry.value) for n in numbers]
        return self._changed(entry, numbers, answers)

    async def allow(self, request: Request, _emit: Emit) -> Mapping[str, Any]:
        """Take an entry, or with `all` every entry, off those denylists; UsageError if no NIC lists it."""
        numbers = await self._named(request.args)
        if request.args.get("all"):
            return await self._allow_all(numbers)
        entry = self._entry(request.args)
        answers = [await self._hosts.ask(n, "allow", mask=entry.mask, value=entry.value) for n in numbers]
        held = [number for number, answer in zip(numbers, answers, strict=True) if answer["listed"]]
        if not held:
            raise UsageError(f"no denylist holds {_shown(entry)}; {await self._what_is_listed()}")
        return self._changed(entry, held, [answer for answer in answers if answer["listed"]])

    async def _allow_all(self, numbers: list[int]) -> Mapping[str, Any]:
        lists = await self._lists()
        taken = 0
        for number in numbers:
            for entry in lists.get(f"h{number}", []):
                taken += (await self._hosts.ask(number, "allow", **entry))["listed"]
        return {"hosts": [f"h{number}" for number in numbers], "entries": taken}

    async def _what_is_listed(self) -> str:
        listed = {DenyEntry(**entry): None for entries in (await self._lists()).values() for entry in entries}
        return f"listed: {', '.join(map(_shown, listed))}" if listed else "nothing is denied"

    async def _named(self, args: Mapping[str, Any]) -> list[int]:
        names = args.get("hosts") or []
        if names:
            numbers = [self._topology.host_index(str(name)) for name in dict.fromkeys(names)]
            await self._hosts.start(*numbers)
            return numbers
        if not self._hosts.running:
            raise UsageError("no endpoint runs; name the hosts whose NICs are meant, e.g. --src h0")
        return self._hosts.running

    def _entry(self, args: Mapping[str, Any]) -> DenyEntry:
        mask, value = args.get("mask"), args.get("value")
        for name, number in (("mask", mask), ("value", value)):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << EV_BITS:
                raise UsageError(f"{name} is a number of 32 bits, found {number!r}")
        assert isinstance(mask, int)  # checked above, as is the other
        assert isinstance(value, int)
        entry = DenyEntry(mask, value)
        if not self._evs(entry):
            planes, uplinks = self._topology.planes, self._topology.t1_per_plane
            raise UsageError(
                f"{_shown(entry)} matches no path of this fabric; an EV is uplink x 16 + plane, "
                f"plane 0 .. {planes - 1}, uplink 0 .. {uplinks - 1}"
            )
        return entry

    def _evs(self, entry: DenyEntry) -> list[int]:
        """EVs of the fabric that an entry matches; those of ECMP mode if it matches no others."""
        every = (ev_of(p, u) for p in range(self._topology.planes) for u in range(self._topology.t1_per_plane))
        found = [ev for ev in every if entry.matches(ev)]
        return found or [ev for ev in possible_evs(self._topology) if entry.matches(ev)]

    def _changed(self, entry: DenyEntry, numbers: list[int], answers: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {
            "mask": entry.mask,
            "value": entry.value,
            "hosts": [f"h{number}" for number in numbers],
            "evs": self._evs(entry),
            "paths": sum(answer["paths"] for answer in answers),
        }

    # -- events ---------------------------------------------------------------------------------------------------

    async def watch(self, request: Request, emit: Emit) -> Mapping[str, Any]:
        """Emit events until the asking side goes away, or for `for_ns`; with `losses` each lost packet as well."""
        level = WatchLevel.LOSSES if request.args.get("losses") else WatchLevel.STATES
        for_ns = request.args.get("for_ns")
        self._next_watcher += 1
        number = self._next_watcher
        self._watchers[number] = (level, emit)
        try:
            await self._set_level()
            emit({"kind": "Watching"})
            async with asyncio.timeout(None if for_ns is None else for_ns / 1e9):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        finally:
            del self._watchers[number]
            await asyncio.shield(self._set_level())
        return {}

    async def _set_level(self) -> None:
        level = max((level for level, _ in self._watchers.values()), default=WatchLevel.NOTHING)
        for group in self._hosts.groups:
            with suppress(EndpointError):  # a run that just ended
                await group.watch(level)

    def _hand_on(self, event: Mapping[str, Any]) -> None:
        at_ns = event["now_ns"] + self._hosts.epoch_ns
        unix_s = time.time() - (time.monotonic_ns() - at_ns) / 1e9
        row = {"unix_s": unix_s, **{key: value for key, value in event.items() if key not in ("now_ns", "sent_ns")}}
        for level, emit in list(self._watchers.values()):
            if LEVEL_OF_KIND[event["kind"]] <= level:
                emit(row)


def _shown(entry: DenyEntry) -> str:
    exact = entry.mask == (1 << EV_BITS) - 1
    return f"EV {entry.value:#x}" if exact else f"mask {entry.mask:#x} value {entry.value:#x}"
