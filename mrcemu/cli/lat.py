"""`mrcemu lat`: RDMA Write latency on a standing fabric, the counterpart of ib_write_lat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mrcemu.cli import perf
from mrcemu.cli.common import AsJson, FabricName, command_app, need_root, print_json, quantity
from mrcemu.units import parse_time_ns

app = command_app()

DEFAULT_SIZE = 2
DEFAULT_ITERATIONS = 100
DEFAULT_DURATION, SWEEP_DURATION = "5s", "2s"
FIGURES = ("min", "max", "typical", "avg", "stdev", "p99", "p99_9")
COLUMNS = (
    "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]",
    "99% percentile[usec]", "99.9% percentile[usec]",
)  # fmt: skip


@app.command()
def lat(
    src: perf.Source,
    dst: perf.Destination,
    size: Annotated[str | None, typer.Option("--size", "-s", help="Bytes of a message, e.g. 4KiB; 2B.")] = None,
    every_size: perf.AllSizes = False,
    iters: Annotated[
        int | None, typer.Option("--iters", "-n", help="Exchanges; 100, or what 5s (with --all 2s) allow.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", "-D", help="How long to go on, for each size, instead of a number.")
    ] = None,
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Measure RDMA Write latency between two hosts, as ib_write_lat does.

    SRC writes, DST answers with a write of the same size as soon as the whole message is in its memory; a latency is
    half of that round trip. Times are the emulated ones, scale times those of the fabric that is stood for; the scale
    is printed once. They are read in steps of 2 % of base RTT, the endpoints' tick. Exit code 1 if a QP failed.

    Example: sudo mrcemu lat h0 h12 --size 4KiB
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("lat")
    args: dict[str, Any] = {"src": src, "dst": dst, **_extent(iters, duration, every_size)}
    sizes = perf.sizes_of(size, every_size, DEFAULT_SIZE)
    fabric = choose(name)
    table = None
    if not as_json:
        print(f"{src} > {dst}; {perf.scale_note(fabric.topology)}", flush=True)
        table = perf.RowPrinter(COLUMNS)
    results = []
    for number in sizes:
        results.append(fabric.ask("lat", (), {**args, "size": number}))
        if table is not None:
            table.row(_row(results[-1]))
    if as_json:
        print_json({"sizes": results} if every_size else results[0])
    perf.end(results)


def _extent(iters: int | None, duration: str | None, every_size: bool) -> dict[str, int]:
    """How many exchanges, or for how long; both limits where nothing was said."""
    extent: dict[str, int] = {}
    if iters is not None:
        extent["iterations"] = iters
    elif duration is None:
        extent["iterations"] = DEFAULT_ITERATIONS
        duration = SWEEP_DURATION if every_size else DEFAULT_DURATION
    if duration is not None:
        extent["duration_ns"] = quantity(parse_time_ns, duration, "--duration")
    return extent


def _row(result: Mapping[str, Any]) -> tuple[object, ...]:
    figures = result["latency_ns"]
    shown = ["-"] * len(FIGURES) if figures is None else [f"{figures[key] / 1e3:.2f}" for key in FIGURES]
    return (result["size_bytes"], result["iterations"], *shown)
