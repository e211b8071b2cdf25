"""ECMP mode in the transport: plain frames on hashed EVs, the same rules otherwise. Two NICs, no time, no kernel."""

from dataclasses import replace

import pytest
from transport_kit import EIGHT, identity

from mrcemu.protocol import events
from mrcemu.protocol.config import for_topology
from mrcemu.protocol.ev import EvState
from mrcemu.protocol.memory import BufferSource, MemoryRegion
from mrcemu.protocol.nic import Nic
from mrcemu.protocol.qp import QpSetup
from mrcemu.rng import Rng
from mrcemu.topology.addressing import host_address, plane_of_ev
from mrcemu.topology.ecmp import ECMP, hashed_ev, is_hashed, paths_between
from mrcemu.wire.frame import parse_frame
from mrcemu.wire.opcodes import Opcode

SRC, DST, QPN, RKEY = 0, 12, 16, 7
ALL_PORTS = (1 << EIGHT.planes) - 1
STEP_NS = 100_000


class Pair:
    """Two NICs that hand each other their frames; `dead` holds EVs whose frames the sender's never arrive by."""

    def __init__(self, size):
        self.config = replace(for_topology(EIGHT), forwarding=ECMP)
        self.nics = {host: Nic(EIGHT, identity(EIGHT, host), self.config, Rng(host + 1)) for host in (SRC, DST)}
        for host, peer in ((SRC, DST), (DST, SRC)):
            paths = paths_between(EIGHT, host, peer, ECMP)
            self.nics[host].create_qp(QpSetup(QPN, QPN, host_address(peer).packed, paths, self.config))
        self.view = memoryview(bytearray(size))
        self.nics[DST].regions.register(MemoryRegion(RKEY, 0, self.view))
        self.now_ns, self.sent, self.dead, self.events = 0, [], set(), []

    def run(self, until):
        for _ in range(100_000):
            if until():
                return
            self.now_ns += STEP_NS
            for host, peer in ((SRC, DST), (DST, SRC)):
                self.nics[host].handle_timer(self.now_ns)
                for plane, frame, _ in self.nics[host].frames_to_send(self.now_ns, ALL_PORTS):
                    packet = parse_frame(frame)
                    self.sent.append((host, plane, packet))
                    if host == DST or packet.ev not in self.dead:
                        self.nics[peer].receive_frame(plane, frame, self.now_ns)
                while (event := self.nics[host].next_event()) is not None:
                    self.events.append(event)
        raise AssertionError("it never happened")

    def write(self, payload):
        done = len(self._completed())
        self.nics[SRC].post_write(QPN, 1, BufferSource(payload), len(payload), 0, RKEY, self.now_ns)
        self.run(lambda: len(self._completed()) > done)

    def _completed(self):
        return [event for event in self.events if isinstance(event, events.WriteCompleted)]


def test_all_frames_of_a_transfer_are_plain_and_ride_their_ev_in_the_source_port():
    payload = bytes(range(256)) * 4096
    pair = Pair(len(payload))
    pair.write(payload)
    assert bytes(pair.view) == payload
    assert {packet.bth.opcode for _, _, packet in pair.sent} >= {Opcode.WRITE_MIDDLE, Opcode.SACK, Opcode.ACKNOWLEDGE}
    for host, plane, packet in pair.sent:
        assert packet.outer is None
        assert packet.inner.flow_label == 0
        assert packet.inner.destination == host_address(DST if host == SRC else SRC).packed
        assert is_hashed(packet.udp.source_port)
        assert plane_of_ev(packet.ev) == plane
    used = {packet.ev for host, _, packet in pair.sent if host == SRC}
    assert len(used) == 8 * 12  # three quarters of sixteen a plane, the active share


def test_evs_that_lose_packets_retire_and_the_rest_carry_the_transfer():
    payload = bytes(range(256)) * 4096
    pair = Pair(len(payload))
    pair.dead = {hashed_ev(2, index) for index in range(0, 16, 2)}
    for _ in range(4):
        pair.write(payload)
    entries = pair.nics[SRC].qps[QPN].spray.entries
    bad = {ev for ev, entry in entries.items() if entry.state is EvState.ASSUMED_BAD}
    assert bad
    assert bad <= pair.dead
    assert not any(entries[ev].active for ev in bad)
    assert bytes(pair.view) == payload
    pair.dead = set()
    pair.run(lambda: all(entry.state is EvState.GOOD for entry in entries.values()))  # probes bring them back


def test_port_updates_are_plain_too():
    pair = Pair(1)
    pair.nics[SRC].port_changed(3, False, 0)
    pair.run(lambda: any(isinstance(event, events.PeerPortsChanged) for event in pair.events))
    requests = [packet for _, _, packet in pair.sent if packet.bth.opcode == Opcode.ENDPOINT_REQUEST]
    assert requests
    assert all(packet.outer is None and is_hashed(packet.ev) for packet in requests)


@pytest.mark.parametrize(("ev", "is_plain"), [(hashed_ev(4, 2), True), (0x14, False)])
def test_a_probe_takes_the_mode_of_its_ev_whatever_the_mode_of_the_nic(ev, is_plain):
    pair = Pair(1)
    pair.nics[SRC].endpoint_ops.probe_peer(host_address(DST).packed, ev, 0, 10**9)
    pair.run(lambda: any(isinstance(event, events.EvProbed) for event in pair.events))
    [event] = [event for event in pair.events if isinstance(event, events.EvProbed)]
    assert event.rtt_ns is not None
    [probe] = [packet for host, _, packet in pair.sent if host == SRC and packet.ev == ev]
    assert (probe.outer is None) == is_plain
