"""The plan as data: complete, ordered, addressed without a clash, and the same every time. Needs no privileges."""

import dataclasses

import pytest

from mrcemu.errors import UsageError
from mrcemu.fabric import ops
from mrcemu.fabric.plan import mac_of, plan
from mrcemu.topology.addressing import all_paths
from mrcemu.topology.model import Topology
from mrcemu.topology.timing import plane_bdp_bytes, queue_spec

RATE = 25_000_000
TINY = Topology("tiny", 2, 2, 2, 2, RATE, RATE, 4000, 4096)
EIGHT = Topology("eight", 8, 4, 4, 4, RATE, RATE, 4000, 4096)
WIDEST = Topology("widest", 16, 2, 1000, 2, RATE, RATE, 4000, 4096)


@pytest.fixture(scope="module")
def tiny():
    return plan(TINY, "x", 1000)


def of_kind(planned, kind):
    return [operation for operation in planned.operations if isinstance(operation, kind)]


@pytest.mark.parametrize("topology", [TINY, EIGHT])
def test_every_node_port_and_link_is_planned_exactly_once(topology):
    planned = plan(topology, "x", 1000)
    assert [op.node for op in of_kind(planned, ops.CreateNamespace)] == list(topology.nodes)
    assert [op.link for op in of_kind(planned, ops.CreateVeth)] == [link.name for link in topology.links]
    ends = {end.name for link in topology.links for end in (link.lower, link.upper)}
    for kind in (ops.LinkUp, ops.AddQueue):
        assert {op.port.port.name for op in of_kind(planned, kind)} == ends
        assert len(of_kind(planned, kind)) == len(ends)


def test_the_counts_of_eight_planes_are_those_of_the_paper_sized_demo():
    planned = plan(EIGHT, "x", 1000)
    assert len(of_kind(planned, ops.CreateNamespace)) == 80
    assert len(of_kind(planned, ops.CreateVeth)) == 256
    assert len(of_kind(planned, ops.AddNeighbour)) == 384 == planned.needs.neighbours
    assert len(of_kind(planned, ops.AddRoute)) + len(of_kind(planned, ops.AddSidRoute)) == 448


def test_namespaces_come_before_links_and_links_before_what_is_on_them(tiny):
    kinds = [type(operation) for operation in tiny.operations]
    last_namespace = max(place for place, kind in enumerate(kinds) if kind is ops.CreateNamespace)
    first_veth = kinds.index(ops.CreateVeth)
    last_veth = max(place for place, kind in enumerate(kinds) if kind is ops.CreateVeth)
    first_port = min(kinds.index(kind) for kind in (ops.AddQueue, ops.LinkUp, ops.AddNeighbour, ops.AddRoute))
    assert last_namespace < first_veth <= last_veth < first_port


def test_a_port_is_shaped_before_it_is_up_and_up_before_it_has_routes(tiny):
    for name in tiny.ports:
        kinds = [type(op) for op in tiny.operations if getattr(op, "port", None) == tiny.ports[name]]
        assert kinds[:2] == [ops.AddQueue, ops.LinkUp]
        assert set(kinds[2:]) <= {ops.AddNeighbour, ops.AddRoute, ops.AddHostRoute, ops.AddNexthop}


def test_settings_are_made_before_any_port_exists(tiny):
    for node in TINY.nodes:
        keys = {sysctl.key for sysctl in of_kind(tiny, ops.Sysctl) if sysctl.node == node}
        host = node.startswith("h")
        assert ("net/ipv6/conf/all/disable_ipv6" in keys) is host
        assert ("net/ipv6/conf/all/forwarding" in keys) is not host
        assert host or {"net/ipv6/conf/default/accept_dad", "net/ipv6/conf/default/addr_gen_mode"} <= keys


def test_indexes_and_macs_are_unique_over_fabrics_that_follow_each_other():
    first = plan(EIGHT, "a", 1000)
    second = plan(TINY, "b", 1000 + first.ifindex_count)
    specs = [*first.ports.values(), *second.ports.values()]
    assert len({spec.ifindex for spec in specs}) == len(specs)
    assert len({spec.mac for spec in specs}) == len(specs)
    assert {spec.ifindex for spec in first.ports.values()} == set(range(1000, 1000 + first.ifindex_count))


