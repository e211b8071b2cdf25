"""What a person sees while a run goes on: a progress bar on a terminal, a few lines elsewhere. All on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mrcemu.units import format_rate, format_time

if TYPE_CHECKING:
    from rich.progress import Progress

    from mrcemu.runner.run import RunResult
    from mrcemu.runner.scenario import Scenario

LINE_EVERY_NS = 5 * 10**9


class RunView:
    """Progress of one run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._line_at_ns = LINE_EVERY_NS
        self._last = (0, 0)
        self._bar = _make_bar() if sys.stderr.isatty() else None
        if self._bar is None:
            print(f"{scenario.name}: {scenario.about}", file=sys.stderr, flush=True)
        else:
            self._bar.start()
            self._task = self._bar.add_task(scenario.name, total=scenario.duration_ns, note="building")

    def build_progress(self, done: int, total: int, what: str) -> None:
        """The fabric is being built."""
        if self._bar is not None:
            self._bar.update(self._task, note=f"building: {what} {done}/{total}")

    def progress(self, elapsed_ns: int, whole_ns: int, placed: int) -> None:
        """The run is going on; `placed` bytes have arrived so far."""
        before_ns, before = self._last
        rate = (placed - before) * 8e9 / (elapsed_ns - before_ns) if elapsed_ns > before_ns else 0.0
        self._last = (elapsed_ns, placed)
        if self._bar is not None:
            self._bar.update(self._task, completed=elapsed_ns, total=whole_ns, note=f"{format_rate(rate)}/s")
        elif elapsed_ns >= self._line_at_ns:
            self._line_at_ns += LINE_EVERY_NS
            print(f"  {format_time(elapsed_ns)} of {format_time(whole_ns)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _make_bar() -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - only on a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def verdict_line(result: RunResult) -> str:
    """One line: the verdict and, unless it passed, why."""
    failed = [outcome.text for outcome in result.outcomes if not outcome.passed]
    broken = [name for name, row in result.result["fidelity"].items() if row["verdict"] == "fail"]
    why = {
        "fail": f" ({len(failed)} of {len(result.outcomes)} expectations failed)",
        "untrustworthy": f" (fidelity invariant {', '.join(broken)} broke: the machine, not the network)",
        "partial": " (interrupted)",
    }.get(result.verdict, "")
    return f"verdict: {result.verdict}{why}"
