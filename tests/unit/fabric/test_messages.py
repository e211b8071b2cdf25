"""Netlink messages byte by byte, against values worked out by hand from the kernel's headers. Needs no privileges."""

import struct

import pytest

from mrcemu.fabric import encode, ops, readback, tc
from mrcemu.fabric.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    attr,
    attr_text,
    attr_u32,
    attributes,
    pick,
    split,
)
from mrcemu.topology.model import Port

SPEC = ops.PortSpec(Port("p0-t0-0", "up1"), 0x1234, bytes.fromhex("024d00001234"))
PREFIX = bytes.fromhex("fcbbbbbb40010000") + bytes(8)
LIMITS = ops.QueueLimits(25_000_000, 4238, 68_000, 272_000)


def header(message):
    length, kind, flags, _, _ = struct.unpack_from("=IHHII", message)
    assert length == len(message)
    return kind, flags


@pytest.mark.parametrize("size", range(9))
def test_attributes_are_padded_and_read_back(size):
    payload = bytes(range(size))
    both = attr(3, payload) + attr_u32(5, 0xDEADBEEF)
    assert len(both) % 4 == 0
    assert attributes(both) == {3: payload, 5: struct.pack("=I", 0xDEADBEEF)}


def test_picking_gives_the_same_as_reading_all():
    data = b"head" + attr(3, b"abc") + attr(4, b"") + attr(9 | 0x8000, b"nested") + attr_u32(5, 7)
    assert attributes(data, 4) == {3: b"abc", 4: b"", 9: b"nested", 5: struct.pack("=I", 7)}
    for wanted in ((3,), (5, 9), (4, 3), (77,), ()):
        everything = attributes(data, 4)
        assert pick(data, 4, wanted) == {kind: everything[kind] for kind in wanted if kind in everything}


def test_text_ends_in_a_zero():
    assert attr_text(3, "up1") == struct.pack("=HH", 8, 3) + b"up1\0"


@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\x00\x00\x00\x00", b"\x03\x00\x01\x00", b"\xff\xff\x01\x00ab"])
def test_malformed_attributes_neither_raise_nor_hang(garbage):
    assert isinstance(attributes(garbage), dict)


def test_a_datagram_of_two_messages_is_split():
    one, two = encode.link_flags(7, True), encode.link_flags(8, False)
    bodies = [body for _, _, _, body in split(one + two)]
    assert [readback.link_state(body).ifindex for body in bodies] == [7, 8]
    assert [readback.link_state(body).admin_up for body in bodies] == [True, False]


def test_the_own_sid_is_a_local_route_on_lo_with_next_csid():
    [message] = encode.encode(ops.AddSidRoute("p0-t0-0", PREFIX))
    assert header(message) == (24, 1 | NLM_F_CREATE | NLM_F_EXCL)
    route = readback.route(message[16:])
    assert (route.table, route.kind, route.prefix_bits, route.ifindex) == (255, 2, 48, 1)
    assert route.prefix == PREFIX
    assert attributes(route.flavour) == {1: struct.pack("=I", 1 << 4), 2: b"\x20", 3: b"\x10"}


def test_a_route_goes_through_the_stand_in_neighbour_of_its_port():
    [message] = encode.encode(ops.AddRoute(SPEC, PREFIX))
    route = readback.route(message[16:])
    assert (route.table, route.kind, route.ifindex, route.flavour) == (254, 1, 0x1234, b"")
    assert route.gateway == bytes.fromhex("fe80") + bytes(13) + b"\x01"


def test_a_neighbour_is_permanent():
    [message] = encode.encode(ops.AddNeighbour(SPEC, b"\x02MAC42"))
    found = readback.neighbour(message[16:])
    assert (found.ifindex, found.mac, found.state) == (0x1234, b"\x02MAC42", 0x80)


def test_a_nexthop_joins_what_is_there_and_neither_replaces_nor_refuses_it():
    for restore in (False, True):
        [message] = encode.encode(ops.AddNexthop(SPEC, PREFIX, 64), restore)
        assert header(message) == (24, 1 | NLM_F_CREATE | NLM_F_APPEND)
        route = readback.route(message[16:])
        assert (route.table, route.kind, route.prefix, route.prefix_bits, route.ifindex) == (254, 1, PREFIX, 64, 0x1234)


def test_a_blackhole_is_the_last_resort_behind_every_route_of_its_prefix():
    [message] = encode.encode(ops.AddBlackhole("p0-t0-0", PREFIX, 127))
    route = readback.route(message[16:])
    assert (route.table, route.kind, route.prefix_bits) == (254, 6, 127)
    assert attributes(message, 16 + 12)[6] == struct.pack("=I", encode.LAST_RESORT_METRIC)


def test_the_living_ports_of_a_multipath_route_are_read_in_order():
    hops = b"".join(
        struct.pack("=HBBi", 8 + 20, flags, 0, ifindex) + attr(5, bytes(16))
        for ifindex, flags in ((9, 0), (7, 0), (8, 1))  # 1: RTNH_F_DEAD
    )
    route = readback.route(struct.pack("=8BI", 10, 64, 0, 0, 254, 4, 0, 1, 0) + attr(1, PREFIX) + attr(9, hops))
    assert (route.ports, route.ifindex) == ((7, 9), 0)


@pytest.mark.parametrize("raw", [b"", b"\x08\0", bytes(8), b"\x04\0\0\0\x07\0\0\0", b"\xff\xff\0\0\x07\0\0\0"])
def test_a_malformed_multipath_route_neither_raises_nor_hangs(raw):
    assert isinstance(readback.route(bytes(12) + attr(9, raw)).ports, tuple)


