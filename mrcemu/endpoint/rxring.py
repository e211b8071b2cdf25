"""Arriving frames of one port without a system call a frame: a TPACKET_V2 ring, read where the kernel wrote it.

Owns the ring's layout. A frame is copied out once, with the kernel's own time stamp, and its slot goes back at once.
V2 and not V3: a frame is readable the moment it arrives. Source of the layouts: linux/if_packet.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
from struct import Struct

SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
TPACKET_V2 = 1
BLOCK_BYTES = 1 << 16
_ALIGNMENT = 16
_MAC_OFFSET_BYTES = 66  # where an Ethernet frame starts in its slot
_REQUEST = Struct("=IIII")
_HEADER = Struct("=III H H I I")  # status, length, captured, mac offset, net offset, seconds, nanoseconds
_STATISTICS = Struct("=II")
_FREE = b"\0\0\0\0"

_libc = ctypes.CDLL(None, use_errno=True)


class ReceiveRing:
    """The receive ring of a packet socket that is not bound yet; `slots` frames of up to `frame_bytes` wait in it.

    Making one waits for a grace period of the kernel, 10 ms and more, without Python's lock: make many in threads.
    """

    __slots__ = ("_at", "_drops", "_map", "_next", "_offsets", "_socket", "frame_bytes", "oversize")

    def __init__(self, sock: socket.socket, frame_bytes: int, slots: int) -> None:
        slot_bytes = -(-(_MAC_OFFSET_BYTES + frame_bytes) // _ALIGNMENT) * _ALIGNMENT
        per_block = BLOCK_BYTES // slot_bytes
        blocks = -(-slots // per_block)
        self._socket = sock
        self.frame_bytes = frame_bytes
        self.oversize = 0  # frames longer than a slot, dropped
        self._drops = 0
        sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        request = _REQUEST.pack(BLOCK_BYTES, blocks, slot_bytes, blocks * per_block)
        # Not sock.setsockopt: that would keep Python's lock while the kernel waits.
        if _libc.setsockopt(sock.fileno(), SOL_PACKET, PACKET_RX_RING, request, len(request)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"receive ring: {os.strerror(code)}")
        self._map = mmap.mmap(sock.fileno(), BLOCK_BYTES * blocks)
        self._offsets = [
            block * BLOCK_BYTES + slot * slot_bytes for block in range(blocks) for slot in range(per_block)
        ]
        self._next = 0
        self._at = self._offsets[0]

    def take(self, frames: list[tuple[int, bytes]]) -> None:
        """Append every waiting frame as (CLOCK_REALTIME ns, bytes from the Ethernet header on), oldest first."""
        memory, unpack = self._map, _HEADER.unpack_from
        status, length, captured, mac, _, seconds, nanoseconds = unpack(memory, self._at)
        while status & 1:
            at = self._at
            if captured < length:
                self.oversize += 1
            else:
                start = at + mac
                frames.append((seconds * 1_000_000_000 + nanoseconds, memory[start : start + captured]))
            memory[at : at + 4] = _FREE  # back to the kernel, only after the copy
            self._next += 1
            if self._next == len(self._offsets):
                self._next = 0
            self._at = self._offsets[self._next]
            status, length, captured, mac, _, seconds, nanoseconds = unpack(memory, self._at)

    def read_drops(self) -> int:
        """Frames the kernel dropped because the ring was full, in all."""
        raw = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
        self._drops += _STATISTICS.unpack(raw)[1]  # reading clears the kernel's count
        return self._drops + self.oversize

    def close(self) -> None:
        self._map.close()
