"""Verbs that need endpoints, without any: orders, figures, denylists and watchers over recording endpoints."""

import asyncio
import time
from contextlib import suppress

import pytest

from mrcemu.endpoint.control import LEVEL_OF_KIND, WatchLevel
from mrcemu.endpoint.group import EndpointError, _WorkerProcess
from mrcemu.errors import UsageError
from mrcemu.keeper.hosts import Hosts
from mrcemu.keeper.orders import bw_order, lat_order
from mrcemu.keeper.pathops import PathOps
from mrcemu.keeper.probing import Probing, turn_back
from mrcemu.keeper.protocol import Request
from mrcemu.keeper.transfers import latency_summary
from mrcemu.topology.addressing import path_for_ev
from mrcemu.topology.model import Topology

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)
EIGHT = Topology("eight-plane", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)
PAIR = {"src": "h0", "dst": "h3"}


class Group:
    """An endpoint group whose hosts keep a denylist and answer probes as `is_answered` says."""

    def __init__(self, hosts=()):
        self.hosts = list(hosts)
        self.epoch_ns = 1000
        self.levels = []
        self.on_event = None
        self.lists = {}
        self.rows = []
        self.probes = []
        self.is_answered = lambda ev, number: True

    async def settled(self):
        pass

    async def ask(self, host, verb, **args):
        if verb in ("deny", "allow"):
            entries = self.lists.setdefault(f"h{host}", [])
            listed = args in entries
            if verb == "allow" and listed:
                entries.remove(args)
            elif verb == "deny" and not listed:
                entries.append(args)
            return {"listed": listed or verb == "deny", "paths": 1}
        assert verb == "probe"
        self.probes.append(args["ev"])
        answered = self.is_answered(args["ev"], len(self.probes))
        return {"rtt_ns": 17_000_000 + len(self.probes) if answered else None}

    async def ask_all(self, verb, **_args):
        lists = {name: list(entries) for name, entries in self.lists.items()}
        return {"denylists": [lists], "connections": [self.rows]}[verb]

    async def watch(self, level):
        self.levels.append(level)


class Net:
    topology = TINY


def hosts_over(group):
    return Hosts(Net(), group)


def paths_over(group):
    return PathOps(hosts_over(group))


def call(handler, _emit=lambda event: None, **args):
    return asyncio.run(handler(Request("", (), args), _emit))


# -- orders and figures ---------------------------------------------------------------------------------------------


def test_an_order_has_the_documented_defaults():
    bw = bw_order(TINY, PAIR)
    assert (bw.size_bytes, bw.depth, bw.qps, bw.duration_ns, bw.iterations) == (1 << 20, 16, 1, 5 * 10**9, None)
    assert bw.directions == ((0, 3),)
    assert bw_order(TINY, {**PAIR, "bidirectional": True}).directions == ((0, 3), (3, 0))
    assert lat_order(TINY, {**PAIR, "iterations": 7}).size_bytes == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"src": "h0", "dst": "h0"}, "the same host"),
        ({"src": "h0", "dst": "h4"}, "no host 'h4'"),
        ({**PAIR, "size": 0}, "size is 1 .. 1073741824, found 0"),
        ({**PAIR, "depth": 1025}, "depth is 1 .. 1024"),
        ({**PAIR, "qps": "2"}, "qps is 1 .. 64, found '2'"),
        ({**PAIR, "iterations": True}, "iterations is 1"),
        ({**PAIR, "duration_ns": 0}, "duration is 1 .. 86400000000000 ns"),
        ({**PAIR, "size": 1 << 30, "depth": 8}, "at most 4GiB"),
    ],
)
def test_a_bad_bw_order_names_what_is_allowed(args, said):
    with pytest.raises(UsageError, match=said):
        bw_order(TINY, args)


def test_lat_needs_an_end():
    with pytest.raises(UsageError, match="iterations or a duration"):
        lat_order(TINY, PAIR)


