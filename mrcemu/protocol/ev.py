"""The state of one path, and the one table by which it changes.

Owns: the states of protocol sources section 4.1, the transition table, the per-path record. Refuses: choosing a path
(spray.py), deciding that a packet is lost (loss.py), deciding when a probe is due (probes.py).
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from mrcemu.topology.addressing import Path

if TYPE_CHECKING:
    from mrcemu.protocol.loss import Flight
    from mrcemu.wire.fast import FrameTemplate


class EvState(Enum):
    """Only a GOOD path carries data. The controller sees GOOD, ASSUMED_BAD and DENIED; SKIP is internal."""

    GOOD = "GOOD"
    SKIP = "SKIP"
    ASSUMED_BAD = "ASSUMED_BAD"
    DENIED = "DENIED"


class EvInput(Enum):
    """What can happen to a path."""

    MARK = "mark"  # SACK with m = SKIP_ONCE echoing this EV, or NACK TRIMMED (not LASTHOP)
    MARK_ALWAYS = "mark_always"  # SACK with m = ALWAYS_SKIP
    LOSS = "loss"  # a packet lost untrimmed, or timed out
    TURN = "turn"  # the rotation met the path
    PROBED = "probed"  # enough clean probe replies in a row
    PROBED_MARKED = "probed_marked"  # enough replies, the last one marked
    EXONERATED = "exonerated"  # the loss was spurious, or a port's fault explains it
    DENY = "deny"  # controller
    ALLOW = "allow"  # controller


_G, _S, _B, _D = EvState.GOOD, EvState.SKIP, EvState.ASSUMED_BAD, EvState.DENIED

# (state, input) -> next state. Every pair is here, so that "nothing happens" is a decision and not an accident.
TRANSITIONS: dict[tuple[EvState, EvInput], EvState] = {
    (_G, EvInput.MARK): _S,  # sources 4.1: SACK m = SKIP_ONCE, NACK TRIMMED
    (_G, EvInput.MARK_ALWAYS): _B,  # 4.1
    (_G, EvInput.LOSS): _B,  # 4.1, paper 2.1: one untrimmed loss retires
    (_G, EvInput.TURN): _G,
    (_G, EvInput.PROBED): _G,
    (_G, EvInput.PROBED_MARKED): _S,  # a probe is a packet: its mark steers like any other
    (_G, EvInput.EXONERATED): _G,
    (_G, EvInput.DENY): _D,  # 4.1
    (_G, EvInput.ALLOW): _G,
    (_S, EvInput.MARK): _S,  # 4.2: repeated marks do not accumulate
    (_S, EvInput.MARK_ALWAYS): _B,  # 4.1, one source only
    (_S, EvInput.LOSS): _B,  # 4.1
    (_S, EvInput.TURN): _G,  # 4.2: restored as the rotation meets it
    (_S, EvInput.PROBED): _S,
    (_S, EvInput.PROBED_MARKED): _S,
    (_S, EvInput.EXONERATED): _S,
    (_S, EvInput.DENY): _D,
    (_S, EvInput.ALLOW): _S,
    (_B, EvInput.MARK): _B,  # congestion on a path out of service says nothing new
    (_B, EvInput.MARK_ALWAYS): _B,
    (_B, EvInput.LOSS): _B,
    (_B, EvInput.TURN): _B,
    (_B, EvInput.PROBED): _G,  # 4.1
    (_B, EvInput.PROBED_MARKED): _S,  # 4.1, conflict GOOD vs SKIP: SKIP heals by itself
    (_B, EvInput.EXONERATED): _G,  # ours: 2.6
    (_B, EvInput.DENY): _D,
    (_B, EvInput.ALLOW): _B,
    (_D, EvInput.MARK): _D,
    (_D, EvInput.MARK_ALWAYS): _D,
    (_D, EvInput.LOSS): _D,
    (_D, EvInput.TURN): _D,
    (_D, EvInput.PROBED): _D,  # 4.1: never by itself
    (_D, EvInput.PROBED_MARKED): _D,
    (_D, EvInput.EXONERATED): _D,
    (_D, EvInput.DENY): _D,
    (_D, EvInput.ALLOW): _G,  # 4.1: controller sets GOOD
}


class EvEntry:
    """One path of one QP: its state, its counters, its transmissions in flight, its probe state.

    Times in ns of the run clock. Mutable, one per EV for the QP's life; never allocated per packet.
    """

    __slots__ = (
        "acked_serial",
        "active",
        "clean_probes",
        "control_template",
        "data_template",
        "ev",
        "flights",
        "hold_down_ns",
        "lost",
        "marked",
        "missed_probes",
        "next_probe_ns",
        "path",
        "plane",
        "retired",
        "retired_ns",
        "returned_ns",
        "retx_template",
        "rtt_ns",
        "sent",
        "serial",
        "skip_run",
        "skip_turns",
        "state",
        "trimmed",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ev = path.ev
        self.plane = path.plane
        self.state = EvState.GOOD
        self.active = False
        self.sent = 0
        self.marked = 0
        self.trimmed = 0
        self.lost = 0
        self.retired = 0
        self.rtt_ns = 0
        self.flights: deque[Flight] = deque()  # in send order; done ones are dropped lazily
        self.serial = 0  # of the newest transmission
        self.acked_serial = 0  # highest serial known to have arrived
        self.retired_ns = -1
        self.returned_ns = -1
        self.hold_down_ns = 0
        self.next_probe_ns = 0
        self.clean_probes = 0
        self.missed_probes = 0  # in a row, while in service (reverse.py)
        self.skip_turns = 0  # turns still to skip while in SKIP
        self.skip_run = 0  # consecutive marks, for adaptive skipping
        self.data_template: FrameTemplate | None = None
        self.retx_template: FrameTemplate | None = None
        self.control_template: FrameTemplate | None = None