def test_the_two_ends_of_a_link_have_different_indexes(tiny):
    for link in TINY.links:
        assert tiny.ports[link.lower.name].ifindex != tiny.ports[link.upper.name].ifindex


def test_macs_are_unicast_and_locally_administered():
    for ifindex in (1000, 65535, 2**31 - 1):
        mac = mac_of(ifindex)
        assert len(mac) == 6
        assert mac[0] & 0b11 == 0b10


def test_interface_names_fit_the_kernel_whatever_the_counts():
    planned = plan(WIDEST, "x", 1000)
    assert max(len(spec.port.ifname) for spec in planned.ports.values()) <= 15


def test_a_neighbour_is_the_mac_of_the_other_end(tiny):
    for operation in of_kind(tiny, ops.AddNeighbour):
        assert operation.mac == tiny.peer(operation.port).mac
        assert tiny.peer(tiny.peer(operation.port)) == operation.port


def test_following_the_planned_routes_takes_every_path_to_its_host():
    """Forwarding by hand: strip the own uSID, look the next /48 up, cross the link."""
    planned = plan(TINY, "x", 1000)
    own = {planned.sid_route(switch).prefix: switch for switch in planned.switches_by_name}
    routes = {(op.port.node, op.prefix): op.port for op in of_kind(planned, ops.AddRoute)}
    for src in range(4):
        for dst in range(4):
            for path in all_paths(TINY, src, dst) if src != dst else ():
                node, destination = path.nodes[1], path.destination
                while not node.startswith("h"):
                    assert own[destination[:6] + bytes(10)] == node
                    destination = destination[:4] + destination[6:] + bytes(2)
                    node = planned.peer(routes[node, destination[:6] + bytes(10)]).node
                assert node == f"h{dst}"


def test_restoring_a_port_is_exactly_what_building_gave_it_beside_its_queue(tiny):
    for name, spec in tiny.ports.items():
        built = [op for op in tiny.operations if getattr(op, "port", None) == spec]
        restored = list(tiny.port_restore(name))
        assert restored[:-1] == [op for op in built if not isinstance(op, ops.AddQueue)]
        assert restored[-1] == ops.SyncOperstate(spec)


def test_queue_limits_follow_the_rate_and_the_planes_bandwidth_delay_product():
    fast = dataclasses.replace(TINY, fabric_rate_bps=4_000_000_000)
    planned = plan(fast, "x", 1000)
    nic, fabric = (planned.limits_of(planned.ports[name]) for name in ("h0:p0", "p0-t0-0:up0"))
    assert nic.rate_bps == RATE
    assert nic.burst_bytes == TINY.data_frame_bytes  # half a millisecond is less than one frame
    assert fabric.burst_bytes == 250_000  # half a millisecond at 4 Gbit/s
    assert nic.data_limit_bytes == 4 * plane_bdp_bytes(fast)
    assert nic.control_limit_bytes == queue_spec(fast).control_bytes


def test_planning_twice_gives_the_same(tiny):
    assert plan(TINY, "x", 1000).operations == tiny.operations


@pytest.mark.parametrize("name", ["", "-x", "x-", "UP", "a/b", "..", "a b", "x" * 33, "ä"])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(UsageError, match="fabric name"):
        plan(TINY, name, 1000)


@pytest.mark.parametrize("name", ["x", "eight-plane", "a1", "x" * 32])
def test_usual_names_are_accepted(name):
    assert plan(TINY, name, 1000).namespaces["h0"] == f"mrc-{name}-h0"


def test_every_operation_describes_itself_with_its_place(tiny):
    for operation in tiny.operations:
        text = ops.describe(operation)
        assert type(operation).__name__ in text
        assert text.split()[-1]
    assert ops.describe(tiny.veth_ops[0]) == "CreateVeth h0:p0"
