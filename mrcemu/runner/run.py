"""One scenario from file to verdict: execute, measure, judge, write. What `mrcemu run` calls for each file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrcemu.runner import folder as folders
from mrcemu.runner.engine import Progress, RunOptions, RunRecord, execute
from mrcemu.runner.expect import Outcome
from mrcemu.runner.interrupts import Interrupts
from mrcemu.runner.measure import event_lines, measurements_of, region_hashes
from mrcemu.runner.metrics import Measurements
from mrcemu.runner.results import build_result, exit_code_of
from mrcemu.runner.scenario import Scenario
from mrcemu.topology.loader import dump_topology


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to."""

    folder: Path
    result: dict[str, Any]
    measurements: Measurements
    outcomes: tuple[Outcome, ...]
    exit_code: int

    @property
    def verdict(self) -> str:
        return str(self.result["verdict"])


def run_scenario(
    scenario: Scenario,
    folder: Path,
    *,
    seed: int,
    keep: bool = False,
    allow_unfaithful: bool = False,
    progress: Progress | None = None,
    build_progress: Callable[[int, int, str], None] | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    interrupts: Interrupts | None = None,
) -> RunResult:
    """Run it in real time on a fabric of its own and write its results; UsageError if the folder is not empty.

    `on_result` is called once the results are written: with `keep` while the fabric stands, else when it is gone.
    `interrupts` that catch signals already may be given; else they are caught for the time of the run.
    """
    caught = interrupts or Interrupts()
    results: list[RunResult] = []

    def finish(record: RunRecord) -> None:
        results.append(_judge_and_write(scenario, folder, record, allow_unfaithful))
        if on_result is not None:
            on_result(results[-1])

    folders.claim(folder)
    try:
        with nullcontext() if interrupts else caught:
            record = execute(scenario, folder, RunOptions(seed, keep, finish, caught, progress, build_progress))
            if not results:
                finish(record)
    finally:
        folders.release(folder)
    return results[0]


def _judge_and_write(scenario: Scenario, folder: Path, record: RunRecord, allow_unfaithful: bool) -> RunResult:
    measurements = measurements_of(record)
    outcomes = tuple(expectation.judge(measurements) for expectation in scenario.expect)
    result = build_result(
        measurements,
        outcomes,
        scenario=scenario.name,
        transport=scenario.transport.kind,
        seed=record.seed,
        versions=folders.versions(),
        inputs={"scenario": scenario.inputs, "topology": dump_topology(scenario.topology)},
        allow_unfaithful=allow_unfaithful,
    )
    for workload, digest in region_hashes(record).items():
        if workload in result["workloads"]:
            result["workloads"][workload]["sha256"] = digest
    result["captures"] = record.captures
    folders.write_result(folder, result, event_lines(record))
    return RunResult(folder, result, measurements, outcomes, exit_code_of(result["verdict"]))
