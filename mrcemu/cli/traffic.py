"""`mrcemu bw` and `trace`: traffic on a standing fabric, between endpoints its keeper starts on demand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mrcemu.cli.common import AsJson, FabricName, command_app, need_root, print_json, print_table, progress, quantity
from mrcemu.errors import UsageError
from mrcemu.units import format_rate, format_time, parse_size_bytes, parse_time_ns

bw_app = command_app()
trace_app = command_app()

Source = Annotated[str, typer.Argument(metavar="SRC", help="The sending host, e.g. h0.")]
Destination = Annotated[str, typer.Argument(metavar="DST", help="The other host, e.g. h12.")]


@bw_app.command()
def bw(
    src: Source,
    dst: Destination,
    size: Annotated[str, typer.Option("--size", "-s", help="Bytes of a message, e.g. 1MiB.")] = "1MiB",
    tx_depth: Annotated[int, typer.Option("--tx-depth", "-t", help="Messages outstanding on each QP.")] = 16,
    qp: Annotated[int, typer.Option("--qp", "-q", help="QPs between the two hosts.")] = 1,
    iters: Annotated[int | None, typer.Option("--iters", "-n", help="Messages per QP, instead of a duration.")] = None,
    duration: Annotated[str, typer.Option("--duration", "-D", help="How long to post, e.g. 10s.")] = "5s",
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Measure RDMA Write bandwidth between two hosts, as ib_write_bw does.

    Example: sudo mrcemu bw h0 h12 --duration 10s
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("bw")
    args: dict[str, Any] = {"src": src, "dst": dst, "depth": tx_depth, "qps": qp}
    args["size"] = quantity(parse_size_bytes, size, "--size")
    args["duration_ns"] = quantity(parse_time_ns, duration, "--duration")
    if iters is not None:
        args["iterations"] = iters
    result = choose(name).ask("bw", (), args, None if as_json else _show_second)
    if as_json:
        print_json(result)
        return
    print_table(
        ("#bytes", "#iterations", "BW average", "line payload", "efficiency", "lost", "resent", "corrupted bytes"),
        [
            (
                result["size_bytes"],
                result["messages"],
                format_rate(result["goodput_bps"]),
                format_rate(result["line_payload_bps"]),
                f"{result['efficiency']:.4f}",
                result["lost_packets"],
                result["retransmitted_packets"],
                result["corrupted_bytes"],
            )
        ],
    )


def _show_second(event: Mapping[str, Any]) -> None:
    progress(f"{event['second']:4d} s  {format_rate(event['bits'])}/s")


@trace_app.command()
def trace(
    src: Source,
    dst: Destination,
    ev: Annotated[str, typer.Option("--ev", help="The path's entropy value, as `paths` prints it.")] = "0",
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Probe along one path hop by hop and say where it ends.

    Each switch turns the probe back by its uSID list, so no switch takes part; the last hop is the far NIC's answer.

    Example: sudo mrcemu trace h0 h12 --ev 0x12
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("trace")
    try:
        value = int(ev, 0)
    except ValueError:
        raise UsageError(f"--ev: found {ev!r}; allowed: a number such as 18 or 0x12") from None
    result = choose(name).ask("trace", (), {"src": src, "dst": dst, "ev": value})
    if as_json:
        print_json(result)
        return
    print(f"EV {result['ev']:#x} plane {result['plane']} {result['srv6']}")
    rows = [
        (
            hop["hop"],
            hop["node"],
            f"{hop['answered']}/{hop['sent']}",
            format_time(hop["rtt_ns"]) if hop["rtt_ns"] else "-",
        )
        for hop in result["hops"]
    ]
    print_table(("hop", "node", "answered", "RTT"), rows)
    if result["ended_at"]:
        print(f"no answer from {result['ended_at']} on", file=sys.stderr)