def test_latencies_are_summed_up_by_nearest_rank():
    summary = latency_summary(list(range(1000, 0, -1)))
    assert summary == {
        "min": 1, "max": 1000, "typical": 500, "avg": 500.5, "stdev": pytest.approx(288.675, abs=0.001),
        "p99": 990, "p99_9": 999,
    }  # fmt: skip
    assert latency_summary([5])["p99"] == 5
    assert latency_summary([]) is None


def test_a_trace_turns_back_by_the_way_it_went():
    path = path_for_ev(EIGHT, 0, 12, 0x12)
    t0, t1, far, _ = path.usids
    home = turn_back(EIGHT, 0, path, 1)[-1]
    assert [turn_back(EIGHT, 0, path, n) for n in (1, 2, 3)] == [
        [t0, home], [t0, t1, t0, home], [t0, t1, far, t1, t0, home],
    ]  # fmt: skip


# -- probes ---------------------------------------------------------------------------------------------------------


def test_each_path_gets_its_count_of_probes_and_no_more_when_all_answer():
    group = Group([0, 3])
    result = call(Probing(hosts_over(group)).probe, **PAIR, count=2)
    assert sorted(group.probes) == sorted([0x0, 0x1, 0x10, 0x11] * 2)
    assert result["unreachable"] == []
    assert all((row["sent"], row["answered"]) == (2, 2) for row in result["evs"])


def test_a_path_that_lost_its_first_answers_is_asked_again_before_it_is_called_unreachable():
    group = Group([0, 3])
    group.is_answered = lambda ev, number: ev != 0x1 and (ev != 0x10 or number > 12)
    result = call(Probing(hosts_over(group)).probe, **PAIR, count=3)
    rows = {row["ev"]: row for row in result["evs"]}
    assert result["unreachable"] == [0x1]
    assert (rows[0x10]["answered"], rows[0x10]["sent"]) == (1, 4)
    assert (rows[0x1]["answered"], rows[0x1]["sent"], rows[0x1]["rtt_ns"]) == (0, 5, None)
    assert rows[0x0]["sent"] == 3


# -- denylists ------------------------------------------------------------------------------------------------------


def test_deny_goes_to_the_hosts_named_or_to_all_that_run():
    group = Group([0, 1, 3])
    ops = paths_over(group)
    assert call(ops.deny, mask=0xF, value=1, hosts=["h1"])["hosts"] == ["h1"]
    everywhere = call(ops.deny, mask=0xFFFF_FFFF, value=0x10)
    assert (everywhere["hosts"], everywhere["evs"], everywhere["paths"]) == (["h0", "h1", "h3"], [0x10], 3)
    assert group.lists["h1"] == [{"mask": 0xF, "value": 1}, {"mask": 0xFFFF_FFFF, "value": 0x10}]
    assert call(ops.allow, mask=0xF, value=1)["hosts"] == ["h1"]
    assert call(ops.allow, all=True)["entries"] == 3
    assert all(not entries for entries in group.lists.values())


def test_an_ev_of_ecmp_mode_can_be_denied_and_a_mask_still_means_the_others_first():
    group = Group([0])
    denied = call(paths_over(group).deny, mask=0xFFFF_FFFF, value=0xC010)
    assert denied["evs"] == [0xC010]
    assert all(ev < 0xC000 for ev in call(paths_over(group).deny, mask=0xF, value=1)["evs"])
    with pytest.raises(UsageError, match="no path"):
        call(paths_over(group).deny, mask=0xFFFF_FFFF, value=0xC01F)  # no such plane


def test_nothing_to_deny_on_and_nothing_to_allow_are_errors():
    with pytest.raises(UsageError, match="name the hosts"):
        call(paths_over(Group()).deny, mask=0xF, value=1)
    group = Group([0])
    call(paths_over(group).deny, mask=0xF, value=1)
    with pytest.raises(UsageError, match=r"no denylist holds EV 0x1; listed: mask 0xf value 0x1"):
        call(paths_over(group).allow, mask=0xFFFF_FFFF, value=1)


