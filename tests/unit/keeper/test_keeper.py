"""The keeper without a kernel: a net that records what it is told, a real socket, a real event loop."""

import asyncio
import os
import stat
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest

from mrcemu.errors import UnfitEnvironmentError, UsageError
from mrcemu.keeper.client import ask
from mrcemu.keeper.keeper import Keeper
from mrcemu.keeper.protocol import RemoteError, emit_line
from mrcemu.topology.model import Topology

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)
LINK = "p0-t0-0:p0-t1-1"
MS = 1_000_000


class RecordingFaults:
    """Accepts every fault and remembers it."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        def act(*target):
            self.done.append((name, *target))
            return time.monotonic_ns()

        return act

    def names(self):
        return [entry[0] for entry in self.done]


class RecordingNet:
    """The part of a built net that a keeper uses for faults; events come through a pipe."""

    def __init__(self):
        self.topology = TINY
        self.faults = RecordingFaults()
        self.read_fd, self.write_fd = os.pipe()
        self.handled = []

    def event_fds(self):
        return [self.read_fd]

    def handle_event(self, fd):
        self.handled.append(os.read(fd, 100))


@asynccontextmanager
async def keeping(tmp_path):
    net = RecordingNet()
    keeper = Keeper(net, tmp_path)
    await keeper.start()
    try:
        yield keeper, net
    finally:
        await keeper.stop()


async def asking(tmp_path, *args, **kwargs):
    return await asyncio.to_thread(ask, tmp_path, *args, timeout_s=5, **kwargs)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 20))


def test_a_fault_reaches_every_target_a_glob_names_and_says_when_it_was_done(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            before = time.monotonic_ns()
            done = await keeper.perform("link down", ["p0-t0-0:*", LINK])
            assert before <= done <= time.monotonic_ns()
            assert net.faults.done == [("link_down", "p0-t0-0:p0-t1-0"), ("link_down", LINK)]

    run(scenario())


@pytest.mark.parametrize(
    ("verb", "target", "recorded"),
    [
        ("link up", LINK, ("link_up", LINK)),
        ("link reset", LINK, ("link_up", LINK)),
        ("port down", "h3:1", ("port_down", 3, 1)),
        ("port up", "h3:p1", ("port_up", 3, 1)),
        ("switch down", "p1-t1-0", ("switch_down", "p1-t1-0")),
        ("switch up", "p1-t1-0", ("switch_up", "p1-t1-0")),
        ("switch reboot-begin", "p1-t1-0", ("switch_reboot_begin", "p1-t1-0")),
        ("switch reboot-end", "p1-t1-0", ("switch_reboot_end", "p1-t1-0")),
    ],
)
def test_each_verb_calls_its_fault(tmp_path, verb, target, recorded):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            await keeper.perform(verb, [target])
            assert net.faults.done == [recorded]

    run(scenario())


@pytest.mark.parametrize(
    ("verb", "targets", "args", "message"),
    [
        ("link dwon", [LINK], {}, "no verb 'link dwon' .*link down"),
        ("link loss", [LINK], {}, "not available in this version"),
        ("link down", [], {}, "at least one target"),
        ("link down", ["p0-t0-0:p0-t1-9"], {}, "nearest: p0-t0-0:p0-t1"),
        ("link flap", [LINK], {"period_ns": 1000}, "period is from 10ms"),
        ("link flap", [LINK], {"period_ns": 100 * MS, "duty": 1.0}, "duty"),
        ("link flap", [LINK], {"period_ns": 100 * MS, "count": 0}, "count"),
        ("switch reboot", ["p0-t0-0"], {}, "lasts from"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_done(tmp_path, verb, targets, args, message):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            with pytest.raises(UsageError, match=message):
                await keeper.perform(verb, targets, args)
            assert net.faults.done == []

    run(scenario())


def test_a_flap_keeps_its_period_and_ends_up(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            events = []
            start = time.monotonic_ns()
            await keeper.perform("link flap", [LINK], {"period_ns": 40 * MS, "duty": 0.25, "count": 3}, events.append)
            took = time.monotonic_ns() - start
            assert net.faults.names() == ["link_down", "link_up"] * 3 + ["link_up"]
            assert [event["cycle"] for event in events] == [1, 2, 3]
            assert all(event["up_at_ns"] - event["down_at_ns"] >= 9 * MS for event in events)
            assert took >= 90 * MS

    run(scenario())


def test_a_reboot_begins_and_ends(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            start = time.monotonic_ns()
            await keeper.perform("switch reboot", ["p0-t1-0"], {"for_ns": 30 * MS})
            assert time.monotonic_ns() - start >= 30 * MS
            assert net.faults.names() == ["switch_reboot_begin", "switch_reboot_end"]

    run(scenario())


def test_a_link_that_flaps_is_held_until_a_reset(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            endless = asyncio.ensure_future(keeper.perform("link flap", [LINK], {"period_ns": 20 * MS}))
            await asyncio.sleep(0.05)
            with pytest.raises(UsageError, match="flapping"):
                await keeper.perform("link down", [LINK])
            await keeper.perform("link reset", [LINK])
            with pytest.raises(asyncio.CancelledError):
                await endless
            await keeper.perform("link down", [LINK])
            assert net.faults.names()[-3:] == ["link_up", "link_up", "link_down"]

    run(scenario())


def test_stopping_ends_a_flap_with_its_link_up(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, net):
            endless = asyncio.ensure_future(keeper.perform("link flap", [LINK], {"period_ns": 1000 * MS}))
            await asyncio.sleep(0.02)
            assert net.faults.names() == ["link_down"]
        assert net.faults.names() == ["link_down", "link_up"]
        with pytest.raises(asyncio.CancelledError):
            await endless

    run(scenario())


def test_over_the_socket_a_fault_answers_with_names_and_time(tmp_path):
    async def scenario():
        async with keeping(tmp_path):
            answer = await asking(tmp_path, "link down", ["p1-*:p1-t1-0"])
            assert answer["names"] == ["p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"]
            assert answer["done_at_ns"] <= time.monotonic_ns()

    run(scenario())


def test_over_the_socket_an_error_keeps_message_exit_code_and_nearest(tmp_path):
    async def scenario():
        async with keeping(tmp_path):
            with pytest.raises(RemoteError) as caught:
                await asking(tmp_path, "switch down", ["p0-t1-9"])
            assert caught.value.exit_code == 2
            assert "p0-t1-0" in caught.value.near
            assert "no switch 'p0-t1-9'" in str(caught.value)

    run(scenario())


def test_over_the_socket_each_cycle_of_a_flap_is_told(tmp_path):
    async def scenario():
        async with keeping(tmp_path):
            events = []
            args = {"period_ns": 20 * MS, "count": 2}
            await asking(tmp_path, "link flap", [LINK], args, events.append)
            assert [event["cycle"] for event in events] == [1, 2]

    run(scenario())


def test_an_asking_side_that_goes_away_takes_its_flap_back(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (_, net):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "keeper.sock")
            writer.write(emit_line({"do": "link flap", "targets": [LINK], "args": {"period_ns": 5000 * MS}}))
            await asyncio.sleep(0.05)
            assert net.faults.names() == ["link_down"]
            writer.write_eof()
            assert b'"ok":false' in await reader.readline()
            assert net.faults.names() == ["link_down", "link_up"]
            writer.close()

    run(scenario())


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[]\n", b'{"targets": []}\n', b'{"do": 1}\n', b'{"do":"x","targets":[1]}\n']
)
def test_a_line_that_is_no_request_gets_an_error(tmp_path, line):
    async def scenario():
        async with keeping(tmp_path):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "keeper.sock")
            writer.write(line)
            assert b"not a request" in await reader.readline()
            writer.close()

    run(scenario())


def test_requests_are_answered_while_a_flap_runs(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, _):
            endless = asyncio.ensure_future(keeper.perform("link flap", [LINK], {"period_ns": 20 * MS}))
            await asyncio.sleep(0.03)
            assert (await asking(tmp_path, "ping"))["pid"] == os.getpid()
            endless.cancel()
            with suppress(asyncio.CancelledError):
                await endless

    run(scenario())


def test_a_registered_verb_is_served_and_its_unforeseen_error_is_one_message(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (keeper, _):

            async def echo(request, emit):
                emit({"half": True})
                return {"targets": list(request.targets), "twice": 2 / request.args["divisor"]}

            keeper.register("echo", echo)
            events = []
            assert await asking(tmp_path, "echo", ["a"], {"divisor": 1}, events.append) == {
                "targets": ["a"],
                "twice": 2,
            }
            assert events == [{"half": True}]
            with pytest.raises(RemoteError, match="ZeroDivisionError"):
                await asking(tmp_path, "echo", ["a"], {"divisor": 0})
            with pytest.raises(ValueError, match="exists"):
                keeper.register("link down", echo)

    run(scenario())


def test_link_events_are_handed_to_the_net(tmp_path):
    async def scenario():
        async with keeping(tmp_path) as (_, net):
            os.write(net.write_fd, b"event")
            await asyncio.sleep(0.05)
            assert net.handled == [b"event"]

    run(scenario())


def test_the_socket_is_for_its_owner_alone_and_gone_after_stop(tmp_path):
    async def scenario():
        async with keeping(tmp_path):
            mode = (tmp_path / "keeper.sock").stat().st_mode
            assert stat.S_IMODE(mode) == 0o600
        assert not (tmp_path / "keeper.sock").exists()

    run(scenario())


def test_a_dead_keeper_is_said_to_be_dead(tmp_path):
    with pytest.raises(UnfitEnvironmentError, match="not running"):
        ask(tmp_path, "status")


def test_the_log_of_a_dead_keeper_is_named_if_it_says_something(tmp_path):
    (tmp_path / "keeper.log").write_text("")
    with pytest.raises(UnfitEnvironmentError) as silent:
        ask(tmp_path, "status")
    assert "keeper.log" not in str(silent.value)
    (tmp_path / "keeper.log").write_text("out of memory\n")
    with pytest.raises(UnfitEnvironmentError, match=r"keeper\.log"):
        ask(tmp_path, "status")


def test_a_keeper_that_stops_in_the_middle_of_a_request_is_said_to_be_dead(tmp_path):
    failures = []

    def asking_endlessly():
        try:
            ask(tmp_path, "link flap", [LINK], {"period_ns": 1000 * MS})
        except UnfitEnvironmentError as error:
            failures.append(error)

    async def scenario():
        async with keeping(tmp_path) as (_, net):
            thread = threading.Thread(target=asking_endlessly)
            thread.start()
            while not net.faults.done:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(thread.join)

    run(scenario())
    assert len(failures) == 1
    assert failures[0].exit_code == 3
