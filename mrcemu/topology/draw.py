"""A topology as pictures and as other tools' files: Graphviz, SVG, containerlab. Text only, no renderer is run.

Owns layout and output text. One SVG panel a plane, because planes share nothing but the hosts: T1 switches above, T0
switches below them, the hosts' ports of that plane at the bottom.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrcemu.topology.model import SwitchId, Tier, Topology
from mrcemu.units import format_rate

# Containerlab starts a container a node; any image with iproute2 does, this is the one its own examples use.
CONTAINERLAB_IMAGE = "ghcr.io/srl-labs/network-multitool"

_BOX_W, _BOX_H, _GAP = 54, 22, 10
_MARGIN, _TITLE_H, _TIER_H = 18, 30, 84
_MIN_WIDTH, _MAX_WIDTH = 560, 1500  # the headline must fit; a screen
_STYLE = """
  :root { color-scheme: light dark; }
  .bg { fill: #ffffff; } .panel { fill: #f5f6f8; stroke: #d5d9e0; }
  text { font: 11px ui-sans-serif, system-ui, sans-serif; fill: #1d2430; text-anchor: middle; }
  .title { font-size: 13px; font-weight: 600; text-anchor: start; }
  .t1 { fill: #dbe7fb; stroke: #3b6fc4; } .t0 { fill: #d9f1e6; stroke: #2b8a63; }
  .host { fill: #ffffff; stroke: #8a93a3; }
  line { stroke: #8a93a3; stroke-width: 1; opacity: .65; }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #12161d; } .panel { fill: #1a2029; stroke: #323b49; } text { fill: #e4e8ef; }
    .t1 { fill: #1f3358; stroke: #6f9ceb; } .t0 { fill: #17402f; stroke: #58c094; }
    .host { fill: #222a36; stroke: #8a93a3; }
  }"""


def to_dot(topology: Topology) -> str:
    """An undirected Graphviz graph: a cluster a plane, an edge a link (its rate as tooltip)."""
    lines = [f'graph "{topology.name}" {{', "  rankdir=BT;", "  node [shape=box, fontsize=10];"]
    lines += [f'  "{host}" [shape=ellipse];' for host in topology.hosts]
    for plane in range(topology.planes):
        members = " ".join(f'"{s.name}";' for s in topology.switches if s.plane == plane)
        lines.append(f'  subgraph "cluster_p{plane}" {{ label="plane {plane}"; {members} }}')
    for link in topology.links:
        lines.append(f'  "{link.lower.node}" -- "{link.upper.node}" [tooltip="{format_rate(link.rate_bps)}"];')
    return "\n".join([*lines, "}", ""])


def to_containerlab(topology: Topology) -> str:
    """A containerlab topology with the same nodes, interface names and links (no addresses, queues or MRC hosts)."""
    lines = [
        f"name: {topology.name}",
        "topology:",
        "  defaults:",
        "    kind: linux",
        f"    image: {CONTAINERLAB_IMAGE}",
    ]
    lines += ["  nodes:"]
    lines += [f"    {host}: {{labels: {{role: host}}}}" for host in topology.hosts]
    for switch in topology.switches:
        lines.append(f'    {switch.name}: {{labels: {{role: {switch.tier.name.lower()}, plane: "{switch.plane}"}}}}')
    lines.append("  links:")
    for link in topology.links:
        lines.append(f'    - endpoints: ["{link.lower.name}", "{link.upper.name}"]')
    return "\n".join([*lines, ""])


def to_svg(topology: Topology) -> str:
    """A self-contained SVG, readable on light and dark backgrounds."""
    width, height = _panel_size(topology)
    columns = max(1, min(topology.planes, _MAX_WIDTH // (width + _MARGIN)))
    rows = -(-topology.planes // columns)
    total_w = max(columns * (width + _MARGIN) + _MARGIN, _MIN_WIDTH)
    total_h = rows * (height + _MARGIN) + _MARGIN + _TITLE_H
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w} {total_h}" width="{total_w}" role="img">',
        f"<title>{topology.name}</title><style>{_STYLE}\n</style>",
        f'<rect class="bg" width="{total_w}" height="{total_h}"/>',
        f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 10}">{_headline(topology)}</text>',
    ]
    for plane in range(topology.planes):
        x = _MARGIN + plane % columns * (width + _MARGIN)
        y = _MARGIN + _TITLE_H + plane // columns * (height + _MARGIN)
        body.append(f'<g transform="translate({x} {y})">')
        body.extend(_panel(topology, plane, width, height))
        body.append("</g>")
    return "\n".join([*body, "</svg>", ""])


def _headline(topology: Topology) -> str:
    per_plane = f"{topology.t0_per_plane} T0 + {topology.t1_per_plane} T1"
    return (
        f"{topology.name}: {topology.planes} planes of {per_plane}, {topology.host_count} hosts, "
        f"NIC {format_rate(topology.nic_rate_bps)}, fabric {format_rate(topology.fabric_rate_bps)} a link"
    )


def _panel_size(topology: Topology) -> tuple[int, int]:
    widest = max(topology.t1_per_plane * (_BOX_W + _GAP), topology.host_count * _host_pitch(topology), 130)
    return widest + 2 * _MARGIN, 2 * _TIER_H + _TITLE_H + _MARGIN


def _host_pitch(topology: Topology) -> int:
    """Horizontal room of a host: at least a label, and together with its siblings at least their T0's box."""
    return max(32, -(-(_BOX_W + _GAP) // topology.hosts_per_t0))


def _panel(topology: Topology, plane: int, width: int, height: int) -> Iterator[str]:
    yield f'<rect class="panel" width="{width}" height="{height}" rx="8"/>'
    yield f'<text class="title" x="{_MARGIN}" y="20">plane {plane}</text>'
    t1_y, t0_y, host_y = _TITLE_H + 14, _TITLE_H + 14 + _TIER_H, _TITLE_H + 14 + 2 * _TIER_H - 20
    t1_x = _spread(topology.t1_per_plane, width)
    host_x = _spread(topology.host_count, width)
    per_t0 = topology.hosts_per_t0
    t0_x = [sum(host_x[i * per_t0 : (i + 1) * per_t0]) / per_t0 for i in range(topology.t0_per_plane)]
    for x0 in t0_x:
        yield from (f'<line x1="{x0:.1f}" y1="{t0_y}" x2="{x1:.1f}" y2="{t1_y}"/>' for x1 in t1_x)
    for host, x in enumerate(host_x):
        yield f'<line x1="{x:.1f}" y1="{host_y}" x2="{t0_x[host // per_t0]:.1f}" y2="{t0_y}"/>'
    for index, x in enumerate(t1_x):
        yield _box(x, t1_y, _BOX_W, SwitchId(plane, Tier.T1, index).name, "t1")
    for index, x in enumerate(t0_x):
        yield _box(x, t0_y, _BOX_W, SwitchId(plane, Tier.T0, index).name, "t0")
    for host, x in enumerate(host_x):
        yield _box(x, host_y, 30, f"h{host}", "host")


def _spread(count: int, width: int) -> list[float]:
    """Centres of `count` equal columns inside a panel."""
    usable = width - 2 * _MARGIN
    return [_MARGIN + usable * (i + 0.5) / count for i in range(count)]


def _box(x: float, y: float, width: int, label: str, kind: str) -> str:
    left, top = x - width / 2, y - _BOX_H / 2
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width}" height="{_BOX_H}" rx="4"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{label}</text>'
    )
