"""The delay line: a frame of either mode waits as long as its path and its length take."""

import pytest

from mrcemu.endpoint.hold import DelayLine
from mrcemu.topology import timing
from mrcemu.topology.addressing import host_address
from mrcemu.topology.ecmp import ECMP, SRV6, hashed_ev, path_of_ev
from mrcemu.topology.model import Topology
from mrcemu.wire import fast
from mrcemu.wire.opcodes import Opcode

RATE = 25_000_000
EIGHT = Topology("eight", 8, 4, 4, 4, RATE, RATE, 4000, 4096)
DST = 12


def frame_from(src, mode, payload_bytes=4096):
    path = path_of_ev(EIGHT, src, DST, hashed_ev(0, 0) if mode == ECMP else 0)
    address, outer = host_address(src).packed, path.outer_destination
    template = fast.FrameTemplate(
        dst_mac=bytes(6),
        src_mac=bytes(6),
        outer_src=None if outer is None else address,
        outer_dst=outer,
        inner_src=address,
        inner_dst=host_address(DST).packed,
        ev=path.ev,
        dscp=8,
    )
    return fast.build_data(template, Opcode.WRITE_ONLY, 16, 0, 0, 0, 0, 0, 0, 0, payload_bytes, bytes(payload_bytes))


@pytest.mark.parametrize("mode", [SRV6, ECMP])
@pytest.mark.parametrize(("src", "hops"), [(0, 4), (13, 2)])
@pytest.mark.parametrize("payload_bytes", [64, 4096])
def test_a_frame_is_held_for_its_hops_and_its_own_length(mode, src, hops, payload_bytes):
    frame = frame_from(src, mode, payload_bytes)
    assert len(frame) == payload_bytes + (142 if mode == SRV6 else 102)
    line = DelayLine(EIGHT, DST)
    line.hold(3, [(1_000_000, frame)], 400_000)
    due_ns = 600_000 + timing.one_way_delay_ns(EIGHT, hops, len(frame))
    assert line.next_due_ns == due_ns
    assert line.pop_due(due_ns - 1) is None
    assert line.pop_due(due_ns) == (due_ns, 1, 3, frame)
    assert len(line) == 0


def test_frames_of_both_modes_leave_in_the_order_of_their_arrival():
    line = DelayLine(EIGHT, DST)
    frames = [frame_from(src, mode) for mode in (SRV6, ECMP) for src in (0, 13)]
    line.hold(0, [(number, frame) for number, frame in enumerate(frames)], 0)
    left = [held[3] for held in iter(lambda: line.pop_due(1 << 62), None)]
    assert left == [frames[3], frames[1], frames[2], frames[0]]  # two hops first, plain ones are shorter
