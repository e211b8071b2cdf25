"""Which ports are up at both ends: local carrier, and what each peer last told (protocol sources 4.9).

Owns the Port Status Update: an endpoint request (QPN 2) whose mask has bit N + 1 set for each reachable plane N (the
companion headers count ports from 1). It is best effort and never retransmitted, so one copy goes out on each plane
that is up, and all of it `REPEATS` times more, one timer apart; ids order the copies, one that is not newer than the
newest seen is ignored (ours).
"""

from __future__ import annotations

from mrcemu.wire import fast
from mrcemu.wire import psn as wire_psn
from mrcemu.wire.opcodes import EndpointOp

REPEATS = 3


class PortStatus:
    """Local and remote port masks of one NIC; bit N is plane N, counted from 0."""

    def __init__(self, planes: int) -> None:
        self.local_mask = (1 << planes) - 1
        self._all = self.local_mask
        self._remote: dict[bytes, int] = {}
        self._newest_id: dict[bytes, int] = {}
        self._next_id = 0

    def set_local(self, plane: int, up: bool) -> bool:
        """Record carrier of a local port; True if it changed."""
        bit = 1 << plane
        if bool(self.local_mask & bit) == up:
            return False
        self.local_mask ^= bit
        return True

    def usable(self, peer: bytes) -> int:
        """Planes up at both ends."""
        return self.local_mask & self._remote.get(peer, self._all)

    @property
    def is_full(self) -> bool:
        """Whether every local port is up."""
        return self.local_mask == self._all

    def next_id(self) -> int:
        """The id of a new update."""
        self._next_id = (self._next_id + 1) & wire_psn.MSN_MASK
        return self._next_id

    def update(self, timestamp: int) -> bytes:
        """The extension header that tells a peer about the local ports."""
        return fast.pack_erth(EndpointOp.PORT_STATUS_UPDATE, self.local_mask << 1, timestamp)

    def receive(self, peer: bytes, request_id: int, wire_mask: int) -> int | None:
        """A peer's update: its new mask, or None if the copy is old or says nothing new.

        The peer may not have a QP with us yet: the two ends are set up one after the other.
        """
        newest = self._newest_id.get(peer, 0)
        expanded = wire_psn.expand16(request_id & wire_psn.MSN_MASK, newest)
        if expanded <= newest:
            return None
        self._newest_id[peer] = expanded
        mask = wire_mask >> 1 & self._all
        if mask == self._remote.get(peer, self._all):
            return None
        self._remote[peer] = mask
        return mask
