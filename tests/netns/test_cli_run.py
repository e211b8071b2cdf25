"""The built command runs a scenario on a real fabric and says on stdout how it came out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mrcemu.runner.results import exit_code_of

pytestmark = pytest.mark.netns

TOPOLOGY = Path(__file__).parents[2] / "topologies" / "tiny.yaml"
SCENARIO = f"""\
name: short
topology: {TOPOLOGY}
workload:
  - {{id: w, kind: write_bw, src: h0, dst: h3, size: 64KiB, duration: 2s}}
expect:
  - corrupted_bytes == 0
  - goodput(w) >= 100gbit
"""


def run(tmp_path: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    file, folder = tmp_path / "short.yaml", tmp_path / "results"
    file.write_text(SCENARIO)
    command = [sys.executable, "-m", "mrcemu.cli", "run", str(file), "-o", str(folder), "--allow-unfaithful", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done, json.loads((folder / "result.json").read_text())


def test_a_run_prints_every_expectation_the_verdict_and_where_the_report_is(tmp_path: Path) -> None:
    done, result = run(tmp_path)
    assert (result["verdict"], done.returncode) == ("fail", exit_code_of("fail"))
    assert "ok " in done.stdout
    assert "FAIL" in done.stdout
    assert "verdict: fail" in done.stdout
    assert str(tmp_path / "results" / "report.html") in done.stdout
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000


def test_json_prints_the_result_and_nothing_else(tmp_path: Path) -> None:
    done, result = run(tmp_path, "--json")
    assert json.loads(done.stdout) == result
