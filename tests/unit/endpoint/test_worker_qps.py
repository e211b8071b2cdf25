"""What a worker makes of a request for a QP: paths, and settings that hold whatever the distance."""

from types import SimpleNamespace

import pytest

from mrcemu.endpoint.clock import RunClock
from mrcemu.endpoint.worker import Worker
from mrcemu.protocol.config import for_topology
from mrcemu.topology.model import Topology

EIGHT = Topology("eight", 8, 4, 4, 4, 25_000_000, 25_000_000, 4000, 4096)


def created(settings, **request):
    """The QpSetup of one request to a worker with these run-wide settings."""
    made = []
    worker = Worker(SimpleNamespace(write=lambda message: None))
    worker._topology = EIGHT
    worker._settings = settings
    worker.clock = RunClock(0)
    worker._hosts = {0: SimpleNamespace(nic=SimpleNamespace(create_qp=lambda setup, now_ns: made.append(setup)))}
    worker._create_qp({"host": 0, "qpn": 8, **request})
    return made[0]


@pytest.mark.parametrize("peer", [1, 12])
def test_settings_of_the_run_hold_inside_a_t0_and_across_t1(peer):
    setup = created({"timeout_code": 20}, peer=peer)
    assert setup.config.timeout_code == 20


def test_a_request_outranks_the_run():
    assert created({"timeout_code": 20}, peer=1, config={"timeout_code": 9}).config.timeout_code == 9


def test_a_pair_inside_a_t0_has_the_shorter_base_rtt():
    assert created({}, peer=1).config.base_rtt_ns == for_topology(EIGHT, 2).base_rtt_ns
    assert created({}, peer=12).config.base_rtt_ns == for_topology(EIGHT, 4).base_rtt_ns


def test_named_evs_are_the_paths():
    setup = created({}, peer=12, evs=[0x12, 0x05])
    assert [path.ev for path in setup.paths] == [0x12, 0x05]
