"""A running capture: several taps, one file, started before the traffic and complete whatever ends it.

Owns the rings, the file and one thread that moves frames between them. Frames of all taps are written in time order,
so merged time never runs backwards. Loses nothing silently: what a ring dropped stands in the file and the summary.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from mrcemu import __version__
from mrcemu.capture.pcapng import PcapngWriter, TapInfo
from mrcemu.capture.ring import BpfProgram, CapturedFrame, Ring
from mrcemu.capture.targets import Tap
from mrcemu.errors import UnfitEnvironmentError, UsageError

# Ours: reading at intervals instead of waking for every frame keeps the tap off the cores the fabric needs.
READ_INTERVAL_S = 0.02
RING_BYTES_MAX = 8 << 20  # 25,000 frames of 256 bytes: a second of a busy port, if the machine is that late
RING_BYTES_MIN = 256 << 10
RING_BUDGET_BYTES = 128 << 20  # ours, for all taps of a session together: rings are locked memory
# Opening and closing a ring waits for the kernel (RCU grace periods, 20 to 40 ms); 64 at a time share the wait: 512
# rings took 24 s one by one.
RING_THREADS = 64
SPARE_DESCRIPTORS = 256  # ours: what the process holds beside the taps, and a namespace handle or two a thread


@dataclass(frozen=True, slots=True)
class TapSummary:
    """Figures of one tap when its session ended."""

    label: str
    frames: int
    dropped: int


def compile_filter(expression: str, snaplen: int) -> BpfProgram:
    """A tcpdump filter expression as classic BPF steps; UsageError if it is none, compiled by tcpdump itself."""
    command = ["tcpdump", "-ddd", "-y", "EN10MB", "-s", str(snaplen), expression]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UnfitEnvironmentError("tcpdump is not installed", "apt-get install tcpdump") from None
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["unknown error"]
        raise UsageError(f"filter {expression!r}: {reason[0].removeprefix('tcpdump: ')}")
    steps = [[int(number) for number in line.split()] for line in done.stdout.splitlines()[1:]]
    return [(code, jt, jf, k) for code, jt, jf, k in steps]


def hand_to_caller(path: Path) -> None:
    """Give a file written under sudo to the user who called sudo; nothing to do otherwise."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() == 0 and uid is not None and gid is not None:
        os.chown(path, int(uid), int(gid))


