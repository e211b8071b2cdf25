"""Posted writes in order: cut into packets as they are sent, completed as the peer acknowledges.

Owns MSN and RQMSN (protocol sources 2.2), the WriteIMM limit (2.4) and the order of completions (2.13). Refuses PSNs'
fate: whether a packet arrived is the requester's business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mrcemu.errors import QpError
from mrcemu.protocol.memory import MAX_MESSAGE_BYTES, PayloadSource


@dataclass(slots=True)
class Message:
    """One posted write: where it comes from, where it goes, which PSNs it took."""

    wr_id: int
    msn: int
    rqmsn: int  # counts writes with immediate; 0 and meaningless in others
    source: PayloadSource
    length: int
    va: int
    rkey: int
    imm: int | None
    posted_ns: int
    first_psn: int = -1
    last_psn: int = -1


class MessageQueue:
    """The messages of one QP that are not complete yet."""

    __slots__ = (
        "_imm_in_flight",
        "_max_imm",
        "_next_msn",
        "_next_rqmsn",
        "_offset",
        "_unsent",
        "completed_msn",
        "incomplete",
    )

    def __init__(self, max_imm_in_flight: int) -> None:
        self._max_imm = max_imm_in_flight
        self._imm_in_flight = 0
        self._unsent: deque[Message] = deque()
        self.incomplete: deque[Message] = deque()
        self._offset = 0  # next byte of the first unsent message
        self._next_msn = 0
        self._next_rqmsn = 0
        self.completed_msn = 0  # messages completed so far

    def post(
        self, wr_id: int, source: PayloadSource, length: int, va: int, rkey: int, imm: int | None, now_ns: int
    ) -> Message:
        """Queue one write of 0 .. 1 GiB; QpError for a length outside that."""
        if not 0 <= length <= MAX_MESSAGE_BYTES:
            raise QpError(f"a write is 0 .. {MAX_MESSAGE_BYTES} bytes, got {length}")
        message = Message(wr_id, self._next_msn, 0, source, length, va, rkey, imm, now_ns)
        if imm is not None:
            message.rqmsn = self._next_rqmsn
            self._next_rqmsn += 1
        self._next_msn += 1
        self._unsent.append(message)
        self.incomplete.append(message)
        return message

    @property
    def posted(self) -> int:
        return self._next_msn

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def may_send(self) -> bool:
        """Whether a packet may follow: something is unsent, and it is not an immediate beyond the peer's limit."""
        if not self._unsent:
            return False
        return self._imm_in_flight < self._max_imm or self._unsent[0].imm is None or self._offset > 0

    def cut(self, psn: int, mtu_bytes: int) -> tuple[Message, int, int]:
        """The next packet, which takes `psn`: (message, offset, length). Only after `may_send` said yes."""
        message = self._unsent[0]
        offset = self._offset
        length = min(mtu_bytes, message.length - offset)
        if offset == 0:
            message.first_psn = psn
            self._imm_in_flight += message.imm is not None
        if offset + length >= message.length:
            message.last_psn = psn
            self._unsent.popleft()
            self._offset = 0
        else:
            self._offset = offset + length
        return message, offset, length

    def last_psn_below(self, msn: int) -> int | None:
        """The last PSN of the messages before `msn`, of those sent completely."""
        return max((m.last_psn for m in self.incomplete if m.msn < msn and m.last_psn >= 0), default=None)

    def complete_next(self, msn: int, first_unacked_psn: int) -> Message | None:
        """The next message before `msn`, completed; None if there is none, or it is not wholly acknowledged."""
        if not self.incomplete or self.incomplete[0].msn >= msn:
            return None
        message = self.incomplete[0]
        if not 0 <= message.last_psn < first_unacked_psn:
            return None
        self.incomplete.popleft()
        self.completed_msn = message.msn + 1
        self._imm_in_flight -= message.imm is not None
        return message

    def clear(self) -> None:
        """Forget all work."""
        self._unsent.clear()
        self.incomplete.clear()
        self._offset = 0
