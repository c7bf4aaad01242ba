"""What a message alone decides: its key, its digest, and whether the agent takes its content."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import ContentTypeNotSupported
from gateway.a2a.model import Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from gateway.core.agents import Agent, AgentPolicies
from gateway.ledger.threads import Caller
from gateway.ledger.turns import IdempotencyKey
from gateway.operations.call import OperationCall
from gateway.operations.incoming import check_content, digest, idempotency_key, media_type
from tests.support.core import CARD, message
from tests.support.scripted import G, ScriptedAdapter

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