def _ensure_descriptors(taps: int) -> None:
    """Room for a socket and a map of every tap; raises this process's soft limit as far as it may."""
    needed = 2 * taps + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UnfitEnvironmentError(
            f"a capture at {taps} ports needs {needed} open files, the limit is {hard}",
            f"ulimit -n {needed}, or fewer targets",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _create(path: Path, overwrite: bool) -> BinaryIO:
    try:
        stream = path.open("wb" if overwrite else "xb")
    except FileExistsError:
        raise UsageError(f"{path} exists already; choose another name, or --force to replace it") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    hand_to_caller(path)
    return stream


def _stamp(item: tuple[int, CapturedFrame]) -> int:
    return item[1].time_ns


class CaptureSession:
    """Captures `taps` into the pcapng file `path` from `start` to `stop`; also a context manager.

    `snaplen` bytes of each frame are kept (the headers of an MRC packet take 142); `bpf` is a tcpdump filter
    expression; `max_frames` ends the capture by itself. UsageError if the file exists and `overwrite` is not given or
    an interface is gone.
    """

    def __init__(
        self,
        taps: Sequence[Tap],
        path: Path,
        *,
        snaplen: int = 256,
        bpf: str | None = None,
        overwrite: bool = False,
        max_frames: int | None = None,
    ) -> None:
        self._taps = tuple(taps)
        self._path = path
        self._snaplen = snaplen
        self._bpf = compile_filter(bpf, snaplen) if bpf is not None else None
        self._overwrite = overwrite
        self._room = max_frames if max_frames is not None else -1  # frames still to write; -1 is no limit
        self._counts = [0] * len(self._taps)
        self._held: list[tuple[int, CapturedFrame]] = []
        self._rings: list[Ring] = []
        self._ending = threading.Event()
        self._error: OSError | None = None
        # Set when the capture ended by itself: frame limit reached, every interface gone, or the file not writable.
        self.finished = threading.Event()

    @property
    def frames(self) -> int:
        """Frames written so far, over all taps."""
        return sum(self._counts)

    def start(self) -> None:
        """Open every ring and the file; once it returns, no frame is missed."""
        try:
            self._open_rings()
            self._stream = _create(self._path, self._overwrite)
        except BaseException:
            self._close_rings()
            raise
        infos = [TapInfo(tap.label, tap.rate_bps) for tap in self._taps]
        self._writer = PcapngWriter(self._stream, infos, snaplen=self._snaplen, application=f"mrcemu {__version__}")
        self._thread = threading.Thread(target=self._work, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> list[TapSummary]:
        """Write what the rings still hold, the figures of every tap, and close; OSError if the file broke off."""
        self._ending.set()
        self._thread.join()
        try:
            self._drain(write_until_ns=None)
            summaries = [
                TapSummary(tap.label, self._counts[number], self._rings[number].dropped())
                for number, tap in enumerate(self._taps)
            ]
            for number, summary in enumerate(summaries):
                received = summary.frames + summary.dropped
                self._writer.write_statistics(number, time.time_ns(), received=received, dropped=summary.dropped)
            self._stream.close()
        except OSError as error:
            self._error = self._error or error
        finally:
            self._close_rings()
        if self._error is not None:
            raise self._error
        return summaries

    def _open_rings(self) -> None:
        _ensure_descriptors(len(self._taps))
        share = RING_BUDGET_BYTES // max(1, len(self._taps))
        ring_bytes = min(RING_BYTES_MAX, max(RING_BYTES_MIN, share))
        with ThreadPoolExecutor(RING_THREADS) as pool:
            opening = [pool.submit(self._open_ring, tap, ring_bytes) for tap in self._taps]
        errors = [error for job in opening if (error := job.exception()) is not None]
        self._rings = [job.result() for job in opening if job.exception() is None]
        if errors:
            raise errors[0]

    def _open_ring(self, tap: Tap, ring_bytes: int) -> Ring:
        try:
            return Ring(tap.netns_path, tap.ifname, snaplen=self._snaplen, ring_bytes=ring_bytes, bpf=self._bpf)
        except PermissionError as error:
            raise UnfitEnvironmentError("capturing needs root", "run it with sudo", error.errno) from error
        except OSError as error:
            raise UsageError(f"cannot capture at {tap.label}: {error.strerror}") from error

    def _close_rings(self) -> None:
        with ThreadPoolExecutor(RING_THREADS) as pool:
            list(pool.map(Ring.close, self._rings))
        self._rings.clear()

    def _work(self) -> None:
        previous_ns = time.time_ns()
        try:
            while not self._ending.wait(READ_INTERVAL_S):
                now_ns = time.time_ns()
                # A frame stamped before the last round may only now have reached its ring: hold one round back, so
                # that the taps' frames merge in time order.
                self._drain(write_until_ns=previous_ns)
                previous_ns = now_ns
                if self._room == 0 or all(ring.is_gone() for ring in self._rings):
                    break
        except OSError as error:
            self._error = error
        self.finished.set()

    def _drain(self, write_until_ns: int | None) -> None:
        for number, ring in enumerate(self._rings):
            self._held.extend([(number, frame) for frame in ring.read_frames()])
        self._held.sort(key=_stamp)
        ready = len(self._held)
        if write_until_ns is not None:
            ready = bisect_right(self._held, write_until_ns, key=_stamp)
        self._write(self._held[:ready])
        del self._held[:ready]

    def _write(self, frames: list[tuple[int, CapturedFrame]]) -> None:
        if self._room >= 0:
            frames = frames[: self._room]
            self._room -= len(frames)
        if not frames:
            return
        self._writer.write_frames(frames)
        self._stream.flush()
        for number, _ in frames:
            self._counts[number] += 1

    def __enter__(self) -> CaptureSession:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
