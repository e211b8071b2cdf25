"""One scenario from file to verdict: execute, measure, judge, write. What `mrcemu run` calls for each file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrcemu.runner import folder as folders
from mrcemu.runner.engine import Progress, RunOptions, execute
from mrcemu.runner.expect import Outcome
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
) -> RunResult:
    """Run it in real time on a fabric of its own and write its results; UsageError if the folder is not empty."""
    folders.claim(folder)
    record = execute(scenario, folder, RunOptions(seed, keep, progress, build_progress))
    measurements = measurements_of(record)
    outcomes = tuple(expectation.judge(measurements) for expectation in scenario.expect)
    result = build_result(
        measurements,
        outcomes,
        scenario=scenario.name,
        transport=scenario.transport.kind,
        seed=seed,
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
