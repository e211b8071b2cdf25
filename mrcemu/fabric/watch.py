"""One descriptor that reports every link change of one fabric.

Owns a socket in an anonymous namespace of its own, which listens to exactly the fabric's namespaces (nothing is left
behind in the host's namespace, nothing of other fabrics is heard). Refuses to act: `faults.py` heals.
Source: netlink(7), NETLINK_LISTEN_ALL_NSID; RTM_NEWNSID in rtnetlink.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from mrcemu.errors import UnfitEnvironmentError
from mrcemu.fabric import namespaces
from mrcemu.fabric.encode import IFF_UP, RTM_NEWLINK
from mrcemu.fabric.netlink import (
    NETLINK_ADD_MEMBERSHIP,
    NETLINK_LISTEN_ALL_NSID,
    SOL_NETLINK,
    NetlinkSocket,
    attr,
    attr_u32,
    message,
    split,
)

RTM_NEWNSID, NETNSA_NSID, NETNSA_FD, RTNLGRP_LINK = 88, 1, 3, 1
_ASSIGN = struct.pack("=i", -1)  # let the kernel choose the number
_IFINFO = struct.Struct("=BxHiII")


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """A port's state at the time of a change; it may have changed again since."""

    ifindex: int
    admin_up: bool


class LinkWatch:
    """Link events of the named namespaces. `fileno` becomes readable; `drain` never blocks."""

    def __init__(self, names: Iterable[str]) -> None:
        with namespaces.returning_home():
            namespaces.enter_anonymous()
            self._sock = NetlinkSocket()
        for name in names:
            fd = os.open(namespaces.path_of(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                body = b"\0\0\0\0" + attr(NETNSA_NSID, _ASSIGN) + attr_u32(NETNSA_FD, fd)
                self._sock.run_one(message(RTM_NEWNSID, 0, body))
            finally:
                os.close(fd)
        self._listen_everywhere()
        self._sock.raw.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, RTNLGRP_LINK)
        self._sock.raw.setblocking(False)

    def _listen_everywhere(self) -> None:
        try:
            self._sock.raw.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1)
        except PermissionError as error:
            raise UnfitEnvironmentError(
                "no right to watch links in other namespaces", "add CAP_NET_BROADCAST (--privileged)", error.errno
            ) from error

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def drain(self) -> list[LinkEvent] | None:
        """Everything that happened since the last call, oldest first; None if the kernel had to drop some."""
        events: list[LinkEvent] = []
        lost = False
        while True:
            try:
                data = self._sock.raw.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None if lost else events
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                lost = True
                continue
            for kind, _, _, body in split(data):
                if kind == RTM_NEWLINK:
                    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
                    events.append(LinkEvent(ifindex, bool(flags & IFF_UP)))
