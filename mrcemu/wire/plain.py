"""Frames of ECMP mode, which have no outer header: Ethernet, IPv6 from NIC to NIC, UDP and so on.

    0   Ethernet 14
    14  IPv6 40           the NICs' own addresses, flow label 0; switches mark and trim in this, the only header
    54  UDP 8             source port = EV; its length keeps the original size when trimmed
    62  BTH 12 ...        as in `layout`

Owns the way from this form to the one of `layout`, which everything behind a parser understands: a copy and two
headers, so that the other form pays nothing for it. Refuses checks: the parser makes them on what comes out.
"""

from __future__ import annotations

from mrcemu.wire import layout

NEXT_HEADER_OFFSET = layout.OUTER_OFFSET + 6
IS_PLAIN = bytes([layout.NEXT_HEADER_UDP])  # at NEXT_HEADER_OFFSET
_UDP_LENGTH = slice(layout.INNER_OFFSET + 4, layout.INNER_OFFSET + 6)
_INTO_ENCAPSULATED = bytes([layout.NEXT_HEADER_IPV6])


def encapsulated(frame: bytes) -> bytes:
    """A plain frame with the outer header it would have had; of any bytes, something that is wrong in the same way.

    Outer length and class are the frame's own; the inner length is UDP's, which says how long the packet was before a
    switch cut it. The inner flow label is 0: in this mode it is no part of the EV. An IPv6 payload above 65,495 bytes,
    more than any interface carries, does not survive.
    """
    header = frame[layout.OUTER_OFFSET : layout.INNER_OFFSET].ljust(layout.IPV6_BYTES, b"\0")
    outer_bytes = min(0xFFFF, layout.IPV6_BYTES + (header[4] << 8 | header[5]))
    return b"".join(
        (
            frame[: layout.OUTER_OFFSET], header[:4], outer_bytes.to_bytes(2, "big"), _INTO_ENCAPSULATED, header[7:],
            header[:1], bytes((header[1] & 0xF0, 0, 0)), frame[_UDP_LENGTH].ljust(2, b"\0"), header[6:],
            frame[layout.INNER_OFFSET :],
        )
    )  # fmt: skip
