"""What `mrcemu run` and `bench` refuse, with which words and exit code; results folders; signals."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mrcemu.cli import bench
from mrcemu.cli.main import run
from mrcemu.errors import UsageError
from mrcemu.fabric import requirements
from mrcemu.runner.folder import claim, folders_for, release
from mrcemu.runner.interrupts import SIGNALS, Interrupts

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "eight-plane.yaml"
GOOD = f"""\
name: good
topology: {TOPOLOGY}
workload:
  - {{id: w, kind: write_bw, src: h0, dst: h12, size: 1MiB, duration: 2s}}
timeline:
  - {{at: 1s, do: link down p2-t0-0:p2-t1-1}}
expect:
  - corrupted_bytes == 0
"""


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """Root as far as the command can tell, and a state directory in which a built fabric would show."""
    directory = tmp_path / "state"
    monkeypatch.setattr("mrcemu.fabric.journal.RUN_DIR", directory)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return directory


def refused(words, capsys, code):
    """The one line of a refused command."""
    assert run(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mrcemu: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("good", "bad", "place"),
    [
        ("name: good", "name: good: bad", ":1: "),
        ("src: h0", "src: h99", ":4: workload.0.src"),
        ("size: 1MiB", "size: 1MiB, colour: red", ":4: workload.0.colour"),
        ("duration: 2s", "duration: 2", ":4: workload.0.duration"),
        ("kind: write_bw", "kind: write", ":4: workload.0.kind"),
        ("link down p2-t0-0:p2-t1-1", "link down p2-t0-0:p2-t1-9", ":6: timeline.0.do"),
        ("link down p2-t0-0:p2-t1-1", "port down h0:p9", ":6: timeline.0.do"),
        ("link down p2-t0-0:p2-t1-1", "link explode h0:p1", ":6: timeline.0.do"),
        ("at: 1s", "at: 1", ":6: timeline.0.at"),
        ("corrupted_bytes == 0", "corruption == 0", ":8: expect.0"),
        (str(TOPOLOGY), "nowhere.yaml", ":2: topology"),
    ],
)
def test_a_bad_scenario_is_one_line_that_names_file_line_and_key(good, bad, place, capsys, tmp_path, state):
    file = tmp_path / "bad.yaml"
    assert good in GOOD
    file.write_text(GOOD.replace(good, bad))
    said = refused(["run", str(file), "-o", str(tmp_path / "out")], capsys, 2)
    assert f"{file}{place}" in said
    assert not state.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "topology.planes=99"], "planes"),
        (["--set", "workload.0.size=big"], "workload.0.size"),
        (["--set", "nonsense"], "nonsense"),
        (["--transport", "roce"], "not available in this version"),
        (["--engine", "sim"], "not available in this version"),
        (["--keep", "--repeat", "2"], "--keep leaves one fabric standing, 2 runs were asked for"),
        (["--repeat", "0"], "--repeat"),
    ],
)
def test_a_bad_option_of_run_is_refused(words, said, capsys, tmp_path, state):
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert said in refused(["run", str(file), "-o", str(tmp_path / "out"), *words], capsys, 2)
    assert not state.exists()


@pytest.mark.parametrize(
    ("word", "named"), [("flavors next-csid", "NEXT-CSID"), ("htb", "HTB"), ("encap seg6local", "SRv6")]
)
def test_a_missing_kernel_feature_is_named_with_its_fix_before_anything_is_built(
    word, named, capsys, tmp_path, monkeypatch, state
):
    def fit_but(command):
        missing = word in command[-1]
        return (2, "Error: Unknown.") if missing else (0, "seg6local flavors next-csid lblen 32 nflen 16")

    lacking = replace(
        requirements.Machine(),
        run=fit_but,
        which=lambda name: f"/usr/bin/{name}",
        kernel=lambda: "6.1.0",
        euid=lambda: 0,
    )
    monkeypatch.setattr(requirements, "Machine", lambda: lacking)
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    said = refused(["run", str(file), "-o", str(tmp_path / "out")], capsys, 3)
    assert f"{named}: " in said
    assert "fix: " in said
    assert not state.exists()
    assert not (tmp_path / "out").exists()


def test_a_used_results_folder_is_refused_before_root_is_asked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    file, folder = tmp_path / "good.yaml", tmp_path / "out"
    file.write_text(GOOD)
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    assert "is not empty" in refused(["run", str(file), "-o", str(folder)], capsys, 2)


# -- folders ----------------------------------------------------------------------------------------------------------


def test_one_run_gets_the_folder_itself_and_several_a_subfolder_each():
    assert folders_for(Path("o"), ["a"]) == [Path("o")]
    assert folders_for(Path("o"), ["a", "a-2", "a", "b"]) == [Path("o/a"), Path("o/a-2"), Path("o/a-3"), Path("o/b")]


def test_a_default_folder_gives_way_to_what_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "-now")
    claim(Path("results/a-now"))
    assert folders_for(None, ["a", "a"]) == [Path("results/a-now-2"), Path("results/a-now-3")]


def test_a_claimed_folder_is_released_only_while_empty(tmp_path):
    claim(tmp_path / "x" / "y")
    release(tmp_path / "x" / "y")
    assert not (tmp_path / "x" / "y").exists()
    claim(tmp_path / "x" / "y")
    (tmp_path / "x" / "y" / "file").touch()
    release(tmp_path / "x" / "y")
    assert (tmp_path / "x" / "y" / "file").exists()
    with pytest.raises(UsageError, match="not empty"):
        claim(tmp_path / "x" / "y")


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def heeded():
    """SIGINT as in a foreground program; in a shell's background job it is ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("heeded")