@pytest.mark.parametrize("entry", [{"mask": 0xF, "value": 2}, {"mask": 1 << 32, "value": 0}, {"mask": 0xF}])
def test_an_entry_that_can_match_nothing_is_refused(entry):
    with pytest.raises(UsageError):
        call(paths_over(Group([0])).deny, **entry)


# -- tables and events ----------------------------------------------------------------------------------------------


def test_only_sending_ends_are_listed_unless_an_end_is_named():
    group = Group([0, 3])
    group.rows = [
        {"qpn": 9, "src": "h3", "dst": "h0", "workload": None},
        {"qpn": 9, "src": "h0", "dst": "h3", "workload": "w"},
    ]
    ops = paths_over(group)
    assert [row["src"] for row in call(ops.connections)["connections"]] == ["h0"]
    assert [row["src"] for row in call(ops.connections, src="h3")["connections"]] == ["h3"]
    assert call(ops.connections, src="h3", dst="h3")["connections"] == []
    with pytest.raises(UsageError):
        call(ops.connections, src="h7")


def test_each_watcher_gets_its_kinds_and_endpoints_push_only_while_somebody_watches():
    group = Group([0])

    async def scene():
        ops = paths_over(group)
        states, losses = [], []
        watchers = [
            asyncio.ensure_future(ops.watch(Request("", (), args), seen.append))
            for args, seen in (({}, states), ({"losses": True}, losses))
        ]
        await asyncio.sleep(0.01)
        now_ns = time.monotonic_ns() - group.epoch_ns
        group.on_event({"kind": "EvChanged", "now_ns": now_ns})
        group.on_event({"kind": "PacketLost", "now_ns": now_ns, "sent_ns": 5})
        for watcher in (watchers[1], watchers[0]):
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
        return states, losses

    states, losses = asyncio.run(scene())
    assert [event["kind"] for event in states] == ["Watching", "EvChanged"]
    assert [event["kind"] for event in losses] == ["Watching", "EvChanged", "PacketLost"]
    assert abs(states[1]["unix_s"] - time.time()) < 5
    assert group.levels[-2:] == [WatchLevel.STATES, WatchLevel.NOTHING]
    assert max(group.levels) == WatchLevel.LOSSES


def test_a_watch_may_end_by_itself():
    group = Group([0])
    seen = []
    assert call(paths_over(group).watch, seen.append, for_ns=1_000_000) == {}
    assert group.levels[-1] == WatchLevel.NOTHING


def test_every_kind_that_is_watched_has_a_line_for_people():
    from mrcemu.cli.ev import _TEXTS  # noqa: PLC0415 - only this test looks at the command line

    assert set(LEVEL_OF_KIND) == set(_TEXTS)


# -- whose endpoint answers -----------------------------------------------------------------------------------------


def test_while_a_run_has_an_endpoint_of_a_host_no_second_one_is_started():
    group = Group([0, 3])
    hosts = hosts_over(group)
    asyncio.run(hosts.start(0, 3))  # would need namespaces if it started anything
    assert hosts.running == [0, 3]
    assert hosts.epoch_ns == group.epoch_ns
    with pytest.raises(EndpointError, match="h1 has no endpoint"):
        asyncio.run(hosts.ask(1, "probe", ev=0))


class _Writer:
    def write(self, _data):
        pass


class _Worker(_WorkerProcess):
    """A worker without a process: requests wait until the test answers."""

    def __init__(self):
        self._waiting, self._next_id, self._writer = {}, 0, _Writer()
        self._reading = asyncio.ensure_future(asyncio.Event().wait())


def test_a_request_taken_back_just_as_its_answer_comes_is_taken_back():
    async def scene():
        worker = _Worker()
        asking = asyncio.ensure_future(worker.request("progress", {}))
        await asyncio.sleep(0)
        worker._waiting[1].set_result("late")
        asking.cancel()
        worker._reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(scene())
