"""Optional keys of `transport`: what may be tuned from a scenario file, with its unit and range.

Owns the mapping from a key as a user writes it to a field of `protocol.config.TransportConfig`. Refuses defaults: what
is not given keeps the value derived from the topology.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mrcemu.topology.ecmp import ECMP, SRV6
from mrcemu.units import parse_fraction, parse_size_bytes, parse_time_ns


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: the `TransportConfig` field it sets, how its value is read, what it means."""

    field: str
    parse: Callable[[object], Any]
    about: str


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return parse


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true | false")
    return value


def _number(low: float, high: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return float(value)

    return parse


def _share(value: object) -> float:
    share = parse_fraction(value)
    if share == 0:
        raise ValueError("a percentage above 0%, e.g. 75%")
    return share


def _skip(value: object) -> bool:
    if value not in ("literal", "adaptive"):
        raise ValueError("literal (one turn a mark) | adaptive (consecutive marks double the turns skipped)")
    return value == "adaptive"


def _forwarding(value: object) -> str:
    if value not in (SRV6, ECMP):
        raise ValueError("srv6 (the sender names every hop) | ecmp (switches hash the UDP source port)")
    return str(value)


SETTINGS: dict[str, Setting] = {
    "timeout_code": Setting("timeout_code", _whole(0, 24), "local ACK timer: 1.024 us x 2^code"),
    "linear_retries": Setting("linear_retries", _whole(0, 7), "retries at a fixed timer"),
    "exp_retries": Setting("exp_retries", _whole(0, 25), "then retries with doubling; 25 is for ever"),
    "mpr": Setting("mpr_units", _whole(1, 255), "responder window in units of 128 PSNs"),
    "sack_threshold": Setting("sack_threshold_bytes", parse_size_bytes, "bytes received between two SACKs"),
    "window_bdp": Setting("window_bdp", _number(0.1, 100), "congestion window in BDPs of the planes that are up"),
    "active_share": Setting("active_share", _share, "share of a plane's paths in service, the rest are backups"),
    "ev_min_active": Setting("ev_min_active", _whole(1, 256), "paths that stay in service whatever happens"),
    "skip": Setting("adaptive_skip", _skip, "how long a marked path is avoided"),
    "probe_interval": Setting("probe_interval_ns", parse_time_ns, "between probes of one bad path"),
    "probe_successes": Setting("probe_successes", _whole(1, 1000), "clean replies that bring a path back"),
    "udp_port": Setting("udp_port", _whole(1024, 65535), "UDP destination port; 4791 and 4971 are understood too"),
    "max_imm_in_flight": Setting("max_imm_in_flight", _whole(1, 65535), "writes with immediate in flight at once"),
    "dynamic_mpr": Setting("dynamic_mpr", _flag, "SACKs carry the responder's window"),
    "max_hold_down": Setting("max_hold_down_rto", _whole(1, 1024), "longest hold-down of a flapping path, in timers"),
    "trim_nack": Setting("trim_nack", _flag, "answer trimmed packets with a NACK"),
    "forwarding": Setting("forwarding", _forwarding, "how packets find their way"),
}


def parse_setting(key: str, value: object) -> tuple[str, Any]:
    """(`TransportConfig` field, value in base units) of a known key; ValueError says what is allowed."""
    setting = SETTINGS[key]
    return setting.field, setting.parse(value)
