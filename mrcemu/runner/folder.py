"""The results folder of one run: result.json, events.jsonl, and whatever a capture wrote.

Owns names, the refusal to overwrite, and who owns the files (the calling user under sudo). Refuses figures.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mrcemu import __version__
from mrcemu.capture.session import hand_to_caller
from mrcemu.errors import UsageError
from mrcemu.runner.engine import cpu_count

RESULT_NAME = "result.json"
EVENTS_NAME = "events.jsonl"


def folder_for(wanted: Path | None, scenario: str, several: bool) -> Path:
    """Where a run's results go: `-o DIR` (a subfolder each when several run), by default results/SCENARIO-TIME."""
    if wanted is None:
        return Path("results") / f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    return wanted / scenario if several else wanted


def claim(folder: Path) -> None:
    """Create an empty results folder; UsageError if there is something in it already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"results folder {folder} is not empty; name another with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create results folder {folder}: {error.strerror}") from None
    hand_to_caller(folder)


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
