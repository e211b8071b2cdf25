"""What several commands share: the root check, JSON and tables, the choice of a standing fabric, files by name.

Refuses to know what any one command does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mrcemu.errors import UnfitEnvironmentError, UsageError

if TYPE_CHECKING:
    from mrcemu.topology.model import Topology

Number = TypeVar("Number", int, float)

# Bundled topologies lie beside the package in a checkout.
TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"

FabricName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which standing fabric, when several stand.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
TopologyFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A topology file, or the name of a bundled one, e.g. eight-plane.")
]


def command_app() -> typer.Typer:
    """The Typer of one command module."""
    from mrcemu.cli.main import CONTEXT  # noqa: PLC0415 - main imports the command modules

    return typer.Typer(
        context_settings=CONTEXT, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def need_root(command: str) -> None:
    """UnfitEnvironmentError unless root; mrcemu never elevates itself."""
    if os.geteuid() != 0:
        raise UnfitEnvironmentError(f"`mrcemu {command}` needs root", f"sudo mrcemu {command} ...")


def quantity(parse: Callable[[object], Number], text: str, option: str) -> Number:
    """The value of an option that is written with a unit; UsageError says what is allowed."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: found {text!r}; allowed: {error}") from None


def print_json(document: object) -> None:
    """The one JSON document of a `--json` command."""
    import json  # noqa: PLC0415

    print(json.dumps(document, indent=2))


def progress(message: str) -> None:
    """A line for the person waiting; stderr, so that stdout stays the result."""
    print(message, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A table; styled on a terminal, plain text otherwise."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    cells = [[cell if isinstance(cell, Text) else _text(cell) for cell in row] for row in rows]
    for number, column in enumerate(columns):
        numeric = bool(cells) and all(row[number].plain.replace(",", "").strip("-").isdecimal() for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    # Piped output is not cut to some terminal's width.
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def _text(cell: object) -> Any:
    from rich.text import Text  # noqa: PLC0415

    if cell is None:
        return Text("-")
    word = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    colour = {"up": "green", "ok": "green", "down": "red", "missing": "red", "warn": "yellow"}.get(word)
    return Text(word, style=colour or "")


def read_topology(given: str) -> tuple[Topology, str]:
    """Topology and text of a file path or a bundled name; UsageError if there is none, ConfigError if it is wrong."""
    from mrcemu.topology.loader import load_topology  # noqa: PLC0415 - pydantic is slow to import
    from mrcemu.topology.names import nearest  # noqa: PLC0415

    bundled = TOPOLOGIES / f"{given}.yaml"
    path = bundled if "/" not in given and bundled.is_file() and not Path(given).is_file() else Path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        names = sorted(item.stem for item in TOPOLOGIES.glob("*.yaml"))
        raise UsageError(f"no topology file {given!r} ({error.strerror})", nearest(given, names)) from None
    except UnicodeDecodeError:
        raise UsageError(f"{given}: not a text file") from None
    return load_topology(text, file=str(path)), text
