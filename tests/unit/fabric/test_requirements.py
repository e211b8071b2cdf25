"""What a machine lacks is named with its remedy before anything is created; what is optional does not block."""

from dataclasses import replace

import pytest

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric.requirements import CHECKS, Level, Machine, examine, require


def fit_run(command):
    script = command[-1]
    return 0, "seg6local action End flavors next-csid lblen 32 nflen 16" if "seg6local" in script else ""


FIT = Machine(
    run=fit_run,
    which=lambda name: f"/usr/bin/{name}",
    read=lambda path: "4096",
    euid=lambda: 0,
    cpus=lambda: 4,
    open_files=lambda: (4096, 4096),
    kernel=lambda: "6.1.0-18-amd64",
)


def without(word, output="Error: unknown"):
    """A machine on which every trial whose script holds `word` fails."""
    return replace(FIT, run=lambda command: (2, output) if word in command[-1] else fit_run(command))


def levels(machine):
    return {result.name: result.level for result in examine(machine)}


def bad(machine):
    return {name for name, level in levels(machine).items() if level is not Level.OK}


def test_a_fit_machine_passes_every_check():
    assert bad(FIT) == set()
    require(FIT)


@pytest.mark.parametrize(
    ("word", "missing"),
    [
        ("type veth", {"veth"}),
        ("flavors next-csid", {"NEXT-CSID"}),
        ("encap seg6local", {"SRv6", "NEXT-CSID"}),
        ("htb", {"HTB", "cls_u32"}),
        ("u32", {"cls_u32"}),
    ],
)
def test_a_missing_kernel_feature_is_named_with_its_fix_and_blocks(word, missing):
    machine = without(word, "Error: Specified qdisc kind is unknown.")
    assert bad(machine) == missing
    with pytest.raises(UnfitEnvironmentError, match="Specified qdisc kind is unknown") as caught:
        require(machine)
    assert caught.value.exit_code == 3
    assert caught.value.fix


def test_a_flavour_the_kernel_accepts_but_does_not_keep_is_noticed():
    machine = replace(FIT, run=lambda command: (0, "seg6local action End dev lo"))
    assert bad(machine) == {"NEXT-CSID"}
    with pytest.raises(UnfitEnvironmentError, match="reading it back"):
        require(machine)


@pytest.mark.parametrize("word", ["netem", "clsact"])
def test_an_optional_feature_warns_and_does_not_block(word):
    machine = without(word)
    assert levels(machine)[word] is Level.WARN
    require(machine)


@pytest.mark.parametrize("tool", ["ip", "tc", "mnexec"])
def test_a_missing_tool_is_named_with_its_package(tool):
    machine = replace(FIT, which=lambda name: None if name == tool else f"/usr/bin/{name}")
    with pytest.raises(UnfitEnvironmentError, match="apt-get install"):
        require(machine)


def test_without_root_the_rights_are_missing_and_the_trials_not_tried():
    machine = replace(FIT, euid=lambda: 1000)
    results = {result.name: result for result in examine(machine)}
    assert results["rights"].level is Level.MISSING
    assert "sudo" in results["rights"].fix
    assert results["HTB"].found == "not tried: needs root"


def test_an_old_kernel_is_refused():
    assert "kernel" in bad(replace(FIT, kernel=lambda: "5.15.0-91-generic"))
    assert "kernel" not in bad(replace(FIT, kernel=lambda: "6.12"))


def test_low_limits_warn_with_the_command_that_raises_them():
    machine = replace(FIT, open_files=lambda: (256, 4096), cpus=lambda: 1, read=lambda path: "128")
    results = {result.name: result for result in examine(machine)}
    assert results["open files"].fix == "ulimit -n 1024"
    assert results["open files"].found == "256 (hard limit 4096)"
    assert bad(machine) == {"open files", "CPUs", "neighbour table"}


def test_every_check_has_a_fix_and_a_name_of_its_own():
    assert all(check.fix for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_a_tool_that_cannot_be_run_is_a_finding_not_a_crash():
    status, output = Machine().run(["/no/such/tool"])
    assert status == 127
    assert "not installed" in output
