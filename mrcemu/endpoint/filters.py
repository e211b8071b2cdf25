"""A lossy receiver: a classic BPF filter with `ld rand` in front of a socket, run by the kernel."""

from __future__ import annotations

import ctypes
from struct import Struct

from mrcemu.endpoint.ports import HostPort

# linux/filter.h: BPF_LD|BPF_W|BPF_ABS of SKF_AD_OFF + SKF_AD_RANDOM, BPF_JMP|BPF_JGE|BPF_K, BPF_RET|BPF_K.
_LOAD_RANDOM = (0x20, 0, 0, 0xFFFFF000 + 56)
_JUMP_IF_AT_LEAST = 0x35
_RETURN = 0x06
_ACCEPT_ALL = 0xFFFFFFFF
_INSTRUCTION = Struct("=HBBI")


def random_drop_filter(port: HostPort, share: float) -> None:
    """Drop `share` (0 .. 1) of the frames arriving at a port before its socket sees them."""
    threshold = min(int(share * (1 << 32)), (1 << 32) - 1)
    program = b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            _LOAD_RANDOM,
            (_JUMP_IF_AT_LEAST, 1, 0, threshold),
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, _ACCEPT_ALL),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: unsigned short len, padding, pointer.
    port.attach_filter(Struct("=H6xQ").pack(4, ctypes.addressof(buffer)))
