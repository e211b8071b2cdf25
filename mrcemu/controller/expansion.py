"""From the compact bits of an EV to the bits in a packet, and back; and the EVs that fields generate.

The rule is that of mrc_ctl.h and its expansion sample (protocol sources 5.4). For each field in order: take as many
bits of the EV, most significant first, as the mask has ones; lay them over `init_val` where the mask has ones, highest
bit on highest one; write the result right-aligned into the format field. What the fields leave over stays zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from errno import E2BIG, EINVAL
from math import prod

from mrcemu.controller.formats import EvFormat
from mrcemu.controller.refusal import ControlError, require_range
from mrcemu.controller.values import EV_BYTES, EV_VALUE_BITS

MAX_FIELD_BITS = 32  # mrc_ctl.h holds a field in 32 bits


@dataclass(frozen=True, slots=True)
class EvField:
    """One field of an EV profile; `width` in bits, 1 to 32. A fixed part has mask, min_val and max_val 0.

    `min_val` and `max_val` bound the masked bits of generated EVs. Both 0 under a mask is no bound, as in the samples,
    which leave them 0 and draw from the whole range (ours: a field held at 0 is a fixed one anyway).
    """

    width: int
    init_val: int = 0
    min_val: int = 0
    max_val: int = 0
    mask: int = 0

    @property
    def ev_bits(self) -> int:
        """Bits this field takes from the EV."""
        return self.mask.bit_count()

    @property
    def generated(self) -> range:
        """Values its masked bits run through in a generated EV."""
        if self.mask and self.min_val == self.max_val == 0:
            return range(1 << self.ev_bits)
        return range(self.min_val, self.max_val + 1)


def check_fields(fields: Sequence[EvField], fmt: EvFormat) -> None:
    """ControlError unless fields fit each other and their format: E2BIG for too much, EINVAL for the impossible."""
    require_range("field count", len(fields), 1, len(fmt.widths), E2BIG)
    for index, field in enumerate(fields):
        _check_field(index, field)
    require_range("field widths, bits in all", sum(field.width for field in fields), 1, fmt.total_bits, E2BIG)
    for index, (field, fmt_width) in enumerate(zip(fields, fmt.widths, strict=False)):
        # Ours, beside the sums: a field wider than its format field would silently lose its top bits.
        require_range(f"field {index} width", field.width, 1, fmt_width)


def _check_field(index: int, field: EvField) -> None:
    require_range(f"field {index} width", field.width, 1, MAX_FIELD_BITS)
    limit = (1 << field.width) - 1
    require_range(f"field {index} init_val", field.init_val, 0, limit)
    require_range(f"field {index} mask", field.mask, 0, limit)
    require_range(f"field {index} max_val", field.max_val, 0, (1 << field.ev_bits) - 1)
    require_range(f"field {index} min_val", field.min_val, 0, field.max_val)


def expand(fields: Sequence[EvField], fmt: EvFormat, ev: bytes) -> bytes:
    """The 32 bytes that go into a packet, used from the left, for the compact bits of an EV (at most 32 bytes).

    Fields must have passed `check_fields`. ControlError EINVAL if the EV has bits set that no field takes.
    """
    rest_bits = 8 * len(ev)
    rest = int.from_bytes(ev, "big")
    wire, wire_bits = 0, 0
    for field, fmt_width in zip(fields, fmt.widths, strict=False):
        taken, rest, rest_bits = _take(rest, rest_bits, field.ev_bits)
        wire = wire << fmt_width | field.init_val & ~field.mask | _deposit(taken, field.mask)
        wire_bits += fmt_width
    if rest:
        raise ControlError(EINVAL, "ev", ev.hex(), f"zeros after the first {_total_ev_bits(fields)} bits")
    return (wire << EV_VALUE_BITS - wire_bits).to_bytes(EV_BYTES, "big")


def compress(fields: Sequence[EvField], fmt: EvFormat, wire: bytes) -> bytes:
    """The EV (32 bytes) that expands to `wire` (32 bytes).

    ControlError EINVAL if none does: a fixed bit differs, or a bit is set that no field writes.
    """
    rest, rest_bits = int.from_bytes(wire, "big"), 8 * len(wire)
    ev, ev_bits = 0, 0
    for index, (field, fmt_width) in enumerate(zip(fields, fmt.widths, strict=False)):
        value, rest, rest_bits = _take(rest, rest_bits, fmt_width)
        if value & ~field.mask != field.init_val & ~field.mask:
            allowed = f"{field.init_val:#x} wherever mask {field.mask:#x} is 0"
            raise ControlError(EINVAL, f"field {index}", hex(value), allowed)
        ev = ev << field.ev_bits | _extract(value, field.mask)
        ev_bits += field.ev_bits
    if rest:
        raise ControlError(EINVAL, "ev", wire.hex(), "zeros behind the last field")
    return (ev << EV_VALUE_BITS - ev_bits).to_bytes(EV_BYTES, "big")


def generated_count(fields: Sequence[EvField]) -> int:
    """How many different EVs the bounds of the fields allow."""
    return prod(len(field.generated) for field in fields)


def generate(fields: Sequence[EvField], count: int) -> Iterator[bytes]:
    """The first `count` EVs (32 bytes each), the last field running fastest.

    Ours: a real NIC chooses. With the plane in the last field, any number of EVs is spread evenly over planes.
    """
    for number in range(min(count, generated_count(fields))):
        index, ev, shift = number, 0, EV_VALUE_BITS - _total_ev_bits(fields)
        for field in reversed(fields):
            index, digit = divmod(index, len(field.generated))
            ev |= field.generated[digit] << shift
            shift += field.ev_bits
        yield ev.to_bytes(EV_BYTES, "big")


def _total_ev_bits(fields: Sequence[EvField]) -> int:
    return sum(field.ev_bits for field in fields)


def _take(value: int, bits: int, count: int) -> tuple[int, int, int]:
    """(top `count` bits, the rest, bits of the rest) of a `bits` wide value; zeros follow a value that is too short."""
    if count > bits:
        value, bits = value << count - bits, count
    left = bits - count
    return value >> left, value & (1 << left) - 1, left


def _deposit(bits: int, mask: int) -> int:
    """Lay the low bits of `bits` on the ones of `mask`, lowest on lowest."""
    result = 0
    while mask:
        lowest = mask & -mask
        if bits & 1:
            result |= lowest
        bits >>= 1
        mask ^= lowest
    return result


def _extract(value: int, mask: int) -> int:
    """Gather the bits of `value` under the ones of `mask`: the reverse of `_deposit`."""
    result, position = 0, 0
    while mask:
        lowest = mask & -mask
        if value & lowest:
            result |= 1 << position
        position += 1
        mask ^= lowest
    return result
