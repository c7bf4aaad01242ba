"""Which key, which digest, which thread, and which content an agent takes."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import ContentTypeNotSupported, InvalidParams, TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from gateway.core.agents import Agent, AgentPolicies
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import IdempotencyKey
from gateway.operations.api import OperationCall
from gateway.operations.incoming import check_content, digest, idempotency_key, media_type
from gateway.operations.target import new_thread, not_found
from gateway.ports.adapter import CallCompleted, Ending
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.support.core import CARD, Core, message
from tests.support.scripted import BR, G, ScriptedAdapter, says

AGENT = Agent("echo", CARD, ScriptedAdapter(G))
MESSAGE = message("hi", message_id="m-1")


def call(key: str | None = None, **policies: Any) -> OperationCall:
    return OperationCall(replace(AGENT, policies=AgentPolicies(**policies)), Caller("ada"), idempotency_key=key)


# --- idempotency keys ---


@pytest.mark.parametrize(
    ("policy", "header", "key"),
    [
        ("negotiated", None, None),
        ("negotiated", "k", IdempotencyKey("header", "k")),
        ("message_id", None, IdempotencyKey("message_id", "m-1")),
        ("message_id", "k", IdempotencyKey("header", "k")),
        ("off", None, None),
        ("off", "k", None),
    ],
)
def test_the_key_of_a_message(policy: str, header: str | None, key: IdempotencyKey | None) -> None:
    assert idempotency_key(call(header, idempotency=policy), MESSAGE) == key


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"message_id": "other"}, True),
        ({"parts": (Part(text="ho"),)}, False),
        ({"context_id": "c"}, False),
        ({"task_id": "t"}, False),
        ({"reference_task_ids": ("t",)}, False),
        ({"metadata": {"a": 1}}, False),
        ({"extensions": ("x",)}, False),
    ],
)
def test_what_a_message_says_is_all_of_it_but_its_id(change: dict[str, Any], same: bool) -> None:
    assert (digest(msgspec.structs.replace(MESSAGE, **change)) == digest(MESSAGE)) is same


def test_the_order_of_keys_says_nothing() -> None:
    one = msgspec.structs.replace(MESSAGE, metadata={"a": 1, "b": 2})
    other = msgspec.structs.replace(MESSAGE, metadata={"b": 2, "a": 1})
    assert digest(one) == digest(other)


# --- content types ---


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Part(text=""), "text/plain"),
        (Part(text="x", media_type="Text/Markdown; charset=utf-8"), "text/markdown"),
        (Part(data=None), "application/json"),
        (Part(raw="AA=="), "application/octet-stream"),
        (Part(url="https://x"), "application/octet-stream"),
        (Part(raw="AA==", media_type="image/png"), "image/png"),
    ],
)
def test_the_media_type_of_a_part(part: Part, kind: str) -> None:
    assert media_type(part) == kind


def asked(*parts: Part, accepted: tuple[str, ...] | None = None) -> SendMessageRequest:
    return SendMessageRequest(
        message=Message(message_id="m", role=Role.USER, parts=parts),
        configuration=SendMessageConfiguration(accepted_output_modes=accepted) if accepted is not None else None,
    )


def agent(inputs: tuple[str, ...] = ("text/plain",), outputs: tuple[str, ...] = ("text/plain",)) -> Agent:
    return replace(AGENT, input_modes=inputs, output_modes=outputs)


@pytest.mark.parametrize(
    ("modes", "part"),
    [
        (("text/plain",), Part(text="x")),
        (("text",), Part(text="x")),
        (("TEXT/PLAIN",), Part(text="x")),
        (("text/*",), Part(text="x", media_type="text/markdown")),
        (("*/*",), Part(raw="AA==")),
        (("*",), Part(data=1)),
        (("file",), Part(raw="AA==", media_type="image/png")),
        (("data",), Part(data=1)),
        (("image/png", "text/plain"), Part(raw="AA==", media_type="image/PNG")),
        (("image/png",), Part(raw="AA==", media_type="image/*")),
    ],
)
def test_content_that_the_card_names_is_taken(modes: tuple[str, ...], part: Part) -> None:
    check_content(agent(inputs=modes), asked(part))


def test_a_part_that_the_card_does_not_name_is_refused_by_its_place() -> None:
    with pytest.raises(ContentTypeNotSupported) as caught:
        check_content(agent(), asked(Part(text="x"), Part(raw="AA==", media_type="image/png")))
    assert caught.value.message == "message.parts[1]: 'image/png' is not taken; this agent knows text/plain"
    assert [violation.field for violation in caught.value.violations] == ["message.parts[1]"]


@pytest.mark.parametrize(
    "accepted", [None, (), ("text/plain",), ("text",), ("*/*",), ("image/png", "text/*"), ("text/plain", "x/y")]
)
def test_an_answer_that_the_caller_can_take_is_promised(accepted: tuple[str, ...] | None) -> None:
    check_content(agent(), asked(Part(text="x"), accepted=accepted))


def test_a_caller_that_can_take_no_answer_is_refused() -> None:
    with pytest.raises(
        ContentTypeNotSupported, match=r"configuration.acceptedOutputModes: \['image/png'\] is not made"
    ):
        check_content(agent(), asked(Part(text="x"), accepted=("image/png",)))


# --- threads ---


@pytest.mark.parametrize(
    ("ownership", "owner", "handle"),
    [(G, StorageOwner.GATEWAY, HandleKind.NONE), (BR, StorageOwner.BACKEND, HandleKind.ROTATING)],
)
def test_a_thread_is_made_as_its_adapter_declares(ownership: Any, owner: StorageOwner, handle: HandleKind) -> None:
    thread = new_thread(replace(AGENT, adapter=ScriptedAdapter(ownership)), "th", "row")
    assert thread == ThreadRecord("th", "row", "echo", 1, owner, handle, None, 0, None)


def test_a_task_that_is_not_there_is_named_with_its_field_and_cut() -> None:
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
async def test_a_task_that_is_not_there_is_not_found(core: Core, task: str) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(TaskNotFound) as caught:
        await core.send("1", task=task)
    assert caught.value.metadata == {"taskId": task[:100], "field": "message.taskId"}
    assert core.ledger.units == []


async def test_a_reference_to_a_task_that_is_not_there_is_not_found(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    known = await core.send("1")
    with pytest.raises(TaskNotFound) as caught:
        await core.send("2", references=(known.id, "nobody's"))
    assert caught.value.metadata == {"taskId": "nobody's", "field": "message.referenceTaskIds[1]"}
    await core.send("2", references=(known.id,))
