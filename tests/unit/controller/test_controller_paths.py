"""Which paths a QP gets from a profile of each mode, and what is left out."""

from dataclasses import replace
from errno import EINVAL, EIO

import pytest
from controller_kit import (
    EIGHT,
    LOCAL,
    OTHER,
    PROFILE,
    REMOTE,
    SRV6_FMT,
    STEV_FIELDS,
    attr,
    controller,
    online,
    online_explicit,
    refused,
    stev,
)
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.controller.controller import Controller
from mrcemu.controller.device import EvMode
from mrcemu.controller.ecmp import FIRST_SOURCE_PORT, EcmpEv, ecmp_ev, ecmp_evs, ecmp_value
from mrcemu.controller.expansion import EvField
from mrcemu.controller.formats import EvFmtMode
from mrcemu.controller.lifecycle import ProfileState
from mrcemu.controller.paths import auto_evs, auto_uplinks, ev_naming, path_named
from mrcemu.controller.profiles import EvProfileAttr
from mrcemu.controller.values import Ev, EvState
from mrcemu.topology.addressing import all_paths, path_for_ev, usid
from mrcemu.topology.model import Tier


@pytest.mark.parametrize("dst", [LOCAL, REMOTE])
def test_auto_mode_gives_every_distinct_path(dst):
    made = controller()
    online(made, EvMode.AUTO)
    binding = made.attach_qp(PROFILE, 1, dst)
    assert set(binding.paths) == set(all_paths(EIGHT, 0, dst))
    assert len(binding.paths) == (8 if dst == LOCAL else 32)
    assert binding.refused == ()


@pytest.mark.parametrize("planes", [3, 8, 16])
def test_on_a_wide_fabric_auto_mode_gives_planes_equal_shares_within_256(planes):
    wide = replace(EIGHT, planes=planes, t1_per_plane=100)
    used = set()
    for host in range(wide.host_count - 4):  # all towards a host on another T0
        made = Controller(wide, host)
        online(made, EvMode.AUTO)
        for dst in (wide.host_count - 1, host ^ 1):
            binding = made.attach_qp(PROFILE, dst, dst)
            shares = [sum(path.plane == plane for path in binding.paths) for plane in range(planes)]
            assert len(set(shares)) == 1
            assert shares[0] >= 1
            used |= {path.uplink for path in binding.paths}
        assert len(made.query_ev_array(PROFILE)) <= 256
    assert used == set(range(100))  # hosts together leave no uplink idle


def test_auto_uplinks_are_all_where_they_fit():
    assert auto_uplinks(replace(EIGHT, t1_per_plane=32), 5) == tuple(range(32))
    assert len(auto_evs(replace(EIGHT, t1_per_plane=32), 5)) == 256


def test_explicit_mode_gives_what_is_listed_in_that_order():
    made = controller()
    online_explicit(made, stev(3, 2), stev(0, 1), stev(7, 0))
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert binding.paths == tuple(path_for_ev(EIGHT, 0, REMOTE, ev) for ev in (0x23, 0x10, 0x07))
    assert binding.ev_of[0x23] == stev(3, 2)


def test_what_names_no_path_is_left_out_with_the_reason():
    made = controller()
    wrong_port = Ev(stev(1, 1).value, 5)
    no_uplink, no_plane = stev(2, 4), Ev.of(b"\0\0\0\x09", 1)
    online_explicit(made, stev(0, 0), no_uplink, wrong_port, no_plane, stev(0, 0), min_active=4)
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert [path.ev for path in binding.paths] == [0]
    assert [refusal.ev for refusal in binding.refused] == [no_uplink, wrong_port, no_plane, stev(0, 0)]
    assert ["no path" in reason or "port 5" in reason or "again" in reason for reason in reasons(binding)] == [True] * 4
    assert binding.min_active == 1  # never more than there are


def reasons(binding):
    return [refusal.reason for refusal in binding.refused]


def test_a_profile_without_a_path_to_the_destination_is_an_error():
    made = controller()
    online_explicit(made, stev(0, 1))
    with refused(EIO, "profile"):
        made.attach_qp(PROFILE, 1, LOCAL)  # inside a T0 there is uplink 0 only
    made.attach_qp(PROFILE, 1, REMOTE)  # and the failed attempt left nothing behind


