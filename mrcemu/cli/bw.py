"""`mrcemu bw`: RDMA Write bandwidth on a standing fabric, the counterpart of ib_write_bw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrcemu.cli import perf
from mrcemu.cli.common import AsJson, FabricName, command_app, need_root, print_json, progress, quantity
from mrcemu.units import format_rate, parse_time_ns

if TYPE_CHECKING:
    from mrcemu.cli.standing import StandingFabric

app = command_app()

DEFAULT_SIZE = 1 << 20
DEFAULT_DURATION, SWEEP_DURATION = "5s", "1s"
MB = 1 << 20  # as the perftest programs count
COLUMNS = (
    "#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]",
    "efficiency", "lost", "resent", "corrupted",
)  # fmt: skip


@app.command()
def bw(
    src: perf.Source,
    dst: perf.Destination,
    size: Annotated[str | None, typer.Option("--size", "-s", help="Bytes of a message, e.g. 64KiB; 1MiB.")] = None,
    every_size: perf.AllSizes = False,
    tx_depth: Annotated[int, typer.Option("--tx-depth", "-t", help="Messages outstanding on each QP.")] = 16,
    qp: Annotated[int, typer.Option("--qp", "-q", help="QPs between the two hosts.")] = 1,
    iters: Annotated[int | None, typer.Option("--iters", "-n", help="Messages per QP, instead of a duration.")] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", "-D", help="How long to post, for each size; 5s, with --all 1s.")
    ] = None,
    bidirectional: Annotated[
        bool, typer.Option("--bidirectional", "-b", help="Both hosts send; figures are the sum.")
    ] = False,
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Measure RDMA Write bandwidth between two hosts, as ib_write_bw does.

    Every byte is checked where it lands. Rates are the emulated ones; the fabric's scale is printed once. The average
    runs from the first posting to the last arrival, the peak is the best 200 ms; MB is 2^20 bytes. Efficiency is of the
    payload rate of the NIC ports that are up. Exit code 1 if a QP failed.

    Example: sudo mrcemu bw h0 h12 --duration 10s
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("bw")
    args: dict[str, Any] = {"src": src, "dst": dst, "depth": tx_depth, "qps": qp, "bidirectional": bidirectional}
    duration = duration or (SWEEP_DURATION if every_size else DEFAULT_DURATION)
    args["duration_ns"] = quantity(parse_time_ns, duration, "--duration")
    if iters is not None:
        args["iterations"] = iters
    sizes = perf.sizes_of(size, every_size, DEFAULT_SIZE)
    fabric = choose(name)
    requests = [{**args, "size": number} for number in sizes]
    if as_json:
        results: list[Mapping[str, Any]] = [fabric.ask("bw", (), request) for request in requests]
        print_json({"sizes": results} if every_size else results[0])
    else:
        results = _measure(fabric, requests, None if every_size else _show_second)
    perf.end(results)


def _measure(fabric: StandingFabric, requests: list[dict[str, Any]], on_event: Any) -> list[Mapping[str, Any]]:
    """Run the requests in turn, each a row when it is done."""
    first = requests[0]
    arrow = "<>" if first["bidirectional"] else ">"
    print(f"{first['src']} {arrow} {first['dst']}, {first['qps']} QP, depth {first['depth']}; ", end="")
    print(perf.scale_note(fabric.topology), flush=True)
    results: list[Mapping[str, Any]] = []
    table = perf.RowPrinter(COLUMNS)
    for request in requests:
        results.append(fabric.ask("bw", (), request, on_event))
        table.row(_row(results[-1]))
    return results


def _row(result: Mapping[str, Any]) -> tuple[object, ...]:
    efficiency = result["efficiency"]
    return (
        result["size_bytes"],
        result["messages"],
        f"{result['peak_bps'] / 8 / MB:.3f}",
        f"{result['goodput_bps'] / 8 / MB:.3f}",
        f"{result['message_rate_per_s'] / 1e6:.6f}",
        "-" if efficiency is None else f"{efficiency:.4f}",
        result["lost_packets"],
        result["retransmitted_packets"],
        result["corrupted_bytes"],
    )


def _show_second(event: Mapping[str, Any]) -> None:
    progress(f"{event['second']:4d} s  {format_rate(event['bits'])}/s")
