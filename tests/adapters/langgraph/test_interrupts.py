"""The forms in which graphs ask, and those of the answers."""

from typing import Any

import pytest

from adapters.langgraph import interrupts
from adapters.langgraph.interrupts import Action, Asked
from adapters.langgraph.wire import Interrupt
from gateway.a2a.model import Part
from gateway.ports.conversation import OutputItem

PAY = {"name": "pay", "args": {"to": "a"}, "description": "Pay?"}
ACTION = Action("pay", '{"to":"a"}')
EVERY_WAY = {"allow_accept": True, "allow_ignore": True, "allow_respond": True, "allow_edit": True}
INBOX = {"action_request": {"action": "pay", "args": {"to": "a"}}, "config": EVERY_WAY, "description": "Pay?"}


def batch(*allowed: str) -> Any:
    return {"action_requests": [PAY], "review_configs": [{"action_name": "pay", "allowed_decisions": list(allowed)}]}


def each_call(*allowed: str) -> Interrupt:
    schema = {"discriminator": {"mapping": dict.fromkeys(allowed, "#/$defs/x"), "propertyName": "type"}}
    only = {"properties": {"type": {"const": allowed[0]}}}
    value = {"type": "tool_approval", "tool_call_id": "c1", **PAY}
    return Interrupt("i", value, only if len(allowed) == 1 else schema)


def inbox(**ways: bool) -> Any:
    return INBOX | {"config": EVERY_WAY | ways}


def decided(*approved: bool, reason: str = "no") -> dict[str, OutputItem]:
    return {
        f"run/i/{index}": OutputItem(f"run/i/{index}", {"approved": True} if yes else reason, not yes, yes)
        for index, yes in enumerate(approved)
    }


YES_OR_NO: dict[str, tuple[Interrupt, Any, Any]] = {
    "all calls of a message": (
        Interrupt("i", batch("approve", "reject")),
        {"decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "reject", "message": "no"}]},
    ),
    "each call": (each_call("approve", "reject", "edit"), {"type": "approve"}, {"type": "reject", "message": "no"}),
    "each call, approval alone": (each_call("approve"), {"type": "approve"}, {"type": "reject", "message": "no"}),
    "the inbox, a list": (
        Interrupt("i", [INBOX]),
        [{"type": "accept", "args": None}],
        [{"type": "ignore", "args": None}],
    ),
    "the inbox": (Interrupt("i", INBOX), {"type": "accept", "args": None}, {"type": "ignore", "args": None}),
    "the inbox, without ignore": (
        Interrupt("i", inbox(allow_ignore=False)),
        {"type": "accept", "args": None},
        {"type": "response", "args": "no"},
    ),
}


@pytest.mark.parametrize(("interrupt", "yes", "no"), YES_OR_NO.values(), ids=YES_OR_NO.keys())
def test_an_approval_is_answered_in_the_form_in_which_it_is_asked(interrupt: Interrupt, yes: Any, no: Any) -> None:
    asked = interrupts.read(interrupt, approvals=True)
    assert [(action.name, action.arguments) for action in asked.actions] == [("pay", '{"to":"a"}')]
    assert [interrupts.decide(asked, "run", decided(approved)) for approved in (True, False)] == [yes, no]


def test_a_call_without_a_decision_is_not_approved() -> None:
    asked = Asked("i", "decisions", (ACTION, ACTION))
    answer = interrupts.decide(asked, "run", decided(True))
    assert answer == {"decisions": [{"type": "approve"}, {"type": "reject"}]}


def test_words_beside_a_no_are_its_reason() -> None:
    asked = interrupts.read(Interrupt("i", [INBOX]), approvals=True)
    assert interrupts.decide(asked, "run", decided(False), "shorter") == [{"type": "response", "args": "shorter"}]
    asked = interrupts.read(Interrupt("i", batch("approve", "reject")), approvals=True)
    assert interrupts.decide(asked, "run", decided(False), "shorter") == {
        "decisions": [{"type": "reject", "message": "shorter"}]
    }


QUESTIONS: dict[str, Interrupt] = {
    "text": Interrupt("i", "Pay?"),
    "a number": Interrupt("i", 7),
    "no actions": Interrupt("i", {"action_requests": [], "review_configs": []}),
    "an action without a name": Interrupt("i", {"action_requests": [{}], "review_configs": []}),
    "an inbox that takes no yes": Interrupt("i", inbox(allow_accept=False)),
    "two actions, of which one takes no yes": Interrupt(
        "i",
        {
            "action_requests": [PAY, {"name": "ask", "args": {}}],
            "review_configs": [{"action_name": "ask", "allowed_decisions": ["respond"]}],
        },
    ),
    "no decision that can be made": each_call("edit"),
}


@pytest.mark.parametrize("interrupt", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_whatever_else_a_graph_says_is_a_question_that_is_answered_as_it_is(interrupt: Interrupt) -> None:
    asked = interrupts.read(interrupt, approvals=True)
    assert (asked.actions, interrupts.respond(asked, {"a": 1})) == ((), {"a": 1})


@pytest.mark.parametrize(
    ("interrupt", "answer"),
    [
        (Interrupt("i", batch("respond")), {"decisions": [{"type": "respond", "message": "Oslo"}]}),
        (each_call("respond", "reject"), {"type": "respond", "message": "Oslo"}),
    ],
)
def test_a_tool_that_asks_the_user_gets_the_answer_as_its_result(interrupt: Interrupt, answer: Any) -> None:
    asked = interrupts.read(interrupt, approvals=True)
    assert (asked.actions, asked.words) == ((), "Pay?")
    assert interrupts.respond(asked, "Oslo") == answer


def test_without_approvals_every_interrupt_is_a_question() -> None:
    assert interrupts.read(Interrupt("i", [INBOX]), approvals=False).actions == ()


@pytest.mark.parametrize(
    ("interrupt", "parts"),
    [
        (Interrupt("i", "Which?"), (Part(text="Which?"),)),
        (Interrupt("i", ""), (Part(data=""),)),
        (Interrupt("i", {"choices": [1]}), (Part(data={"choices": [1]}),)),
        (
            Interrupt("i", {"prompt": "Which?"}, {"type": "string"}),
            (Part(text="Which?"), Part(data={"prompt": "Which?"}, metadata={"responseSchema": {"type": "string"}})),
        ),
    ],
)
def test_the_caller_gets_the_words_and_the_value_of_a_question(interrupt: Interrupt, parts: tuple[Part, ...]) -> None:
    assert interrupts.question_parts(interrupt, interrupts.read(interrupt, approvals=True)) == parts
