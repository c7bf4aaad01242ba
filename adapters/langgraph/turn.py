"""What a request makes of the thread: the run that it begins, and the messages for the run after that. Law: a run takes
messages or answers, never both, because a message between the call of a tool and its result is refused by most models.

Source: `Command` of langgraph 1.2.24; the order of messages is that of OpenAI's and Anthropic's APIs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from adapters.langgraph import interrupts
from adapters.langgraph.content import encode_answer, encode_conversation, encode_message, encode_parts, encode_result
from adapters.langgraph.interrupts import Action
from adapters.langgraph.state import HeldCall, ThreadState
from gateway.a2a.model import Json
from gateway.ports.conversation import Item, OutputItem, UserItem

_NOT_RUN = "This call was not run."


@dataclass(frozen=True, slots=True)
class Turn:
    """`run` holds the fields of the run, None where nothing is to be sent. `then` are messages that are sent when that run has
    ended without a question. `goes_on` are the calls with which the run goes on, `questions` the approved questions of calls,
    `refused` the calls that do not run."""

    run: dict[str, Json] | None
    then: tuple[dict[str, Json], ...] = ()
    goes_on: tuple[HeldCall, ...] = ()
    questions: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


def plan(items: Sequence[Item], state: ThreadState, task: str, key: str) -> Turn:
    """`task` is that of the request, `key` that of the messages in the input of the graph."""
    said = [item for item in items if isinstance(item, UserItem)]
    decisions = {item.call_id: item for item in items if isinstance(item, OutputItem) and item.approved is not None}
    mine, asks = state.task == task, any(each.actions for each in state.asked)
    approved = any(decision.approved for decision in decisions.values())
    if decisions and asks and (not said or (mine and (approved or not state.calls))):
        return _decided(said, state, decisions, approved=approved)
    if said and mine and state.asked and not asks:
        return _answered(said, state)
    if not said:
        return Turn(None)
    messages = [*state.unsent, *_closed(state.calls, decisions.values()), *encode_conversation(items)]
    return Turn({"input": {key: messages}})


def following(messages: Sequence[dict[str, Json]], key: str) -> dict[str, Json]:
    """The fields of the run that takes these messages."""
    return {"input": {key: list(messages)}}


def _decided(
    said: Sequence[UserItem], state: ThreadState, decisions: Mapping[str, OutputItem], *, approved: bool
) -> Turn:
    """Words beside a yes follow in a run of their own; those beside a no are its reason."""
    words = "" if approved else encode_parts(part for item in said for part in item.message.parts)
    reason = words if isinstance(words, str) else ""
    answers: dict[str, Json] = {}
    questions: dict[str, str] = {}
    refused: set[str] = set()
    held = list(state.calls)
    for asked in state.asked:
        if not asked.actions:
            continue
        answers[asked.id] = interrupts.decide(asked, state.run, decisions, reason)
        for index, action in enumerate(asked.actions):
            question = asked.question(index, state.run)
            call = _take(held, action)
            decision = decisions.get(question)
            if call is None:
                continue
            if decision is not None and decision.approved:
                questions[call.id] = question
            else:
                refused.add(call.id)
    then = state.unsent if reason else (*state.unsent, *map(encode_message, said))
    return Turn({"command": {"resume": answers}}, then, state.calls, questions, frozenset(refused))


def _answered(said: Sequence[UserItem], state: ThreadState) -> Turn:
    """One question at a time: those that are left come again."""
    question = state.asked[0]
    answer = encode_answer([part for item in said for part in item.message.parts])
    resume = {question.id: interrupts.respond(question, answer)}
    return Turn({"command": {"resume": resume}}, state.unsent, state.calls)


def _take(held: list[HeldCall], action: Action) -> HeldCall | None:
    """Takes the call that the question is about out of those that are held."""
    for call in held:
        if call.id == action.call or (not action.call and _same(call, action)):
            held.remove(call)
            return call
    return None


def _same(call: HeldCall, action: Action) -> bool:
    return call.name == action.name and _value(call.arguments) == _value(action.arguments)


def _value(arguments: str) -> Json:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _closed(calls: Iterable[HeldCall], decisions: Iterable[OutputItem]) -> list[dict[str, Json]]:
    """The results of calls that the thread waits for, and that nobody wants any more."""
    reasons = [item.output for item in decisions if isinstance(item.output, str) and item.output]
    text = reasons[0] if reasons else _NOT_RUN
    return [{**encode_result(call.id, text, error=True), "name": call.name} for call in calls]
