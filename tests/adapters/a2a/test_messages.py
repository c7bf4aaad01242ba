"""A request as a message: the caller's parts as they are, decisions, references, a conversation told again, and the way."""

from typing import Any

import pytest

from adapters.a2a import hops, state
from adapters.a2a.messages import encode, message_id
from adapters.a2a.state import Left, ThreadState, Waiting
from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import ServiceRequest
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem
from gateway.testing.adapter_scripts import request

FILE = Part(raw="AAE=", filename="x.bin", media_type="image/png")


def user(*parts: Part | str, key: str = "m", **more: Any) -> UserItem:
    content = tuple(Part(text=each) if isinstance(each, str) else each for each in parts)
    return UserItem(Message(message_id=key, role=Role.USER, parts=content, **more))


def asked(*items: Item, handle: str | None = "c", **changes: Any) -> ServiceRequest:
    last = items[-1]
    message = last.message if isinstance(last, UserItem) else user("first").message
    return request("", items=items, message=message, handle=handle, **changes)


def sent(*items: Item, task: str | None = None, **changes: Any) -> Message:
    return encode(asked(*items, **changes), task=task, references=None, own="here")


def test_the_callers_parts_go_on_as_they_are() -> None:
    message = sent(user("look", FILE, Part(data={"a": 1}, metadata={"k": 1}), metadata={"k": 1}, extensions=("x",)))
    assert message.parts == (Part(text="look"), FILE, Part(data={"a": 1}, metadata={"k": 1}))
    assert (message.context_id, message.role, message.extensions) == ("c", Role.USER, ("x",))
    assert message.metadata == {"k": 1, hops.URI: ["here"]}


def test_messages_that_did_not_arrive_go_with_the_next_one() -> None:
    assert sent(user("one"), user("two", FILE)).parts == (Part(text="one"), Part(text="two"), FILE)


def test_the_ids_of_the_caller_stay_here() -> None:
    message = sent(user("Hi", context_id="ours", task_id="ours", reference_task_ids=("ours",)))
    assert (message.context_id, message.task_id, message.reference_task_ids) == ("c", None, None)


def test_a_repeated_request_has_the_same_id_and_any_other_has_another() -> None:
    ids = {
        message_id(asked(user("Hi"))),
        message_id(asked(user("Hi"))),
        message_id(asked(user("Hi", key="other"))),
        message_id(asked(user("Hi"), context_id="other")),
        message_id(asked(user("Hi"), state={"task": "the latest"})),
        message_id(asked(user("Hi"), state={"calls": 1})),
    }
    assert len(ids) == 5
    assert "m" not in ids
    # The first message begins the conversation, and is looked for when its name is known.
    assert message_id(asked(user("Hi"), handle=None)) in ids
    assert message_id(asked(user("Hi"), task_id="other")) in ids
    assert message_id(asked(user("Hi"), user("more", key="n")), (user("Hi"),)) in ids


# --- decisions --------------------------------------------------------------------------------------------------------


def test_decisions_go_in_the_form_of_the_extension() -> None:
    message = sent(OutputItem("q1", "", approved=True), OutputItem("q2", "too dear", error=True, approved=False))
    assert message.parts == (
        Part(
            data={"approvals": [{"id": "q1", "approved": True}, {"id": "q2", "approved": False, "reason": "too dear"}]}
        ),
    )


def test_decisions_and_a_message_behind_them_go_together() -> None:
    message = sent(OutputItem("q1", "", approved=False), user("never mind"), task="t1")
    assert message.parts == (Part(data={"approvals": [{"id": "q1", "approved": False}]}), Part(text="never mind"))


def test_beside_words_for_a_new_task_the_decisions_for_an_earlier_one_are_left_out() -> None:
    assert sent(OutputItem("q1", "", approved=False), user("hello")).parts == (Part(text="hello"),)


# --- a conversation that was lost -------------------------------------------------------------------------------------


def test_a_lost_conversation_is_told_again_with_its_files_before_what_is_said_now() -> None:
    message = sent(
        user("look", FILE),
        CallItem("c1", "pay", '{"eur":3}'),
        OutputItem("c1", {"paid": 3}),
        AssistantItem((Part(text="Done."), Part(data={"a": 1}))),
        user("And now?"),
        handle=None,
    )
    told, file, now = message.parts
    assert (told.text or "").split("\n\n")[1:] == [
        "User: look (x.bin)",
        'Agent called pay with {"eur":3}',
        'Result: {"paid":3}',
        'Agent: Done. {"a":1}',
        "What is said now:",
    ]
    assert (file, now, message.context_id) == (FILE, Part(text="And now?"), None)


# --- the way ----------------------------------------------------------------------------------------------------------


def test_a_message_notes_where_it_goes() -> None:
    assert hops.passed({hops.URI: ["a"]}, "b") == ["a", "b"]
    assert hops.passed({hops.URI: "nonsense"}, "b") == ["b"]
    assert hops.passed(None, "b") == ["b"]


@pytest.mark.parametrize("before", [["a", "here"], [str(number) for number in range(hops.MOST)]])
def test_a_message_that_was_here_or_has_come_too_far_is_not_sent(before: list[str]) -> None:
    with pytest.raises(hops.Loop, match="gateways"):
        sent(user("Hi", metadata={hops.URI: before}))


def test_a_hop_is_the_same_in_every_process_and_tells_no_address() -> None:
    assert hops.hop("https://agents.example/travel") == hops.hop("https://agents.example/travel")
    assert "example" not in hops.hop("https://agents.example/travel")


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [None, {}, {"tasks": 1}, "x", {"waiting": {"task": "t"}}])
def test_a_state_in_an_unknown_form_counts_as_none(stored: Any) -> None:
    assert state.read(stored) == ThreadState()


def test_a_state_is_read_as_it_was_written() -> None:
    thread = ThreadState().after(
        "ours", "theirs", Waiting(task="theirs", ours="ours", since="x", artifacts=(Left("a", "mine", "d", 1, 3),))
    )
    assert state.read(thread.write()) == thread


def test_references_are_to_the_agents_tasks_and_unknown_ones_are_left_out() -> None:
    thread = ThreadState().after("a", "A", None).after("b", "B", None)
    assert state.references(thread, ("b", "x", "a")) == ("B", "A")
    assert state.references(thread, ("x",)) is None
    assert state.references(thread, None) is None


def test_the_latest_tasks_are_remembered_and_no_more() -> None:
    thread = ThreadState()
    for number in range(200):
        thread = thread.after(f"ours-{number}", f"theirs-{number}", None)
    assert len(thread.tasks) == 64
    assert thread.task == "theirs-199"
    assert state.references(thread, ("ours-199", "ours-0")) == ("theirs-199",)


def test_an_answer_without_a_task_leaves_the_latest_one() -> None:
    assert ThreadState().after("a", "A", None).after("b", "", None) == ThreadState("A", 2, tasks={"a": "A"})
