"""`mrcemu up` and `mrcemu down`: a fabric that stands between the two."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from mrcemu.cli.common import TopologyFile, command_app, need_root, progress, read_topology
from mrcemu.errors import UsageError

up_app = command_app()
down_app = command_app()


@up_app.command()
def up(
    file: TopologyFile,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the fabric; default the topology's.")
    ] = None,
) -> None:
    """Build a fabric that stands until `mrcemu down`.

    A keeper process stays behind: it heals links that come up by any means and carries out link, port and switch
    faults.

    Example: sudo mrcemu up eight-plane
    """
    from mrcemu.keeper.up import clear_remains, start_keeper  # noqa: PLC0415

    topology, text = read_topology(file)
    need_root("up")
    fabric = name if name is not None else topology.name
    if clear_remains(fabric):
        progress(f"removed what a killed run had left of {fabric}")
    start = time.monotonic()
    pid = start_keeper(topology, fabric, text, _show_progress if sys.stderr.isatty() else None)
    took_s = time.monotonic() - start
    print(
        f"{fabric}: {topology.host_count} hosts, {len(topology.switches)} switches, {len(topology.links)} links "
        f"up in {took_s:.2f} s (keeper {pid})"
    )


def _show_progress(done: int, total: int, what: str) -> None:
    end = "\n" if done >= total else ""
    print(f"\r\x1b[K{what} {done}/{total}", end=end, file=sys.stderr, flush=True)


@down_app.command()
def down(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which; may be left out if one stands.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All standing fabrics, and what killed runs left behind.")
    ] = False,
) -> None:
    """Remove a standing fabric: its keeper, every process in its nodes, namespaces and links.

    Works from the record made by `up`: the topology file is not needed, and a killed keeper does not matter.

    Example: sudo mrcemu down --all
    """
    from mrcemu.cli.standing import choose  # noqa: PLC0415
    from mrcemu.fabric import journal  # noqa: PLC0415

    if everything and name is not None:
        raise UsageError("either a NAME or --all")
    need_root("down")
    if everything:
        removed = journal.down_all()
        print("removed: " + ", ".join(removed) if removed else "nothing stands")
        return
    chosen = choose(name).name
    progress(f"removing {chosen}")
    journal.down(chosen)
    print(f"removed: {chosen}")
