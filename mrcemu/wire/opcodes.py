"""Code points of the wire format: opcodes, reasons, marks, syndromes, DSCP classes, ECN.

Numbers are those of the MRC 1.0 companion material where it gives them; DSCP values are the operator's to choose and
ours are defaults. Refuses behaviour: what a code makes somebody do is written in `mrcemu.protocol`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import IntEnum


class Opcode(IntEnum):
    """BTH byte 0. The top three bits 0b110 are MRC's; there is no READ, SEND or ATOMIC."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE_REQUEST = 0xDE


# Sets of plain ints: a received opcode is looked up as the byte it is. IntEnum members hash and compare alike.
KNOWN_OPCODES = frozenset(map(int, Opcode))
DATA_OPCODES = frozenset(range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1))
FIRST_OPCODES = frozenset({0xC6, 0xCA, 0xCB})
LAST_OPCODES = frozenset({0xC8, 0xC9, 0xCA, 0xCB})
IMMEDIATE_OPCODES = frozenset({0xC9, 0xCB})

# (is the first packet, is the last packet, carries an immediate) -> opcode of a data packet of a message.
WRITE_OPCODE = {
    (True, False, False): Opcode.WRITE_FIRST,
    (False, False, False): Opcode.WRITE_MIDDLE,
    (False, True, False): Opcode.WRITE_LAST,
    (False, True, True): Opcode.WRITE_LAST_IMM,
    (True, True, False): Opcode.WRITE_ONLY,
    (True, True, True): Opcode.WRITE_ONLY_IMM,
}


class SackMark(IntEnum):
    """SETH `m`: what the responder says of the path of the packet that triggered the SACK. 0b11 is reserved."""

    NONE = 0
    SKIP_ONCE = 1  # that packet arrived with ECN-CE
    ALWAYS_SKIP = 2  # the responder judges the path persistently bad


class NackReason(IntEnum):
    """NETH nack_reason; the numbering is UET's. Only the two TRIMMED codes are optional."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class EndpointOp(IntEnum):
    """ERTH/EETH op: connectionless operations between two NICs, addressed to QPN 2."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class AethSyndrome(IntEnum):
    """AETH syndrome byte. ACK is IBTA's "no credit information"; the NAK codes are IBTA's."""

    ACK = 0x1F
    NAK_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63


class Ecn(IntEnum):
    """The two low bits of an IPv6 traffic class (RFC 3168)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


ENDPOINT_QPN = 0x2  # destination of endpoint requests and responses
FIRST_USER_QPN = 3  # 0, 1 and 2 are reserved
DEFAULT_P_KEY = 0xFFFF

ROCE_UDP_PORT = 4791
# Printed as the default in one place of the specification, most likely a transposition of 4791: understood, never sent.
TRANSPOSED_UDP_PORT = 4971
DEFAULT_UDP_PORTS = frozenset({ROCE_UDP_PORT, TRANSPOSED_UDP_PORT})


# What became of a data packet on its way, told by its class. Plain ints: the hot path compares them.
UNTRIMMED, TRIMMED, TRIMMED_LASTHOP = 0, 1, 2


@dataclass(frozen=True, slots=True)
class DscpMap:
    """The DSCP value of each class (0 .. 63); operator-defined, all six different, ValueError otherwise.

    A switch must be able to tell a trimmed packet from a trimmable one and from control (UEC 4.1.4.1); we ask for all
    to differ, so that a capture can be read.
    """

    no_trim: int = 0  # data where trimming is off
    trimmable: int = 8  # first transmissions and probes
    trimmable_retx: int = 10  # retransmissions
    trimmed: int = 16  # written by a switch that cut the payload
    trimmed_lasthop: int = 18  # the same, by the switch whose egress is the receiver's link
    control: int = 46  # SACK, NACK, transport acknowledge

    def __post_init__(self) -> None:
        values = astuple(self)
        if any(not 0 <= value <= 63 for value in values):
            raise ValueError(f"DSCP values are 0 .. 63, found {values}")
        if len(set(values)) != len(values):
            raise ValueError(f"the six DSCP values must differ, found {values}")


DEFAULT_DSCP = DscpMap()
