"""What `bw` and `lat` share: their hosts, their sizes, their rows printed as they come, and how a failed one ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrcemu.cli.common import progress, quantity
from mrcemu.errors import UsageError
from mrcemu.units import format_rate, format_time, parse_size_bytes

if TYPE_CHECKING:
    from mrcemu.topology.model import Topology

Source = Annotated[str, typer.Argument(metavar="SRC", help="The sending host, e.g. h0.")]
Destination = Annotated[str, typer.Argument(metavar="DST", help="The other host, e.g. h12.")]
AllSizes = Annotated[bool, typer.Option("--all", "-a", help="Every power of two from 2 bytes to 8 MiB.")]

SWEEP = tuple(1 << power for power in range(1, 24))  # the sizes of ib_write_bw -a
FAILED = 1  # exit code of a measurement that a failed QP or missing answers spoilt


def sizes_of(size: str | None, every: bool, default: int) -> Sequence[int]:
    """The message sizes to measure, in bytes."""
    if every and size is not None:
        raise UsageError("either --size or --all")
    if every:
        return SWEEP
    return [default if size is None else quantity(parse_size_bytes, size, "--size")]


class RowPrinter:
    """A table whose rows appear one by one, in the columns of the perftest programs; its head comes with the first."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._widths = [max(10, len(column)) for column in columns]
        self._begun = False

    def row(self, cells: Sequence[object]) -> None:
        """Print one row now."""
        if not self._begun:
            self._begun = True
            self._print(self._columns)
        self._print(cells)

    def _print(self, cells: Sequence[object]) -> None:
        shown = [str(cell).rjust(width) for cell, width in zip(cells, self._widths, strict=True)]
        print("  ".join(shown), flush=True)


def scale_note(topology: Topology) -> str:
    """What the emulated figures stand for."""
    rate, scale = topology.nic_rate_bps, topology.scale
    return (
        f"times and rates as emulated; scale {scale}: {format_rate(rate)} stands for {format_rate(rate * scale)}, "
        f"1ms here for {format_time(1e6 / scale)} there"
    )


def end(results: Sequence[Mapping[str, Any]]) -> None:
    """Exit with FAILED, and say so, if a measurement did not come to its end."""
    failed = sum(result["qp_errors"] for result in results)
    if failed:
        progress(f"{failed} ends of QPs failed (mrcemu status shows links that are down)")
    elif not all(result["complete"] for result in results):
        progress("ended before everything was answered")
    else:
        return
    raise typer.Exit(FAILED)
