"""EVs of ECMP mode: 16 bits in the UDP source port, and the port of the NIC; the switches' hash does the rest.

Owns the values and their order. Refuses to say which path such an EV takes: a hashing switch computes that from the
whole 5-tuple and a seed of its own, and several EVs may share a path. That makes an ECMP EV a label to spray and to
retire, not an address: two bad EVs may be one bad link, and denying one may leave the link in use.

Nothing here reaches a packet: the device does not offer UDP mode (device.py), and QPs of ECMP mode take their EVs from
`topology.ecmp`. The names are here so that profiles of that mode can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from errno import EINVAL

from mrcemu.controller.refusal import ControlError, require_range
from mrcemu.controller.values import Ev
from mrcemu.wire.ev import ev_from_ecmp_fields, ev_to_ecmp_fields

ECMP_EV_BYTES = 2
# The dynamic ports of RFC 6335, which RoCEv2 senders use for entropy: 16,384 EVs a plane.
FIRST_SOURCE_PORT = 0xC000
SOURCE_PORTS = 0x4000


@dataclass(frozen=True, slots=True)
class EcmpEv:
    """What an ECMP EV fixes about a packet: the UDP source port, and the plane whose NIC port it leaves by (from 0)."""

    udp_source_port: int
    plane: int


def ecmp_ev(ev: Ev, planes: int) -> EcmpEv:
    """Read an EV of UDP mode; ControlError EINVAL beyond 16 bits or for a port that is not 1 to `planes`."""
    if any(ev.value[ECMP_EV_BYTES:]):
        raise ControlError(EINVAL, "ev", ev, "zeros after the first 16 bits")
    require_range("port", ev.port, 1, planes)
    return EcmpEv(ev_from_ecmp_fields(int.from_bytes(ev.value[:ECMP_EV_BYTES], "big")), ev.port - 1)


def ecmp_value(entropy: EcmpEv) -> Ev:
    """The EV that `ecmp_ev` reads back; ControlError EINVAL if the source port has more than 16 bits."""
    require_range("udp source port", entropy.udp_source_port, 0, 0xFFFF)
    _, port = ev_to_ecmp_fields(entropy.udp_source_port)
    return Ev.of(port.to_bytes(ECMP_EV_BYTES, "big"), entropy.plane + 1)


def ecmp_evs(count: int, planes: int) -> Iterator[Ev]:
    """`count` different EVs, one plane after the other in turn, so that planes get equal shares."""
    require_range("count", count, 1, SOURCE_PORTS * planes)
    for index in range(count):
        yield ecmp_value(EcmpEv(FIRST_SOURCE_PORT + index // planes, index % planes))
