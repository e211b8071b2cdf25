"""A header as a table of bit fields: the cold path's one way to read and write every header.

A header class lists its fields from the first bit on, exactly as a specification prints them; reading, writing, size
and range checks follow from the list. Refuses speed: `fast` does the same with fixed structs and is held to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mrcemu.errors import WireError

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Bits:
    """A run of bits: `name` is a field of the header class, "" for reserved ones (written 0, not read).

    `kind` says what the field holds: int, bool, bytes, or "signed" for a two's complement int.
    """

    name: str
    width: int
    kind: type | str = int

    def read(self, raw: int) -> int | bool | bytes:
        if self.kind is bytes:
            return raw.to_bytes(self.width // 8, "big")
        if self.kind == "signed":
            return raw - (1 << self.width) if raw >> (self.width - 1) else raw
        return raw != 0 if self.kind is bool else raw

    def write(self, value: Any) -> int:
        """The field's bits; ValueError with what is allowed when the value does not fit."""
        if self.kind is bytes:
            if len(value) * 8 != self.width:
                raise ValueError(f"{self.width // 8} bytes, found {len(value)}")
            return int.from_bytes(value, "big")
        low, high = (-(1 << self.width - 1), 1 << self.width - 1) if self.kind == "signed" else (0, 1 << self.width)
        if not low <= value < high:
            raise ValueError(f"{low} .. {high - 1}, found {value}")
        return int(value) & ((1 << self.width) - 1)


def reserved(width: int) -> Bits:
    """Bits that are sent as 0 and not read."""
    return Bits("", width)


def flag(name: str) -> Bits:
    """One bit, a bool."""
    return Bits(name, 1, bool)


def signed(name: str, width: int) -> Bits:
    """A two's complement int."""
    return Bits(name, width, "signed")


def octets(name: str, size_bytes: int) -> Bits:
    """An address or other opaque bytes."""
    return Bits(name, size_bytes * 8, bytes)


class Header:
    """Base of all headers: a frozen dataclass whose `LAYOUT` names each of its fields once."""

    __slots__ = ()
    LAYOUT: ClassVar[tuple[Bits, ...]] = ()
    SIZE: ClassVar[int] = 0  # bytes

    def __init_subclass__(cls) -> None:
        cls.SIZE = sum(bits.width for bits in cls.LAYOUT) // 8

    @classmethod
    def parse(cls, buf: Buffer, offset: int = 0) -> Self:
        """Read the header at `offset` (0 or more); WireError "truncated" when the buffer ends before it does."""
        raw = bytes(buf[offset : offset + cls.SIZE])
        if len(raw) < cls.SIZE:
            raise WireError("truncated", f"{cls.__name__} needs {cls.SIZE} bytes, {len(raw)} left")
        word, left = int.from_bytes(raw, "big"), cls.SIZE * 8
        values: dict[str, Any] = {}
        for bits in cls.LAYOUT:
            left -= bits.width
            if bits.name:
                values[bits.name] = bits.read(word >> left & ((1 << bits.width) - 1))
        return cls(**values)

    def emit(self) -> bytes:
        """The header's `SIZE` bytes; ValueError names a field whose value does not fit its bits."""
        word = 0
        for bits in self.LAYOUT:
            word <<= bits.width
            if bits.name:
                try:
                    word |= bits.write(getattr(self, bits.name))
                except ValueError as error:
                    raise ValueError(f"{type(self).__name__}.{bits.name}: allowed {error}") from None
        return word.to_bytes(self.SIZE, "big")

    def emit_into(self, buf: bytearray | memoryview, offset: int) -> int:
        """Write the header at `offset` and return the offset behind it; ValueError when it does not fit."""
        end = offset + self.SIZE
        if end > len(buf):
            raise ValueError(f"{type(self).__name__} ends at {end}, the buffer at {len(buf)}")
        buf[offset:end] = self.emit()
        return end
