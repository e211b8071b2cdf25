"""`mrcemu ev`: the paths of running connections, the denylist of their NICs, and events as they happen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from mrcemu.cli.common import AsJson, FabricName, command_app, need_root, print_json, print_table, progress, quantity
from mrcemu.cli.probe import number
from mrcemu.errors import UsageError
from mrcemu.units import format_time, parse_time_ns

app = command_app()

EXACT = 0xFFFF_FFFF

EvArgument = Annotated[str | None, typer.Argument(metavar="[EV]", help="One path, as `paths` prints it, e.g. 0x12.")]
Mask = Annotated[str | None, typer.Option("--mask", help="Bits of the EV that count, e.g. 0xf: the plane.")]
Value = Annotated[str | None, typer.Option("--value", help="What those bits are, e.g. 0x2: plane 2.")]
SrcHost = Annotated[str | None, typer.Option("--src", metavar="HOST", help="The sending end.")]
DstHost = Annotated[str | None, typer.Option("--dst", metavar="HOST", help="The other end.")]
SrcNic = Annotated[str | None, typer.Option("--src", metavar="HOST", help="This host's NIC; default all running ones.")]
DstNic = Annotated[str | None, typer.Option("--dst", metavar="HOST", help="This host's NIC as well.")]


@app.callback()
def ev() -> None:
    """Show and steer the paths (EVs) of connections that run: of bw, lat, or a run in progress.

    Example: sudo mrcemu ev list
    """


@app.command("list")
def list_(src: SrcHost = None, dst: DstHost = None, name: FabricName = None, as_json: AsJson = False) -> None:
    """Print the path table of every sending end, or of the ends that --src and --dst name.

    Example: sudo mrcemu ev list --src h0
    """
    result = _ask("ev list", "connections", {"src": src, "dst": dst}, name)
    if as_json:
        print_json(result)
        return
    for connection in result["connections"]:
        _show_connection(connection)
    if not result["connections"]:
        print("no connection runs")
    for host, entries in result["denylists"].items():
        print(f"denied on {host}: {', '.join(_entry_text(entry) for entry in entries)}")


def _show_connection(connection: Mapping[str, Any]) -> None:
    paths = connection["paths"]
    active = sum(path["active"] for path in paths)
    what = connection["workload"] or "answers only"
    error = f", failed: {connection['error']}" if connection["error"] else ""
    title = f"{connection['src']} > {connection['dst']} QP {connection['qpn']} ({what}): {active} of {len(paths)} paths"
    columns = (
        "EV", "plane", "through", "SRv6 destination", "state", "use", "RTT", "sent", "marks", "trims", "lost",
        "retired", "next probe",
    )  # fmt: skip
    print_table(columns, [_path_row(path) for path in paths], title=f"{title} active{error}")


def _path_row(path: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        f"{path['ev']:#x}",
        path["plane"],
        " > ".join(path["hops"][1:-1]),
        path["srv6"],
        path["state"],
        _use(path),
        _time(path["rtt_ns"]),
        path["sent"],
        path["marked"],
        path["trimmed"],
        path["lost"],
        path["retired"],
        _time(path["next_probe_ns"]),
    )


def _use(path: Mapping[str, Any]) -> str:
    """What a path is used for now; `out` is out of service."""
    if not path["plane_up"]:
        return "port down"
    if path["active"]:
        return "active"
    return "backup" if path["state"] in ("GOOD", "SKIP") else "out"


def _time(ns: int | None) -> str:
    return "-" if ns is None else format_time(ns)


@app.command()
def deny(
    ev: EvArgument = None,
    mask: Mask = None,
    value: Value = None,
    src: SrcNic = None,
    dst: DstNic = None,
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Send nothing more on one EV, or on every EV whose bits under --mask are those of --value.

    Holds for all QPs of those NICs, also later ones, until allowed. A NIC whose endpoint has not started yet must be
    named to be meant.

    Example: sudo mrcemu ev deny --mask 0xf --value 2 --src h0
    """
    args = {**_entry(ev, mask, value), "hosts": _hosts(src, dst)}
    result = _ask("ev deny", "ev deny", args, name)
    _show_change("denied", result, as_json)