def test_signals_are_counted_and_forwarded_and_the_old_handlers_come_back():
    before, seen = [signal.getsignal(number) for number in SIGNALS], []
    with Interrupts() as interrupts:
        interrupts.raise_if_any()
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        interrupts.forward_to(lambda: seen.append("x"))
        os.kill(os.getpid(), signal.SIGINT)
        assert (interrupts.count, seen) == (4, ["x"])
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_if_any()
        interrupts.clear()
        interrupts.raise_if_any()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_was_ignored_stays_ignored():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, previous)


# -- bench ------------------------------------------------------------------------------------------------------------


def script(folder, name, text):
    (folder / f"{name}.py").write_text(text)


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "SCRIPTS", tmp_path)
    return tmp_path


def test_bench_shows_the_ratios_of_a_script_in_a_table_and_as_json(scripts, capsys):
    row = '{"what": "a thing", "ours": 2.0, "reference": 8.0, "unit": "us", "ratio": 0.25}'
    script(scripts, "wire", f'print(\'{{"ratios": [{row}], "detail": {{}}}}\')')
    assert run(["bench", "wire"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("wire", "a thing", "0.25", "us"))
    assert run(["bench", "wire", "--json"]) == 0
    assert '"ratio": 0.25' in capsys.readouterr().out


def test_a_failing_or_unknown_benchmark_is_one_line(scripts, capsys):
    script(scripts, "wire", "raise SystemExit('no comparison')")
    assert run(["bench", "wire"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "mrcemu: benchmark wire failed: no comparison"
    assert "allowed: wire" in refused(["bench", "speed"], capsys, 2)


def test_a_benchmark_that_takes_too_long_may_clean_up_first(scripts, capsys, monkeypatch):
    monkeypatch.setattr(bench, "TIMEOUT_S", 1.0)
    script(scripts, "wire", f"import time\ntry: time.sleep(60)\nfinally: open({str(scripts / 'cleaned')!r}, 'w')")
    assert run(["bench", "wire"]) == 3
    assert "took more than 1 s" in capsys.readouterr().err
    assert (scripts / "cleaned").exists()


def test_without_a_checkout_bench_says_where_benchmarks_come_from(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "SCRIPTS", tmp_path / "none")
    assert "come with a checkout" in refused(["bench"], capsys, 2)


def test_every_script_of_a_checkout_is_known():
    assert {path.stem for path in bench.SCRIPTS.glob("*.py")} == set(bench.NAMES)
