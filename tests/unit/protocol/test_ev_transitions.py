"""Each path state answers each input as protocol sources section 4.1 say, and as nothing else does."""

from __future__ import annotations

import pytest

from mrcemu.protocol.ev import TRANSITIONS, EvInput, EvState

# Written from the sources, not from the code: rows are states, columns inputs. "-": the state stays.
GRID = """
             mark  mark_always  loss         turn  probed  probed_marked  exonerated  deny    allow
GOOD         SKIP  ASSUMED_BAD  ASSUMED_BAD  -     -       SKIP           -           DENIED  -
SKIP         -     ASSUMED_BAD  ASSUMED_BAD  GOOD  -       -              -           DENIED  -
ASSUMED_BAD  -     -            -            -     GOOD    SKIP           GOOD        DENIED  -
DENIED       -     -            -            -     -       -              -           -       GOOD
"""


def expected_transitions() -> dict[tuple[EvState, EvInput], EvState]:
    header, *rows = [line.split() for line in GRID.strip().splitlines()]
    return {
        (EvState[state], EvInput(column)): EvState[state if cell == "-" else cell]
        for state, *cells in rows
        for column, cell in zip(header, cells, strict=True)
    }


EXPECTED = expected_transitions()


@pytest.mark.parametrize(("pair", "after"), EXPECTED.items(), ids=str)
def test_each_input_moves_each_state_as_the_sources_say(pair: tuple[EvState, EvInput], after: EvState) -> None:
    assert TRANSITIONS[pair] is after


def test_every_pair_of_state_and_input_is_decided() -> None:
    assert set(TRANSITIONS) == {(state, what) for state in EvState for what in EvInput} == set(EXPECTED)


def test_only_the_controller_brings_a_denied_path_back() -> None:
    leaving = {what for (state, what), after in TRANSITIONS.items() if state is EvState.DENIED is not after}
    assert leaving == {EvInput.ALLOW}


def test_a_path_out_of_service_never_returns_by_data_marks() -> None:
    for what in (EvInput.MARK, EvInput.MARK_ALWAYS, EvInput.LOSS, EvInput.TURN, EvInput.ALLOW):
        assert TRANSITIONS[EvState.ASSUMED_BAD, what] is EvState.ASSUMED_BAD
