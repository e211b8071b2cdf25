"""Format profiles: ceilings, modes the device offers, life."""

from errno import E2BIG, EBUSY, EINVAL

import pytest
from controller_kit import INIT, OFFLINE, ONLINE, STEV_FMT, controller, online, refused

from mrcemu.controller.device import EvMode
from mrcemu.controller.formats import EvFmtMode, EvFormat
from mrcemu.controller.profiles import EvProfileAttr


@pytest.mark.parametrize(("mode", "ceiling"), [(EvFmtMode.UDP, 16), (EvFmtMode.STEV, 32), (EvFmtMode.SRV6, 256)])
def test_fields_fill_a_format_up_to_its_ceiling_and_no_further(mode, ceiling):
    half = ceiling // 2
    assert EvFormat(mode, (half, half)).total_bits == ceiling
    with refused(E2BIG, "bits in all"):
        EvFormat(mode, (half, half, 1))


@pytest.mark.parametrize("widths", [(), (0,), (-1, 8), (256,), (8, True)])
def test_a_format_needs_fields_of_one_to_255_bits(widths):
    with refused(EINVAL, "format field"):
        EvFormat(EvFmtMode.SRV6, widths)


def test_two_modes_at_once_are_none():
    with refused(EINVAL, "mode"):
        EvFormat(EvFmtMode.STEV | EvFmtMode.UDP, (8,))


def test_a_format_goes_through_its_life_and_is_forgotten_at_the_end():
    made = controller()
    made.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFmtMode.STEV)
    with refused(EINVAL, "state ONLINE"):  # fields are still missing
        made.modify_ev_fmt_profile(1, state=ONLINE)
    made.modify_ev_fmt_profile(1, state=ONLINE, fields=(16, 16))
    info = made.query_ev_fmt_profile(1)
    assert (info.state, info.mode, info.fields) == (ONLINE, EvFmtMode.STEV, (16, 16))
    with refused(EINVAL, "state INIT"):
        made.modify_ev_fmt_profile(1, state=INIT)
    made.modify_ev_fmt_profile(1, state=OFFLINE)
    made.modify_ev_fmt_profile(1, state=INIT)
    info = made.query_ev_fmt_profile(1)
    assert (info.state, info.mode, info.fields) == (INIT, None, ())


@pytest.mark.parametrize("change", [{"mode": EvFmtMode.SRV6}, {"fields": (8,)}, {"state": ONLINE}])
def test_an_online_format_cannot_be_changed(change):
    with refused(EINVAL):
        controller().modify_ev_fmt_profile(STEV_FMT, **change)


def test_a_format_is_busy_while_an_ev_profile_is_online():
    made = controller()
    online(made, EvMode.GENERATED)
    with refused(EBUSY):
        made.modify_ev_fmt_profile(STEV_FMT, state=OFFLINE)
    made.modify_ev_profile(1, EvProfileAttr(), OFFLINE)
    made.modify_ev_fmt_profile(STEV_FMT, state=OFFLINE)


def test_modes_and_widths_that_nothing_here_sends_are_not_offered():
    made = controller()
    with refused(EINVAL, "mode"):
        made.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFmtMode.UDP)
    with refused(E2BIG, "bits in all"):  # a segment routing header
        made.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFmtMode.SRV6, fields=(128, 128))


def test_a_refused_call_changes_nothing():
    made = controller()
    made.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFmtMode.STEV, fields=(16, 16))
    with refused(E2BIG):
        made.modify_ev_fmt_profile(1, fields=(16, 17), state=ONLINE)
    with refused(E2BIG):  # 96 bits are too many for the new mode
        made.modify_ev_fmt_profile(1, mode=EvFmtMode.STEV, fields=(96,))
    info = made.query_ev_fmt_profile(1)
    assert (info.state, info.fields) == (OFFLINE, (16, 16))


def test_the_device_holds_only_so_many_formats():
    made = controller()
    for fmt_id in range(100, 114):  # two are there
        made.modify_ev_fmt_profile(fmt_id, state=OFFLINE, mode=EvFmtMode.STEV)
    with refused(E2BIG, "profiles"):
        made.modify_ev_fmt_profile(999, state=OFFLINE, mode=EvFmtMode.STEV)
    made.modify_ev_fmt_profile(100, state=INIT)
    made.modify_ev_fmt_profile(999, state=OFFLINE, mode=EvFmtMode.STEV)
