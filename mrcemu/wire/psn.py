"""Packet sequence numbers: the only place that knows they wrap at 24 bits.

Everything above this package counts PSNs in unbounded integers. A PSN is cut to 24 bits when it is written and brought
back near a known one when it is read, so that no other code compares wrapped numbers. MSN and RQMSN (16 bits) are
handled the same way.
"""

from __future__ import annotations

PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
MSN_BITS = 16
MSN_MASK = (1 << MSN_BITS) - 1

_PSN_HALF = 1 << (PSN_BITS - 1)
_MSN_HALF = 1 << (MSN_BITS - 1)


def wrap(psn: int) -> int:
    """The 24 bits of an unbounded PSN (negative ones too) that travel in a packet."""
    return psn & PSN_MASK


def expand(psn24: int, reference: int) -> int:
    """The unbounded PSN nearest to `reference` whose low 24 bits are `psn24`.

    The result lies in reference - 2**23 .. reference + 2**23 - 1: exactly half a circle away counts as behind, as in
    IBTA's duplicate region. Near zero the result may be negative: a PSN before the first one, which callers treat as
    any other PSN that is too old.
    """
    return reference + ((psn24 - reference + _PSN_HALF) & PSN_MASK) - _PSN_HALF


def expand16(value16: int, reference: int) -> int:
    """The unbounded MSN, RQMSN or other 16-bit counter nearest to `reference`; same rules as `expand`."""
    return reference + ((value16 - reference + _MSN_HALF) & MSN_MASK) - _MSN_HALF


def signed16(raw: int) -> int:
    """A 16-bit field read as two's complement: -32768 .. 32767 (ack_psn_offset, sack_offset)."""
    return raw - 0x10000 if raw & 0x8000 else raw


def fits_signed16(offset: int) -> bool:
    """Whether a PSN offset can be written in a signed 16-bit field."""
    return -0x8000 <= offset <= 0x7FFF
