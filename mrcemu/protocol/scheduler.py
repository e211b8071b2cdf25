"""Which QP sends next: fair rotation over those that are READY (protocol sources 6.8).

IDLE nothing to send or in flight; PENDING nothing to send but in flight; ACTIVE data but the window closed; READY data
and the window open. Only READY QPs stand in the rotation. (One public encoder swaps ACTIVE and READY; we do not.)
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mrcemu.protocol.qp import Qp


class QpActivity(Enum):
    """What a QP waits for."""

    IDLE = "IDLE"
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    READY = "READY"


class QpScheduler:
    """The rotation of one NIC. A QP is offered when it may have become READY; it leaves with nothing to give."""

    __slots__ = ("_listed", "_ready")

    def __init__(self) -> None:
        self._ready: deque[Qp] = deque()
        self._listed: set[int] = set()

    def offer(self, qp: Qp) -> None:
        """List a QP that may be READY; no effect if it is listed."""
        if qp.qpn not in self._listed:
            self._listed.add(qp.qpn)
            self._ready.append(qp)

    def forget(self, qp: Qp) -> None:
        if qp.qpn in self._listed:
            self._listed.discard(qp.qpn)
            self._ready.remove(qp)

    def __len__(self) -> int:
        return len(self._ready)

    def turn(self) -> Qp:
        """The QP whose turn it is, moved to the end of the rotation."""
        qp = self._ready[0]
        self._ready.rotate(-1)
        return qp

    def drop_last(self) -> None:
        """The QP that just had its turn is not READY."""
        self._listed.discard(self._ready.pop().qpn)
