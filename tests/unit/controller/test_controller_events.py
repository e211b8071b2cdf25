"""States of EVs as QPs report them, commands to QPs, and the event queue."""

from errno import EINVAL

import pytest
from controller_kit import EIGHT, PROFILE, REMOTE, changed, controller, online, online_explicit, refused, stev
from hypothesis import given
from hypothesis import strategies as st

from mrcemu.controller.controller import QpEvCommand
from mrcemu.controller.device import EvMode
from mrcemu.controller.events import EvEvent, EvEventQueue
from mrcemu.controller.values import Ev, EvState
from mrcemu.protocol.config import for_topology
from mrcemu.protocol.ev import EvInput
from mrcemu.protocol.events import EvChanged
from mrcemu.protocol.spray import Spray
from mrcemu.rng import Rng

A, B = stev(0, 1), stev(1, 2)
GOOD, BAD, DENIED = EvState.GOOD, EvState.ASSUMED_BAD, EvState.DENIED


def watched(*qpns: int, **options: object):
    """A controller with EVs A and B in use by some QPs."""
    made = controller(**options.pop("controller", {}))
    online_explicit(made, A, B, **options)
    for qpn in qpns:
        made.attach_qp(PROFILE, qpn, REMOTE)
    return made


def states(made):
    return made.query_ev_state(PROFILE, [A, B])


def test_a_retired_path_is_seen_and_told_with_its_profile_value_and_port():
    made = watched(5)
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    assert states(made) == (BAD, GOOD)
    made.on_ev_changed(changed(5, A, "GOOD", "ASSUMED_BAD"))
    assert states(made) == (GOOD, GOOD)
    assert made.poll_ev_event(9) == (EvEvent(PROFILE, A, BAD, 0), EvEvent(PROFILE, A, GOOD, 0))
    assert made.poll_ev_event(9) == ()


def test_an_ev_is_bad_from_the_first_qp_that_says_so_to_the_last():
    made = watched(5, 6)
    for qpn in (5, 6):
        made.on_ev_changed(changed(qpn, A, "ASSUMED_BAD"))
    made.on_ev_changed(changed(5, A, "GOOD"))
    assert states(made)[0] is BAD
    made.detach_qp(6)
    assert states(made)[0] is GOOD
    assert [event.state for event in made.poll_ev_event(9)] == [BAD, GOOD]


def test_skipping_a_path_for_a_turn_is_not_visible():
    made = watched(5)
    made.on_ev_changed(changed(5, A, "SKIP"))
    made.on_ev_changed(changed(5, A, "GOOD", "SKIP"))
    assert states(made) == (GOOD, GOOD)
    assert made.poll_ev_event(9) == ()


def test_a_path_that_comes_back_marked_is_good_again():
    made = watched(5)
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    made.on_ev_changed(changed(5, A, "SKIP", "ASSUMED_BAD"))
    assert states(made)[0] is GOOD


@pytest.mark.parametrize(("mask", "told"), [(GOOD, [GOOD]), (BAD, [BAD]), (EvState(0), [])])
def test_only_states_in_the_mask_make_events(mask, told):
    made = watched(5, event_mask=mask)
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    made.on_ev_changed(changed(5, A, "GOOD"))
    assert [event.state for event in made.poll_ev_event(9)] == told


def test_changes_of_strangers_are_ignored():
    made = watched(5)
    made.on_ev_changed(changed(99, A, "ASSUMED_BAD"))  # no such QP
    made.on_ev_changed(changed(5, stev(3, 3), "ASSUMED_BAD"))  # not in the profile
    made.detach_qp(5)
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    assert states(made) == (GOOD, GOOD)
    assert made.poll_ev_event(9) == ()


def test_denying_an_ev_commands_every_qp_of_the_profile_and_no_other():
    made = watched(5, 6)
    online_explicit(made, A, profile_id=2)
    made.attach_qp(2, 7, REMOTE)
    made.modify_ev_state(PROFILE, [(A, DENIED), (B, GOOD)])
    commands = [made.next_command() for _ in range(5)]
    assert commands[:4] == [
        QpEvCommand(5, 0x10, True),
        QpEvCommand(6, 0x10, True),
        QpEvCommand(5, 0x21, False),
        QpEvCommand(6, 0x21, False),
    ]
    assert commands[4] is None
    assert states(made) == (DENIED, GOOD)
    assert made.query_ev_state(2, [A]) == (GOOD,)


