"""Registered memory: what a peer's RETH may touch, checked for every packet.

Owns regions, keys, bounds and access. Refuses to know messages or PSNs. A region's `observer`, if set, sees each
payload as it is placed (the byte check of the workloads).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Protocol

MAX_MESSAGE_BYTES = 1 << 30

# observer(qpn, msn, offset in the region, payload)
PlacementObserver = Callable[[int, int, int, bytes], None]


class Access(IntFlag):
    """Access rights of a region, by the verbs names."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2


class PayloadSource(Protocol):
    """Where a requester reads payload from: any buffer, or data that is computed."""

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """`length` bytes from `offset`, unchanged until the write completes."""
        ...


class BufferSource:
    """A payload source over local memory."""

    __slots__ = ("_view",)

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buffer).cast("B")

    def read(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]


@dataclass(slots=True)
class MemoryRegion:
    """Memory a peer may write: remote addresses base_va .. base_va + length - 1 under `rkey`; access is fixed."""

    rkey: int
    base_va: int
    view: memoryview
    access: Access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
    observer: PlacementObserver | None = None
    end_va: int = field(init=False)
    is_remote_writable: bool = field(init=False)  # asked for every packet: testing a flag costs twenty times as much

    def __post_init__(self) -> None:
        self.end_va = self.base_va + len(self.view)
        self.is_remote_writable = bool(self.access & Access.REMOTE_WRITE)


class RegionTable:
    """The regions of one NIC by rkey."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def register(self, region: MemoryRegion) -> None:
        """Make a region reachable; ValueError if the key is taken or the memory is read-only."""
        if region.rkey in self._regions:
            raise ValueError(f"rkey {region.rkey:#x} is in use")
        if region.view.readonly:
            raise ValueError("a registered region must be writable")
        self._regions[region.rkey] = region

    def deregister(self, rkey: int) -> None:
        """Take a region away; later packets for it fail their check."""
        self._regions.pop(rkey, None)

    def check(self, rkey: int, va: int, length: int) -> MemoryRegion | None:
        """The region if `length` bytes at `va` lie inside it and remote writing is allowed, else None."""
        region = self._regions.get(rkey)
        if region is None or va < region.base_va or va + length > region.end_va or not region.is_remote_writable:
            return None
        return region
