"""Carrier of a host's ports, as the kernel announces it: one rtnetlink socket per host namespace.

Owns reading RTM_NEWLINK. A send into a cable whose other end is down returns success, so these events decide.
"""

from __future__ import annotations

import socket
from struct import Struct

from mrcemu.linux.netns import inside

RTMGRP_LINK = 1
RTM_NEWLINK = 16
IFF_LOWER_UP = 0x10000
_NLMSG = Struct("=IHHII")
_IFINFO = Struct("=BxHiII")
_BUFFER_BYTES = 65536


class CarrierWatch:
    """Changes of carrier in one namespace. `ports` maps ifindex to plane."""

    def __init__(self, netns_path: str, ports: dict[int, int]) -> None:
        self._ports = ports
        with inside(netns_path):
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
        self._socket.bind((0, RTMGRP_LINK))

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> list[tuple[int, bool]]:
        """(plane, carrier) for each announcement waiting, oldest first."""
        changes: list[tuple[int, bool]] = []
        while True:
            try:
                data = self._socket.recv(_BUFFER_BYTES)
            except BlockingIOError:
                return changes
            except OSError:  # ENOBUFS: announcements were lost; the caller asks for the state instead
                return changes
            changes.extend(self._parse(data))

    def _parse(self, data: bytes) -> list[tuple[int, bool]]:
        changes = []
        at = 0
        while at + _NLMSG.size + _IFINFO.size <= len(data):
            length, kind, _, _, _ = _NLMSG.unpack_from(data, at)
            if length < _NLMSG.size:
                break
            if kind == RTM_NEWLINK:
                _, _, index, flags, _ = _IFINFO.unpack_from(data, at + _NLMSG.size)
                plane = self._ports.get(index)
                if plane is not None:
                    changes.append((plane, bool(flags & IFF_LOWER_UP)))
            at += length + 3 & ~3
        return changes

    def close(self) -> None:
        self._socket.close()


def interface_indexes(netns_path: str, ifnames: list[str]) -> dict[str, int]:
    """ifindex of each interface in a namespace; OSError if one does not exist."""
    with inside(netns_path):
        return {name: socket.if_nametoindex(name) for name in ifnames}


def has_carrier(netns_path: str, ifname: str) -> bool:
    """Carrier right now, by reading the link once."""
    request = _NLMSG.pack(_NLMSG.size + _IFINFO.size, 18, 1, 1, 0)
    with inside(netns_path):
        index = socket.if_nametoindex(ifname)
        probe = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    with probe:
        probe.send(request + _IFINFO.pack(0, 0, index, 0, 0))
        reply = probe.recv(_BUFFER_BYTES)
    _, kind, _, _, _ = _NLMSG.unpack_from(reply, 0)
    return kind == RTM_NEWLINK and bool(_IFINFO.unpack_from(reply, _NLMSG.size)[3] & IFF_LOWER_UP)
