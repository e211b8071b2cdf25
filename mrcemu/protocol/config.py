"""What a QP and its NIC can be told, with defaults that derive from the topology.

Owns every tunable of the transport and the choice made where public sources leave one open (each field says so).
Refuses absolute times: everything is a multiple of the fabric's base RTT or frame time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrcemu.topology import timing
from mrcemu.topology.ecmp import SRV6, Forwarding
from mrcemu.topology.model import Topology
from mrcemu.wire.opcodes import DscpMap

# MPR and window edges are counted in units of 128 PSNs (mrc.h).
MPR_UNIT_PSNS = 128
MAX_MPR_UNITS = 255  # 8 bits in a SACK
# Nominal bytes of a data packet beside payload and padding: UDP 8 + BTH 12 + METH 4 + TSETH 4 + RETH 16 + iCRC 4, plus
# the 40 that UEC adds (protocol sources 6.1 "nominal packet = UDP length + 40").
NOMINAL_OVERHEAD_BYTES = 88
# The local ACK timer is 1.024 us x 2^code, code 0 .. 24 (mrc.h).
TIMEOUT_UNIT_NS = 1024
MAX_TIMEOUT_CODE = 24
# exp_cnt 25 means: retry for ever (mrc.h).
RETRY_FOREVER = 25
# One TSETH tick at full speed; multiplied by the topology's scale (ours: tsr = 1, see docs/protocol.md).
TIMESTAMP_UNIT_NS = 128


def timeout_code_for(base_rtt_ns: int) -> int:
    """The smallest timeout code whose timer is at least four base RTTs (ours: a SACK may wait one RTT in a queue each
    way, and be coalesced)."""
    code = 0
    while TIMEOUT_UNIT_NS << code < 4 * base_rtt_ns and code < MAX_TIMEOUT_CODE:
        code += 1
    return code


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """All settings of a QP. Build it with `for_topology`; times in ns, sizes in bytes."""

    base_rtt_ns: int
    plane_bdp_bytes: int  # rate x base RTT of one plane, in frame bytes
    max_guard_ns: int  # ceiling of the reorder guard: base RTT plus the worst queue of a path
    timestamp_unit_ns: int = TIMESTAMP_UNIT_NS
    mtu_bytes: int = 4096
    timeout_code: int = 17
    linear_retries: int = 7  # 0 .. 7 retries at a fixed timer; sample value of the companion repository
    exp_retries: int = 5  # then 0 .. 24 with doubling, 25 for ever; one of the open encoders' default
    mpr_units: int = 8  # responder window, units of 128 PSNs; the specification's minimum
    dynamic_mpr: bool = False  # SACKs carry the responder's current window; both ends must agree
    max_imm_in_flight: int = 128  # writes with immediate the peer takes at once (companion sample; minimum is 32)
    sack_threshold_bytes: int = 16384  # one SACK per 4 full packets (UET default; conflict 4096 vs 16384)
    sack_min_add_bytes: int = 1024  # a small packet counts as this many
    window_bdp: float = 1.5  # fixed window = this x BDP, summed over the planes up at both ends
    active_share: float = 0.75  # of a plane's EVs in the active set, at least one; the rest are its backups
    ev_min_active: int = 0  # floor of EVs in service; 0: a quarter of all EVs (as the companion samples do)
    adaptive_skip: bool = False  # double the turns skipped on consecutive marks (ours)
    probe_interval_ns: int = 0  # between probes of one bad EV, +- 25 %; 0: one RTO
    probe_successes: int = 3  # clean replies in a row that bring an EV back
    max_hold_down_rto: int = 16  # a flapping EV's hold-down doubles up to this many RTOs
    reshuffle_turns: int = 16  # rotations of a plane's EVs before their order is shuffled again
    trimmable: bool = True  # data asks switches to trim it; off: DSCP no_trim
    trim_nack: bool = True  # the responder answers trimmed packets with a NACK
    forwarding: Forwarding = SRV6  # how a QP's paths and endpoint operations are addressed unless paths are given
    udp_port: int = 4791
    dscp: DscpMap = field(default_factory=DscpMap)

    @property
    def rto_ns(self) -> int:
        """The local ACK timer."""
        return TIMEOUT_UNIT_NS << self.timeout_code

    @property
    def mpr_psns(self) -> int:
        return self.mpr_units * MPR_UNIT_PSNS

    @property
    def probe_spacing_ns(self) -> int:
        return self.probe_interval_ns or self.rto_ns

    def min_active(self, ev_count: int) -> int:
        """EVs that stay in service whatever happens to them."""
        return self.ev_min_active or max(1, ev_count // 4)


def for_topology(topology: Topology, hops: int = timing.CROSS_T1_HOPS) -> TransportConfig:
    """Defaults for a fabric. `hops` is the longest path's link count between the two ends."""
    base_rtt_ns = timing.base_rtt_ns(topology, hops)
    queue = timing.queue_spec(topology)
    slowest_bps = min(topology.nic_rate_bps, topology.fabric_rate_bps)
    worst_queue_ns = (hops * queue.data_bytes + queue.last_hop_bytes) * 8 * timing.NS // slowest_bps
    return TransportConfig(
        base_rtt_ns=base_rtt_ns,
        plane_bdp_bytes=timing.plane_bdp_bytes(topology, hops),
        max_guard_ns=base_rtt_ns + worst_queue_ns,
        timestamp_unit_ns=TIMESTAMP_UNIT_NS * topology.scale,
        mtu_bytes=topology.mtu_bytes,
        trimmable=topology.trimming.enabled,
        timeout_code=timeout_code_for(base_rtt_ns),
    )
