"""`mrcemu bench`: the benchmarks of a checkout, one after another, and their ratios in one table.

Owns running and showing. Refuses measuring: each script in bench/ measures itself against a reference in the same run
and prints one document {"ratios": [{"what", "ours", "reference", "unit", "ratio"}], "detail": {...}}.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mrcemu.cli.common import AsJson, command_app, need_root, print_json, print_table, progress
from mrcemu.errors import MrcEmuError, UnfitEnvironmentError, UsageError

app = command_app()

# The benchmarks lie beside the package in a checkout, cheapest first.
SCRIPTS = Path(__file__).resolve().parents[2] / "bench"
NAMES = ("wire", "transport", "endpoint", "fabric_build")
TIMEOUT_S = 180.0  # ours; all of them together take less
CLEAN_UP_S = 30.0  # stock Mininet takes about 10 s to remove eight planes


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help=f"Which; default all: {', '.join(NAMES)}.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the project's own benchmarks, each against a reference measured in the same run.

    Example: sudo mrcemu bench
    """
    chosen = _chosen(names or NAMES)
    need_root("bench")
    documents = {name: _run(name) for name in chosen}
    if as_json:
        print_json(documents)
        return
    print_table(
        ("benchmark", "what", "mrcemu", "reference", "unit", "ratio"),
        [_row(name, row) for name, document in documents.items() for row in document["ratios"]],
    )


def _chosen(names: Sequence[str]) -> Sequence[str]:
    """The names, each known; UsageError also where there is no checkout."""
    for name in names:
        if name not in NAMES:
            raise UsageError(f"no benchmark {name!r}; allowed: {', '.join(NAMES)}")
    if not SCRIPTS.is_dir():
        raise UsageError(f"no benchmarks at {SCRIPTS}: they come with a checkout, not with an installed package")
    return names


def _run(name: str) -> dict[str, Any]:
    """One script's document; it runs by itself, so that no benchmark sees another's memory or imports."""
    progress(f"{name} ...")
    started = time.monotonic()
    code, out, err = _communicate([sys.executable, str(SCRIPTS / f"{name}.py")], name)
    if code != 0:
        last = err.strip().splitlines()[-1:] or ["no reason given"]
        raise MrcEmuError(f"benchmark {name} failed: {last[0]}")
    document: dict[str, Any] = json.loads(out)
    document["took_s"] = round(time.monotonic() - started, 1)
    return document


def _communicate(command: Sequence[str], name: str) -> tuple[int, str, str]:
    """Exit code, output and errors; whatever ends this, the script gets the time to remove what it has built."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_interrupts) as child:  # noqa: PLW1509 - no threads here
        try:
            out, err = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=CLEAN_UP_S)
            child.kill()
            fix = "run it on an idle machine"
            raise UnfitEnvironmentError(f"benchmark {name} took more than {TIMEOUT_S:g} s", fix) from None
        except KeyboardInterrupt:
            child.wait()  # the terminal has sent it the same signal
            raise
        return child.returncode, out, err


def _heed_interrupts() -> None:
    """In a shell's background job SIGINT is ignored, by children too; the script ends by it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        row["what"],
        *(f"{row[key]:.4g}" for key in ("ours", "reference")),
        row["unit"],
        f"{row['ratio']:.3g}",
    )
