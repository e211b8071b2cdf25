"""Results folder in, `report.html` and PNGs out.

Owns reading and writing; page.py owns the page, plots.py the figures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mrcemu.capture.session import hand_to_caller
from mrcemu.errors import ConfigError, UsageError
from mrcemu.report.page import render_page
from mrcemu.report.plots import figures, to_png, to_svg

RESULT_FILE, EVENTS_FILE, REPORT_FILE = "result.json", "events.jsonl", "report.html"


def build_report(folder: Path) -> Path:
    """Write `report.html` and the plots of a results folder; returns the page's path.

    UsageError if the folder holds no `result.json`, ConfigError if one of its files is not what a run writes.
    """
    result = _read_result(folder / RESULT_FILE)
    events = _read_events(folder / EVENTS_FILE)
    drawn = figures(result)
    for name, figure in drawn.items():
        picture = folder / f"{name}.png"
        picture.write_bytes(to_png(figure))
        hand_to_caller(picture)
    page = render_page(result, events, {name: to_svg(figure, name) for name, figure in drawn.items()})
    path = folder / REPORT_FILE
    path.write_text(page, encoding="utf-8")
    hand_to_caller(path)
    return path


def _read_result(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"no {path.name} in {path.parent}: not a results folder") from None
    try:
        result = json.loads(text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, error.lineno, error.msg) from None
    if not isinstance(result, dict) or "verdict" not in result:
        raise _unreadable(path, None, "no verdict")
    return result


def _read_events(path: Path) -> list[dict[str, Any]]:
    """Events in file order; none if the run wrote no file. A last line cut short by a killed run is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise _unreadable(path, number, error.msg) from None
    return events


def _unreadable(path: Path, line: int | None, found: str) -> ConfigError:
    return ConfigError(file=str(path), line=line, key="file", found=found, allowed="what `mrcemu run` writes")