@app.command()
def allow(
    ev: EvArgument = None,
    mask: Mask = None,
    value: Value = None,
    every: Annotated[bool, typer.Option("--all", help="Empty the denylist.")] = False,
    src: SrcNic = None,
    dst: DstNic = None,
    name: FabricName = None,
    as_json: AsJson = False,
) -> None:
    """Take back a `deny` that was written the same way, or with --all every one.

    Example: sudo mrcemu ev allow --mask 0xf --value 2
    """
    if every and (ev, mask, value) != (None, None, None):
        raise UsageError("either an entry or --all")
    what = {"all": True} if every else _entry(ev, mask, value)
    result = _ask("ev allow", "ev allow", {**what, "hosts": _hosts(src, dst)}, name)
    if every and not as_json:
        print(f"{result['entries']} entries taken off the denylists of {', '.join(result['hosts'])}")
    else:
        _show_change("allowed", result, as_json)


def _entry(ev: str | None, mask: str | None, value: str | None) -> dict[str, int]:
    if ev is not None and mask is None and value is None:
        return {"mask": EXACT, "value": number(ev, "EV")}
    if ev is None and mask is not None and value is not None:
        return {"mask": number(mask, "--mask"), "value": number(value, "--value")}
    raise UsageError("say either an EV, or both --mask and --value")


def _hosts(*given: str | None) -> list[str]:
    return [host for host in given if host is not None]


def _entry_text(entry: Mapping[str, int]) -> str:
    if entry["mask"] == EXACT:
        return f"EV {entry['value']:#x}"
    return f"mask {entry['mask']:#x} value {entry['value']:#x}"


def _show_change(verb: str, result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    evs = "" if result["mask"] == EXACT else f" ({', '.join(f'{ev:#x}' for ev in result['evs'])})"
    print(f"{verb} on {', '.join(result['hosts'])}: {_entry_text(result)}{evs}; {result['paths']} paths of running QPs")


@app.command()
def watch(
    losses: Annotated[bool, typer.Option("--losses", help="Also every packet lost, trimmed and sent again.")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time, e.g. 10s.")] = None,
    name: FabricName = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
) -> None:
    """Print changes of paths, ports and QPs as they happen, until Ctrl-C.

    Example: sudo mrcemu ev watch --losses
    """
    args: dict[str, Any] = {"losses": losses}
    if for_ is not None:
        args["for_ns"] = quantity(parse_time_ns, for_, "--for")

    def show(event: Mapping[str, Any]) -> None:
        if event["kind"] == "Watching":
            progress("watching; Ctrl-C ends")
        else:
            print(json.dumps(event) if as_json else _event_line(event), flush=True)

    try:
        _ask("ev watch", "ev watch", args, name, show)
    except KeyboardInterrupt:
        progress("")  # the way to end it; leave the line with the ^C


def _event_line(event: Mapping[str, Any]) -> str:
    when = datetime.fromtimestamp(event["unix_s"]).strftime("%H:%M:%S.%f")[:-3]
    qp = f"{event['host']} > {event['peer']} QP {event['qpn']}" if event["qpn"] else str(event["host"])
    kind = event["kind"]
    text = _TEXTS[kind](event) if kind in _TEXTS else kind
    return f"{when}  {qp}  {text}"


def _planes(mask: int) -> str:
    up: Iterable[str] = (f"p{plane}" for plane in range(mask.bit_length()) if mask >> plane & 1)
    return " ".join(up) or "none"


_TEXTS = {
    "EvChanged": lambda e: f"EV {e['ev']:#x} (plane {e['plane']}) {e['old']} -> {e['new']}: {e['signal']}",
    "PortChanged": lambda e: f"port p{e['port']} {'up' if e['up'] else 'down'}",
    "PeerPortsChanged": lambda e: f"hears from {e['peer']}: ports up {_planes(e['mask'])}",
    "TimerExpired": lambda e: f"no acknowledgement of PSN {e['psn']} in time, attempt {e['attempt']}",
    "QpFailed": lambda e: f"failed: {e['reason']}",
    "PacketLost": lambda e: f"PSN {e['psn']} lost on EV {e['ev']:#x}: {e['signal']}",
    "NackReceived": lambda e: f"PSN {e['psn']} refused on EV {e['ev']:#x}: reason {e['reason']}",
    "Retransmitted": lambda e: f"PSN {e['psn']} sent again on EV {e['ev']:#x}, attempt {e['attempt']}",
    "LossWasSpurious": lambda e: f"PSN {e['psn']} on EV {e['ev']:#x} was late, not lost; guard {_time(e['guard_ns'])}",
}


def _ask(command: str, verb: str, args: Mapping[str, Any], name: str | None, on_event: Any = None) -> dict[str, Any]:
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    need_root(command)
    return choose(name).ask(verb, (), args, on_event)
