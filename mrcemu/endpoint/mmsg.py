"""Many frames a system call: recvmmsg with kernel time stamps, through ctypes, into buffers made once.

Owns the C structures. One `FrameReceiver` serves all ports of a process: it holds nothing between calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
from struct import Struct

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; SCM_TIMESTAMPNS has the same value
MSG_DONTWAIT = 0x40
MSG_TRUNC = 0x20
BATCH = 32
MAX_FRAME_BYTES = 9216
_CONTROL_BYTES = 64
_TIMESPEC = Struct("=qq")
_CMSG_HEADER_BYTES = 16


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _MsgHdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(_IoVec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _MMsgHdr(ctypes.Structure):
    _fields_ = [("header", _MsgHdr), ("length", ctypes.c_uint)]


_recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
_recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]
_recvmmsg.restype = ctypes.c_int


class FrameReceiver:
    """Drains sockets: `receive(fd)` gives up to `BATCH` (frame bytes, CLOCK_REALTIME ns) pairs."""

    def __init__(self) -> None:
        self._data = bytearray(BATCH * MAX_FRAME_BYTES)
        self._control = bytearray(BATCH * _CONTROL_BYTES)
        self._view = memoryview(self._data)
        data_at = ctypes.addressof(ctypes.c_char.from_buffer(self._data))
        control_at = ctypes.addressof(ctypes.c_char.from_buffer(self._control))
        self._iovecs = (_IoVec * BATCH)()
        self._headers = (_MMsgHdr * BATCH)()
        for index in range(BATCH):
            self._iovecs[index].base = data_at + index * MAX_FRAME_BYTES
            self._iovecs[index].length = MAX_FRAME_BYTES
            header = self._headers[index].header
            header.iov = ctypes.pointer(self._iovecs[index])
            header.iovlen = 1
            header.control = control_at + index * _CONTROL_BYTES
            header.controllen = _CONTROL_BYTES
        self._header_size = ctypes.sizeof(_MMsgHdr)
        # The two fields the kernel writes, read as plain memory: a ctypes attribute costs ten times as much.
        self._raw = memoryview(self._headers).cast("B")
        self._length_at = _MMsgHdr.length.offset
        self._control_length_at = _MMsgHdr.header.offset + _MsgHdr.controllen.offset
        self._size_t = Struct("=Q")
        self._uint = Struct("=I")

    def receive(self, fd: int) -> list[tuple[bytes, int]]:
        """Frames waiting on a socket, oldest first, at most `BATCH`. OSError if the socket broke."""
        count = _recvmmsg(fd, ctypes.addressof(self._headers), BATCH, MSG_DONTWAIT, None)
        if count < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.EINTR, errno.ENETDOWN):
                return []
            raise OSError(code, os.strerror(code))
        frames = []
        for index in range(count):
            at = index * self._header_size
            (length,) = self._uint.unpack_from(self._raw, at + self._length_at)
            seconds, nanoseconds = _TIMESPEC.unpack_from(self._control, index * _CONTROL_BYTES + _CMSG_HEADER_BYTES)
            start = index * MAX_FRAME_BYTES
            frames.append((bytes(self._view[start : start + length]), seconds * 1_000_000_000 + nanoseconds))
            self._size_t.pack_into(self._raw, at + self._control_length_at, _CONTROL_BYTES)
        return frames
