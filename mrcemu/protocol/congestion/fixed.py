"""A fixed window: `window_bdp` x the BDP of one plane, summed over the planes up at both ends. Reacts to nothing."""

from __future__ import annotations

from mrcemu.protocol.config import NOMINAL_OVERHEAD_BYTES, TransportConfig


class FixedWindow:
    """The default until a reacting controller is chosen, and the reference to compare one with."""

    __slots__ = ("_floor_bytes", "_per_plane_bytes", "_planes", "inflight_bytes", "window_bytes")

    def __init__(self, config: TransportConfig, planes: int) -> None:
        self._per_plane_bytes = int(config.window_bdp * config.plane_bdp_bytes)
        self._floor_bytes = config.mtu_bytes + NOMINAL_OVERHEAD_BYTES  # one packet always fits
        self.inflight_bytes = 0
        self._planes = 0
        self.window_bytes = 0
        self.set_planes(planes)

    def may_send(self, nominal_bytes: int) -> bool:
        return self.inflight_bytes + nominal_bytes <= self.window_bytes

    def on_sent(self, nominal_bytes: int) -> None:
        self.inflight_bytes += nominal_bytes

    def on_left(self, nominal_bytes: int) -> None:
        self.inflight_bytes -= nominal_bytes

    def set_planes(self, count: int) -> None:
        self._planes = count
        self.window_bytes = max(self._floor_bytes, self._per_plane_bytes * max(1, count))
