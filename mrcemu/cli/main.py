"""The `mrcemu` executable: the table of its commands, their lazy loading, and what an error becomes.

Adding a command is one line in `COMMANDS`: the named typer.Typer is imported when the command is used.
Every error is one line on stderr and the exit code of its family; a traceback is shown only on request
(MRCEMU_TRACEBACK=1), because a user can do nothing with one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mrcemu import __version__
from mrcemu.errors import MrcEmuError, UsageError
from mrcemu.topology.names import nearest

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
USAGE = 2
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_ClickError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the help page: where the command lives and what it does, in a line."""

    where: str  # module:attribute, a typer.Typer
    about: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Run": {
        "run": Entry("mrcemu.cli.run:run_app", "Run scenarios and judge what they expect."),
        "report": Entry("mrcemu.cli.run:report_app", "Rebuild the report of a results folder."),
        "bench": Entry("mrcemu.cli.bench:app", "Run the benchmarks of a checkout; ratios against references."),
    },
    "Look": {
        "doctor": Entry("mrcemu.cli.doctor:app", "Check kernel, tools, rights and limits; the fix for each failure."),
        "topo": Entry("mrcemu.cli.topo:app", "Show a topology file: counts, addressing, paths, drawings."),
        "paths": Entry(
            "mrcemu.cli.topo:paths_app", "List every path between two hosts: EV, plane, hops, SRv6 address."
        ),
    },
    "Fabric": {
        "up": Entry("mrcemu.cli.fabric:up_app", "Build a fabric that stands until `down`."),
        "down": Entry("mrcemu.cli.fabric:down_app", "Remove a standing fabric, or all of them."),
        "status": Entry("mrcemu.cli.status:app", "Nodes, links, rates and counters of a standing fabric."),
        "exec": Entry("mrcemu.cli.node:exec_app", "Run a command in a node."),
        "shell": Entry("mrcemu.cli.node:shell_app", "Open a shell in a node."),
        "mn": Entry("mrcemu.cli.node:mn_app", "Build a fabric and open the Mininet prompt on it."),
    },
    "Faults": {
        "link": Entry("mrcemu.cli.faults:link_app", "Take links down, up, or let them flap."),
        "port": Entry("mrcemu.cli.faults:port_app", "Take NIC ports down and up."),
        "switch": Entry("mrcemu.cli.faults:switch_app", "Take switches down, up, or reboot them."),
    },
    "Traffic": {
        "bw": Entry("mrcemu.cli.bw:app", "Measure RDMA Write bandwidth between two hosts."),
        "lat": Entry("mrcemu.cli.lat:app", "Measure RDMA Write latency between two hosts."),
        "ev": Entry("mrcemu.cli.ev:app", "Paths of running connections: list, deny, allow, watch."),
        "probe": Entry("mrcemu.cli.probe:probe_app", "Probe all paths between two hosts: reachability and RTT."),
        "trace": Entry("mrcemu.cli.probe:trace_app", "Probe along one path, hop by hop."),
        "capture": Entry("mrcemu.cli.capture:app", "Record any ports and links into one pcapng file."),
    },
}
UNAVAILABLE = ("compare", "decode", "clustermapper", "top", "chaos")


class CommandTable(TyperGroup):
    """The commands of `COMMANDS`, imported when used; the help page needs none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(name for group in COMMANDS.values() for name in group), *UNAVAILABLE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for group in COMMANDS.values():
            if cmd_name in group:
                return _load(cmd_name, group[cmd_name].where)
        if cmd_name in UNAVAILABLE:
            return _unavailable(cmd_name)
        raise UsageError(f"no command {cmd_name!r}", nearest(cmd_name, self.list_commands(ctx)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("MRC over an eight-plane SRv6 fabric of Linux namespaces, on one machine.")
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.about) for name, entry in group.items()], col_max=14)
        with formatter.section("Example"):
            formatter.write_dl([("sudo mrcemu up eight-plane", "then: sudo mrcemu status")])
        self.format_options(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("Every command explains itself: mrcemu COMMAND --help.")
        formatter.write_text("Not available in this version: " + ", ".join(UNAVAILABLE) + ".")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([row for row in rows if row is not None])


def _load(name: str, where: str) -> Any:
    module, _, attribute = where.partition(":")
    command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
    command.name = name
    return command


def _unavailable(name: str) -> TyperCommand:
    def refuse() -> None:
        raise UsageError(f"`{name}` is not available in this version")

    settings = {**CONTEXT, "ignore_unknown_options": True, "allow_extra_args": True}
    about = "Not available in this version."
    return TyperCommand(name, callback=refuse, context_settings=settings, help=about, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mrcemu {__version__}")
        raise typer.Exit


app = typer.Typer(cls=CommandTable, context_settings=CONTEXT, add_completion=False, rich_markup_mode=None)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Commands live in `COMMANDS`."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised."""
    command = typer.main.get_command(app)
    if not arguments:
        print(command.get_help(command.make_context("mrcemu", ["--help"], resilient_parsing=True)), file=sys.stderr)
        return USAGE
    try:
        result = command.main(args=list(arguments), prog_name="mrcemu", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: BaseException) -> int:
    """Say what went wrong in one line and give its exit code."""
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        # The reader went away (`mrcemu status | head`): nobody is left to tell. Rich and Typer make it a SystemExit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    elif isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
    elif isinstance(error, (KeyboardInterrupt, typer.Abort)):
        code = INTERRUPTED
    elif isinstance(error, MrcEmuError):
        code = _say(str(error), error.exit_code)
    elif isinstance(error, _ClickError):
        code = _usage(error)
    else:
        code = _bug(error)
    return code


def _usage(error: Any) -> int:
    where = error.ctx.command_path if getattr(error, "ctx", None) is not None else "mrcemu"
    return _say(f"{error.format_message().rstrip('.')} (see: {where} --help)", USAGE)


def _bug(error: BaseException) -> int:
    if os.environ.get("MRCEMU_TRACEBACK"):
        raise error
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f" at {os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else ""
    detail = " ".join(str(error).split())
    return _say(f"unexpected {type(error).__name__}{place}: {detail} (MRCEMU_TRACEBACK=1 shows the whole of it)", 1)


def _say(message: str, code: int) -> int:
    print("mrcemu: " + " ".join(message.splitlines()), file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the executable."""
    sys.exit(run(sys.argv[1:]))
