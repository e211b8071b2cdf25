"""The report of a results folder: complete, self-contained, escaped, and honest about what was not measured."""

from __future__ import annotations

import copy
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mrcemu.errors import ConfigError, UsageError
from mrcemu.report import build_report
from mrcemu.report.markup import instant, quantity
from mrcemu.report.plots import figures, to_png, to_svg

RESULT: dict[str, Any] = {
    "scenario": "t1-switch-loss",
    "transport": "mrc",
    "seed": 1,
    "verdict": "fail",
    "expectations": [
        {"text": "qp_errors < 1", "measured": 0.0, "bound": 1.0, "pass": True, "unit": "1"},
        {"text": "recovery_time(w, 1s) <= 20ms", "measured": "never", "bound": 20e6, "pass": False, "unit": "ns"},
        {"text": "trims == 0", "measured": "not_measured", "bound": 0.0, "pass": False, "unit": "1"},
    ],
    "workloads": {
        "w": {
            "bytes": 12_500_000, "goodput_bps": 100e6, "line_payload_bps": 193.3e6, "efficiency": 0.517, "messages": 12,
            "latency_ns": {"p50": 1e6, "p99": 3e6}, "corrupted_bytes": 0, "retransmitted_packets": 5, "qp_errors": 0,
        }
    },
    "series": {
        "interval_s": 0.05, "goodput_bps": {"w": [100e6] * 40}, "plane_bits": [[5e6] * 40, [2.5e6] * 40],
        "lost": [0] * 39 + [3], "trimmed": "not_measured", "marked": "not_measured", "retransmitted": [1] * 40,
    },
    "evs": {
        "w/h0-h3/0": [
            {"ev": 17, "plane": 1, "hops": ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h3"], "srv6": "fcbb:bbbb::1",
             "state": "ASSUMED_BAD", "sent": 1234, "marked": 0, "trimmed": 0, "lost": 3, "rtt_ns": None, "retired": 1}
        ]
    },
    "faults": [
        {"what": "switch down p1-t1-1", "asked_at_ns": 10**9, "done_at_ns": 1_000_200_000, "first_lost_ns": 999_200_000,
         "detected_at_ns": 1_030_200_000, "detected_by": "ev loss", "last_retransmit_ns": None, "back_at_ns": None}
    ],
    "ports": {"h0:p0": {"tx_packets": 12345}},
    "fidelity": {"F1": {"value": None, "verdict": "not_measured"}, "F4": {"value": "p99 1ms", "verdict": "pass"}},
    "captures": [{"file": "capture.pcapng", "interface": "p1-t0-0:up1", "packets": 4321}],
    "base_rtt_ns": 21_700_000,
    "versions": {"mrcemu": "0.1.0"},
    "inputs": {
        "scenario": {"about": "a T1 dies"},
        "topology": {"name": "tiny", "planes": 2, "nic_rate_bps": 25_000_000, "scale": 4000},
    },
}  # fmt: skip


