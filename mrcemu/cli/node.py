"""`mrcemu exec`, `shell` and `mn`: working inside the nodes of a fabric with ordinary tools."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, NoReturn

import typer

from mrcemu.cli.common import FabricName, TopologyFile, command_app, need_root, read_topology
from mrcemu.errors import UsageError

exec_app = command_app()
shell_app = command_app()
mn_app = command_app()

Node = Annotated[str, typer.Argument(metavar="NODE", help="A host or switch, e.g. h3 or p5-t0-2.")]


@exec_app.command()
def execute(
    node: Node,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD", help="The command and its arguments.")],
    name: FabricName = None,
) -> None:
    """Run a command in a node; the exit code is the command's.

    Example: sudo mrcemu exec p5-t0-2 -- ip -6 route
    """
    need_root("exec")
    if shutil.which(command[0]) is None:
        raise UsageError(f"no command {command[0]!r} on this machine")
    _become(node, name, command)


@shell_app.command()
def shell(node: Node, name: FabricName = None) -> None:
    """Open a shell in a node.

    Example: sudo mrcemu shell h3
    """
    need_root("shell")
    # PROMPT_COMMAND sets the prompt after whatever a bashrc has set.
    os.environ["PROMPT_COMMAND"] = rf"PS1='{node}:\w# '"
    os.environ["PS1"] = f"{node}# "
    _become(node, name, [os.environ.get("SHELL") or "/bin/sh"])


def _become(node: str, name: str | None, command: list[str]) -> NoReturn:
    """Replace this process by `command` in the node: its terminal, signals and exit code are the user's own."""
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    namespace = os.path.basename(choose(name).netns_path(node))
    sys.stdout.flush()
    os.execvp("ip", ["ip", "netns", "exec", namespace, *command])


@mn_app.command()
def mn(
    file: TopologyFile,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the fabric; default the topology's.")
    ] = None,
) -> None:
    """Build a fabric, open the Mininet prompt on it, and remove it when the prompt ends.

    Faults, status, traffic and captures from a second terminal work meanwhile.

    Example: sudo mrcemu mn tiny
    """
    from mrcemu.keeper.prompt import open_prompt  # noqa: PLC0415

    topology, text = read_topology(file)
    need_root("mn")
    open_prompt(topology, name if name is not None else topology.name, text)
