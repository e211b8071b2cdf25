"""What the transport tells its owner, as plain records; `now_ns` of the call that caused it is in each.

Owns no behaviour. A NIC queues events; `Nic.next_event()` hands them out in order. The queue is bounded: beyond
`EVENT_LIMIT` undrained events the oldest stay and new ones are counted as dropped (mrc_ctl.h: it drops and counts).
"""

from __future__ import annotations

from dataclasses import dataclass

EVENT_LIMIT = 65536


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events: run-clock time and the local QP number (0: the NIC itself)."""

    now_ns: int
    qpn: int


@dataclass(frozen=True, slots=True)
class EvChanged(Event):
    """An EV moved between states; `signal` says why: sack_gap, guard, timer, nack, mark, probe, port, spurious..."""

    ev: int
    plane: int
    old: str
    new: str
    signal: str


@dataclass(frozen=True, slots=True)
class PacketLost(Event):
    """A transmission was declared lost, by which rule, and when it had been sent."""

    psn: int
    ev: int
    signal: str
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Retransmitted(Event):
    """A packet went out again on another EV."""

    psn: int
    ev: int
    attempt: int


@dataclass(frozen=True, slots=True)
class NackReceived(Event):
    """The peer refused or lost the payload of one packet."""

    psn: int
    ev: int
    reason: int


@dataclass(frozen=True, slots=True)
class LossWasSpurious(Event):
    """An original arrived although it had been declared lost; the guard is longer from now on."""

    psn: int
    ev: int
    guard_ns: int


@dataclass(frozen=True, slots=True)
class PortChanged(Event):
    """A local port went down or came up."""

    port: int
    up: bool


@dataclass(frozen=True, slots=True)
class PeerPortsChanged(Event):
    """A peer told which of its ports are up (bit N = port N, counted from 0 here; 1-based on the wire)."""

    peer: bytes
    mask: int


@dataclass(frozen=True, slots=True)
class WriteCompleted(Event):
    """The requester's message is acknowledged by the peer's Transport ACK, in order."""

    wr_id: int
    msn: int
    length: int
    posted_ns: int


@dataclass(frozen=True, slots=True)
class MessageArrived(Event):
    """The responder holds all bytes of a message and of all before it."""

    msn: int
    imm: int | None


@dataclass(frozen=True, slots=True)
class TimerExpired(Event):
    """The oldest packet was not acknowledged in time; `attempt` counts towards the retry budget."""

    psn: int
    attempt: int


@dataclass(frozen=True, slots=True)
class QpFailed(Event):
    """The QP is in error, once, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class EvProbed(Event):
    """The answer to an endpoint or reliability probe asked for by name; rtt_ns None: no answer in time."""

    ev: int
    rtt_ns: int | None
    request_id: int
