"""Host routes as data: followed by hand they reach every host, and nothing turns back. Needs no privileges."""

import dataclasses
from ipaddress import IPv6Address, IPv6Network

import pytest

from mrcemu.fabric import ops
from mrcemu.fabric.plan import plan
from mrcemu.topology.addressing import HOSTS_NETWORK, host_address, host_networks
from mrcemu.topology.model import Topology

RATE = 25_000_000
TINY = Topology("tiny", 2, 2, 2, 2, RATE, RATE, 4000, 4096)
ODD = dataclasses.replace(TINY, t0_per_plane=3, t1_per_plane=3, hosts_per_t0=5)


def network_of(operation):
    return IPv6Network((operation.prefix, operation.prefix_bits))


def next_nodes(planned, node, address):
    """Where a switch may send a packet: longest prefix, then metric; empty for a blackhole or nothing."""
    routes = [
        (network_of(op).prefixlen, not isinstance(op, ops.AddBlackhole), op)
        for op in planned.node_ops[node]
        if isinstance(op, ops.AddHostRoute | ops.AddNexthop | ops.AddBlackhole) and address in network_of(op)
    ]
    best = max((route[:2] for route in routes), default=None)
    chosen = [op for *rank, op in routes if tuple(rank) == best and not isinstance(op, ops.AddBlackhole)]
    return [planned.peer(op.port).node for op in chosen]


@pytest.mark.parametrize("topology", [TINY, ODD])
def test_every_choice_of_every_switch_leads_to_the_host(topology):
    planned = plan(topology, "x", 1000)
    for dst in range(topology.host_count):
        for switch in topology.switches:
            nodes, hops = {switch.name}, 0
            while nodes != {f"h{dst}"}:
                choices = [next_nodes(planned, node, host_address(dst)) for node in nodes]
                assert all(choices)
                nodes, hops = {node for choice in choices for node in choice}, hops + 1
                assert hops <= 3


@pytest.mark.parametrize("topology", [TINY, ODD])
def test_a_t0_spreads_what_is_for_other_t0s_over_all_its_uplinks(topology):
    planned = plan(topology, "x", 1000)
    far = host_address(topology.host_count - 1)
    assert next_nodes(planned, "p1-t0-0", far) == [f"p1-t1-{index}" for index in range(topology.t1_per_plane)]


def test_a_t0_that_lost_the_port_to_a_host_does_not_send_its_packets_up_again():
    planned = plan(ODD, "x", 1000)
    for host in range(5, 10):
        address = host_address(host)
        left = [op for op in planned.node_ops["p0-t0-1"] if getattr(op, "prefix_bits", 0) and address in network_of(op)]
        left = [op for op in left if not isinstance(op, ops.AddHostRoute)]
        assert isinstance(max(left, key=lambda op: op.prefix_bits), ops.AddBlackhole)


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 7, 64, 1023])
def test_the_prefixes_of_a_t0_hold_its_hosts_and_no_others(hosts):
    topology = dataclasses.replace(TINY, hosts_per_t0=hosts)
    for t0 in range(2):
        networks = host_networks(topology, t0)
        assert sum(network.num_addresses for network in networks) == hosts
        for number in range(hosts):
            assert any(host_address(t0 * hosts + number) in network for network in networks)
        assert len(networks) <= 20


def test_all_hosts_are_in_the_network_that_is_spread():
    assert IPv6Address(host_address(1024 * 1023)) in HOSTS_NETWORK


def test_only_t0s_hash_and_each_has_a_seed_of_its_own_that_is_optional():
    planned = plan(TINY, "x", 1000)
    sysctls = [op for op in planned.operations if isinstance(op, ops.Sysctl) and "multipath" in op.key]
    t0s = {switch.name for switch in TINY.switches if "-t0-" in switch.name}
    assert {op.node for op in sysctls} == t0s
    seeds = [op for op in sysctls if op.key.endswith("seed")]
    assert all(op.optional for op in seeds)
    assert len({op.value for op in seeds} - {"0"}) == len(t0s)
