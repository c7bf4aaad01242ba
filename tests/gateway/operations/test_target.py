"""Which context, thread and task a message belongs to."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from gateway.core.agents import Agent
from gateway.ledger.threads import ThreadRecord
from gateway.operations.target import new_thread, not_found
from gateway.ports.adapter import CallCompleted, Ending
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.support.core import CARD, Core
from tests.support.scripted import BR, G, ScriptedAdapter, says

AGENT = Agent("echo", CARD, ScriptedAdapter(G))


# --- threads ---


@pytest.mark.parametrize(
    ("ownership", "owner", "handle"),
    [(G, StorageOwner.GATEWAY, HandleKind.NONE), (BR, StorageOwner.BACKEND, HandleKind.ROTATING)],
)
def test_a_thread_is_made_as_its_adapter_declares(ownership: Any, owner: StorageOwner, handle: HandleKind) -> None:
    thread = new_thread(replace(AGENT, adapter=ScriptedAdapter(ownership)), "th", "row")
    assert thread == ThreadRecord("th", "row", "echo", 1, owner, handle, None, 0, None)


def test_an_unknown_task_is_named_with_its_field_and_truncated() -> None:
    error = not_found("x" * 300)
    assert error.metadata == {"taskId": "x" * 100, "field": "id"}
    assert error.message == "Task not found"


# --- where a message belongs ---


async def test_a_message_without_ids_opens_a_context(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    first, second = await core.send("1"), await core.send("2")
    assert first.context_id != second.context_id
    assert first.id != second.id


async def test_a_context_of_the_callers_own_making_is_kept(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    assert [(await core.send(text, context="mine")).context_id for text in "12"] == ["mine", "mine"]


async def test_an_agent_may_insist_on_contexts_of_its_own_making(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")), client_context_ids_allowed=False)
    with pytest.raises(InvalidParams, match=r"message.contextId: 'mine' is no context of yours"):
        await core.send("1", context="mine")
    made = await core.send("1")
    assert (await core.send("2", context=made.context_id)).context_id == made.context_id
    assert (await core.list()).total_size == 2


async def test_an_empty_context_id_counts_as_none(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    assert (await core.send("1", context="")).context_id


async def waiting_task(core: Core) -> str:
    core.agent(ScriptedAdapter(G, [CallCompleted(ending=Ending.INPUT_REQUIRED)], says("b")))
    return (await core.send("1", context="c")).id


async def test_a_task_alone_names_its_context(core: Core) -> None:
    task = await waiting_task(core)
    assert (await core.send("2", task=task)).context_id == "c"


async def test_a_task_and_a_context_that_do_not_belong_together_are_refused(core: Core) -> None:
    task = await waiting_task(core)
    with pytest.raises(InvalidParams, match=r"message.contextId: 'd' is not the context of task .* which is 'c'"):
        await core.send("2", task=task, context="d")
    assert len(core.ledger.units) == 2


async def test_a_message_to_a_task_that_has_ended_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("1")
    with pytest.raises(UnsupportedOperation, match="has ended"):
        await core.send("2", task=task.id)


@pytest.mark.parametrize("task", ["nobody's", "../x", "x" * 256])
async def test_an_unknown_task_is_not_found(core: Core, task: str) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(TaskNotFound) as caught:
        await core.send("1", task=task)
    assert caught.value.metadata == {"taskId": task[:100], "field": "message.taskId"}
    assert core.ledger.units == []


async def test_a_reference_to_an_unknown_task_is_not_found(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    known = await core.send("1")
    with pytest.raises(TaskNotFound) as caught:
        await core.send("2", references=(known.id, "nobody's"))
    assert caught.value.metadata == {"taskId": "nobody's", "field": "message.referenceTaskIds[1]"}
    await core.send("2", references=(known.id,))
