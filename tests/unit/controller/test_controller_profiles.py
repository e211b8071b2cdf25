"""The life of EV profiles, what each step needs, and the operations on entries."""

from dataclasses import replace
from errno import E2BIG, EBUSY, EINVAL, ENOENT, EPERM

import pytest
from controller_kit import (
    EIGHT,
    INIT,
    OFFLINE,
    ONLINE,
    PROFILE,
    REMOTE,
    STEV_FIELDS,
    STEV_FMT,
    attr,
    controller,
    online,
    online_explicit,
    refused,
    stev,
)

from mrcemu.controller.controller import Controller
from mrcemu.controller.device import EvMode, OptCap, device_of
from mrcemu.controller.entries import EvReplacement
from mrcemu.controller.expansion import EvField
from mrcemu.controller.formats import EvFmtMode
from mrcemu.controller.lifecycle import EV_PROFILE_TABLE, MOVES, Command, ProfileState
from mrcemu.controller.profiles import EvProfileAttr
from mrcemu.controller.values import EV_UNPOPULATED, Ev, EvState

A, B, C = stev(0, 0), stev(1, 0), stev(2, 3)
NOTHING = EvProfileAttr()


@pytest.mark.parametrize("mode", EvMode)
def test_every_mode_goes_through_the_whole_life(mode):
    made = controller()
    if mode is EvMode.EXPLICIT:
        online_explicit(made, A, B)
    else:
        online(made, mode)
    assert made.query_ev_profile(PROFILE).state is ONLINE
    made.modify_ev_profile(PROFILE, NOTHING, OFFLINE)
    made.modify_ev_profile(PROFILE, NOTHING, INIT)
    info = made.query_ev_profile(PROFILE)
    assert (info.state, info.attr, info.count) == (INIT, NOTHING, 0)


def test_the_table_moves_only_along_the_documented_life():
    moves = {(at, step.next) for (at, _), step in EV_PROFILE_TABLE.items() if step.next is not at}
    assert moves == {(INIT, OFFLINE), (OFFLINE, ONLINE), (ONLINE, OFFLINE), (OFFLINE, INIT)}


@pytest.mark.parametrize("start", ProfileState)
@pytest.mark.parametrize("target", ProfileState)
def test_a_move_outside_the_life_is_refused(start, target):
    made = controller()
    if start is not INIT:
        made.modify_ev_profile(PROFILE, attr(EvMode.AUTO), OFFLINE)
    if start is ONLINE:
        made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    if (start, MOVES[target]) in EV_PROFILE_TABLE:
        made.modify_ev_profile(PROFILE, attr(EvMode.AUTO) if start is INIT else NOTHING, target)
        assert made.query_ev_profile(PROFILE).state is target
    else:
        with refused(EINVAL, f"state {target.name}"):
            made.modify_ev_profile(PROFILE, NOTHING, target)
        assert made.query_ev_profile(PROFILE).state is start


@pytest.mark.parametrize("missing", ["mode", "fmt_id", "count", "fields"])
def test_offline_needs_mode_format_count_and_fields(missing):
    made = controller()
    with refused(EINVAL, "state OFFLINE"):
        made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED, **{missing: None}), OFFLINE)
    assert made.query_ev_profile(PROFILE).state is INIT


@pytest.mark.parametrize("missing", ["min_active", "event_mask"])
@pytest.mark.parametrize("mode", [EvMode.AUTO, EvMode.GENERATED])
def test_online_needs_a_floor_and_an_event_mask(missing, mode):
    made = controller()
    made.modify_ev_profile(PROFILE, attr(mode, **{missing: None}), OFFLINE)
    with refused(EINVAL, "state ONLINE"):
        made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    made.modify_ev_profile(PROFILE, EvProfileAttr(min_active=0, event_mask=EvState(0)), ONLINE)


def test_attributes_may_be_given_before_the_move_that_needs_them():
    made = controller()
    made.modify_ev_profile(PROFILE, EvProfileAttr(mode=EvMode.GENERATED, fmt_id=STEV_FMT))
    made.modify_ev_profile(PROFILE, EvProfileAttr(count=8, fields=STEV_FIELDS), OFFLINE)
    assert made.query_ev_profile(PROFILE).count == 8


