"""What a controller tells a NIC about single EVs of single QPs, beside the NIC's denylist."""

import pytest

from mrcemu.errors import QpError
from mrcemu.protocol.denylist import DenyEntry
from mrcemu.protocol.ev import EvState
from mrcemu.sim.pair import VirtualPair
from mrcemu.topology.model import Topology

TINY = Topology("tiny", 2, 2, 2, 2, 25_000_000, 25_000_000, 4000, 4096)


def test_an_ev_denied_for_one_qp_stays_good_for_another_and_survives_the_denylist():
    pair = VirtualPair(TINY, 0, 2, 1)
    (first, _), (second, _) = pair.connect(count=2)
    nic = pair.sides[0].nic
    ev = next(iter(first.spray.entries))
    nic.set_ev_denied(first.qpn, ev, True, 0)
    assert first.spray.entries[ev].state is EvState.DENIED
    assert second.spray.entries[ev].state is EvState.GOOD
    nic.deny(DenyEntry(0xFFFFFFFF, ev), 0)
    assert second.spray.entries[ev].state is EvState.DENIED
    assert nic.allow(DenyEntry(0xFFFFFFFF, ev), 0)
    assert first.spray.entries[ev].state is EvState.DENIED
    assert second.spray.entries[ev].state is EvState.GOOD
    nic.set_ev_denied(first.qpn, ev, False, 0)
    assert first.spray.entries[ev].state is EvState.GOOD


def test_an_unknown_qp_is_refused_by_name():
    pair = VirtualPair(TINY, 0, 2, 1)
    with pytest.raises(QpError, match="QPN 99"):
        pair.sides[0].nic.set_ev_denied(99, 0, True, 0)
