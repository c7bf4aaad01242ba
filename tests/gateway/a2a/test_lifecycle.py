"""Which state may follow which."""

from itertools import product

import pytest

from gateway.a2a.lifecycle import TRANSITIONS, IllegalTransition, apply
from gateway.a2a.model import TERMINAL, TaskState


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(TaskState)


@pytest.mark.parametrize(("state", "following"), list(product(TaskState, TaskState)))
def test_a_task_that_has_not_ended_may_become_anything_but_new_and_one_that_has_stays(
    state: TaskState, following: TaskState
) -> None:
    if state not in TERMINAL and following is not TaskState.SUBMITTED:
        assert apply(state, following) is following
    else:
        with pytest.raises(IllegalTransition, match=f"a task in {state} cannot become {following}"):
            apply(state, following)


@pytest.mark.parametrize("state", list(TaskState))
def test_terminal_is_what_nothing_follows(state: TaskState) -> None:
    assert (state in TERMINAL) is (not TRANSITIONS[state])
