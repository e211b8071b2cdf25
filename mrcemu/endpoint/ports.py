"""One NIC port as sockets: a data socket that says when the port is full, and a control socket that never waits.

Owns socket options and the meaning of "port has room". A data socket's send buffer holds about three frames: they stand
in the port's HTB queue, and once they do, send() answers EAGAIN. So the kernel's real queue paces the transport.
"""

from __future__ import annotations

import socket

from mrcemu.endpoint.rxring import ReceiveRing
from mrcemu.linux.netns import inside

ETH_P_IPV6 = 0x86DD
SO_SNDBUFFORCE = 32
SO_ATTACH_FILTER = 26
PORT_QUEUE_FRAMES = 3


def skb_truesize(frame_bytes: int) -> int:
    """What the kernel charges a packet socket for one frame: whole pages and bookkeeping (Linux 6.18)."""
    pages = -(-frame_bytes // 4096)
    return pages * 4096 + 768


class BusyMeter:
    """Rate of a port while its queue never ran dry, for fidelity invariant F2.

    Between two moments at which the port was full, as many bytes left as were taken in. A gap of more than the queue's
    length between such moments ends an interval; intervals of fewer than `MIN_PACKETS` packets say too little.
    """

    MIN_PACKETS = 100

    __slots__ = (
        "_from_bytes",
        "_from_ns",
        "_full_bytes",
        "_full_ns",
        "_limit_ns",
        "_min_bytes",
        "busy_bytes",
        "busy_ns",
    )

    def __init__(self, frame_bytes: int, frame_ns: int) -> None:
        self._limit_ns = PORT_QUEUE_FRAMES * frame_ns
        self._min_bytes = self.MIN_PACKETS * frame_bytes
        self._from_ns = self._full_ns = -1
        self._from_bytes = self._full_bytes = 0
        self.busy_bytes = 0
        self.busy_ns = 0

    def full(self, now_ns: int, sent_bytes: int) -> None:
        """The port was full at `now_ns`, after `sent_bytes` had been taken in all."""
        if self._full_ns < 0 or now_ns - self._full_ns > self._limit_ns:
            self.close()
            self._from_ns, self._from_bytes = now_ns, sent_bytes
        self._full_ns, self._full_bytes = now_ns, sent_bytes

    def close(self) -> None:
        """End the interval in progress."""
        size = self._full_bytes - self._from_bytes
        if size >= self._min_bytes:
            self.busy_bytes += size
            self.busy_ns += self._full_ns - self._from_ns
        self._from_ns, self._from_bytes = self._full_ns, self._full_bytes


class HostPort:
    """Sockets of one port, opened inside the host's namespace. `full` is True after EAGAIN until a send succeeds."""

    __slots__ = (
        "_control",
        "_data",
        "busy",
        "carrier",
        "full",
        "pending",
        "plane",
        "retry_ns",
        "ring",
        "sent_bytes",
    )

    def __init__(
        self, netns_path: str, ifname: str, plane: int, *, frame_bytes: int, frame_ns: int, receive_frames: int
    ) -> None:
        """`frame_bytes`, `frame_ns`: a full data frame; `receive_frames`: at least four windows of this port."""
        self.busy = BusyMeter(frame_bytes, frame_ns)
        self.sent_bytes = 0
        self.plane = plane
        self.full = False
        self.carrier = True
        self.pending: bytes | None = None
        self.retry_ns = 0
        with inside(netns_path):
            # Bound to IPv6 only: a socket bound to all protocols would see its own frames.
            self._data = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            self._control = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.ring = ReceiveRing(self._data, frame_bytes, receive_frames)
        # The kernel doubles the value, and lets a send begin while anything below it is charged.
        budget = PORT_QUEUE_FRAMES * skb_truesize(frame_bytes) - 1
        self._data.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, budget // 2)
        self._data.bind((ifname, ETH_P_IPV6))
        self._control.bind((ifname, 0))

    def fileno(self) -> int:
        """The data socket, readable when a frame waits in its ring."""
        return self._data.fileno()

    def attach_filter(self, level_filter: bytes) -> None:
        """Put a classic BPF program (struct sock_fprog) in front of the receiving socket."""
        self._data.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, level_filter)

    def send_data(self, frame: bytes, now_ns: int) -> bool:
        """Hand one frame to the kernel; False if the port is full (the frame is kept and goes first next time)."""
        try:
            self.sent_bytes += self._data.send(frame)
        except BlockingIOError:
            self.full = True
            self.pending = frame
            self.busy.full(now_ns, self.sent_bytes)
            return False
        except OSError:  # the port is down: a cable without carrier eats frames too
            return True
        return True

    def retry(self, now_ns: int) -> bool:
        """Try the kept frame again; True if the port has room now."""
        frame, self.pending = self.pending, None
        self.full = False
        return frame is None or self.send_data(frame, now_ns)

    def send_control(self, frame: bytes) -> None:
        """Hand one control frame to the kernel; lost if its own buffer is full, as a NIC's control queue would drop."""
        try:
            self._control.send(frame)
        except OSError:
            return

    def close(self) -> None:
        self.ring.close()
        self._data.close()
        self._control.close()
