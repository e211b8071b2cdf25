"""Which ports are up at both ends: local carrier, and what each peer last told (protocol sources 4.9).

Owns the Port Status Update: an endpoint request (QPN 2) whose mask has bit N + 1 set for each reachable plane N (the
companion headers count ports from 1). It is best effort and never retransmitted, so one copy goes out on each plane
that is up; ids order the copies, an older one than the newest seen is ignored (ours).
"""

from __future__ import annotations

from mrcemu.wire import fast
from mrcemu.wire import psn as wire_psn
from mrcemu.wire.opcodes import EndpointOp


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

    def update(self) -> tuple[int, bytes]:
        """(request id, extension header) telling a peer about the local ports."""
        self._next_id = (self._next_id + 1) & wire_psn.MSN_MASK
        return self._next_id, fast.pack_erth(EndpointOp.PORT_STATUS_UPDATE, self.local_mask << 1, 0)

    def receive(self, peer: bytes, request_id: int, wire_mask: int) -> int | None:
        """A peer's update: its new mask, or None if the copy is old or says nothing new. Peers must be known before."""
        newest = self._newest_id.get(peer)
        if newest is None:
            return None
        expanded = wire_psn.expand16(request_id & wire_psn.MSN_MASK, newest)
        if expanded <= newest:
            return None
        self._newest_id[peer] = expanded
        mask = wire_mask >> 1 & self._all
        if mask == self._remote[peer]:
            return None
        self._remote[peer] = mask
        return mask

    def add_peer(self, peer: bytes) -> None:
        """Expect updates from this peer; its ports count as up until it says otherwise."""
        self._newest_id.setdefault(peer, 0)
        self._remote.setdefault(peer, self._all)
