"""One interface's packets through a TPACKET_V2 mmap ring, both directions, with the kernel's nanosecond stamps.

Why a ring: the kernel copies a frame into it at the tap. A plain recv() shares memory with the packet being forwarded
and shows the SRv6 destination after the shift of the next switch. Why V2 and not V3: a frame is readable at once, so a
capture that ends loses nothing; V3 holds frames back for up to a block's timeout.

Refuses to filter in Python, to write files and to interpret frames. Source of the layouts: linux/if_packet.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from mrcemu.linux.netns import inside

SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
TPACKET_V2 = 1
SO_ATTACH_FILTER = 26
ETH_P_ALL = 0x0003
PACKET_OUTGOING = 4

_ALIGNMENT = 16  # TPACKET_ALIGNMENT
_MAC_OFFSET_BYTES = 66  # where an Ethernet frame starts in its slot: align(TPACKET2_HDRLEN + 16) - 14
_STATUS_USER = 0x1
_HEADER = struct.Struct("=IIIHHII")  # status, len, snaplen, mac, net, sec, nsec
_STATUS = struct.Struct("=I")
_PACKET_TYPE_AT = 32 + 10  # sll_pkttype of the sockaddr_ll behind the 32-byte header
BLOCK_BYTES = 1 << 16  # ours: 195 frames of 256 bytes, and an allocation the kernel rarely refuses

_libc = ctypes.CDLL(None, use_errno=True)

BpfProgram = Sequence[tuple[int, int, int, int]]


class CapturedFrame(NamedTuple):
    """One frame as one tap saw it; a tuple, because it is made for every frame and a dataclass costs three times more.

    `time_ns` is CLOCK_REALTIME; `data` holds at most snaplen bytes from the Ethernet header on; `length_bytes` is the
    frame's length on the wire; `outgoing` is the direction seen from the interface's node.
    """

    time_ns: int
    data: bytes
    length_bytes: int
    outgoing: bool


def frame_slot_bytes(snaplen: int) -> int:
    """Ring bytes one frame of `snaplen` captured bytes takes."""
    return -(-(_MAC_OFFSET_BYTES + snaplen) // _ALIGNMENT) * _ALIGNMENT


def _set_option_unlocked(sock: socket.socket, level: int, option: int, value: bytes) -> None:
    """setsockopt without holding Python's lock, which the method of `socket` keeps.

    Making a ring waits for an RCU grace period, 10 ms and more; threads that open many can wait for the same one.
    """
    if _libc.setsockopt(sock.fileno(), level, option, value, len(value)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Ring:
    """An open tap on one interface. Read with `read_frames`; close it when done.

    `snaplen` is in bytes, 14 .. 65,000; `ring_bytes` is rounded up to whole blocks. `bpf` is a classic BPF program of
    (code, jt, jf, k) that is attached before the first frame can arrive. OSError if the interface does not exist.
    """

    def __init__(
        self,
        netns_path: str,
        ifname: str,
        *,
        snaplen: int = 256,
        ring_bytes: int = 2 << 20,
        bpf: BpfProgram | None = None,
    ) -> None:
        self._slot_bytes = frame_slot_bytes(snaplen)
        # A slot never crosses a block, so a block is at least one slot; the kernel allocates in powers of two.
        self._block_bytes = max(BLOCK_BYTES, 1 << (self._slot_bytes - 1).bit_length())
        self._blocks = -(-ring_bytes // self._block_bytes)
        self._slots_per_block = self._block_bytes // self._slot_bytes
        self._slots = self._slots_per_block * self._blocks
        self._offsets = [
            block * self._block_bytes + slot * self._slot_bytes
            for block in range(self._blocks)
            for slot in range(self._slots_per_block)
        ]
        self._snaplen = snaplen
        self._next = 0
        self._dropped = 0
        with inside(netns_path):
            # Protocol 0: nothing is received before bind(), so no frame of another interface is ever in the ring.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            self._map = self._set_up(ifname, bpf)
        except BaseException:
            self._socket.close()
            raise

    def _set_up(self, ifname: str, bpf: BpfProgram | None) -> mmap.mmap:
        if bpf is not None:
            self._attach(bpf)
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        request = struct.pack("=IIII", self._block_bytes, self._blocks, self._slot_bytes, self._slots)
        _set_option_unlocked(self._socket, SOL_PACKET, PACKET_RX_RING, request)
        self._socket.bind((ifname, ETH_P_ALL))
        # Last, so that no failure leaves a map behind; frames that came since bind() wait in the ring.
        return mmap.mmap(self._socket.fileno(), self._block_bytes * self._blocks)

    def _attach(self, bpf: BpfProgram) -> None:
        code = b"".join(struct.pack("=HBBI", *step) for step in bpf)
        buffer = ctypes.create_string_buffer(code, len(code))  # the kernel reads it through a pointer, within the call
        program = struct.pack("@HP", len(bpf), ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)

    def fileno(self) -> int:
        """For poll(); readable when a frame is waiting."""
        return self._socket.fileno()

    def read_frames(self) -> list[CapturedFrame]:
        """Every frame the kernel has handed over since the last call, at most one ring full; never waits."""
        ring, position, snaplen = self._map, self._next, self._snaplen
        frames = []
        for _ in range(self._slots):
            at = self._offsets[position]
            status, length, captured, mac, _net, sec, nsec = _HEADER.unpack_from(ring, at)
            if not status & _STATUS_USER:
                break
            start = at + mac
            data = ring[start : start + (captured if captured < snaplen else snaplen)]
            outgoing = ring[at + _PACKET_TYPE_AT] == PACKET_OUTGOING
            _STATUS.pack_into(ring, at, 0)  # back to the kernel, only after the copy
            position = position + 1 if position + 1 < self._slots else 0
            frames.append(CapturedFrame(sec * 1_000_000_000 + nsec, data, length, outgoing))
        self._next = position
        return frames

    def dropped(self) -> int:
        """Frames lost since opening because the ring was full."""
        _packets, drops = struct.unpack("=II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._dropped += drops  # the kernel's count restarts at every reading
        return self._dropped

    def is_gone(self) -> bool:
        """Whether the interface has been removed; one that is merely down is still there and comes back."""
        return not self._socket.getsockname()[0]

    def close(self) -> None:
        self._map.close()
        self._socket.close()

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
