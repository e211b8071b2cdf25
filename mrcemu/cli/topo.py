"""`mrcemu topo show` and `mrcemu paths`: a topology as tables, JSON or a drawing; nothing is built, no root needed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrcemu.cli.common import AsJson, TopologyFile, command_app, print_json, print_table, read_topology
from mrcemu.errors import UsageError

if TYPE_CHECKING:
    from mrcemu.topology.model import Topology


class Format(StrEnum):
    """What `topo show` prints."""

    TABLE = "table"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"
    CONTAINERLAB = "containerlab"


app = command_app()
paths_app = command_app()


@app.callback()
def topo() -> None:
    """Show a topology file.

    Example: mrcemu topo show eight-plane --format svg > fabric.svg
    """


@app.command()
def show(
    file: TopologyFile,
    output: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.TABLE,
    as_json: AsJson = False,
    src: Annotated[
        str | None, typer.Option("--from", metavar="HOST", help="Paths from; default the first host.")
    ] = None,
    dst: Annotated[str | None, typer.Option("--to", metavar="HOST", help="Paths to; default the last host.")] = None,
) -> None:
    """Print counts, addressing, uSIDs and the paths between two hosts.

    Example: mrcemu topo show eight-plane --from h0 --to h12
    """
    from mrcemu.topology import draw  # noqa: PLC0415
    from mrcemu.topology.show import as_data  # noqa: PLC0415

    topology, _ = read_topology(file)
    wanted = Format.JSON if as_json else output
    drawings = {Format.DOT: draw.to_dot, Format.SVG: draw.to_svg, Format.CONTAINERLAB: draw.to_containerlab}
    if wanted in drawings:
        print(drawings[wanted](topology).rstrip("\n"))
        return
    data = as_data(topology, src, dst)
    if wanted is Format.JSON:
        print_json(data)
        return
    print_table(["of the fabric", "value"], _summary_rows(data["summary"]))
    rows = [(r["name"], r["kind"], r["plane"], r["usid"], r["address"]) for r in data["addressing"]]
    print_table(["name", "kind", "plane", "uSID", "address"], rows, title="Addressing")
    _print_paths(data["paths"])


@paths_app.command()
def paths(
    src: Annotated[str, typer.Argument(metavar="SRC", help="Source host, e.g. h0.")],
    dst: Annotated[str, typer.Argument(metavar="DST", help="Destination host, e.g. h12.")],
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="FILE", help="A topology file or bundled name instead of a standing fabric."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Which standing fabric.")] = None,
    as_json: AsJson = False,
) -> None:
    """List every path between two hosts: EV, plane, hops, SRv6 address.

    Asks the standing fabric, or --topology FILE when none stands.

    Example: mrcemu paths h0 h12 --topology eight-plane
    """
    from mrcemu.topology.show import paths as paths_between  # noqa: PLC0415

    fabric = read_topology(topology)[0] if topology is not None else _standing_topology(name)
    if src == dst:
        raise UsageError(f"SRC and DST are both {src}: a host has no path to itself")
    found = paths_between(fabric, src, dst)
    data = {"src": src, "dst": dst, "count": len(found), "paths": found}
    if as_json:
        print_json(data)
    else:
        _print_paths(data)


def _standing_topology(name: str | None) -> Topology:
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    return choose(name).topology


def _print_paths(data: dict[str, Any]) -> None:
    columns = ["EV", "plane", "T0 uplink", "hops", "through", "SRv6 destination"]
    rows = [
        (f"{p['ev']:#x}", p["plane"], p["uplink"], p["hops"], " > ".join(p["nodes"][1:-1]), p["srv6"])
        for p in data["paths"]
    ]
    print_table(columns, rows, title=f"{data['count']} paths {data['src']} to {data['dst']}")


def _summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    from mrcemu.units import format_rate, format_size, format_time  # noqa: PLC0415

    units = {"_bps": format_rate, "_bytes": format_size, "_ns": format_time}
    rows = []
    for key, value in summary.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{k.removesuffix('_bytes')} {_plain(k, v, key)}" for k, v in value.items())
            rows.append((_label(key), shown))
            continue
        unit = next((suffix for suffix in units if key.endswith(suffix)), None)
        rows.append(
            (_label(key), units[unit](value) if unit else f"{value:,}" if isinstance(value, int) else str(value))
        )
    return rows


def _plain(key: str, value: object, group: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value} bytes" if "bytes" in key + group else str(value)


def _label(key: str) -> str:
    for suffix in ("_bps", "_bytes", "_ns"):
        key = key.removesuffix(suffix)
    return key.replace("_", " ")
