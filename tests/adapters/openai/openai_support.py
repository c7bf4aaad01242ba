"""Checks for tests of the OpenAI adapters."""

from collections.abc import Iterable
from typing import Any

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import Adapter, CallCompleted
from gateway.ports.conversation import UserItem
from gateway.testing.adapter_scripts import collect, completed, request
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.server import Validator
from tests.openapi import openai_validator


def tool_of(call_id: str) -> str:
    return call_id.split("_")[3]


def parts(*given: Part) -> UserItem:
    return UserItem(Message(message_id="m1", role=Role.USER, parts=given))


def response_ids(server: ResponsesServer) -> list[str]:
    return list(server.stored)


def output_ids(server: ResponsesServer) -> list[str]:
    """Ids of the items of the last response."""
    return [item["id"] for item in server.stored[response_ids(server)[-1]].body["output"]]


async def finished(adapter: Adapter, words: str = "Hi", **options: Any) -> CallCompleted:
    return completed(await collect(adapter, request(words, **options)))


def roles_and_texts(items: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Role and text of the messages of a request, in the form of the conformance suite."""
    speakers = {"user": "user", "assistant": "agent"}
    return [(speakers[item["role"]], _text(item["content"])) for item in items]


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


_MISSING: dict[str, dict[str, str]] = {"reasoning": {"id": "rs_1"}, "mcp_approval_response": {"request_id": ""}}


def judge() -> Validator | None:
    """Judges requests by the vendor's API description where that lies beside the repository."""
    try:
        validate = openai_validator()
    except pytest.skip.Exception:
        return None

    def lenient(schema: str, body: object) -> list[str]:
        # The description wants an id of every reasoning item. The service does not: it takes the encrypted content
        # without, and refuses an id that it did not give. Of an answer to a question it wants a second id that it does
        # not describe.
        if isinstance(body, dict) and isinstance(body.get("input"), list):
            body = body | {"input": [_MISSING.get(item.get("type"), {}) | item for item in body["input"]]}
        return validate(schema, body)

    return lenient
