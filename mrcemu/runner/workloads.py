"""The `workload` list of a scenario: its keys, what each kind of workload takes, and the checked result.

Owns which kinds this version has and their limits. Refuses to run them: engine.py does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from mrcemu.errors import UsageError
from mrcemu.runner.functions import FUNCTIONS, is_statistic
from mrcemu.schema import Document, FileModel, SizeBytes, TimeNs, whole
from mrcemu.topology import timing
from mrcemu.topology.model import Topology

WRITE_BW, WRITE_LAT = "write_bw", "write_lat"
WORKLOADS = (WRITE_BW, WRITE_LAT)
WORKLOADS_NOT_YET = ("ring_allreduce", "all_to_all", "incast", "permutation", "sendrecv")
MAX_DEPTH = 1024
DEFAULT_DEPTH = 16
MAX_SIZE_BYTES = 1 << 30
MAX_COUNT = 100_000  # exchanges of write_lat: as many latencies are kept
# A counted workload's part of the run, in unloaded times of its exchanges (ours; what is late may end in the drain).
COUNT_SLACK = 1.25
MAX_DURATION_NS = 24 * 3600 * 10**9
_ID = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One traffic source. Times in ns since the start of the run, sizes in bytes."""

    id: str
    kind: str
    src: str
    dst: str
    size_bytes: int  # of a message
    depth: int  # messages outstanding
    start_ns: int
    duration_ns: int  # with `count`: how long that takes on an idle fabric, and a quarter more
    count: int | None = None  # exchanges of write_lat; None: as many as the duration allows

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def _identifier(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value) or value in FUNCTIONS or is_statistic(value):
        raise ValueError("a word of a-z, 0-9 and _ that starts with a letter and is no word of the expect language")
    return value


def available(known: Sequence[str], later: Sequence[str]) -> BeforeValidator:
    """Validator of a word this version knows; one of a later version is told apart from nonsense."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        note = f" ({value} is not available in this version)" if value in later else ""
        raise ValueError(" | ".join(known) + note)

    return BeforeValidator(check)


class WorkloadFile(FileModel):
    """One item of `workload`."""

    id: Annotated[str, BeforeValidator(_identifier)]
    kind: Annotated[str, available(WORKLOADS, WORKLOADS_NOT_YET)]
    src: str
    dst: str
    size: SizeBytes
    depth: Annotated[int | None, whole(1, MAX_DEPTH)] = None
    start: TimeNs = 0
    duration: TimeNs | None = None
    count: Annotated[int | None, whole(1, MAX_COUNT)] = None


def refuse_later_kinds(document: Document) -> None:
    """A workload of a later version has keys of its own; its kind is what to name, not those keys."""
    items = document.data.get("workload")
    for index, item in enumerate(items if isinstance(items, list) else []):
        kind = item.get("kind") if isinstance(item, dict) else None
        if kind in WORKLOADS_NOT_YET:
            allowed = " | ".join(WORKLOADS) + f" ({kind} is not available in this version)"
            raise document.error(("workload", index, "kind"), kind, allowed)


def checked_workloads(
    items: Sequence[WorkloadFile], topology: Topology, document: Document
) -> tuple[WorkloadSpec, ...]:  # fmt: skip
    """The items of `workload` with their defaults; ConfigError for what contradicts the topology or itself."""
    if not items:
        raise document.error(("workload",), items, "at least one workload")
    seen: set[str] = set()
    specs = []
    for index, item in enumerate(items):
        _check_workload(item, topology, document, ("workload", index))
        if item.id in seen:
            raise document.error(("workload", index, "id"), item.id, "an id of its own")
        seen.add(item.id)
        spec = _workload(item, topology)
        if not 0 < spec.duration_ns <= MAX_DURATION_NS - spec.start_ns:
            key = "duration" if item.count is None else "count"
            found = document.data["workload"][index][key]
            raise document.error(("workload", index, key), found, "a time above zero; the run at most 24 hours")
        specs.append(spec)
    return tuple(specs)


def _workload(item: WorkloadFile, topology: Topology) -> WorkloadSpec:
    """A checked item with its defaults."""
    depth = 1 if item.kind == WRITE_LAT else item.depth or DEFAULT_DEPTH
    duration = _count_ns(item, topology) if item.duration is None else item.duration
    return WorkloadSpec(
        item.id, item.kind, item.src, item.dst, item.size, depth, item.start, duration, item.count
    )  # fmt: skip


def _count_ns(item: WorkloadFile, topology: Topology) -> int:
    """How long the exchanges of write_lat take on an idle fabric, times COUNT_SLACK."""
    hops = 2 if topology.is_t0_local(topology.host_index(item.src), topology.host_index(item.dst)) else 4
    line_bps = timing.line_payload_bps(topology, topology.planes)
    one_way = timing.one_way_delay_ns(topology, hops, topology.data_frame_bytes) + item.size * 8 * timing.NS / line_bps
    return int((item.count or 0) * 2 * one_way * COUNT_SLACK)


def _check_workload(
    item: WorkloadFile, topology: Topology, document: Document, path: tuple[str | int, ...]
) -> None:  # fmt: skip
    for key, host in (("src", item.src), ("dst", item.dst)):
        try:
            topology.host_index(host)
        except UsageError:
            raise document.error((*path, key), host, f"h0 .. h{topology.host_count - 1}") from None
    if item.src == item.dst:
        raise document.error((*path, "dst"), item.dst, "another host than src")
    written = document.data["workload"][path[1]]
    if not 1 <= item.size <= MAX_SIZE_BYTES:
        raise document.error((*path, "size"), written["size"], "1B to 1GiB")
    _check_extent(item, document, path, written)


def _check_extent(
    item: WorkloadFile, document: Document, path: tuple[str | int, ...], written: Mapping[str, Any]
) -> None:  # fmt: skip
    """Only write_bw has a depth, only write_lat a count; each says how long it goes on."""
    if item.kind == WRITE_LAT:
        if item.depth is not None:
            raise document.error((*path, "depth"), written["depth"], "no depth: write_lat has one message outstanding")
        if (item.duration is None) == (item.count is None):
            place = path if item.count is None else (*path, "count")
            found = "neither" if item.count is None else "both"
            raise document.error(place, found, "either duration or count")
    elif item.count is not None:
        raise document.error((*path, "count"), written["count"], "duration (count is for write_lat)")
    elif item.duration is None:
        raise document.error(path, "no duration", "a duration, e.g. duration: 12s")