class Reader(HTMLParser):
    """Collects tags, their attributes, visible text; fails on tags that are closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text += data + " "


def report(folder: Path, result: dict[str, Any], events: str = "") -> Reader:
    (folder / "result.json").write_text(json.dumps(result))
    if events:
        (folder / "events.jsonl").write_text(events)
    reader = Reader()
    reader.feed(build_report(folder).read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reader]:
    """The report of RESULT, built once: drawing takes a second."""
    folder = tmp_path_factory.mktemp("results")
    return folder, report(folder, RESULT)


def test_the_page_tells_verdict_expectations_faults_paths_and_scale(built: tuple[Path, Reader]) -> None:
    text = " ".join(built[1].text.split())
    for expected in (
        "An expectation failed.",
        "a T1 dies",
        "25mbit a port stands for 100gbit (1:4000)",
        "1 of 3 expectations held",
        "recovery_time(w, 1s) <= 20ms never 20ms",
        "trims == 0 not measured 0",
        "switch down p1-t1-1 1.0000 s +200us −1ms +30ms ev loss – –",
        "p1-t0-0 → p1-t1-1 → p1-t0-1 fcbb:bbbb::1 ASSUMED_BAD 1,234",
        "Not measured in this run: trimmed, marked.",
        "F1 gaps between packets of a busy link – not measured",
        "h0:p0 12,345",
        "capture.pcapng p1-t0-0:up1 4,321",
    ):
        assert expected in text, expected


def test_the_page_is_one_file_that_fetches_nothing(built: tuple[Path, Reader]) -> None:
    folder, reader = built
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    links = [value for name, value in reader.attributes if name in ("src", "href", "xlink:href")]
    assert all(value and value.startswith("#") for value in links)
    page = (folder / "report.html").read_text()
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []


def test_every_reference_inside_the_plots_has_its_target_and_ids_are_unique(built: tuple[Path, Reader]) -> None:
    folder, reader = built
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    page = (folder / "report.html").read_text()
    used = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))
    assert used
    assert used <= set(ids)


def test_names_from_files_are_text_and_never_markup(tmp_path: Path) -> None:
    evil = copy.deepcopy(RESULT)
    evil["scenario"] = "<script>alert(1)</script>"
    evil["series"]["goodput_bps"] = {"<b>$x_$": [1e6] * 3}
    evil["faults"][0]["what"] = '"><script>'
    evil["ports"] = {"<i>": {"<u>": "<s>"}}
    evil["versions"] = {"<em>": "<em>"}
    reader = report(tmp_path, evil, events='{"event": "<script>"}\n')
    assert not {"script", "i", "u", "s", "em"} & set(reader.tags)
    assert "alert(1)" in reader.text


def test_it_follows_light_and_dark(built: tuple[Path, Reader]) -> None:
    folder, _ = built
    page = (folder / "report.html").read_text()
    assert "prefers-color-scheme: dark" in page
    svg = page[page.index("<svg") : page.index("</svg>")]
    assert "var(--ink)" in svg
    assert "#1d2431" not in svg


def test_png_plots_lie_beside_the_page(built: tuple[Path, Reader]) -> None:
    folder, _ = built
    names = {path.name for path in folder.glob("*.png")}
    assert names == {"goodput.png", "planes.png", "shares.png", "losses.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))


def test_the_same_result_gives_the_same_bytes() -> None:
    first, second = (figures(RESULT)["losses"] for _ in range(2))
    assert to_png(first) == to_png(second)
    assert to_svg(first, "losses") == to_svg(second, "losses")


def test_svg_plots_are_well_formed(built: tuple[Path, Reader]) -> None:
    page = (built[0] / "report.html").read_text()
    plots = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(plots) == 4
    assert all(ET.fromstring(plot).tag.endswith("svg") for plot in plots)


def test_a_plot_marks_each_fault() -> None:
    many = copy.deepcopy(RESULT)
    many["faults"] = [{"what": "link down x", "asked_at_ns": n * 10**8, "done_at_ns": None} for n in range(3)]
    axes = figures(many)["goodput"].axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3"]


def test_a_run_without_traffic_or_faults_still_has_a_page(tmp_path: Path) -> None:
    empty = {**RESULT, "workloads": {}, "series": {}, "evs": {}, "faults": [], "expectations": [], "ports": {}}
    text = report(tmp_path, {**empty, "verdict": "partial", "inputs": {}}).text
    assert "The scenario expects nothing." in text
    assert "interrupted" in text
    assert not list(tmp_path.glob("*.png"))


def test_sixteen_planes_and_long_runs_are_drawn() -> None:
    big = copy.deepcopy(RESULT)
    big["series"]["plane_bits"] = [[1e6] * 1200 for _ in range(16)]
    assert len(figures(big)["planes"].axes) == 16


def test_events_are_listed_and_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    events = "".join(f'{{"at_ns": {n}, "event": "retransmit"}}\n' for n in range(400)) + '{"at_ns": 4'
    text = report(tmp_path, {**RESULT, "series": {}}, events=events).text
    assert "400 events" in text
    assert "100 more in events.jsonl" in text


def test_a_folder_that_is_no_results_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no result\.json"):
        build_report(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_broken_result_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ConfigError, match=r"result\.json"):
        build_report(tmp_path)


def test_a_broken_event_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"events\.jsonl:1"):
        report(tmp_path, RESULT, events="oops\n{}\n")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (21_700_000, "ns", "21.7ms"),
        (193.3e6, "bit/s", "193.3mbit"),
        (1 << 20, "bytes", "1MiB"),
        (0.5, "1", "0.5"),
        (123456, "1", "123,456"),
        (None, "ns", "–"),
        ("not_measured", "ns", "not measured"),
        ("never", "ns", "never"),
    ],
)
def test_quantities_are_shown_in_units_people_read(value: object, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_instants_have_a_tenth_of_a_millisecond() -> None:
    assert (instant(3_000_210_000), instant(None)) == ("3.0002 s", "–")
