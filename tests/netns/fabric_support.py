"""Hand-made frames and packet sockets for the fabric tests; nothing of the product's own wire code is used."""

import os
import select
import socket
import struct
import time
from contextlib import contextmanager
from ipaddress import IPv6Address

from mrcemu.linux.netns import inside
from mrcemu.topology.addressing import destination_bytes
from mrcemu.topology.model import Topology

RATE = 25_000_000
TINY = Topology("tiny", 2, 2, 2, 2, RATE, RATE, 4000, 4096)
SMALLEST = Topology("smallest", 1, 1, 1, 1, RATE, RATE, 4000, 4096)
EIGHT = Topology("eight", 8, 4, 4, 4, RATE, RATE, 4000, 4096)
# A source that no switch routes, so that no ICMP error finds its way.
OUTER_SOURCE = IPv6Address("fd4d:5243:ffff::1").packed
INNER_SOURCE = IPv6Address("fd4d:5243::1").packed
INNER_DESTINATION = IPv6Address("fd4d:5243::2").packed
HOP_LIMIT = 64


def fabric_name(what):
    """A name of this process's own, so that runs beside each other do not meet."""
    return f"{what}{os.getpid()}"


def ipv6(next_header, payload, source, destination, traffic_class=0, flow_label=0):
    first = 6 << 28 | traffic_class << 20 | flow_label
    return struct.pack("!IHBB", first, len(payload), next_header, HOP_LIMIT) + source + destination + payload


def frame(net, host, plane, destination, mark, *, size=0, traffic_class=0, flow_label=0):
    """Ethernet, outer IPv6 to `destination`, inner IPv6, UDP holding `mark`; `size` is that of the whole frame."""
    padding = b"\0" * max(0, size - 14 - 40 - 40 - 8 - len(mark))
    udp = struct.pack("!HHHH", 1000, 4791, 8 + len(mark) + len(padding), 0) + mark + padding
    inner = ipv6(17, udp, INNER_SOURCE, INNER_DESTINATION)
    outer = ipv6(41, inner, OUTER_SOURCE, destination, traffic_class, flow_label)
    link = net.topology.nic_link(host, plane)
    return net.port_mac(link.upper) + net.port_mac(link.lower) + b"\x86\xdd" + outer


def uncompressed(topology, *usids):
    """An outer destination holding any list of uSIDs."""
    return destination_bytes(topology, usids)


@contextmanager
def packet_socket(net, node, ifname):
    """A packet socket on one port, IPv6 only."""
    with inside(net.netns_path(node)):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(0x86DD))
    try:
        sock.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
        sock.bind((ifname, 0x86DD))
        yield sock
    finally:
        sock.close()


@contextmanager
def host_ports(net):
    """{(host, plane): socket} for all NIC ports."""
    sockets, holders = {}, []
    try:
        for host in range(net.topology.host_count):
            for plane in range(net.topology.planes):
                holder = packet_socket(net, f"h{host}", f"p{plane}")
                sockets[host, plane] = holder.__enter__()
                holders.append(holder)
        yield sockets
    finally:
        for holder in holders:
            holder.__exit__(None, None, None)


def send(sockets, net, host, plane, destination, mark, **options):
    sockets[host, plane].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # ENETDOWN, once, after the port itself fell
    sockets[host, plane].send(frame(net, host, plane, destination, mark, **options))


def received(sockets, mark, wait_s=0.05, at_least=1):
    """[((host, plane), frame)] of every frame holding `mark`; listens for `wait_s` more after the `at_least`-th."""
    found, by_fd = [], {sock.fileno(): key for key, sock in sockets.items()}
    deadline = time.monotonic() + max(wait_s, 1.0 if at_least else 0)
    while (left := deadline - time.monotonic()) > 0:
        for sock in select.select(list(sockets.values()), [], [], left)[0]:
            data, address = sock.recvfrom(65536)
            if mark in data and address[2] != socket.PACKET_OUTGOING:
                found.append((by_fd[sock.fileno()], data))
                if len(found) == at_least:
                    deadline = time.monotonic() + wait_s
    return found


def wait_until(condition, timeout_s=5.0):
    """Poll a condition; returns its last value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value