def test_a_format_that_does_not_exist_or_is_not_online_is_not_enough():
    made = Controller(EIGHT, 0)
    with refused(EINVAL, "state OFFLINE"):
        made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED), OFFLINE)
    made.modify_ev_fmt_profile(STEV_FMT, state=OFFLINE, mode=EvFmtMode.STEV, fields=(12, 16, 4))
    made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED), OFFLINE)
    with refused(EINVAL, "state ONLINE"):
        made.modify_ev_profile(PROFILE, NOTHING, ONLINE)


def test_a_profile_cannot_go_online_over_a_format_that_no_longer_fits():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED), OFFLINE)
    made.modify_ev_fmt_profile(STEV_FMT, state=OFFLINE)
    made.modify_ev_fmt_profile(STEV_FMT, state=ONLINE, fields=(12, 8, 4))
    with refused(E2BIG, "field widths"):
        made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    made.modify_ev_profile(PROFILE, NOTHING, INIT)  # the way out stays open


@pytest.mark.parametrize(
    ("changes", "errno", "key"),
    [
        ({"count": 0}, EINVAL, "count"),
        ({"count": 257}, E2BIG, "count"),
        ({"count": 33}, EINVAL, "count"),  # the fields allow 32
        ({"count": 4, "min_active": 5}, EINVAL, "min_active"),
        ({"min_active": -1}, EINVAL, "min_active"),
        ({"event_mask": EvState.DENIED}, EINVAL, "event_mask"),
        ({"event_mask": EvState.GOOD | EvState.UNKNOWN}, EINVAL, "event_mask"),
        ({"mode": EvMode.AUTO | EvMode.GENERATED}, EINVAL, "mode"),
        ({"mode": EvMode(0)}, EINVAL, "mode"),
        ({"mode": EvMode.AUTO}, EINVAL, "mode"),  # AUTO has no format and no fields
        ({"fields": (EvField(12), EvField(16, 0, 0, 4, 3))}, EINVAL, "field 1 max_val"),
    ],
)
def test_impossible_attributes_are_refused_by_name_and_change_nothing(changes, errno, key):
    made = controller()
    with refused(errno, key):
        made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED, **changes), OFFLINE)
    assert made.query_ev_profile(PROFILE).attr == NOTHING
    assert made.query_device().ev.free_count == made.query_device().ev.max_count


def test_an_unused_attribute_keeps_its_value_when_another_is_refused():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED), OFFLINE)
    with refused(EINVAL, "min_active"):
        made.modify_ev_profile(PROFILE, EvProfileAttr(count=2, min_active=3), ONLINE)
    info = made.query_ev_profile(PROFILE)
    assert (info.state, info.count, info.attr.min_active) == (OFFLINE, 32, 1)


def test_counts_follow_the_alignment_of_the_device():
    device = device_of(8)
    made = controller(device=replace(device, ev=replace(device.ev, count_align=8)))
    with refused(EINVAL, "count"):
        made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED, count=12), OFFLINE)
    made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED, count=16), OFFLINE)


def test_evs_of_the_device_run_out_and_come_back():
    device = device_of(8)
    made = controller(device=replace(device, ev=replace(device.ev, max_count=40)))
    made.modify_ev_profile(1, attr(EvMode.GENERATED), OFFLINE)
    assert made.query_device().ev.free_count == 8
    with refused(E2BIG, "count"):
        made.modify_ev_profile(2, attr(EvMode.EXPLICIT, count=9), OFFLINE)
    made.modify_ev_profile(1, EvProfileAttr(count=31))
    made.modify_ev_profile(2, attr(EvMode.EXPLICIT, count=9), OFFLINE)
    made.modify_ev_profile(1, NOTHING, INIT)
    assert made.query_device().ev.free_count == 31


@pytest.mark.parametrize("profile_id", [-1, 1 << 64, "1"])
def test_ids_are_64_bits(profile_id):
    with refused(EINVAL, "profile_id"):
        controller().modify_ev_profile(profile_id, NOTHING)


# -- ONLINE -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"mode": EvMode.AUTO}, {"fmt_id": 14}, {"count": 2}, {"min_active": 2}, {"event_mask": EvState.GOOD}]
)
def test_an_online_profile_cannot_be_changed(change):
    made = controller()
    online(made, EvMode.GENERATED)
    with refused(EINVAL):
        made.modify_ev_profile(PROFILE, EvProfileAttr(**change), OFFLINE)
    assert made.query_ev_profile(PROFILE).state is ONLINE


