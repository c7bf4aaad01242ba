"""The runs that a request leads to."""

from typing import Any

from adapters.langgraph.content import message_id
from adapters.langgraph.interrupts import Action, Asked
from adapters.langgraph.state import NOTHING, HeldCall, ThreadState, read
from adapters.langgraph.turn import Turn, plan
from gateway.a2a.model import Part
from gateway.ports.conversation import Item, OutputItem, UserItem
from gateway.testing.adapter_scripts import message

CALL = HeldCall("c1", "pay", '{"to": "a"}')
OTHER = HeldCall("c2", "pay", '{"to": "b"}')
ASKED = Asked("i1", "decisions", (Action("pay", '{"to":"a"}'),))
QUESTION = Asked("i2", words="Which?")
WAITS = ThreadState("m1", "task-1", "run", (ASKED,), (CALL, OTHER))
YES = OutputItem("run/i1/0", {"approved": True}, approved=True)
NO = OutputItem("run/i1/0", "no", error=True, approved=False)
HI = UserItem(message("hi"))
SENT: dict[str, Any] = {"role": "user", "content": "hi", "id": message_id(HI.message)}
LATER: dict[str, Any] = {"role": "user", "content": "later", "id": "m9"}


def turn(state: ThreadState, *items: Item, task: str = "task-1") -> Turn:
    return plan(items, state, task, "messages")


def resume(answer: Any, name: str = "i1") -> dict[str, Any]:
    return {"command": {"resume": {name: answer}}}


def test_messages_are_the_input_of_the_graph() -> None:
    assert turn(NOTHING, HI) == Turn({"input": {"messages": [SENT]}})


def test_the_key_of_the_messages_is_that_of_the_settings() -> None:
    assert plan([HI], NOTHING, "t", "chat").run == {"input": {"chat": [SENT]}}


def test_an_approved_call_goes_on_and_the_others_of_its_message_with_it() -> None:
    made = turn(WAITS, YES)
    assert made.run == resume({"decisions": [{"type": "approve"}]})
    assert (made.goes_on, made.questions, made.refused) == ((CALL, OTHER), {"c1": "run/i1/0"}, frozenset())


def test_a_refused_call_does_not_go_on() -> None:
    made = turn(WAITS, NO)
    assert made.run == resume({"decisions": [{"type": "reject", "message": "no"}]})
    assert (made.questions, made.refused) == ({}, frozenset({"c1"}))


def test_words_beside_a_yes_have_a_run_of_their_own() -> None:
    made = turn(WAITS, YES, HI)
    assert (made.run, made.then) == (resume({"decisions": [{"type": "approve"}]}), (SENT,))


def test_words_beside_a_no_close_the_calls_of_the_thread_and_are_its_input() -> None:
    closed, also, said = turn(WAITS, NO, HI).run["input"]["messages"]  # type: ignore[index]
    assert [each["tool_call_id"] for each in (closed, also)] == ["c1", "c2"]
    assert (closed["role"], closed["content"], closed["status"]) == ("tool", "no", "error")
    assert said == SENT


def test_words_beside_a_no_are_its_reason_where_the_thread_has_no_open_call() -> None:
    made = turn(ThreadState("m1", "task-1", "run", (ASKED,)), NO, HI)
    assert (made.run, made.then) == (resume({"decisions": [{"type": "reject", "message": "hi"}]}), ())


def test_a_message_of_another_task_closes_the_calls_whatever_was_decided() -> None:
    made = turn(WAITS, NO, HI, task="task-2")
    assert made.run is not None
    assert [each["role"] for each in made.run["input"]["messages"]] == ["tool", "tool", "user"]


def test_decisions_come_before_questions_that_are_open_as_well() -> None:
    made = turn(ThreadState("m1", "task-1", "run", (QUESTION, ASKED)), YES)
    assert made.run == resume({"decisions": [{"type": "approve"}]})


def test_a_question_is_answered_by_the_message_of_its_task_alone() -> None:
    state = ThreadState("m1", "task-1", "run", (QUESTION, Asked("i3")), (CALL,))
    mine, other = turn(state, HI), turn(state, HI, task="task-2")
    assert (mine.run, mine.goes_on) == (resume("hi", "i2"), (CALL,))
    assert other.run is not None
    assert [each["role"] for each in other.run["input"]["messages"]] == ["tool", "user"]


def test_data_answers_as_it_is() -> None:
    state = ThreadState("m1", "task-1", "run", (QUESTION,))
    said = message("x")
    data = UserItem(type(said)(message_id="m", role=said.role, parts=(Part(data={"city": "Oslo"}),)))
    assert turn(state, data).run == resume({"city": "Oslo"}, "i2")


def test_a_message_that_waited_goes_with_the_next() -> None:
    state = ThreadState("m1", unsent=(LATER,))
    assert turn(state, HI).run == {"input": {"messages": [LATER, SENT]}}
    asks = ThreadState("m1", "task-1", "run", (QUESTION,), unsent=(LATER,))
    assert turn(asks, HI).then == (LATER,)


def test_a_decision_that_nobody_waits_for_is_not_sent() -> None:
    assert turn(NOTHING, YES).run is None
    assert turn(NOTHING, YES, HI).run == {"input": {"messages": [SENT]}}


def test_the_state_comes_back_as_it_was_stored() -> None:
    state = ThreadState("m1", "task-1", "run", (ASKED, QUESTION), (CALL,), (LATER,))
    assert read(state.stored) == state
    assert read(None) == NOTHING
    assert ThreadState("m1").stored == {"last": "m1"}