@pytest.mark.parametrize(
    "operation",
    [
        ops.AddNeighbour(SPEC, SPEC.mac),
        ops.AddRoute(SPEC, PREFIX),
        ops.AddSidRoute("p0-t0-0", PREFIX),
        ops.AddHostRoute(SPEC, PREFIX, 128),
        ops.AddBlackhole("p0-t0-0", PREFIX, 128),
    ],
)
def test_building_refuses_what_exists_and_healing_replaces_it(operation):
    [building], [healing] = encode.encode(operation), encode.encode(operation, restore=True)
    assert header(building)[1] & (NLM_F_EXCL | NLM_F_REPLACE) == NLM_F_EXCL
    assert header(healing)[1] & (NLM_F_EXCL | NLM_F_REPLACE) == NLM_F_REPLACE


def test_a_veth_pair_names_both_ends_their_indexes_and_namespaces():
    other = ops.PortSpec(Port("p0-t1-1", "dn0"), 0x1235, bytes.fromhex("024d00001235"))
    message = encode.veth(ops.CreateVeth("l", SPEC, other, 9000), 11, 12)
    outer = attributes(message, 16 + 16)
    info = attributes(outer[18])
    peer = attributes(info[2])[1]
    for ends, ifindex, spec, fd in ((outer, 0x1234, SPEC, 11), (attributes(peer, 16), 0x1235, other, 12)):
        assert ends[3] == spec.port.ifname.encode() + b"\0"
        assert ends[1] == spec.mac
        assert ends[28] == struct.pack("=I", fd)
        assert ends[4] == struct.pack("=I", 9000)
        assert ends[31] == ends[32] == struct.pack("=I", 1)
        assert ifindex == spec.ifindex
    assert struct.unpack_from("=i", message, 16 + 4)[0] == 0x1234
    assert struct.unpack_from("=i", peer, 4)[0] == 0x1235


def test_what_needs_two_namespaces_is_not_encoded_for_one():
    with pytest.raises(TypeError, match="CreateNamespace"):
        encode.encode(ops.CreateNamespace("h0", "mrc-x-h0"))


def test_every_message_of_a_batch_knows_its_operation():
    operations = [ops.LinkUp(SPEC), ops.AddQueue(SPEC, LIMITS), ops.AddRoute(SPEC, PREFIX)]
    messages, owners = encode.encode_all(operations)
    assert len(messages) == len(owners) == 1 + 9 + 1
    assert [type(owner) for owner in dict.fromkeys(owners)] == [ops.LinkUp, ops.AddQueue, ops.AddRoute]


def test_classes_share_the_link_and_both_may_borrow_all_of_it():
    found = {}
    for message in tc.queue_messages(0x1234, LIMITS):
        if header(message)[0] == 40:
            item = readback.htb_class(message[16:])
            found[item.handle] = item
    link, control, data = (found[handle] for handle in (0x10001, 0x10010, 0x10020))
    assert link.rate_bytes == link.ceil_bytes == control.ceil_bytes == data.ceil_bytes == 3_125_000
    assert (control.rate_bytes, data.rate_bytes) == (3_093_750, 31_250)
    assert (control.priority, data.priority) == (0, 1)
    assert (control.parent, data.parent) == (0x10001, 0x10001)


@pytest.mark.parametrize(("size", "rate", "expected"), [(4238, 3_125_000, 21190), (1, 10**9, 1), (64, 10**9, 1)])
def test_bursts_are_times_in_64_nanosecond_ticks_rounded_up(size, rate, expected):
    assert tc.ticks(size, rate) == expected


def test_a_burst_lasts_as_long_as_its_bytes_at_each_rate():
    item = next(
        readback.htb_class(m[16:]) for m in tc.queue_messages(7, LIMITS) if header(m)[0] == 40
    )  # the link class
    assert item.burst_ticks * 64 == pytest.approx(4238 * 8 * 1e9 / 25e6, abs=64)


def test_rates_beyond_32_bits_use_the_wide_attributes():
    fast = ops.QueueLimits(80_000_000_000, 5_000_000, 1, 1)
    classes = [readback.htb_class(m[16:]) for m in tc.queue_messages(7, fast) if header(m)[0] == 40]
    assert classes[0].rate_bytes == classes[0].ceil_bytes == 10_000_000_000


def test_the_root_has_an_empty_size_table_and_sends_the_unknown_to_data():
    root = tc.queue_messages(7, LIMITS)[0]
    found = attributes(root, 16 + 20)
    base = attributes(found[8])[1]
    assert struct.unpack("=BBhiIIII", base) == (0, 0, 0, 0, 1, 0, 0, 0)
    assert struct.unpack("=5I", attributes(found[2])[2])[2] == 0x20


def test_leaves_hold_the_limits_in_bytes():
    leaves = [readback.qdisc(m[16:]) for m in tc.queue_messages(7, LIMITS)[4:6]]
    assert [(leaf.kind, leaf.parent, readback.leaf_limit_bytes(leaf)) for leaf in leaves] == [
        ("bfifo", 0x10010, 68_000), ("bfifo", 0x10020, 272_000),
    ]  # fmt: skip


def test_filters_look_at_the_six_dscp_bits_only():
    masks = set()
    for message, dscp in zip(tc.queue_messages(7, LIMITS)[6:], (46, 16, 18), strict=True):
        selector = attributes(attributes(message, 16 + 20)[2])[5]
        mask, value, offset, _ = struct.unpack_from("!IIii", selector, 16)
        masks.add(mask)
        assert value == dscp << 22
        assert offset == 0
    assert masks == {0x0FC00000}