def test_a_device_that_can_modify_online_changes_mask_fields_and_evs_but_not_the_count():
    device = device_of(8)
    made = controller(device=replace(device, opt_attr=device.opt_attr | OptCap.EV_PROFILE_MODIFY_ONLINE))
    online(made, EvMode.GENERATED)
    one_plane = (*STEV_FIELDS[:2], EvField(4, 2))
    with refused(EINVAL, "count"):  # four EVs are left of 32
        made.modify_ev_profile(PROFILE, EvProfileAttr(fields=one_plane))
    other_planes = (*STEV_FIELDS[:2], EvField(4, 8, 0, 7, 7))
    made.modify_ev_profile(PROFILE, EvProfileAttr(event_mask=EvState.GOOD, fields=other_planes))
    assert made.query_ev_profile(PROFILE).attr.fields == other_planes
    with refused(EINVAL, "count"):
        made.modify_ev_profile(PROFILE, EvProfileAttr(count=2))
    online_explicit(made, A, B, profile_id=2)
    made.replace_ev(2, [EvReplacement(A, C)])
    assert [ev for ev, _ in made.query_ev_array(2)] == [C, B]
    with refused(EINVAL, "state ONLINE"):  # new fields would empty it
        made.modify_ev_profile(2, EvProfileAttr(fields=STEV_FIELDS))
    assert [ev for ev, _ in made.query_ev_array(2)] == [C, B]


def test_without_that_capability_an_online_ev_cannot_be_replaced():
    made = controller()
    online_explicit(made, A, B)
    with refused(EINVAL, "replace_ev"):
        made.replace_ev(PROFILE, [EvReplacement(A, C)])


def test_a_profile_in_use_stays_online():
    made = controller()
    online(made, EvMode.AUTO)
    made.attach_qp(PROFILE, 7, REMOTE)
    with refused(EBUSY, "state OFFLINE"):
        made.modify_ev_profile(PROFILE, NOTHING, OFFLINE)
    assert made.query_ev_profile(PROFILE).qpns == (7,)
    made.detach_qp(7)
    made.modify_ev_profile(PROFILE, NOTHING, OFFLINE)


# -- entries ----------------------------------------------------------------------------------------------------------


def test_an_explicit_profile_starts_unpopulated_and_must_be_filled():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.EXPLICIT, count=3), OFFLINE)
    assert made.query_ev_array(PROFILE) == ((EV_UNPOPULATED, EvState.UNKNOWN),) * 3
    made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, A), EvReplacement(EV_UNPOPULATED, B, EvState.DENIED)])
    with refused(EINVAL, "state ONLINE"):
        made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, C)])
    made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    assert made.query_ev_array(PROFILE) == ((A, EvState.GOOD), (B, EvState.DENIED), (C, EvState.GOOD))
    with refused(ENOENT, "ev"):
        made.query_ev_state(PROFILE, [EV_UNPOPULATED])


def test_a_change_of_count_empties_an_explicit_profile_even_on_its_way_online():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.EXPLICIT, count=1), OFFLINE)
    made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, A)])
    with refused(EINVAL, "state ONLINE"):
        made.modify_ev_profile(PROFILE, EvProfileAttr(count=2), ONLINE)
    made.modify_ev_profile(PROFILE, EvProfileAttr(count=2))
    assert made.query_ev_array(PROFILE) == ((EV_UNPOPULATED, EvState.UNKNOWN),) * 2


@pytest.mark.parametrize(("all_copies", "left"), [(False, [C, A, B]), (True, [C, C, B])])
def test_one_copy_or_all_copies_of_an_ev_are_replaced(all_copies, left):
    made = controller()
    online_explicit(made, A, A, B)
    made.modify_ev_profile(PROFILE, NOTHING, OFFLINE)
    made.replace_ev(PROFILE, [EvReplacement(A, C, all_copies=all_copies)])
    assert [ev for ev, _ in made.query_ev_array(PROFILE)] == left
    if all_copies:
        with refused(ENOENT, "ev"):
            made.query_ev_state(PROFILE, [A])


def test_entries_before_the_first_refused_one_stay_replaced():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.EXPLICIT, count=3), OFFLINE)
    with refused(ENOENT, "ev"):
        made.replace_ev(
            PROFILE,
            [EvReplacement(EV_UNPOPULATED, A), EvReplacement(C, B), EvReplacement(EV_UNPOPULATED, B)],
        )
    assert [ev for ev, _ in made.query_ev_array(PROFILE)] == [A, EV_UNPOPULATED, EV_UNPOPULATED]


