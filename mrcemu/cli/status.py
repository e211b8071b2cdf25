"""`mrcemu status`: what stands, and how it is, with the names that every other command takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrcemu.cli.common import AsJson, command_app, need_root, print_json, print_table

if TYPE_CHECKING:
    from mrcemu.fabric.journal import Standing

app = command_app()


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which; may be left out if one stands.")] = None,
    as_json: AsJson = False,
    ports: Annotated[bool, typer.Option("--ports", help="Counters of every port as well.")] = False,
) -> None:
    """Nodes, links with state and rate, counters of planes and ports, and the map from names to interfaces.

    With several fabrics standing and no NAME, or none standing, lists the fabrics.

    Example: sudo mrcemu status --json
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415
    from mrcemu.fabric.journal import list_standing  # noqa: PLC0415

    standing = list_standing()
    if name is None and len(standing) != 1:
        _print_list(standing, as_json)
        return
    need_root("status")
    fabric = choose(name)
    document = fabric.ask("status")
    if as_json:
        print_json(document)
    else:
        _print_fabric(document, ports)


def _print_list(standing: list[Standing], as_json: bool) -> None:
    rows = [
        {
            "name": item.name,
            "topology": item.topology,
            "keeper": {"pid": item.owner.pid, "alive": item.owner_alive},
            "created_unix_s": item.created_unix_s,
        }
        for item in standing
    ]
    if as_json:
        print_json({"fabrics": rows})
    elif not rows:
        print("no fabric stands")
    else:
        shown = [
            (r["name"], r["topology"], _keeper(item), _since(item.created_unix_s))
            for r, item in zip(rows, standing, strict=True)
        ]
        print_table(["fabric", "topology", "keeper", "stands for"], shown)


def _keeper(item: Standing) -> str:
    return str(item.owner.pid) if item.owner_alive else f"dead: mrcemu down {item.name}"


def _since(created_unix_s: float) -> str:
    seconds = max(0, int(time.time() - created_unix_s))
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds % 60:02}s"


def _print_fabric(document: dict[str, Any], every_port: bool) -> None:
    from mrcemu.units import format_rate  # noqa: PLC0415

    keeper, since = document["keeper"]["pid"], _since(document["created_unix_s"])
    print(f"{document['name']} ({document['topology']}), keeper {keeper}, stands for {since}")
    rows = [
        (n["name"], n["kind"], n["state"], f"{n['ports_up']}/{n['ports']}", n["namespace"]) for n in document["nodes"]
    ]
    print_table(["node", "kind", "state", "ports up", "namespace"], rows)
    links = [
        (k["name"], k["kind"], k["state"], k["fault"] or "", format_rate(k["rate_bps"]), *k["ports"])
        for k in document["links"]
    ]
    print_table(["link", "kind", "state", "fault of", "rate", "lower port", "upper port"], links)
    columns = ["tx_packets", "tx_bytes", "drops", "ecn_marks", "trims"]
    heads = [column.replace("_", " ") for column in columns]
    planes = [
        (p["plane"], f"{p['links_up']}/{p['links']}", *(p[column] for column in columns)) for p in document["planes"]
    ]
    print_table(["plane", "links up", *heads], planes)
    if every_port:
        rows = [
            (p["name"], "up" if p["oper_up"] else "down", p["ifindex"], p["mac"], *(p[column] for column in columns))
            for p in document["ports"]
        ]
        print_table(["port", "state", "ifindex", "mac", *heads], rows)
