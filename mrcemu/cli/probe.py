"""`mrcemu probe` and `trace`: is a path there, how long does it take, and where does it end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mrcemu.cli.common import AsJson, FabricName, command_app, need_root, print_json, print_table, progress
from mrcemu.cli.perf import Destination, Source
from mrcemu.errors import UsageError
from mrcemu.units import format_time

probe_app = command_app()
trace_app = command_app()

UNREACHABLE = 1  # exit code of `probe --fail`
EvOption = Annotated[str | None, typer.Option("--ev", metavar="EV", help="One path, as `paths` prints it, e.g. 0x12.")]


def number(text: str, option: str) -> int:
    """A number written in decimal or hexadecimal; UsageError names the option."""
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{option}: found {text!r}; allowed: a number such as 18 or 0x12") from None


@probe_app.command()
def probe(
    src: Source,
    dst: Destination,
    ev: EvOption = None,
    count: Annotated[int, typer.Option("--count", "-c", help="Probes for each path.")] = 3,
    fail: Annotated[bool, typer.Option("--fail", help="Exit code 1 if a path does not answer.")] = False,
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Probe every path between two hosts, or one: reachability and RTT, plane by plane.

    Probes are connectionless and ride the control class. The far NIC answers over all uplinks of the plane in turn, so
    beside a dead path a good one may lose answers; a path that stays silent gets further probes before it is called
    unreachable.

    Example: sudo mrcemu probe h0 h12
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("probe")
    args: dict[str, Any] = {"src": src, "dst": dst, "count": count}
    if ev is not None:
        args["ev"] = number(ev, "--ev")
    result = choose(name).ask("probe", (), args)
    if as_json:
        print_json(result)
    else:
        _show_probe(result)
    if fail and result["unreachable"]:
        raise typer.Exit(UNREACHABLE)


def _show_probe(result: Mapping[str, Any]) -> None:
    columns = ("EV", "plane", "through", "state", "answered", "RTT min", "RTT median", "RTT max")
    print_table(columns, [_probe_row(row) for row in result["evs"]])
    total, dead = len(result["evs"]), len(result["unreachable"])
    print(f"{result['src']} > {result['dst']}: {total - dead} of {total} paths answer")


def _probe_row(row: Mapping[str, Any]) -> tuple[object, ...]:
    rtt = row["rtt_ns"] or {}
    return (
        f"{row['ev']:#x}",
        row["plane"],
        " > ".join(row["hops"][1:-1]),
        "ok" if row["answered"] else "unreachable",
        f"{row['answered']}/{row['sent']}",
        *(format_time(rtt[key]) if rtt else "-" for key in ("min", "median", "max")),
    )


@trace_app.command()
def trace(
    src: Source,
    dst: Destination,
    ev: EvOption = "0",
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Probe along one path hop by hop and say where it ends.

    Each switch turns the probe back by its uSID list, so no switch takes part; the last hop is the far NIC's answer.

    Example: sudo mrcemu trace h0 h12 --ev 0x12
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root("trace")
    result = choose(name).ask("trace", (), {"src": src, "dst": dst, "ev": number(ev or "0", "--ev")})
    if as_json:
        print_json(result)
        return
    print(f"EV {result['ev']:#x} plane {result['plane']} {result['srv6']}")
    rows = [
        (
            hop["hop"],
            hop["node"],
            f"{hop['answered']}/{hop['sent']}",
            format_time(hop["rtt_ns"]) if hop["rtt_ns"] is not None else "-",
        )
        for hop in result["hops"]
    ]
    print_table(("hop", "node", "answered", "RTT"), rows)
    if result["ended_at"]:
        progress(f"no answer from {result['ended_at']} on")