def test_denied_stays_denied_whatever_qps_say_until_the_controller_allows_it():
    made = watched(5)
    made.modify_ev_state(PROFILE, [(A, DENIED)])
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    made.on_ev_changed(changed(5, A, "GOOD"))
    assert states(made)[0] is DENIED
    assert made.poll_ev_event(9) == ()  # DENIED is not in any mask
    made.modify_ev_state(PROFILE, [(A, GOOD)])
    assert made.poll_ev_event(9) == (EvEvent(PROFILE, A, GOOD, 0),)


def test_the_echo_of_a_command_makes_no_second_event():
    made = watched(5)
    made.modify_ev_state(PROFILE, [(A, DENIED)])
    made.on_ev_changed(changed(5, A, "DENIED"))
    made.modify_ev_state(PROFILE, [(A, GOOD)])
    made.on_ev_changed(changed(5, A, "GOOD", "DENIED"))
    assert [event.state for event in made.poll_ev_event(9)] == [GOOD]


def test_allowing_an_ev_that_a_qp_holds_bad_does_not_make_it_good():
    made = watched(5)
    made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
    made.modify_ev_state(PROFILE, [(A, GOOD)])
    assert states(made)[0] is BAD


# -- the queue --------------------------------------------------------------------------------------------------------


def test_a_full_queue_drops_counts_and_says_so_in_the_next_record():
    made = watched(5, controller={"event_capacity": 2})
    for _ in range(3):
        made.on_ev_changed(changed(5, A, "ASSUMED_BAD"))
        made.on_ev_changed(changed(5, A, "GOOD"))
    assert made.events_dropped == 4
    assert [event.drop_count for event in made.poll_ev_event(9)] == [0, 0]
    made.on_ev_changed(changed(5, B, "ASSUMED_BAD"))
    made.on_ev_changed(changed(5, B, "GOOD"))
    assert [(event.ev, event.drop_count) for event in made.poll_ev_event(9)] == [(B, 4), (B, 0)]


@given(capacity=st.integers(1, 4), steps=st.lists(st.integers(-1, 3), max_size=60))
def test_no_record_is_lost_without_being_counted(capacity, steps):
    """-1 offers a record, any other number polls that many."""
    queue = EvEventQueue(capacity)
    offered, accepted, polled = 0, [], []
    for step in steps:
        if step < 0:
            if queue.offer(offered, Ev.of(b"", 1), BAD):
                accepted.append(offered)
            offered += 1
        else:
            polled += queue.poll(step)
        assert len(queue) <= capacity
    polled += queue.poll(capacity)
    assert [event.profile_id for event in polled] == accepted
    gaps = [now - before - 1 for before, now in zip([-1, *accepted], accepted, strict=False)]
    assert [event.drop_count for event in polled] == gaps
    assert queue.dropped_total == offered - len(accepted)


@pytest.mark.parametrize("capacity", [0, -1, 1 << 20])
def test_a_queue_has_a_sane_capacity(capacity):
    with refused(EINVAL, "capacity"):
        EvEventQueue(capacity)


def test_polling_a_negative_number_is_refused():
    with refused(EINVAL, "limit"):
        EvEventQueue(1).poll(-1)


def test_a_value_longer_than_32_bytes_is_no_ev():
    with refused(EINVAL, "ev value"):
        Ev.of(bytes(33), 1)


# -- with the transport's own path table ------------------------------------------------------------------------------


def test_a_transport_sprays_over_a_binding_reports_to_the_controller_and_obeys_it():
    made = controller()
    online(made, EvMode.AUTO)
    binding = made.attach_qp(PROFILE, 5, REMOTE)

    def report(entry, old, new, signal):
        made.on_ev_changed(EvChanged(0, 5, entry.ev, entry.plane, old.value, new.value, signal))

    spray = Spray(binding.paths, for_topology(EIGHT), Rng(1), report)
    spray.apply(spray.entries[0x10], EvInput.LOSS, "timer", 0)
    assert [(event.ev, event.state) for event in made.poll_ev_event(9)] == [(A, BAD)]
    made.modify_ev_state(PROFILE, [(ev, DENIED) for ev, _ in made.query_ev_array(PROFILE) if ev.port == 3])
    while (command := made.next_command()) is not None:
        spray.apply(spray.entries[command.ev], EvInput.DENY if command.denied else EvInput.ALLOW, "controller", 0)
    assert spray.usable_planes == 0b1111_1011  # port 3 is plane 2
    assert {spray.select(0xFF).ev & 0xF for _ in range(64)} == {0, 1, 3, 4, 5, 6, 7}
    assert states(made)[0] is BAD
