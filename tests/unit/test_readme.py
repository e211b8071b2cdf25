"""What the README shows is true: its scenario loads, its table is the shipped topologies, its targets exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from mrcemu.runner.scenario import load_scenario
from mrcemu.topology.loader import load_topology
from mrcemu.topology.show import summary

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_scenario_of_the_readme_loads() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    scenario = load_scenario(text, "scenarios/readme.yaml", lambda path: (ROOT / path).read_text())
    assert (scenario.name, len(scenario.timeline), len(scenario.expect)) == ("t1-switch-loss", 2, 3)


def test_every_shipped_scenario_loads_and_is_named_like_its_file() -> None:
    files = sorted((ROOT / "scenarios").glob("*.yaml"))
    assert files
    for file in files:
        scenario = load_scenario(file.read_text(), f"scenarios/{file.name}", lambda path: (ROOT / path).read_text())
        assert scenario.name == file.stem


def test_the_table_of_topologies_is_what_is_shipped() -> None:
    rows = re.findall(r"\| `([a-z-]+)\.yaml` \| (\d+) × \((\d+) \+ (\d+)\) \| (\d+) \| (\d+) \|", README)
    assert {row[0] for row in rows} == {file.stem for file in (ROOT / "topologies").glob("*.yaml")}
    for name, *numbers in rows:
        data = summary(load_topology((ROOT / "topologies" / f"{name}.yaml").read_text()))
        shown = [data[key] for key in ("planes", "t0_per_plane", "t1_per_plane", "hosts", "paths_cross_t1")]
        assert shown == [int(number) for number in numbers]


def test_make_help_lists_every_target() -> None:
    # Without what an outer make hands down: `make test` runs this test too.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", "help"]
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[0].split()
    assert [line.split()[0] for line in listed.splitlines()] == targets
