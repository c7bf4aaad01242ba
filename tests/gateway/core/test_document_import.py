"""The check of an exported context: every fault with its place."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams
from gateway.core.document_import import read
from gateway.ledger.threads import Caller
from gateway.operations.contexts import ContextTransfer
from tests.gateway.operations.test_context_transfer import ASKS, RICH
from tests.support.core import Core
from tests.support.scripted import BR, ScriptedAdapter

Document = Any


async def conversation(core: Core) -> Document:
    core.agent(ScriptedAdapter(BR, RICH, ASKS))
    for text in "12":
        await core.send(text, context="c")
    exported = await ContextTransfer(core.ledger, core.time.clock).export(Caller("ada"), "c")
    return json.loads(exported)


def put(place: str, value: Any) -> Callable[[Document], None]:
    """Sets the value at a place such as `threads.0.turns.1.number`."""

    def change(document: Document) -> None:
        *path, last = [int(step) if step.isdecimal() else step for step in place.split(".")]
        for step in path:
            document = document[step]
        document[last] = value

    return change


def drop(place: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *path, last = [int(step) if step.isdecimal() else step for step in place.split(".")]
        for step in path:
            document = document[step]
        del document[last]

    return change


WRONG: dict[str, tuple[Callable[[Document], None], str]] = {
    "another format": (put("format", "zip"), "format: must be 'a2a-gateway/context'"),
    "a newer version": (put("version", 2), "version: 2 is newer than 1"),
    "no version": (drop("version"), "document: Object missing required field `version`"),
    "an unknown field": (put("threads.0.secret", 1), "threads[0]: Object contains unknown field `secret`"),
    "a wrong type": (put("threads.0.turns.0.number", "1"), "threads[0].turns[0].number: Expected `int`, got `str`"),
    "a number that no column holds": (put("createdAt", 2**70), "createdAt: Expected `int` <= 9223372036854775807"),
    "a buried context": (put("state", "deleted"), "state: Invalid enum value 'deleted'"),
    "an empty id": (put("tasks.0.id", ""), "tasks[0].id: Expected `str` of length >= 1"),
    "a task at work": (put("tasks.0.state", "TASK_STATE_WORKING"), "tasks[0].state: a task at work cannot be imported"),
    "a lost event": (drop("tasks.0.events.1"), "tasks[0].events: there are"),
    "a waiting task without events": (put("tasks.1.events", []), "tasks[1].events: there are 0"),
    "an event of another task": (
        put("tasks.0.events.0.statusUpdate.taskId", "else"),
        "tasks[0].events[0]: is of another task, 'else'",
    ),
    "an event that is none": (put("tasks.0.events.0", {}), "tasks[0].events[0]: must be one update"),
    "a task without a turn": (put("threads.0.turns.1.task", "id-0001"), "tasks[1].id: no turn belongs to"),
    "a turn of no task": (
        put("threads.0.turns.0.task", "else"),
        "threads[0].turns[0].task: 'else' is no task of the agent",
    ),
    "a turn that runs": (put("threads.0.turns.0.status", "running"), "threads[0].turns[0].status: Invalid enum value"),
    "a turn that counts and was displaced": (
        put("threads.0.turns.0.displaced", True),
        "threads[0].turns[0].displaced: a turn that is completed is a part of the conversation",
    ),
    "a turn without a message": (
        put("threads.0.turns.0.inputs", []),
        "threads[0].turns[0].inputs: Expected `array` of",
    ),
    "a message without content": (
        put("threads.0.turns.0.inputs.0.message.parts", [{}]),
        "threads[0].turns[0].inputs[0].message.parts[0]: must have exactly one of text, raw, url and data",
    ),
    "a part with two contents": (
        put("threads.0.turns.0.inputs.0.message.parts", [{"text": "a", "url": "b"}]),
        "threads[0].turns[0].inputs[0].message.parts[0]: must have exactly one",
    ),
    "half a key": (
        put("threads.0.turns.0.inputs.0.key", "k"),
        "threads[0].turns[0].inputs[0].keyKind: key and keyKind",
    ),
    "an artifact that is none": (
        put("threads.0.turns.0.artifacts", [{"artifact": {"parts": []}}]),
        "threads[0].turns[0].artifacts[0].artifact: Object missing required field `artifactId`",
    ),
    "an item of an unknown kind": (
        put("threads.0.items.1.item.kind", "else"),
        "threads[0].items[1].item.kind: Invalid value",
    ),
    "an item of another turn": (put("threads.0.items.1.turn", "else"), "threads[0].items[1].turn: 'else' is no turn"),
    "an item that is two": (put("threads.0.items.1.input", 0), "threads[0].items[1]: must have either item or input"),
    "an item of no input": (put("threads.0.items.0.input", 7), "threads[0].items[0].input: 7 is no input of the turn"),
    "an item sent by nobody": (
        put("threads.0.items.0.sentIn", "else"),
        "threads[0].items[0].sentIn: 'else' is not in the",
    ),
    "an item of no tool call": (
        put("threads.0.items.1.toolCall", "x"),
        "threads[0].items[1].toolCall: 'x' is not in the",
    ),
    "two owners": (put("threads.0.handleKind", "none"), "threads[0].handleKind: owner backend and handle kind none"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_fault_is_reported_with_its_place(core: Core, what: str) -> None:
    spoil, words = WRONG[what]
    document = await conversation(core)
    read(copy.deepcopy(document))
    spoil(document)
    with pytest.raises(InvalidParams) as refused:
        read(document)
    assert refused.value.message.startswith(f"Invalid parameters: {words}")
    [violation] = refused.value.violations
    assert violation.field == words.partition(":")[0]


async def test_where_the_gateway_keeps_the_history_a_handle_is_refused(core: Core) -> None:
    document = await conversation(core)
    document["threads"][0] |= {"owner": "gateway", "handleKind": "none"}
    with pytest.raises(InvalidParams, match=r"threads\[0\]\.handle: there is none"):
        read(document)


@pytest.mark.parametrize("value", [None, [], "text", 7, {}])
def test_what_is_no_document_at_all_is_refused(value: Any) -> None:
    with pytest.raises(InvalidParams, match="this is no exported context"):
        read(value)
