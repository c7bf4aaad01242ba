"""Checks for tests of the adapter of the Messages API."""

from collections.abc import Iterable
from typing import Any

from gateway.a2a.model import Message, Part, Role
from gateway.ports.conversation import UserItem
from tests.emulators.scripts import Json

MARK = {"cache_control": {"type": "ephemeral"}}


def parts(*given: Part) -> UserItem:
    return UserItem(Message(message_id="m1", role=Role.USER, parts=given))


def user(*blocks: str | Json) -> Json:
    return {"role": "user", "content": [_block(block) for block in blocks]}


def model(*blocks: str | Json) -> Json:
    return {"role": "assistant", "content": [_block(block) for block in blocks]}


def _block(block: str | Json) -> Json:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def used(call_id: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: str, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def unmarked(messages: Iterable[Json]) -> list[Json]:
    """The messages of a request, without the marks for the cache."""
    return [
        {
            **message,
            "content": [{name: b[name] for name in b if name != "cache_control"} for b in message["content"]],
        }
        for message in messages
    ]


def roles_and_texts(messages: Iterable[Json]) -> list[tuple[str, str]]:
    """Role and text of the messages of a request, in the form of the conformance suite."""
    speakers = {"user": "user", "assistant": "agent"}
    return [(speakers[message["role"]], "".join(block["text"] for block in message["content"])) for message in messages]
