"""Places in a thread, and texts that cannot be the id of one."""

import pytest

from adapters.assistants.position import LastCall, Position, check_thread_id
from gateway.a2a.model import Json


@pytest.mark.parametrize("at", [Position("run_1"), Position("run_1", "step_1")])
def test_a_place_is_read_from_its_name(at: Position) -> None:
    assert Position.named(at.name) == at


@pytest.mark.parametrize(
    "last",
    [
        LastCall(Position("run_1"), waits=False),
        LastCall(Position("run_1", "step_1"), waits=True),
        LastCall(Position("run_1"), waits=True),
    ],
)
def test_the_last_call_is_read_from_its_state(last: LastCall) -> None:
    assert LastCall.read(last.state) == last


@pytest.mark.parametrize("state", [None, {}, [], "run_1", {"run": 1}, {"step": "step_1"}])
def test_any_other_state_tells_of_no_call(state: Json) -> None:
    assert LastCall.read(state) is None


@pytest.mark.parametrize("handle", ["thread_abc123", "thread-1", "18f0a2c4", "a.b:c=9"])
def test_a_thread_may_have_any_form_of_id(handle: str) -> None:
    check_thread_id(handle)


NEEDED = "the id of a thread (thread_...), in which this agent goes on"
OTHERS = {
    "asst_1": f"is an assistant, and not {NEEDED}",
    "run_1": f"is a run, and not {NEEDED}",
    "resp_1": f"is a response, and not {NEEDED}",
    "conv_1": f"is a conversation of the Responses API, and not {NEEDED}",
    "": f"is not {NEEDED}",
    "two words": f"is not {NEEDED}",
    "a/b": f"is not {NEEDED}",
}


@pytest.mark.parametrize("handle", OTHERS)
def test_the_id_of_something_else_is_told_by_its_kind(handle: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared
        check_thread_id(handle)
    assert str(caught.value) == OTHERS[handle]
