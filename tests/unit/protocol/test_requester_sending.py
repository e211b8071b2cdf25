"""Messages into packets: cutting, numbering, opcodes, the MPR and window gates (sources sections 1.2 to 1.4 and 2)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from transport_kit import BASE_VA, DSCP, EIGHT, LOCAL_QPN, MTU, PEER_QPN, RKEY, Bench, Data

from mrcemu.errors import QpError
from mrcemu.protocol.events import WriteCompleted
from mrcemu.protocol.memory import BufferSource
from mrcemu.topology.addressing import all_paths
from mrcemu.wire.opcodes import Opcode

FIRST, MIDDLE, LAST, ONLY = Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY
LAST_IMM, ONLY_IMM = Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM
NOMINAL_OVERHEAD = 88  # UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, iCRC 4, and UEC's 40


class CountingSource:
    """Payload that is a function of its offset, and how much of it was asked for at most."""

    def __init__(self) -> None:
        self.largest_read = 0
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        self.largest_read = max(self.largest_read, length)
        self.bytes_read += length
        return (offset & 0xFFFFFFFF).to_bytes(4, "big").ljust(length, b".")[:length]


def pattern(length: int) -> bytes:
    return bytes(index * 7 + index // 251 & 0xFF for index in range(length))


# -- cutting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "sizes", "opcodes"),
    [
        (0, [0], [ONLY]),
        (1, [1], [ONLY]),
        (3, [3], [ONLY]),
        (MTU - 1, [MTU - 1], [ONLY]),
        (MTU, [MTU], [ONLY]),
        (MTU + 1, [MTU, 1], [FIRST, LAST]),
        (2 * MTU, [MTU, MTU], [FIRST, LAST]),
        (3 * MTU + 5, [MTU, MTU, MTU, 5], [FIRST, MIDDLE, MIDDLE, LAST]),
    ],
)
def test_a_message_is_cut_at_the_mtu_with_a_reth_in_every_packet(
    length: int, sizes: list[int], opcodes: list[int]
) -> None:
    bench = Bench()
    payload = pattern(length)
    bench.post(length, BufferSource(payload))
    sent = bench.sent_data()
    assert [len(packet.payload) for packet in sent] == sizes
    assert [packet.opcode for packet in sent] == opcodes
    assert b"".join(packet.payload for packet in sent) == payload
    assert [packet.va for packet in sent] == [BASE_VA + MTU * index for index in range(len(sizes))]
    assert {(packet.rkey, packet.dma_bytes, packet.dest_qpn) for packet in sent} == {(RKEY, length, PEER_QPN)}
    assert [packet.psn for packet in sent] == list(range(len(sizes)))


@pytest.mark.parametrize("mtu", [256, 1024])
def test_the_cut_follows_the_configured_mtu(mtu: int) -> None:
    bench = Bench(mtu_bytes=mtu)
    bench.post(4096)
    assert [len(packet.payload) for packet in bench.sent_data()] == [mtu] * (4096 // mtu)


@pytest.mark.parametrize(
    ("length", "opcodes"),
    [(0, [ONLY_IMM]), (MTU, [ONLY_IMM]), (MTU + 1, [FIRST, LAST_IMM]), (9000, [FIRST, MIDDLE, LAST_IMM])],
)
def test_an_immediate_rides_the_last_packet_only(length: int, opcodes: list[int]) -> None:
    bench = Bench()
    bench.post(length, imm=0xDEADBEEF)
    sent = bench.sent_data()
    assert [packet.opcode for packet in sent] == opcodes
    assert [packet.imm for packet in sent] == [None] * (len(opcodes) - 1) + [0xDEADBEEF]


def test_a_gibibyte_is_cut_without_holding_it() -> None:
    """65,536 packets through a window that a cumulative SACK opens again and again."""
    mtu = 1 << 14  # four times the largest path MTU: a quarter of the time
    bench = Bench(window_bdp=1e6, mpr_units=255, mtu_bytes=mtu)
    source = CountingSource()
    bench.post(1 << 30, source)
    packets = 0
    while batch := bench.frames():
        first, last = (bench.read(plane, frame) for plane, frame, _ in (batch[0], batch[-1]))
        assert isinstance(first, Data)
        assert isinstance(last, Data)
        assert (first.psn, first.va) == (packets, BASE_VA + packets * mtu)
        packets += len(batch)
        assert (last.psn, last.va, last.dma_bytes) == (packets - 1, BASE_VA + (packets - 1) * mtu, 1 << 30)
        bench.now_ns += bench.config.base_rtt_ns
        bench.receive(bench.sack(packets - 1))
    assert packets == (1 << 30) // mtu
    assert last.opcode == LAST
    assert (source.largest_read, source.bytes_read) == (mtu, 1 << 30)
    assert bench.qp.requester.outstanding_messages == 1
    bench.receive(bench.ack(1, packets - 1))
    assert [event.length for event in bench.of(WriteCompleted)] == [1 << 30]


@pytest.mark.parametrize("length", [-1, (1 << 30) + 1])
def test_a_length_outside_0_to_1_gib_is_refused(length: int) -> None:
    bench = Bench()
    with pytest.raises(QpError, match=r"0 \.\. 1073741824 bytes"):
        bench.post(length, CountingSource())
    assert bench.frames() == []


def test_posting_on_an_unknown_qp_is_refused() -> None:
    bench = Bench()
    with pytest.raises(QpError, match="no such QP"):
        bench.nic.post_write(99, 0, BufferSource(b""), 0, BASE_VA, RKEY, 0)


# -- numbering ------------------------------------------------------------------------------------------------------


def test_psns_run_across_messages_and_msns_count_messages() -> None:
    bench = Bench(send_psn=1000)
    assert [bench.post(MTU + 1), bench.post(0), bench.post(2 * MTU)] == [0, 1, 2]
    sent = bench.sent_data()
    assert [packet.psn for packet in sent] == [1000, 1001, 1002, 1003, 1004]
    assert [packet.msn for packet in sent] == [0, 0, 1, 2, 2]


def test_psns_wrap_at_24_bits() -> None:
    bench = Bench(send_psn=(1 << 24) - 2)
    bench.post(4 * MTU)
    assert [packet.psn for packet in bench.sent_data()] == [0xFFFFFE, 0xFFFFFF, 0, 1]


def test_rqmsn_counts_immediates_and_is_zero_for_plain_writes() -> None:
    bench = Bench()
    for imm in (None, 1, None, 2, 3):
        bench.post(MTU + 1, imm=imm)
    assert [packet.rqmsn for packet in bench.sent_data()] == [0, 0, 0, 0, 0, 0, 1, 1, 2, 2]


def test_msns_wrap_at_16_bits_and_messages_still_complete() -> None:
    bench = Bench(mpr_units=255, window_bdp=1e6)
    posted = 0
    while posted < 66_000:
        for _ in range(6000):
            bench.post(0)
            posted += 1
        bench.frames()
        bench.receive(bench.ack(posted, posted - 1))
    assert bench.post(0) == 66_000
    assert [packet.msn for packet in bench.sent_data()] == [66_000 & 0xFFFF]
    assert len(bench.of(WriteCompleted)) == 66_000


# -- classes and flags ----------------------------------------------------------------------------------------------


def test_first_transmissions_ride_the_trimmable_class_without_rtx() -> None:
    bench = Bench()
    bench.post(4 * MTU)
    assert {(packet.dscp, packet.rtx) for packet in bench.sent_data()} == {(DSCP.trimmable, False)}


def test_each_packet_leaves_on_the_plane_and_destination_its_ev_names() -> None:
    bench = Bench()
    bench.post(64 * MTU)
    paths = {path.ev: path for path in all_paths(EIGHT, 0, bench.peer)}
    evs = set()
    for plane, frame, _ in bench.frames():
        packet = bench.read(plane, frame)
        path = paths[packet.ev]
        assert (path.plane, path.destination) == (plane, frame[38:54])
        evs.add(packet.ev)
    assert len(evs) == 24  # the active set of 32


def test_only_the_last_of_all_packets_asks_for_an_acknowledgement() -> None:
    bench = Bench()
    bench.post(3 * MTU)
    bench.post(2 * MTU)
    assert [packet.ackreq for packet in bench.sent_data()] == [False] * 4 + [True]


def test_a_packet_that_fills_the_window_asks_for_an_acknowledgement() -> None:
    bench = Bench()
    bench.post(1 << 22)
    sent = bench.sent_data()
    assert [packet.ackreq for packet in sent] == [False] * (len(sent) - 1) + [True]


# -- gates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [1, 8])
def test_no_psn_beyond_cack_plus_mpr_leaves(units: int) -> None:
    bench = Bench(mpr_units=units, window_bdp=1e6)
    bench.post(1 << 24)
    mpr = 128 * units
    assert [packet.psn for packet in bench.sent_data()] == list(range(mpr))  # cack is -1
    assert bench.frames() == []
    bench.receive(bench.sack(9))
    assert [packet.psn for packet in bench.sent_data()] == list(range(mpr, mpr + 10))


def test_selective_reports_do_not_open_the_mpr_gate() -> None:
    bench = Bench(mpr_units=1, window_bdp=1e6)
    bench.post(1 << 24)
    bench.frames()
    bench.receive(bench.sack(-1, range(10, 60)))
    assert [packet for packet in bench.sent_data() if not packet.rtx] == []


def test_dynamic_mpr_shrinks_and_grows_the_gate_and_zero_leaves_it() -> None:
    bench = Bench(mpr_units=2, window_bdp=1e6)
    bench.post(1 << 24)
    bench.frames()
    bench.receive(bench.sack(255, mpr_units=1))
    assert len(bench.sent_data()) == 128
    bench.receive(bench.sack(255, mpr_units=0))
    assert bench.frames() == []
    bench.receive(bench.sack(255, mpr_units=3))
    assert len(bench.sent_data()) == 256


def test_the_window_gate_counts_nominal_bytes() -> None:
    bench = Bench()
    bench.post(1 << 24)
    window = int(1.5 * bench.config.plane_bdp_bytes) * 8
    fits = window // (MTU + NOMINAL_OVERHEAD)
    assert len(bench.sent_data()) == fits
    bench.receive(bench.sack(-1, [3, 5]))  # two packets left the network
    assert len(bench.sent_data()) == 2


def test_the_window_follows_the_planes_usable() -> None:
    bench = Bench()
    bench.port(0, up=False)
    bench.post(1 << 24)
    window = int(1.5 * bench.config.plane_bdp_bytes) * 7
    assert len(bench.sent_data()) == window // (MTU + NOMINAL_OVERHEAD)


def test_one_data_frame_a_port_with_room_and_none_without() -> None:
    bench = Bench()
    bench.post(1 << 22)
    assert bench.nic.frames_to_send(0, 0) == []
    batch = bench.nic.frames_to_send(0, 0b1010_0001)
    assert sorted(plane for plane, _, _ in batch) == [0, 5, 7]


def test_the_budget_bounds_one_call() -> None:
    bench = Bench()
    bench.post(1 << 22)
    assert len(bench.nic.frames_to_send(0, 0xFF, 3)) == 3


# -- completion -----------------------------------------------------------------------------------------------------


def test_a_sack_of_everything_completes_nothing() -> None:
    bench = Bench()
    bench.post(2 * MTU)
    bench.frames()
    bench.receive(bench.sack(1))
    assert bench.of(WriteCompleted) == []
    assert bench.qp.requester.inflight_packets == 0


def test_transport_acks_complete_in_order_with_their_own_numbers() -> None:
    bench = Bench()
    bench.now_ns = 77
    for wr_id in (10, 11, 12):
        bench.post(MTU + wr_id, wr_id=wr_id)
    bench.frames()
    bench.now_ns = 500
    bench.receive(bench.ack(2, 3))
    done = bench.of(WriteCompleted)
    assert [(event.wr_id, event.msn, event.length) for event in done] == [(10, 0, MTU + 10), (11, 1, MTU + 11)]
    assert {(event.posted_ns, event.now_ns, event.qpn) for event in done} == {(77, 500, LOCAL_QPN)}
    bench.receive(bench.ack(3, 5))
    assert [event.wr_id for event in bench.of(WriteCompleted)] == [10, 11, 12]


def test_a_repeated_transport_ack_completes_nothing_twice() -> None:
    bench = Bench()
    bench.post(1)
    bench.post(1)
    bench.frames()
    for _ in range(5):
        bench.receive(bench.ack(1, 0))
    assert [event.msn for event in bench.of(WriteCompleted)] == [0]


def test_a_transport_ack_also_frees_the_packets_it_covers() -> None:
    bench = Bench()
    bench.post(5 * MTU)
    bench.frames()
    bench.receive(bench.ack(1, 4))
    assert bench.qp.requester.inflight_packets == 0
    assert bench.qp.congestion.inflight_bytes == 0
    assert len(bench.of(WriteCompleted)) == 1


def test_completions_keep_message_order_for_any_batching_of_acks() -> None:
    bench = Bench()
    for wr_id in range(50):
        bench.post(wr_id * 100, wr_id=wr_id)
    bench.frames()
    for done in (1, 7, 7, 30, 29, 50):
        bench.receive(bench.ack(done, done + 5 if done < 45 else 54))
    msns = [event.msn for event in bench.of(WriteCompleted)]
    assert msns == sorted(msns)
    assert all(b == a + 1 for a, b in pairwise(msns))
