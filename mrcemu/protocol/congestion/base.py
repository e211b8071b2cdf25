"""What a requester tells and asks a congestion controller. Sizes are nominal bytes (UDP length + 40)."""

from __future__ import annotations

from typing import Protocol


class CongestionControl(Protocol):
    """One controller, shared by the QPs of one destination."""

    inflight_bytes: int

    def may_send(self, nominal_bytes: int) -> bool:
        """Whether a packet fits: inflight + size <= window."""
        ...

    def on_sent(self, nominal_bytes: int) -> None:
        """A packet or retransmission left."""
        ...

    def on_left(self, nominal_bytes: int) -> None:
        """A packet left the network: acknowledged, lost, or refused by a NACK."""
        ...

    def set_planes(self, count: int) -> None:
        """Planes usable at both ends changed."""
        ...

    @property
    def window_bytes(self) -> int: ...
