"""`mrcemu capture`: any ports and links of a standing fabric, both directions, into one pcapng file."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrcemu.cli.common import FabricName, command_app, need_root, progress, quantity
from mrcemu.units import parse_time_ns

if TYPE_CHECKING:
    from mrcemu.capture.session import CaptureSession, TapSummary

app = command_app()


@app.command()
def capture(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="Ports (h3:p5, p5-t0-2:up0), links (p5-t0-2:p5-t1-0: both its ports), or globs.",
        ),
    ],
    file: Annotated[Path, typer.Option("-w", "--write", metavar="FILE", help="The pcapng file.")],
    snaplen: Annotated[int, typer.Option(min=14, max=65000, help="Bytes kept of each frame.")] = 256,
    expression: Annotated[
        str | None, typer.Option("--filter", metavar="EXPR", help="A tcpdump filter, e.g. 'ip6 proto 41'.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="End after this time, e.g. 5s.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many frames.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    name: FabricName = None,
) -> None:
    """Record frames with nanosecond stamps until Ctrl-C.

    Every port is an interface of the file; a frame is recorded once at each. Stamps show the wire, before the delay
    that receiving endpoints add.

    Example: sudo mrcemu capture h3:p5 'p5-t0-0:p5-t1-*' -w flap.pcapng --duration 10s
    """
    from mrcemu.capture.session import CaptureSession  # noqa: PLC0415
    from mrcemu.capture.targets import taps_for  # noqa: PLC0415
    from mrcemu.cli.standing import choose  # noqa: PLC0415

    limit_s = quantity(parse_time_ns, duration, "--duration") / 1e9 if duration is not None else None
    need_root("capture")
    fabric = choose(name)
    taps = taps_for(fabric.topology, targets, fabric.netns_path)
    session = CaptureSession(taps, file, snaplen=snaplen, bpf=expression, overwrite=force, max_frames=count)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout 5 mrcemu capture` completes the file as well
    session.start()
    _wait(session, f"capturing at {len(taps)} ports into {file}; Ctrl-C ends", limit_s)
    _report(session.stop(), file)


def _wait(session: CaptureSession, message: str, limit_s: float | None) -> None:
    """Until the session ends by itself, the time is over, or the user ends it."""
    try:
        progress(message)
        session.finished.wait(limit_s)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            progress("")  # leave the line with the ^C


def _report(summaries: list[TapSummary], file: Path) -> None:
    lost = sum(summary.dropped for summary in summaries)
    total = sum(summary.frames for summary in summaries)
    print(f"{file}: {total} frames at {len(summaries)} ports, {lost} lost")
    for summary in summaries:
        if summary.dropped:
            progress(f"{summary.label}: {summary.dropped} frames lost, the machine was too slow")
