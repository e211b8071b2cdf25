"""What a host's endpoint remembers of a run: arrivals in bins, and a log of transport events.

Owns the bin width and the form of the log. Bounded: a run of any length keeps one number per bin and at most
`EVENT_LOG_LIMIT` events per host; further ones are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from mrcemu.protocol import events
from mrcemu.wire.opcodes import NackReason

BIN_NS = 10_000_000
EVENT_LOG_LIMIT = 200_000

# Events whose counts over time become series; by class, the series' name.
SERIES = {
    events.PacketLost: "lost",
    events.Retransmitted: "retransmitted",
    events.NackReceived: "trimmed",
}
_TRIMS = (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
# Too many to log one by one, and counted elsewhere.
_NOT_LOGGED = (events.MessageArrived, events.WriteCompleted)


class Recorder:
    """Arrivals and events of one host."""

    def __init__(self) -> None:
        self.placed: dict[tuple[int, int], dict[int, int]] = {}  # (QPN, plane) -> bin -> payload bytes
        self.span_ns: dict[int, list[int]] = {}  # QPN -> first and last arrival
        self.series: dict[str, dict[int, int]] = {name: defaultdict(int) for name in SERIES.values()}
        self.log: list[dict[str, Any]] = []
        self.log_dropped = 0

    def on_placed(self, qpn: int, plane: int, size: int, now_ns: int) -> None:
        """One packet's payload is in memory."""
        bins = self.placed.get((qpn, plane))
        if bins is None:
            bins = self.placed[qpn, plane] = defaultdict(int)
            self.span_ns.setdefault(qpn, [now_ns, now_ns])
        bins[now_ns // BIN_NS] += size
        self.span_ns[qpn][1] = now_ns

    def forget(self, qpns: Collection[int]) -> None:
        """Drop what was recorded of QPs that are gone."""
        for key in [key for key in self.placed if key[0] in qpns]:
            del self.placed[key]
        for qpn in qpns:
            self.span_ns.pop(qpn, None)

    def on_event(self, event: events.Event) -> None:
        """Count and log one transport event."""
        name = SERIES.get(type(event))
        if isinstance(event, events.NackReceived) and event.reason not in _TRIMS:
            name = None
        if name is not None:
            self.series[name][event.now_ns // BIN_NS] += 1
        if isinstance(event, _NOT_LOGGED):
            return
        if len(self.log) >= EVENT_LOG_LIMIT:
            self.log_dropped += 1
            return
        record = asdict(event)
        record["kind"] = type(event).__name__
        if isinstance(event, events.PeerPortsChanged):
            record["peer"] = event.peer.hex()
        self.log.append(record)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: bins as [index, value] pairs, in order."""
        return {
            "bin_ns": BIN_NS,
            "placed": [
                {"qpn": qpn, "plane": plane, "bins": sorted(bins.items())}
                for (qpn, plane), bins in sorted(self.placed.items())
            ],
            "series": {name: sorted(bins.items()) for name, bins in self.series.items()},
            "events": self.log,
            "events_dropped": self.log_dropped,
        }
