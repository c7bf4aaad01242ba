"""The lifecycles of turns, service calls and tool calls."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.a2a.lifecycle import IllegalTransition
from gateway.core.lifecycles import SERVICE_CALL, TOOL_CALL, TURN, advance
from gateway.ledger.states import OPEN, SETTLED, UNDER_WAY, ServiceCallStatus, ToolCallStatus, TurnStatus
from storage.schema import conditions

TABLES: list[tuple[Mapping[Any, Any], Any]] = [
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
            with pytest.raises(IllegalTransition):
                advance(table, status, following)


@pytest.mark.parametrize(("table", "words"), TABLES)
def test_every_state_is_in_its_table_or_final(table: Mapping[Any, Any], words: Any) -> None:
    final = {
        TurnStatus: {"completed", "failed", "cancelled", "rejected"},
        ServiceCallStatus: {"completed", "failed"},
        ToolCallStatus: set(SETTLED),
    }
    assert set(words) - set(table) == final[words]


def test_a_tool_call_is_open_until_it_has_its_outcome() -> None:
    assert not OPEN & SETTLED
    assert set(TOOL_CALL) == {None, *OPEN}


def test_the_conditions_of_the_database_have_the_words_of_the_states() -> None:
    def words(states: Any) -> str:
        return f"status IN ({', '.join(repr(str(state)) for state in states)})"

    assert words(status for status in ServiceCallStatus if status in UNDER_WAY) == conditions.CALL_UNDER_WAY
    assert words(status for status in ToolCallStatus if status in SETTLED) == conditions.TOOL_CALL_SETTLED
