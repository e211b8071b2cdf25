"""What a NIC offers its controller: limits, modes, algorithms, ports, optional features.

Lists what exists and nothing else. Not offered: UDP format (switches do not hash), a segment routing header (never
sent), changes of ONLINE profiles (a QP keeps the paths it was created with), congestion control profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntFlag

from mrcemu.controller.formats import SRV6_ADDRESS_BITS, EvFmtMode
from mrcemu.protocol.spray import MAX_EVS


class EvMode(IntFlag):
    """Where the EVs of a profile come from (mrc_ctl.h): the NIC, the controller's list, or the controller's fields."""

    AUTO = 1 << 0
    EXPLICIT = 1 << 1
    GENERATED = 1 << 2


class OptCap(IntFlag):
    """Optional features (mrc_ctl.h)."""

    EV_PROFILE_MODIFY_ONLINE = 1 << 0
    CC_PROFILE_MODIFY_ONLINE = 1 << 1
    EV_EVENT = 1 << 2
    EV_EXPLICIT_RANGE = 1 << 3
    EV_EVENT_PRECISE_DROP_CNT = 1 << 4
    EP_OP_EV_PROBE = 1 << 5


@dataclass(frozen=True, slots=True)
class EvAttr:
    """EV limits; counts of profiles and EVs are ours, sized for every QP of a large run to have a profile."""

    max_fmt_profiles: int = 16
    max_profiles: int = 64
    max_count: int = 64 * MAX_EVS
    free_count: int = 64 * MAX_EVS
    max_count_profile: int = MAX_EVS
    count_align: int = 1
    max_width_bits: int = SRV6_ADDRESS_BITS
    fmt_mode_mask: EvFmtMode = EvFmtMode.STEV | EvFmtMode.SRV6
    mode_mask: EvMode = EvMode.AUTO | EvMode.EXPLICIT | EvMode.GENERATED
    op_max_entries: int = 0  # 0: no cap on the entries of one operation


@dataclass(frozen=True, slots=True)
class CcAttr:
    """Congestion control: algorithms the transport runs, and how many profiles may choose among them."""

    max_profiles: int = 0
    algorithms: tuple[str, ...] = ("mrcemu-fixed-window",)


@dataclass(frozen=True, slots=True)
class DeviceAttr:
    """The answer to a device query. Bit N of `phy_port_mask` is port N; ports count from 1."""

    phy_port_mask: int
    ev: EvAttr = EvAttr()
    cc: CcAttr = CcAttr()
    opt_attr: OptCap = OptCap.EV_EVENT | OptCap.EV_EVENT_PRECISE_DROP_CNT | OptCap.EP_OP_EV_PROBE

    @property
    def port_count(self) -> int:
        return self.phy_port_mask.bit_count()

    def with_free(self, free_count: int) -> DeviceAttr:
        """The same device with that many EVs left."""
        return replace(self, ev=replace(self.ev, free_count=free_count))


def device_of(planes: int) -> DeviceAttr:
    """The NIC of a host on a fabric of that many planes: one port a plane, port N + 1 on plane N."""
    return DeviceAttr(phy_port_mask=((1 << planes) - 1) << 1)
