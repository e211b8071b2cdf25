"""The pcapng writer against our reader and against scapy's, and the reader against files that are none."""

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.capture.pcapng import PcapngWriter, TapInfo, read_pcapng
from mrcemu.capture.ring import CapturedFrame, frame_slot_bytes
from mrcemu.errors import WireError

FRAMES = st.builds(
    CapturedFrame,
    time_ns=st.integers(0, 2**63 - 1),
    data=st.binary(max_size=300),
    length_bytes=st.integers(0, 2**32 - 1),
    outgoing=st.booleans(),
)


def written(frames, taps=("p0-t0-0:up1", "h3:p5")):
    stream = io.BytesIO()
    writer = PcapngWriter(stream, [TapInfo(name, 25_000_000) for name in taps], snaplen=256, application="test")
    writer.write_frames(frames)
    for tap in range(len(taps)):
        writer.write_statistics(tap, 1, received=len(frames), dropped=tap)
    return stream.getvalue()


@given(st.lists(st.tuples(st.integers(0, 1), FRAMES), max_size=5))
def test_what_is_written_is_read_back_equal(frames):
    capture = read_pcapng(written(frames))
    assert capture.frames == frames
    assert capture.taps == [TapInfo("p0-t0-0:up1", 25_000_000), TapInfo("h3:p5", 25_000_000)]
    assert capture.statistics == {0: (len(frames), 0), 1: (len(frames), 1)}


def test_scapy_reads_the_same_packets_and_nanoseconds(tmp_path):
    from scapy.utils import RawPcapNgReader  # noqa: PLC0415 - slow import, one test

    frames = [(1, CapturedFrame(1_764_000_000_123_456_789, bytes(range(61)), 4238, True))]
    path = tmp_path / "a.pcapng"
    path.write_bytes(written(frames))
    ((data, meta),) = list(RawPcapNgReader(str(path)))
    assert data == bytes(range(61))
    assert meta.wirelen == 4238
    assert meta.ifname == b"h3:p5"
    assert (meta.tshigh << 32 | meta.tslow) == 1_764_000_000_123_456_789
    assert meta.tsresol == 10**9


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_file_is_refused_or_read_but_never_crashes(position, value):
    data = bytearray(written([(0, CapturedFrame(5, b"x" * 20, 20, False))]))
    data[position % len(data)] = value
    with suppress(WireError):  # any other exception fails the test
        read_pcapng(bytes(data))


@pytest.mark.parametrize("cut", [1, 4, 11, 30])
def test_a_file_cut_short_is_refused(cut):
    with pytest.raises(WireError, match="pcapng"):
        read_pcapng(written([(0, CapturedFrame(5, b"x" * 20, 20, False))])[:-cut])


def test_a_file_of_another_format_is_refused():
    with pytest.raises(WireError, match="pcapng"):
        read_pcapng(b"\xd4\xc3\xb2\xa1" + bytes(40))


def test_a_ring_slot_holds_the_snap_length_behind_the_kernel_header():
    assert frame_slot_bytes(256) == 336
    assert frame_slot_bytes(14) == 80