@pytest.mark.parametrize(
    ("ev", "key"),
    [
        (EV_UNPOPULATED, "port"),
        (Ev.of(b"\0\0\0\1", 9), "port"),
        (Ev.of(b"\0\0\0\1\1", 1), "value"),  # STEV has 32 bits
        (Ev(b"\0\0\0\1", 1), "value"),  # not 32 bytes
    ],
)
def test_an_ev_that_the_format_or_the_nic_cannot_hold_is_refused(ev, key):
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.EXPLICIT), OFFLINE)
    with refused(EINVAL, key):
        made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, ev)])


def test_an_explicit_profile_with_fields_takes_compact_values():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.EXPLICIT, fields=STEV_FIELDS), OFFLINE)
    with refused(EINVAL, "value"):  # five bits are taken
        made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, Ev.of(b"\xfc", 8))])
    made.replace_ev(PROFILE, [EvReplacement(EV_UNPOPULATED, Ev.of(b"\xf8", 8), all_copies=True)])
    made.modify_ev_profile(PROFILE, NOTHING, ONLINE)
    binding = made.attach_qp(PROFILE, 1, REMOTE)
    assert [path.ev for path in binding.paths] == [0x37]


def test_only_explicit_evs_are_replaced():
    made = controller()
    made.modify_ev_profile(PROFILE, attr(EvMode.GENERATED), OFFLINE)
    with refused(EINVAL, "replace_ev"):
        made.replace_ev(PROFILE, [EvReplacement(made.query_ev_array(PROFILE)[0][0], C)])


@pytest.mark.parametrize("state", [EvState.ASSUMED_BAD, EvState.UNKNOWN, EvState(0), EvState.GOOD | EvState.DENIED, 3])
def test_a_controller_sets_good_or_denied_and_nothing_else(state):
    made = controller()
    online_explicit(made, A)
    with refused(EINVAL, "state"):
        made.modify_ev_state(PROFILE, [(A, state)])
    made.modify_ev_profile(PROFILE, NOTHING, OFFLINE)
    with refused(EINVAL, "state"):
        made.replace_ev(PROFILE, [EvReplacement(A, B, state)])
    assert made.query_ev_array(PROFILE) == ((A, EvState.GOOD),)


def test_an_ev_that_is_not_listed_is_not_found():
    made = controller()
    online_explicit(made, A)
    for wrong in (B, Ev(A.value, 2), EV_UNPOPULATED):
        with refused(ENOENT, "ev"):
            made.modify_ev_state(PROFILE, [(wrong, EvState.DENIED)])
        with refused(ENOENT, "ev"):
            made.query_ev_state(PROFILE, [A, wrong])


@pytest.mark.parametrize("command", [Command.REPLACE_EV, Command.MODIFY_EV_STATE, Command.QUERY_EV_ARRAY])
def test_a_profile_in_init_has_no_entries_to_work_on(command):
    calls = {
        Command.REPLACE_EV: lambda made: made.replace_ev(5, [EvReplacement(EV_UNPOPULATED, A)]),
        Command.MODIFY_EV_STATE: lambda made: made.modify_ev_state(5, [(A, EvState.DENIED)]),
        Command.QUERY_EV_ARRAY: lambda made: made.query_ev_array(5),
    }
    with refused(EINVAL, command.value):
        calls[command](controller())


# -- the device -------------------------------------------------------------------------------------------------------


def test_the_device_lists_what_exists():
    device = controller().query_device()
    assert device.phy_port_mask == 0b1_1111_1110
    assert device.cc.algorithms == ("mrcemu-fixed-window",)
    assert EvFmtMode.UDP not in device.ev.fmt_mode_mask
    assert OptCap.EV_PROFILE_MODIFY_ONLINE not in device.opt_attr
    assert OptCap.EV_EVENT | OptCap.EV_EVENT_PRECISE_DROP_CNT in device.opt_attr


def test_an_unprivileged_caller_may_do_nothing():
    made = Controller(EIGHT, 0, privileged=False)
    calls = (
        made.query_device,
        lambda: made.modify_ev_fmt_profile(1, mode=EvFmtMode.STEV),
        lambda: made.query_ev_fmt_profile(1),
        lambda: made.modify_ev_profile(1, attr(EvMode.AUTO), OFFLINE),
        lambda: made.query_ev_profile(1),
        lambda: made.replace_ev(1, []),
        lambda: made.modify_ev_state(1, []),
        lambda: made.query_ev_state(1, []),
        lambda: made.query_ev_array(1),
        lambda: made.poll_ev_event(1),
    )
    for call in calls:
        with refused(EPERM):
            call()
