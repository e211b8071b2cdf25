"""`mrcemu run` and `report`: scenarios to verdicts, results folders to pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrcemu.cli.common import AsJson, command_app, need_root, print_json, print_table, progress
from mrcemu.errors import UsageError
from mrcemu.units import format_rate, format_size, format_time

if TYPE_CHECKING:
    from mrcemu.runner.expect import Outcome
    from mrcemu.runner.interrupts import Interrupts
    from mrcemu.runner.run import RunResult
    from mrcemu.runner.scenario import Scenario

run_app = command_app()
report_app = command_app()

INTERRUPTED = 130
# Worst first: the exit code of several scenarios is the worst one's.
_SEVERITY = (INTERRUPTED, 4, 1, 0)


@run_app.command()
def run(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Results folder; must be empty.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the files; builds nothing, needs no root.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fabric standing until Ctrl-C.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. topology.planes=4.")
    ] = None,
    transport: Annotated[str, typer.Option("--transport", help="Only mrc in this version.")] = "mrc",
    engine: Annotated[str, typer.Option("--engine", help="Only netns in this version.")] = "netns",
    seed: Annotated[int | None, typer.Option("--seed", help="Instead of the scenario's seed.")] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000, help="Run each scenario this often.")] = 1,
    allow_unfaithful: Annotated[
        bool, typer.Option("--allow-unfaithful", help="Judge the run although a fidelity invariant broke.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run scenarios: build the fabric, play workload and timeline, tear down, write results, print the verdict.

    Example: sudo mrcemu run scenarios/first-light.yaml -o results/first
    """
    _refuse_later(transport, engine)
    loaded = [_load(path, overrides or []) for path in scenarios]
    if check:
        _say_checked(loaded, as_json)
        return
    runs = [scenario for scenario in loaded for _ in range(repeat)]
    folders = _folders(output, runs, keep)
    need_root("run")
    from mrcemu.fabric.requirements import require  # noqa: PLC0415

    require()
    results, interrupted = _run_all(runs, folders, _Choices(keep, seed, allow_unfaithful, as_json))
    if as_json:
        documents = [result.result for result in results]
        print_json(documents[0] if len(runs) == 1 and documents else documents)
    codes = [INTERRUPTED] * interrupted + [result.exit_code for result in results]
    raise typer.Exit(next(code for code in _SEVERITY if code in codes))


@dataclass(frozen=True, slots=True)
class _Choices:
    """Options of the command line that every run shares."""

    keep: bool
    seed: int | None
    allow_unfaithful: bool
    as_json: bool


def _folders(output: Path | None, runs: Sequence[Scenario], keep: bool) -> list[Path]:
    """The results folder of every run, found to be free before anything is built."""
    from mrcemu.runner.folder import folders_for, refuse_used  # noqa: PLC0415

    if keep and len(runs) > 1:
        raise UsageError(f"--keep leaves one fabric standing, {len(runs)} runs were asked for")
    folders = folders_for(output, [scenario.name for scenario in runs])
    for folder in folders:
        refuse_used(folder)
    return folders


def _run_all(runs: Sequence[Scenario], folders: Sequence[Path], choices: _Choices) -> tuple[list[RunResult], bool]:
    """The runs one after another until a signal; what they came to, and whether there was one."""
    from mrcemu.runner.interrupts import Interrupts  # noqa: PLC0415

    results: list[RunResult] = []
    with Interrupts() as interrupts:
        for scenario, folder in zip(runs, folders, strict=True):
            try:
                results.append(_run_one(scenario, folder, choices, interrupts))
            except KeyboardInterrupt:
                return results, True  # before its traffic began: nothing to show
            if interrupts.count:
                return results, True
    return results, False


def _refuse_later(transport: str, engine: str) -> None:
    for name, value, allowed in (("--transport", transport, "mrc"), ("--engine", engine, "netns")):
        if value != allowed:
            raise UsageError(f"{name} {value} is not available in this version; allowed: {allowed}")


def _load(path: Path, overrides: Sequence[str]) -> Scenario:
    from mrcemu.runner.scenario import load_scenario  # noqa: PLC0415 - pydantic is slow to import

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"no scenario file {str(path)!r} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file") from None
    return load_scenario(text, str(path), lambda name: Path(name).read_text(encoding="utf-8"), overrides)


def _say_checked(loaded: Sequence[Scenario], as_json: bool) -> None:
    if as_json:
        print_json([{"scenario": s.name, "file": s.file, "ok": True} for s in loaded])
        return
    for scenario in loaded:
        print(
            f"{scenario.file}: ok ({len(scenario.workload)} workloads, {len(scenario.timeline)} faults, "
            f"{len(scenario.expect)} expectations, {scenario.duration_ns / 1e9:g} s)"
        )


def _run_one(scenario: Scenario, folder: Path, choices: _Choices, interrupts: Interrupts) -> RunResult:
    from mrcemu.cli.runview import RunView  # noqa: PLC0415
    from mrcemu.report.build import build_report  # noqa: PLC0415
    from mrcemu.runner.run import run_scenario  # noqa: PLC0415

    view = RunView(scenario)

    def show(result: RunResult) -> None:
        view.close()
        build_report(folder)
        if not choices.as_json:
            _show(result)
        if choices.keep and result.verdict != "partial":
            progress("the fabric stands (see `mrcemu status`) until Ctrl-C")

    try:
        return run_scenario(
            scenario,
            folder,
            seed=scenario.seed if choices.seed is None else choices.seed,
            keep=choices.keep,
            allow_unfaithful=choices.allow_unfaithful,
            progress=view.progress,
            build_progress=view.build_progress,
            on_result=show,
            interrupts=interrupts,
        )
    finally:
        view.close()


def _show(result: RunResult) -> None:
    """The outcome for a person."""
    from mrcemu.cli.runview import verdict_line  # noqa: PLC0415

    rows = [_outcome_row(outcome) for outcome in result.outcomes]
    print_table(("", "expectation", "measured", "bound"), rows)
    for name, workload in result.result["workloads"].items():
        print(
            f"{name}: {format_size(workload['bytes'])} in {workload['messages']} messages, "
            f"{_rate(workload['goodput_bps'])}, efficiency {_number(workload['efficiency'])}, "
            f"{workload['retransmitted_packets']} packets resent, {workload['corrupted_bytes']} corrupted bytes"
        )
    measured = [f"{name} {row['verdict']}" for name, row in result.result["fidelity"].items()]
    print(f"fidelity: {', '.join(measured)}")
    print(verdict_line(result))
    print(f"report: {result.folder / 'report.html'}")


def _outcome_row(outcome: Outcome) -> tuple[str, str, str, str]:
    return (
        "ok" if outcome.passed else "FAIL",
        outcome.text,
        _value(outcome.measured, outcome.unit),
        _value(outcome.bound, outcome.unit),
    )


def _value(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    formats = {"ns": format_time, "bit/s": format_rate, "bytes": format_size}
    return formats[unit](value) if unit in formats else f"{value:.4g}"


def _rate(value: Any) -> str:
    return value if isinstance(value, str) else format_rate(value)


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


@report_app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")],
) -> None:
    """Rebuild the HTML and PNG report of a results folder; needs no root.

    Example: mrcemu report results/first
    """
    from mrcemu.report.build import build_report  # noqa: PLC0415

    if not (folder / "result.json").is_file():
        raise UsageError(f"{folder} holds no result.json")
    print(build_report(folder))
