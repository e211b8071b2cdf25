"""Where things are in the standard frame, and how long each packet is.

    0   Ethernet 14
    14  outer IPv6 40     source = inner source, destination = uSID list, next header 41, payload = 40 + inner payload
    54  inner IPv6 40     the NICs' own addresses, next header 17; its length keeps the original size when trimmed
    94  UDP 8             source port = EV[15:0], checksum 0 as RoCE hardware sends it
    102 BTH 12
    114 extension headers, then payload, 0 to 3 bytes of pad, iCRC 4

This is the form of SRv6 mode; `plain` has that of ECMP mode. No segment routing header: six uSIDs fit in the
destination. A frame with one is read by `frame`, not by `fast`. Congestion marks and the trimmed class live in the
*outer* traffic class, the only one switches touch; the receiving NIC reads them there before it decapsulates, and the
inner traffic class stays as sent.
"""

from __future__ import annotations

from mrcemu.wire.opcodes import DATA_OPCODES, IMMEDIATE_OPCODES, Opcode

ETHERNET_BYTES = 14
IPV6_BYTES = 40
UDP_BYTES = 8
BTH_BYTES = 12
ICRC_BYTES = 4

OUTER_OFFSET = ETHERNET_BYTES
INNER_OFFSET = OUTER_OFFSET + IPV6_BYTES
UDP_OFFSET = INNER_OFFSET + IPV6_BYTES
BTH_OFFSET = UDP_OFFSET + UDP_BYTES
EXT_OFFSET = BTH_OFFSET + BTH_BYTES

ETHERTYPE_IPV6 = 0x86DD
NEXT_HEADER_UDP = 17
NEXT_HEADER_IPV6 = 41
NEXT_HEADER_ROUTING = 43
HOP_LIMIT = 64

METH_BYTES = 4
TSETH_BYTES = 4
RETH_BYTES = 16
IMMDT_BYTES = 4

# BTH byte 8. FLAG_TS says that a TSETH follows the METH; only data packets have one.
FLAG_ACKREQ = 0x80
FLAG_RTX = 0x20
FLAG_TS = 0x10

CONTROL_EXT_BYTES = {
    Opcode.ACKNOWLEDGE: 4,  # AETH
    Opcode.ENDPOINT_REQUEST: 16,  # ERTH
    Opcode.ENDPOINT_RESPONSE: 36,  # EETH
    Opcode.SACK: 36,  # SETH + CC_STATE
    Opcode.NACK: 20,  # NETH
    Opcode.PROBE_REQUEST: 16,  # PETH
}


def extension_bytes(opcode: int, with_tseth: bool) -> int:
    """Length of the extension headers of a packet, 0 for an opcode that MRC does not have."""
    if opcode in DATA_OPCODES:
        immediate = IMMDT_BYTES if opcode in IMMEDIATE_OPCODES else 0
        return METH_BYTES + (TSETH_BYTES if with_tseth else 0) + RETH_BYTES + immediate
    return CONTROL_EXT_BYTES.get(opcode, 0)  # type: ignore[call-overload,no-any-return]
