"""The results folder of one run: result.json, events.jsonl, and whatever a capture wrote.

Owns names, the refusal to overwrite, and who owns the files (the calling user under sudo). Refuses figures.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from mrcemu import __version__
from mrcemu.capture.session import hand_to_caller
from mrcemu.errors import UsageError
from mrcemu.runner.engine import cpu_count

RESULT_NAME = "result.json"
EVENTS_NAME = "events.jsonl"


def folders_for(wanted: Path | None, scenarios: Sequence[str]) -> list[Path]:
    """Where the results of runs of these scenario names go, in order, each to a folder of its own.

    `-o DIR` is the folder itself for one run and holds a subfolder each for several; by default
    results/SCENARIO-TIME. A name that comes again is numbered.
    """
    if wanted is not None and len(scenarios) == 1:
        return [wanted]
    stamp = time.strftime("-%Y%m%d-%H%M%S") if wanted is None else ""
    found: list[Path] = []
    for scenario in scenarios:
        first = (wanted or Path("results")) / f"{scenario}{stamp}"
        numbered = (first.with_name(f"{first.name}-{number}") for number in count(2))
        # A default name is nobody's wish, so it gives way to what exists; a wished one is refused by `claim`.
        found.append(
            next(
                path
                for path in chain([first], numbered)
                if path not in found and not (wanted is None and path.exists())
            )
        )
    return found


def refuse_used(folder: Path) -> None:
    """UsageError if there is something in a results folder already, or it is no folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"results folder {folder} is not empty; name another with -o")


def claim(folder: Path) -> None:
    """Create an empty results folder, with its parents; UsageError if there is something in it already."""
    refuse_used(folder)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create results folder {folder}: {error.strerror}") from None
    for path in missing:
        hand_to_caller(path)


def release(folder: Path) -> None:
    """Remove a claimed folder that got no results."""
    with suppress(OSError):
        folder.rmdir()


def write_result(folder: Path, result: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Write both files; a reader never sees half of one."""
    _write(folder / RESULT_NAME, json.dumps(result, indent=1, allow_nan=False) + "\n")
    _write(folder / EVENTS_NAME, "".join(json.dumps(event) + "\n" for event in events))


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    hand_to_caller(path)


def versions() -> dict[str, str]:
    """What ran: mrcemu, Python, kernel, cores."""
    return {
        "mrcemu": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {cpu_count()} cores",
    }
