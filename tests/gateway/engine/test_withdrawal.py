"""The outcomes that go with a withdrawal."""

import pytest

from gateway.core.tools.tool_call import NOT_RUN, OUTCOME_UNKNOWN
from gateway.engine.withdrawal import worth_telling
from gateway.ports.conversation import AssistantItem, OutputItem

NEVER = OutputItem("c1", NOT_RUN, error=True)
RAN = OutputItem("c2", "", error=False)
YES, NO = OutputItem("q1", "fine", approved=True), OutputItem("q1", "fine", approved=False)


@pytest.mark.parametrize("unsent", [[], [NEVER], [YES], [NO, NEVER], [AssistantItem(())]])
def test_where_no_call_has_run_there_is_nothing_to_tell(unsent: list[OutputItem]) -> None:
    assert worth_telling(unsent) == []


@pytest.mark.parametrize("ran", [RAN, OutputItem("c2", OUTCOME_UNKNOWN, error=True)])
def test_beside_a_call_that_has_run_all_outcomes_are_told(ran: OutputItem) -> None:
    assert worth_telling([NEVER, ran, NO]) == [NEVER, ran, NO]


def test_a_yes_comes_too_late() -> None:
    assert worth_telling([RAN, YES]) == [RAN, NO]
