"""Tables and drawings of a topology name exactly what exists."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mrcemu.errors import UsageError
from mrcemu.topology import draw, show
from mrcemu.topology.loader import load_topology
from mrcemu.topology.model import Topology

SHIPPED = Path(__file__).parents[3] / "topologies"


def shipped(name: str) -> Topology:
    return load_topology((SHIPPED / f"{name}.yaml").read_text(), name)


def test_summary_counts_what_the_model_enumerates() -> None:
    topology = shipped("eight-plane")
    data = show.summary(topology)
    assert data["switches"] == len(topology.switches) == 64
    assert data["nic_links"] + data["fabric_links"] == len(topology.links) == 256
    assert (data["paths_cross_t1"], data["paths_t0_local"]) == (32, 8)
    assert data["stands_for_nic_bps"] == 100 * 10**9
    assert data["host_line_payload_bps"] == pytest.approx(8 * 25e6 * 4096 / 4238, abs=1)


def test_addressing_gives_every_switch_and_port_a_prefix_of_its_own() -> None:
    topology = shipped("tiny")
    rows = show.addressing(topology)
    switches = [row for row in rows if row["kind"] in ("t0", "t1")]
    assert len({row["address"] for row in switches}) == len(switches) == 8
    ports = {row["name"] for row in rows if row["kind"] == "downlink"}
    assert ports == {link.name for link in topology.links if link.is_nic}
    assert next(row for row in rows if row["name"] == "p1-t1-1")["address"] == "fcbb:bbbb:8401::/48"


def test_paths_list_nodes_uplinks_and_addresses() -> None:
    rows = show.paths(shipped("tiny"), "h0", "h3")
    assert [(row["plane"], row["uplink"], row["hops"]) for row in rows] == [(0, 0, 4), (0, 1, 4), (1, 0, 4), (1, 1, 4)]
    assert rows[3]["nodes"] == ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h3"]
    assert rows[3]["srv6"] == "fcbb:bbbb:4400:8401:4401:c401::"
    assert [row["hops"] for row in show.paths(shipped("tiny"), "h0", "h1")] == [2, 2]


def test_paths_of_an_unknown_host_name_the_range() -> None:
    with pytest.raises(UsageError, match=r"h0 \.\. h3 exist"):
        show.paths(shipped("tiny"), "h0", "h4")


def test_as_data_is_json_and_takes_the_first_and_last_host_by_default() -> None:
    data = json.loads(json.dumps(show.as_data(shipped("tiny"))))
    assert (data["paths"]["src"], data["paths"]["dst"], data["paths"]["count"]) == ("h0", "h3", 4)


@pytest.mark.parametrize("name", ["eight-plane", "wide", "tiny", "single-plane"])
def test_svg_is_well_formed_and_draws_every_switch_and_link(name: str) -> None:
    topology = shipped(name)
    root = ET.fromstring(draw.to_svg(topology))
    labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {switch.name for switch in topology.switches} <= set(labels)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}line"))) == len(topology.links)


@pytest.mark.parametrize("name", ["eight-plane", "wide", "tiny"])
def test_svg_boxes_of_a_plane_do_not_overlap(name: str) -> None:
    root = ET.fromstring(draw.to_svg(shipped(name)))
    panel = root.find("{http://www.w3.org/2000/svg}g")
    assert panel is not None
    boxes = [r for r in panel if r.tag.endswith("rect") and r.get("class") != "panel"]
    spans: dict[str, list[tuple[float, float]]] = {}
    for box in boxes:
        x, width = float(box.get("x", "")), float(box.get("width", ""))
        spans.setdefault(box.get("y", ""), []).append((x, x + width))
    assert len(spans) == 3
    for row in spans.values():
        row.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(row))


def test_dot_has_an_edge_for_each_link() -> None:
    topology = shipped("tiny")
    edges = re.findall(r'"([^"]+)" -- "([^"]+)"', draw.to_dot(topology))
    assert edges == [(link.lower.node, link.upper.node) for link in topology.links]


def test_containerlab_file_is_yaml_with_our_interface_names() -> None:
    topology = shipped("tiny")
    data = YAML(typ="safe", pure=True).load(draw.to_containerlab(topology))
    assert set(data["topology"]["nodes"]) == set(topology.nodes)
    assert len(data["topology"]["links"]) == len(topology.links)
    assert ["h0:p1", "p1-t0-0:dn0"] in [link["endpoints"] for link in data["topology"]["links"]]
