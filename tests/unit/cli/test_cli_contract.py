"""What the command line promises and needs no fabric for: names, help, exit codes, one line an error, JSON alone."""

import json
import subprocess
import sys

import pytest

from mrcemu import __version__
from mrcemu.cli import main
from mrcemu.cli.main import COMMANDS, UNAVAILABLE, run

GROUPS = {
    "topo": ["show"],
    "link": ["down", "up", "reset", "flap"],
    "port": ["down", "up"],
    "switch": ["down", "up", "reboot"],
    "ev": ["list", "deny", "allow", "watch"],
}
# One valid use of every command that needs root.
ROOTED = [
    ["up", "tiny"],
    ["down", "--all"],
    ["down", "tiny"],
    ["exec", "h0", "--", "true"],
    ["shell", "h0"],
    ["mn", "tiny"],
    ["link", "down", "h0:p0"],
    ["link", "flap", "h0:p0"],
    ["port", "up", "h0:p0"],
    ["switch", "reboot", "p0-t0-0"],
    ["capture", "h0:p0", "-w", "x.pcapng"],
    ["bench"],
    ["bw", "h0", "h3"],
    ["lat", "h0", "h3"],
    ["probe", "h0", "h3"],
    ["trace", "h0", "h3", "--ev", "0x10"],
    ["ev", "list"],
    ["ev", "deny", "0x10"],
    ["ev", "allow", "--all"],
    ["ev", "watch"],
]


def own_commands():
    """Every command of ours as words, groups and their members."""
    ours = [name for group in COMMANDS.values() for name, entry in group.items()]
    return [[name] for name in ours] + [[name, verb] for name, verbs in GROUPS.items() for verb in verbs]


@pytest.fixture
def not_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)


@pytest.fixture
def nothing_stands(monkeypatch, tmp_path):
    monkeypatch.setattr("mrcemu.fabric.journal.RUN_DIR", tmp_path)


def one_line(capsys):
    """The error line; fails if there is more than one, or anything on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mrcemu: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("words", own_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(words, capsys, not_root):
    assert run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example: " in shown
    assert f"mrcemu {words[0]}" in shown


def test_the_help_page_lists_every_command(capsys):
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    for words in own_commands():
        assert words[0] in page
    assert "Not available in this version" in page


def test_no_arguments_is_the_help_page_and_a_usage_error(capsys):
    assert run([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: mrcemu" in captured.err


def test_the_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"mrcemu {__version__}\n"


@pytest.mark.parametrize("words", ROOTED, ids=" ".join)
def test_without_root_one_line_names_sudo(words, capsys, not_root):
    assert run(words) == 3
    assert "sudo mrcemu" in one_line(capsys)


@pytest.mark.parametrize(
    "name", [name for name in UNAVAILABLE if not any(name in group for group in COMMANDS.values())]
)
def test_a_command_of_a_later_version_is_refused(name, capsys):
    assert run([name, "some", "--thing", "else"]) == 2
    assert f"`{name}` is not available in this version" in one_line(capsys)


@pytest.mark.parametrize("words", [["link", "loss", "h0:p0", "1%"], ["switch", "freeze", "p0-t0-0"]], ids=" ".join)
def test_a_fault_of_a_later_version_is_refused(words, capsys):
    assert run(words) == 2
    assert "not available in this version" in one_line(capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "nearest: status"),
        (["up"], "Missing argument"),
        (["up", "no-such-file.yaml"], "no topology file 'no-such-file.yaml'"),
        (["up", "eigth-plane"], "nearest: eight-plane"),
        (["status", "--jsn"], "No such option"),
        (["topo", "show", "tiny", "--format", "pdf"], "pdf"),
        (["paths", "h0", "h9", "--topology", "tiny"], "no host 'h9'"),
        (["paths", "h0", "h0", "--topology", "tiny"], "no path to itself"),
        (["down", "tiny", "--all"], "either a NAME or --all"),
        (["link", "flap", "h0:p0", "--period", "200"], "--period: found '200'"),
        (["link", "flap", "h0:p0", "--duty", "0.5"], "--duty: found '0.5'"),
        (["capture", "h0:p0", "-w", "x", "--duration", "5"], "--duration: found '5'"),
    ],
)
def test_a_usage_error_is_one_line_that_says_what_is_allowed(words, said, capsys):
    assert run(words) == 2
    assert said in one_line(capsys)


def test_a_bad_topology_file_names_file_line_and_key(capsys, tmp_path, not_root):
    path = tmp_path / "bad.yaml"
    path.write_text("name: bad\nplanes: 99\n")
    assert run(["topo", "show", str(path)]) == 2
    assert f"{path}:2: planes" in one_line(capsys)


def test_a_bad_topology_file_is_found_before_root_is_asked_for(capsys, tmp_path, not_root):
    path = tmp_path / "bad.yaml"
    path.write_text("planes: 99\n")
    assert run(["up", str(path)]) == 2


@pytest.mark.parametrize(
    "words", [["down"], ["link", "down", "h0:p0"], ["exec", "h0", "--", "true"], ["paths", "h0", "h1"]]
)
def test_without_a_standing_fabric_the_way_to_one_is_named(words, capsys, nothing_stands, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert run(words) == 2
    assert "no fabric stands; build one first" in one_line(capsys)


def test_status_of_nothing_is_an_empty_list(capsys, nothing_stands):
    assert run(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"fabrics": []}
    assert run(["status"]) == 0
    assert capsys.readouterr().out == "no fabric stands\n"


def test_down_all_of_nothing_is_fine_any_number_of_times(capsys, nothing_stands, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert [run(["down", "--all"]), run(["down", "--all"])] == [0, 0]
    assert capsys.readouterr().out == "nothing stands\n" * 2


def test_topo_show_needs_no_root_and_prints_one_json_document(capsys, not_root):
    assert run(["topo", "show", "tiny", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["summary"]["hosts"] == 4
    assert captured.err == ""


@pytest.mark.parametrize("form", ["dot", "svg", "containerlab"])
def test_topo_show_draws(form, capsys):
    assert run(["topo", "show", "tiny", "--format", form]) == 0
    assert "p0-t1-1" in capsys.readouterr().out


def test_paths_lists_each_with_its_address(capsys, not_root):
    assert run(["paths", "h0", "h3", "--topology", "tiny", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["count"] == 4
    assert listed["paths"][3]["srv6"] == "fcbb:bbbb:4400:8401:4401:c401::"


def test_doctor_as_json_has_a_fix_for_whatever_is_not_ok(capsys):
    code = run(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["fit"] else 3)
    assert all(check["fix"] for check in report["checks"] if check["level"] != "ok")


def test_doctor_without_root_exits_3(capsys, not_root):
    assert run(["doctor"]) == 3
    assert "needs root" in capsys.readouterr().out


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("two\nlines"), 1)])
def test_no_error_shows_a_traceback(raised, code, capsys, monkeypatch):
    def fail(*_args):
        raise raised

    monkeypatch.setattr(main.importlib, "import_module", fail)
    assert run(["status"]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == (1 if code == 1 else 0)


def test_the_help_page_loads_nothing_heavy():
    heavy = ["pydantic", "mininet", "rich", "asyncio", "matplotlib", "ruamel", "pyroute2", "scapy", "mrcemu.fabric"]
    program = (
        "import sys; from mrcemu.cli.main import run; run(['--help']);"
        f"sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m mrcemu.cli topo show wide | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""
