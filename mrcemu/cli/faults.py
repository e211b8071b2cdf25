"""`mrcemu link`, `port` and `switch`: faults on a standing fabric or a run in progress, carried out by its keeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from mrcemu.cli.common import FabricName, command_app, need_root, progress, quantity
from mrcemu.errors import UsageError

link_app = command_app()
port_app = command_app()
switch_app = command_app()

Links = Annotated[
    list[str], typer.Argument(metavar="TARGET...", help="Links: h3:p5, p5-t0-2:p5-t1-0, or globs like 'p*-t0-1:*'.")
]
Ports = Annotated[list[str], typer.Argument(metavar="HOST:PLANE...", help="NIC ports: h3:p5 (or h3:5), or globs.")]
Switches = Annotated[list[str], typer.Argument(metavar="NAME...", help="Switches: p5-t0-2, or globs like 'p3-*'.")]


def _perform(verb: str, targets: list[str], name: str | None, done: str, args: Mapping[str, Any] | None = None) -> None:
    """Ask the keeper and say what was done to what."""
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root(verb)
    result = choose(name).ask(verb, targets, args, _show_cycle)
    for target in result["names"]:
        print(f"{target} {done}")


def _show_cycle(event: Mapping[str, Any]) -> None:
    away_ms = (event["up_at_ns"] - event["down_at_ns"]) / 1e6
    progress(f"flap {event['cycle']}: down for {away_ms:.1f} ms")


@link_app.callback()
def link() -> None:
    """Take links down and up.

    Example: sudo mrcemu link down p5-t0-2:p5-t1-0
    """


@link_app.command("down")
def link_down(targets: Links, name: FabricName = None) -> None:
    """Take links down: no carrier at either end.

    Example: sudo mrcemu link down 'p3-t0-1:*'
    """
    _perform("link down", targets, name, "down")


@link_app.command("up")
def link_up(targets: Links, name: FabricName = None) -> None:
    """Bring links up again, with everything they carried.

    Example: sudo mrcemu link up 'p3-t0-1:*'
    """
    _perform("link up", targets, name, "up")


@link_app.command("reset")
def link_reset(targets: Links, name: FabricName = None) -> None:
    """Undo every fault of links, running flaps included.

    Example: sudo mrcemu link reset '*'
    """
    _perform("link reset", targets, name, "reset")


@link_app.command("flap")
def link_flap(
    targets: Links,
    period: Annotated[str, typer.Option(metavar="TIME", help="Time from one down to the next.")] = "200ms",
    duty: Annotated[str, typer.Option(metavar="PERCENT", help="Share of the period the link is down.")] = "50%",
    count: Annotated[int | None, typer.Option(min=1, help="How often; without it until Ctrl-C.")] = None,
    name: FabricName = None,
) -> None:
    """Let links flap, in the foreground; Ctrl-C ends it and leaves the links up.

    Example: sudo mrcemu link flap h3:p5 --period 200ms --duty 50% --count 10
    """
    from mrcemu.units import parse_fraction, parse_time_ns  # noqa: PLC0415

    args = {
        "period_ns": quantity(parse_time_ns, period, "--period"),
        "duty": quantity(parse_fraction, duty, "--duty"),
        "count": count,
    }
    _perform("link flap", targets, name, "up", args)


@port_app.callback()
def port() -> None:
    """Take NIC ports down and up.

    Example: sudo mrcemu port down h3:p5
    """


@port_app.command("down")
def port_down(targets: Ports, name: FabricName = None) -> None:
    """Take NIC ports down: the switch end goes down, the host sees carrier loss.

    Example: sudo mrcemu port down h3:p5
    """
    _perform("port down", targets, name, "down")


@port_app.command("up")
def port_up(targets: Ports, name: FabricName = None) -> None:
    """Bring NIC ports up again.

    Example: sudo mrcemu port up h3:p5
    """
    _perform("port up", targets, name, "up")


@switch_app.callback()
def switch() -> None:
    """Take switches down, up, or reboot them.

    Example: sudo mrcemu switch reboot p2-t1-1 --for 2s
    """


@switch_app.command("down")
def switch_down(targets: Switches, name: FabricName = None) -> None:
    """Take whole switches down: all their ports.

    Example: sudo mrcemu switch down p2-t1-1
    """
    _perform("switch down", targets, name, "down")


@switch_app.command("up")
def switch_up(targets: Switches, name: FabricName = None) -> None:
    """Bring switches up again; links taken down by name stay down.

    Example: sudo mrcemu switch up p2-t1-1
    """
    _perform("switch up", targets, name, "up")


@switch_app.command("reboot")
def switch_reboot(
    targets: Switches,
    away: Annotated[str, typer.Option("--for", metavar="TIME", help="How long they are away.")] = "2s",
    name: FabricName = None,
) -> None:
    """Reboot switches: ports down, tables lost; later both come back. Runs in the foreground.

    Example: sudo mrcemu switch reboot p2-t1-1 --for 2s
    """
    from mrcemu.units import parse_time_ns  # noqa: PLC0415

    _perform("switch reboot", targets, name, "up again", {"for_ns": quantity(parse_time_ns, away, "--for")})


def _not_yet(app: typer.Typer, group: str, verb: str) -> None:
    @app.command(verb, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def refuse() -> None:
        """Not available in this version."""
        raise UsageError(f"`{group} {verb}` is not available in this version")


for _group, _app, _verbs in (
    ("link", link_app, ("loss", "rate", "delay", "corrupt", "blackhole")),
    ("switch", switch_app, ("freeze",)),
):
    for _verb in _verbs:
        _not_yet(_app, _group, _verb)
