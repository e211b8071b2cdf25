"""What traffic and path commands print, from results as the keeper gives them; a fabric is not needed."""

import json

import pytest

from mrcemu.cli import ev, perf
from mrcemu.cli.common import read_topology
from mrcemu.cli.main import run

FIGURES = {"min": 8_000_000, "max": 9_000_000, "typical": 8_100_000, "avg": 8_200_000.5, "stdev": 1.0}
LAT = {
    "src": "h0", "dst": "h3", "size_bytes": 2, "iterations": 5, "qp_errors": 0, "complete": True,
    "latency_ns": {**FIGURES, "p99": 9_000_000, "p99_9": 9_000_000},
}  # fmt: skip
BW = {
    "src": "h0", "dst": "h3", "size_bytes": 65536, "messages": 10, "peak_bps": 80 * 2**20, "goodput_bps": 40 * 2**20,
    "message_rate_per_s": 80.0, "efficiency": 0.5, "lost_packets": 1, "retransmitted_packets": 2,
    "corrupted_bytes": 0, "qp_errors": 0, "complete": True,
}  # fmt: skip


class Keeper:
    """Stands in for a standing fabric: remembers requests, answers the same every time."""

    def __init__(self, answer):
        self.topology = read_topology("tiny")[0]
        self.answer = answer
        self.asked = []

    def ask(self, verb, _targets, args, on_event=None):
        self.asked.append((verb, args))
        return dict(self.answer)


@pytest.fixture
def keeper(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)

    def install(answer):
        made = Keeper(answer)
        monkeypatch.setattr("mrcemu.cli.standing.choose", lambda name: made)
        return made

    return install


def test_bw_prints_the_columns_of_ib_write_bw(keeper, capsys):
    keeper(BW)
    assert run(["bw", "h0", "h3", "-s", "64KiB"]) == 0
    note, head, row = capsys.readouterr().out.splitlines()
    assert "scale 4000: 25mbit stands for 100gbit, 1ms here for 250ns there" in note
    assert [cell.strip() for cell in head.split("  ") if cell.strip()] == [
        "#bytes", "#iterations", "BW peak[MB/sec]", "BW average[MB/sec]", "MsgRate[Mpps]",
        "efficiency", "lost", "resent", "corrupted",
    ]  # fmt: skip
    assert row.split() == ["65536", "10", "10.000", "5.000", "0.000080", "0.5000", "1", "2", "0"]


