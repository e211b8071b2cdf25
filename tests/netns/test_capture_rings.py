"""The capture on a real interface pair: every frame once per tap, nothing lost at either end, whatever happens."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from mrcemu.capture.pcapng import read_pcapng
from mrcemu.capture.ring import Ring
from mrcemu.capture.session import CaptureSession, compile_filter
from mrcemu.capture.targets import Tap
from mrcemu.errors import UsageError
from mrcemu.linux.netns import inside

pytestmark = pytest.mark.netns
ETHERTYPE = b"\x88\xb5"  # local experimental: no stack answers it


@dataclass
class Pair:
    """Two namespaces with one veth pair, `x` at each end."""

    left: str
    right: str

    def path(self, name):
        return f"/run/netns/{name}"

    def taps(self):
        return [Tap(self.path(self.left), "x", "left"), Tap(self.path(self.right), "x", "right")]

    def sender(self):
        with inside(self.path(self.left)):
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind(("x", 0))
        return sender


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def pair():
    names = [f"capt-{os.getpid()}-{end}" for end in "lr"]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        ip(
            "-n",
            names[0],
            "link",
            "add",
            "x",
            "mtu",
            "9000",
            "type",
            "veth",
            "peer",
            "x",
            "mtu",
            "9000",
            "netns",
            names[1],
        )
        for name in names:
            ip("-n", name, "link", "set", "x", "up")
        yield Pair(*names)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def frame(number, size=100):
    return b"\x02" * 12 + ETHERTYPE + number.to_bytes(4, "big") + bytes(size - 18)


def sent(pair, count, size=100):
    with pair.sender() as sender:
        for number in range(count):
            sender.send(frame(number, size))


def test_every_frame_once_per_tap_and_complete_when_the_run_ends_at_once(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    with CaptureSession(pair.taps(), path):
        sent(pair, 1000)
    capture = read_pcapng(path.read_bytes())
    for tap, outgoing in ((0, True), (1, False)):
        mine = [item for number, item in capture.frames if number == tap]
        assert [item.data for item in mine] == [frame(n) for n in range(1000)]
        assert {item.outgoing for item in mine} == {outgoing}
        assert capture.statistics[tap] == (1000, 0)


def test_time_never_runs_backwards_and_is_the_wall_clock(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    before = time.time_ns()
    with CaptureSession(pair.taps(), path):
        for _ in range(5):
            sent(pair, 200)
            time.sleep(0.015)
    stamps = [item.time_ns for _, item in read_pcapng(path.read_bytes()).frames]
    assert stamps == sorted(stamps)
    assert before <= stamps[0] <= stamps[-1] <= time.time_ns()
    assert len(set(stamps)) > 1000  # nanoseconds, not microseconds rounded


def test_a_long_frame_is_cut_at_the_snap_length_and_keeps_its_length(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    with CaptureSession(pair.taps(), path, snaplen=64):
        sent(pair, 3, size=4238)
    for _, item in read_pcapng(path.read_bytes()).frames:
        assert (len(item.data), item.length_bytes) == (64, 4238)


def test_the_kernel_filter_decides_what_is_recorded(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    with CaptureSession(pair.taps(), path, bpf="ether[14:4] = 7"):
        sent(pair, 20)
    assert [item.data for _, item in read_pcapng(path.read_bytes()).frames] == [frame(7)] * 2


def test_a_wrong_filter_is_refused_with_tcpdumps_reason():
    with pytest.raises(UsageError, match="filter 'no such thing'"):
        compile_filter("no such thing", 256)


def test_capture_goes_on_after_the_link_went_down_and_up(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    session = CaptureSession(pair.taps(), path)
    with session:
        sent(pair, 5)
        ip("-n", pair.right, "link", "set", "x", "down")
        ip("-n", pair.right, "link", "set", "x", "up")
        sent(pair, 5)
        assert not session.finished.is_set()
    assert read_pcapng(path.read_bytes()).statistics == {0: (10, 0), 1: (10, 0)}


def test_it_finishes_by_itself_when_its_interfaces_are_removed(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    session = CaptureSession(pair.taps(), path)
    with session:
        sent(pair, 5)
        ip("-n", pair.left, "link", "del", "x")
        assert session.finished.wait(2)
    assert len(read_pcapng(path.read_bytes()).frames) == 10


def test_a_frame_limit_ends_it_with_exactly_that_many(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    session = CaptureSession(pair.taps()[:1], path, max_frames=7)
    with session:
        sent(pair, 20)
        assert session.finished.wait(2)
    assert [item.data for _, item in read_pcapng(path.read_bytes()).frames] == [frame(n) for n in range(7)]


def test_frames_a_full_ring_lost_are_counted(pair):
    ring = Ring(pair.path(pair.right), "x", ring_bytes=1)
    with ring:
        sent(pair, 500)
        kept = len(ring.read_frames())
        assert 0 < kept < 500
        assert kept + ring.dropped() == 500


def test_an_existing_file_is_not_overwritten_unless_asked(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists"):
        CaptureSession(pair.taps(), path).start()
    assert path.read_text() == "precious"
    with CaptureSession(pair.taps(), path, overwrite=True):
        pass
    assert read_pcapng(path.read_bytes()).frames == []


def test_an_interface_that_does_not_exist_is_refused_and_no_file_made(pair, tmp_path):
    path = tmp_path / "a.pcapng"
    with pytest.raises(UsageError, match="cannot capture at gone"):
        CaptureSession([Tap(pair.path(pair.left), "y", "gone")], path).start()
    assert not path.exists()


def test_under_sudo_the_file_belongs_to_the_caller(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    path = tmp_path / "a.pcapng"
    with CaptureSession(pair.taps(), path):
        pass
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def limited(pair, tmp_path, limits, taps=200):
    """Run a capture at `taps` taps with (soft, hard) descriptor limits, in a process of its own."""
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from mrcemu.capture.session import CaptureSession; from mrcemu.capture.targets import Tap\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, {limits})\n"
        f"taps = [Tap('{pair.path(pair.left)}', 'x', str(n)) for n in range({taps})]\n"
        f"with CaptureSession(taps, Path('{tmp_path}/a.pcapng')): pass"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_low_soft_limit_of_descriptors_is_raised(pair, tmp_path):
    assert limited(pair, tmp_path, (256, 4096)).returncode == 0


def test_a_hard_limit_of_descriptors_is_named_with_its_fix_and_no_file_made(pair, tmp_path):
    done = limited(pair, tmp_path, (256, 512))
    assert "needs 656 open files, the limit is 512" in done.stderr
    assert "ulimit -n 656" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_descriptors_are_given_back(pair, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        with CaptureSession(pair.taps(), tmp_path / f"{number}.pcapng"):
            pass
        with pytest.raises(UsageError):
            CaptureSession([*pair.taps(), Tap(pair.path(pair.left), "y", "gone")], tmp_path / "never").start()
    assert len(os.listdir("/proc/self/fd")) == before
