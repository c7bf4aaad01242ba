"""The lifecycles of tasks, turns, service calls and tool calls."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.a2a.model import TERMINAL, TaskState
from gateway.core.lifecycles import SERVICE_CALL, TASK, TOOL_CALL, TURN, IllegalTransition, advance
from gateway.ledger.states import OPEN, SETTLED, UNDER_WAY, ServiceCallStatus, ToolCallStatus, TurnStatus
from storage.schema import conditions

TABLES: list[tuple[Mapping[Any, Any], Any]] = [
    (TASK, TaskState),
    (TURN, TurnStatus),
    (SERVICE_CALL, ServiceCallStatus),
    (TOOL_CALL, ToolCallStatus),
]


@pytest.mark.parametrize(("table", "words"), TABLES)
def test_every_step_that_is_not_in_the_table_raises(table: Mapping[Any, Any], words: Any) -> None:
    for status, following in itertools.product(words, words):
        if following in table.get(status, ()):
            assert advance(table, status, following) is following
        else:
            with pytest.raises(IllegalTransition, match=f"of {status} cannot become {following}"):
                advance(table, status, following)


@pytest.mark.parametrize(("table", "words"), TABLES)
def test_every_state_is_in_its_table_or_final(table: Mapping[Any, Any], words: Any) -> None:
    final = {
        TaskState: set(TERMINAL),
        TurnStatus: {"completed", "failed", "cancelled", "rejected"},
        ServiceCallStatus: {"completed", "failed"},
        ToolCallStatus: SETTLED - {ToolCallStatus.EXTERNAL},
    }
    assert set(words) - set(table) == final[words]


@pytest.mark.parametrize(("state", "following"), list(itertools.product(TaskState, TaskState)))
def test_a_task_that_has_not_ended_may_become_anything_but_new_and_one_that_has_stays(
    state: TaskState, following: TaskState
) -> None:
    assert (following in TASK.get(state, ())) is (state not in TERMINAL and following is not TaskState.SUBMITTED)


def test_a_tool_call_is_open_until_it_has_its_outcome() -> None:
    assert not OPEN & SETTLED
    assert set(TOOL_CALL) == {None, *OPEN, ToolCallStatus.EXTERNAL}


def test_only_the_backend_can_report_an_outcome_that_was_not_known() -> None:
    assert TOOL_CALL[ToolCallStatus.EXTERNAL] == {ToolCallStatus.COMPLETED, ToolCallStatus.FAILED}


def test_the_conditions_of_the_database_have_the_words_of_the_states() -> None:
    def words(states: Any) -> str:
        return conditions.one_of("status", *map(str, states))

    assert words(status for status in ServiceCallStatus if status in UNDER_WAY) == conditions.CALL_UNDER_WAY
    assert words(status for status in ToolCallStatus if status in SETTLED) == conditions.TOOL_CALL_SETTLED