def test_without_a_port_up_there_is_no_efficiency(keeper, capsys):
    keeper({**BW, "efficiency": None})
    assert run(["bw", "h0", "h3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[5] == "-"


@pytest.mark.parametrize("spoilt", [{"qp_errors": 2}, {"complete": False}])
@pytest.mark.parametrize(("command", "result"), [("bw", BW), ("lat", LAT)])
def test_a_spoilt_measurement_is_exit_1_after_its_figures(keeper, capsys, command, result, spoilt):
    keeper({**result, **spoilt})
    assert run([command, "h0", "h3", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["size_bytes"] == result["size_bytes"]
    assert captured.err.count("\n") == 1


def test_a_sweep_asks_for_every_power_of_two_up_to_8_mib(keeper, capsys):
    made = keeper(BW)
    assert run(["bw", "h0", "h3", "-a", "-q", "2", "-b", "-t", "4", "-n", "3", "--json"]) == 0
    assert [args["size"] for _, args in made.asked] == list(perf.SWEEP) == [2**n for n in range(1, 24)]
    assert {(a["qps"], a["bidirectional"], a["depth"], a["iterations"]) for _, a in made.asked} == {(2, True, 4, 3)}
    assert len(json.loads(capsys.readouterr().out)["sizes"]) == 23


@pytest.mark.parametrize(
    ("words", "extent"),
    [
        ([], {"iterations": 100, "duration_ns": 5 * 10**9}),
        (["-a"], {"iterations": 100, "duration_ns": 2 * 10**9}),
        (["-n", "7"], {"iterations": 7}),
        (["-D", "3s"], {"duration_ns": 3 * 10**9}),
        (["-n", "7", "-D", "3s"], {"iterations": 7, "duration_ns": 3 * 10**9}),
    ],
)
def test_lat_goes_on_for_what_was_said_or_a_bounded_time(keeper, words, extent):
    made = keeper(LAT)
    assert run(["lat", "h0", "h3", *words]) == 0
    asked = made.asked[0][1]
    assert {key: asked[key] for key in ("iterations", "duration_ns") if key in asked} == extent


def test_lat_prints_microseconds_and_dashes_where_no_exchange_came_back(keeper, capsys):
    keeper(LAT)
    run(["lat", "h0", "h3"])
    shown = capsys.readouterr().out.splitlines()[-1].split()
    assert shown == ["2", "5", "8000.00", "9000.00", "8100.00", "8200.00", "0.00", "9000.00", "9000.00"]
    keeper({**LAT, "latency_ns": None, "iterations": 0, "complete": False})
    run(["lat", "h0", "h3"])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["2", "0", *["-"] * 7]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bw", "h0", "h3", "-a", "-s", "1MiB"], "either --size or --all"),
        (["lat", "h0", "h3", "-s", "64"], "--size: found '64'"),
        (["trace", "h0", "h3", "--ev", "x"], "--ev: found 'x'"),
        (["probe", "h0", "h3", "--ev", "1.5"], "--ev: found '1.5'"),
        (["ev", "deny"], "either an EV, or both --mask and --value"),
        (["ev", "deny", "1", "--mask", "2"], "either an EV, or both --mask and --value"),
        (["ev", "allow", "1", "--all"], "either an entry or --all"),
        (["ev", "watch", "--for", "10"], "--for: found '10'"),
    ],
)
def test_options_that_contradict_or_lack_their_unit_are_exit_2_before_anything_is_asked(keeper, capsys, words, said):
    made = keeper({})
    assert run(words) == 2
    assert said in capsys.readouterr().err
    assert made.asked == []


def test_deny_says_an_ev_exactly_and_a_mask_with_what_it_matches(keeper, capsys):
    made = keeper({"mask": 0xF, "value": 1, "hosts": ["h0"], "evs": [1, 17], "paths": 2})
    assert run(["ev", "deny", "--mask", "0xf", "--value", "1", "--src", "h0", "--dst", "h3"]) == 0
    assert made.asked == [("ev deny", {"mask": 15, "value": 1, "hosts": ["h0", "h3"]})]
    assert capsys.readouterr().out == "denied on h0: mask 0xf value 0x1 (0x1, 0x11); 2 paths of running QPs\n"
    made = keeper({"mask": 0xFFFFFFFF, "value": 17, "hosts": ["h0"], "evs": [17], "paths": 1})
    assert run(["ev", "deny", "0x11"]) == 0
    assert made.asked[0][1] == {"mask": 0xFFFFFFFF, "value": 17, "hosts": []}
    assert capsys.readouterr().out == "denied on h0: EV 0x11; 1 paths of running QPs\n"


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ({"plane_up": False, "active": True, "state": "GOOD"}, "port down"),
        ({"plane_up": True, "active": True, "state": "ASSUMED_BAD"}, "active"),  # kept by the floor
        ({"plane_up": True, "active": False, "state": "GOOD"}, "backup"),
        ({"plane_up": True, "active": False, "state": "ASSUMED_BAD"}, "out"),
        ({"plane_up": True, "active": False, "state": "DENIED"}, "out"),
    ],
)
def test_the_use_of_a_path(path, use):
    assert ev._use(path) == use


def test_an_event_is_one_line_with_a_time_and_who_it_happened_to():
    line = ev._event_line(
        {
            "unix_s": 0.25, "kind": "EvChanged", "host": "h0", "peer": "h3", "qpn": 9, "ev": 17, "plane": 1,
            "old": "GOOD", "new": "ASSUMED_BAD", "signal": "guard",
        }
    )  # fmt: skip
    assert line.endswith(":00.250  h0 > h3 QP 9  EV 0x11 (plane 1) GOOD -> ASSUMED_BAD: guard")
    ports = {"unix_s": 0.0, "kind": "PeerPortsChanged", "host": "h3", "peer": "h0", "qpn": 0, "mask": 5}
    assert ev._event_line(ports).endswith("h3  hears from h0: ports up p0 p2")