def test_generated_evs_are_the_paths_their_fields_describe():
    made = controller()
    online(made, EvMode.GENERATED, count=20)
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert [(path.plane, path.uplink) for path in binding.paths] == [(i % 8, i // 8) for i in range(20)]
    assert binding.refused == ()


def test_generated_evs_beyond_the_fabric_are_counted_not_used():
    made = controller()
    too_wide = (STEV_FIELDS[0], EvField(16, 0, 0, 7, 0x7), EvField(4, 0, 0, 15, 0xF))
    online(made, EvMode.GENERATED, count=128, fields=too_wide)
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert set(binding.paths) == set(all_paths(EIGHT, 0, REMOTE))
    assert len(binding.refused) == 96


def test_an_srv6_profile_serves_each_destination_its_own_addresses():
    made = controller()
    paths = [*all_paths(EIGHT, 0, REMOTE)[:5], *all_paths(EIGHT, 0, OTHER)[3:6], *all_paths(EIGHT, 0, LOCAL)[:2]]
    online_explicit(made, *(ev_naming(path, EvFmtMode.SRV6) for path in paths), fmt_id=SRV6_FMT)
    assert made.attach_qp(PROFILE, 1, REMOTE).paths == tuple(paths[:5])
    assert made.attach_qp(PROFILE, 2, OTHER).paths == tuple(paths[5:8])
    binding = made.attach_qp(PROFILE, 3, LOCAL)
    assert binding.paths == tuple(paths[8:])
    assert "does not lead from h0 to h1" in binding.refused[0].reason


def test_srv6_fields_generate_the_uplinks_of_one_plane():
    made = controller()
    plane = 5
    fields = (
        EvField(32, 0xFCBBBBBB),
        EvField(16, usid(Tier.T0, plane, 0)),
        EvField(16, usid(Tier.T1, plane, 0), 0, 3, 0x3),
        EvField(16, usid(Tier.T0, plane, 3)),
        EvField(16, usid(Tier.HOST, plane, 3)),
    )
    online(made, EvMode.GENERATED, fmt_id=SRV6_FMT, fields=fields, count=4)
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert [path.uplink for path in binding.paths] == [0, 1, 2, 3]
    assert {path.plane for path in binding.paths} == {plane}
    assert {ev.port for ev, _ in made.query_ev_array(PROFILE)} == {plane + 1}


@pytest.mark.parametrize("mode", [EvFmtMode.STEV, EvFmtMode.SRV6])
@given(src=st.integers(0, 15), dst=st.integers(0, 15), pick=st.integers(0, 31))
def test_the_ev_of_a_path_names_that_path(mode, src, dst, pick):
    paths = all_paths(EIGHT, src, dst)
    path = paths[pick % len(paths)]
    ev = ev_naming(path, mode)
    assert path_named(EIGHT, src, dst, mode, ev.value, ev.port) == path


@given(value=st.binary(min_size=32, max_size=32), mode=st.sampled_from(EvFmtMode), port=st.integers(0, 255))
def test_any_bytes_name_a_path_of_theirs_or_are_refused_as_a_value(value, mode, port):
    try:
        path = path_named(EIGHT, 0, REMOTE, mode, value, port)
    except ValueError:
        return
    assert ev_naming(path, mode) == Ev(value, port)


def test_a_segment_behind_the_address_is_refused():
    path = all_paths(EIGHT, 0, REMOTE)[0]
    with pytest.raises(ValueError, match="segment routing"):
        path_named(EIGHT, 0, REMOTE, EvFmtMode.SRV6, path.destination + bytes(15) + b"\1", 1)


def test_a_profile_that_is_not_online_gives_nothing():
    made = controller()
    with refused(EINVAL, "profile"):
        made.attach_qp(77, 1, REMOTE)
    made.modify_ev_profile(PROFILE, attr(EvMode.AUTO), ProfileState.OFFLINE)
    with refused(EINVAL, "profile"):
        made.attach_qp(PROFILE, 1, REMOTE)


def test_a_qp_has_one_profile_at_a_time():
    made = controller()
    online(made, EvMode.AUTO)
    made.attach_qp(PROFILE, 1, REMOTE)
    with refused(EINVAL, "qpn"):
        made.attach_qp(PROFILE, 1, LOCAL)
    made.detach_qp(1)
    made.detach_qp(1)  # harmless
    made.attach_qp(PROFILE, 1, LOCAL)


def test_a_qp_starts_with_the_evs_denied_before_it_came():
    made = controller()
    online(made, EvMode.AUTO)
    made.modify_ev_state(PROFILE, [(stev(4, 1), EvState.DENIED)])
    assert made.attach_qp(PROFILE, 1, REMOTE).denied == {0x14}


def test_profiles_keep_their_paths_through_a_new_count():
    made = controller()
    online(made, EvMode.GENERATED, count=8)
    made.modify_ev_profile(PROFILE, EvProfileAttr(), ProfileState.OFFLINE)
    made.modify_ev_profile(PROFILE, EvProfileAttr(count=16), ProfileState.ONLINE)
    assert len(made.attach_qp(PROFILE, 1, REMOTE).paths) == 16


# -- ECMP values ------------------------------------------------------------------------------------------------------


def test_ecmp_evs_are_spread_over_planes_and_never_repeat():
    evs = list(ecmp_evs(64, 8))
    assert len(set(evs)) == 64
    entropies = [ecmp_ev(ev, 8) for ev in evs]
    assert {entropy.plane for entropy in entropies[:8]} == set(range(8))
    assert {entropy.udp_source_port for entropy in entropies} == set(range(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + 8))


@given(st.integers(0, 0xFFFF), st.integers(0, 7))
def test_an_ecmp_ev_is_its_source_port_and_plane(udp_source_port, plane):
    entropy = EcmpEv(udp_source_port, plane)
    assert ecmp_ev(ecmp_value(entropy), 8) == entropy


@pytest.mark.parametrize("ev", [Ev.of(b"\xc0\0\1", 1), Ev.of(b"\xc0\0", 0), Ev.of(b"\xc0\0", 9)])
def test_more_than_16_bits_or_no_port_is_no_ecmp_ev(ev):
    with refused(EINVAL):
        ecmp_ev(ev, 8)


def test_ecmp_values_end_with_the_source_ports():
    with refused(EINVAL, "count"):
        list(ecmp_evs(0x4000 * 2 + 1, 2))
    with refused(EINVAL, "udp source port"):
        ecmp_value(EcmpEv(0x10000, 0))
