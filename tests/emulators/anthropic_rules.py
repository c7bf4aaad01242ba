"""What the Messages API refuses of a request, in its words. Law: pure; what the server has given is passed in.

Source: Anthropic's Messages API, version 2023-06-01, and its errors as users report them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tests.emulators.scripts import Json
from tests.emulators.server import Refused

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = frozenset({"thinking", "redacted_thinking"})
_USES = frozenset({"server_tool_use", "mcp_tool_use"})
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MOST_MARKS = 4
_LONGEST_TITLE = 500


@dataclass
class Given:
    """What the server has signed, encrypted or run, as it went out. `paused` are the contents of paused messages, `deferred` of
    messages with a tool of the server that runs when the results of the caller's tools come."""

    blocks: list[tuple[str, Json]] = field(default_factory=list)
    """With the model of each."""
    paused: list[list[Json]] = field(default_factory=list)
    deferred: list[list[Json]] = field(default_factory=list)
    containers: set[str] = field(default_factory=set)

    def has(self, model: str, block: Json) -> bool:
        return (model, block) in self.blocks


def error(status: int, kind: str, message: str) -> Refused:
    return Refused(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})


def refused(message: str) -> Refused:
    return error(400, "invalid_request_error", message)


def check(body: Json, given: Given) -> None:
    """Raises: Refused."""
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            raise refused(f"{name}: Field required")
    messages = merged(body["messages"])
    if not messages:
        raise refused("messages: at least one message is required")
    if messages[-1]["role"] == "assistant" and messages[-1]["content"] not in given.paused:
        raise refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _check_marks(body, messages)
    _check_texts(messages)
    _check_files(messages)
    _check_calls(messages, body)
    _check_given(messages, body["model"], given)
    _check_thinking(messages, body)
    container = body.get("container")
    wanted = container.get("id") if isinstance(container, dict) else container
    if wanted is not None and wanted not in given.containers:
        raise refused(f"container: Container {wanted} not found or expired.")


def merged(messages: Iterable[Json]) -> list[Json]:
    """The messages as the model sees them: neighbours of one role are one message."""
    for message in messages:
        if message.get("role") not in ("user", "assistant"):
            raise refused(f"messages: Unexpected role {message.get('role')!r}.")
    return [
        {"role": role, "content": [block for message in group for block in blocks_of(message)]}
        for role, group in groupby(messages, lambda message: message["role"])
    ]


def blocks_of(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _places(messages: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    for number, message in enumerate(messages):
        for index, block in enumerate(message["content"]):
            yield f"messages.{number}.content.{index}", block


def _check_marks(body: Json, messages: Sequence[Json]) -> None:
    system = body.get("system", ())
    blocks = [*body.get("tools", ()), *(() if isinstance(system, str) else system), *(b for _, b in _places(messages))]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > _MOST_MARKS:
        raise refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}.")
    if any(block.get("type") in _THINKING for block in marked):
        raise refused("cache_control cannot be set on thinking blocks")


def _check_texts(messages: Sequence[Json]) -> None:
    for number, message in enumerate(messages):
        if not message["content"]:
            raise refused(f"messages.{number}: all messages must have non-empty content")
    for place, block in _places(messages):
        if block["type"] == "text" and not block["text"].strip():
            raise refused(f"{place}: text content blocks must contain non-whitespace text")


def _check_files(messages: Sequence[Json]) -> None:
    for place, block in _places(messages):
        source = block.get("source", {})
        if block["type"] == "image" and source["type"] == "base64" and source["media_type"] not in _IMAGES:
            raise refused(f"{place}.image.source.base64.media_type: Input should be one of {sorted(_IMAGES)}")
        if block["type"] == "document" and source["type"] == "base64" and source["media_type"] != "application/pdf":
            raise refused(f"{place}.document.source.base64.media_type: Input should be 'application/pdf'")
        if block["type"] == "document" and not 1 <= len(block.get("title", "-")) <= _LONGEST_TITLE:
            raise refused(f"{place}.document.title: String should have at most {_LONGEST_TITLE} characters")


def _check_calls(messages: Sequence[Json], body: Json) -> None:
    """Raises: Refused unless the results of all calls follow at once, before all else."""
    seen: set[str] = set()
    made: list[str] = []
    for number, message in enumerate(messages):
        results = [block for block in message["content"] if block["type"] == "tool_result"]
        answered = [block["tool_use_id"] for block in results]
        for index, call_id in enumerate(answered):
            if call_id not in made:
                raise refused(
                    f"messages.{number}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{call_id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )
        if len(set(answered)) < len(answered):
            raise refused(f"messages.{number}: each tool_use must have a single result.")
        missing = [call_id for call_id in made if call_id not in answered]
        if missing:
            raise refused(
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
                "message."
            )
        if message["content"][: len(results)] != results:
            raise refused(f"messages.{number}: tool_result blocks must come before all other content")
        made = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        _check_ids(made, seen)
    if made:
        raise refused(f"messages: `tool_use` ids were found without `tool_result` blocks: {', '.join(made)}.")
    if seen and not body.get("tools"):
        raise refused("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    if body.get("tool_choice") and not body.get("tools"):
        raise refused("tool_choice: tool_choice may only be specified while providing tools")


def _check_ids(ids: Iterable[str], seen: set[str]) -> None:
    for call_id in ids:
        if not _ID.fullmatch(call_id):
            raise refused("messages: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if call_id in seen:
            raise refused("messages: `tool_use` ids must be unique")
        seen.add(call_id)


def _check_given(messages: Sequence[Json], model: str, given: Given) -> None:
    """Raises: Refused unless what the server has signed or encrypted comes back as it was, and in its place."""
    used: list[Any] = []
    begun = _loop_start(messages)
    going_on = messages[begun:] if begun is not None else ()
    may_wait = {block["id"] for _, block in _places(going_on) if block["type"] in _USES}
    for place, block in _places(messages):
        kind = block["type"]
        if kind == "thinking" and not given.has(model, block):
            raise refused(f"{place}: Invalid `signature` in `thinking` block")
        if kind == "redacted_thinking" and not given.has(model, block):
            raise refused(f"{place}: Invalid `data` in `redacted_thinking` block")
        if (kind in _USES or kind.endswith("_tool_result")) and all(block != other for _, other in given.blocks):
            raise refused(f"{place}: `{kind}` blocks cannot be modified")
        if kind in _USES:
            used.append(block["id"])
        elif kind.endswith("_tool_result"):
            if block["tool_use_id"] not in used:
                raise refused(
                    f"{place}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}. Each `{kind}` "
                    "block must have a corresponding `server_tool_use` block before it."
                )
            used.remove(block["tool_use_id"])
    alone = [use for use in used if use not in may_wait]
    if alone and messages[-1]["role"] == "user":
        raise refused(f"messages: `server_tool_use` ids were found without a corresponding result block: {alone}")
    _check_deferred(going_on, given)


def _check_deferred(going_on: Sequence[Json], given: Given) -> None:
    """Raises: Refused unless the tools of the server that the results let run stand where they stood. `going_on` are the
    messages from the beginning of the answer that the request continues."""
    for message in going_on:
        calls = _calls_of(message["content"])
        for content in given.deferred:
            wanted = _calls_of(content)
            if set(calls) & {call for call in wanted if call[0] == "tool_use"} and calls != wanted:
                raise refused(f"messages: the calls of the answer were {wanted}, and not {calls}")


def is_deferred(content: Iterable[Json]) -> bool:
    """Whether a tool of the server waits in the message for the results of the caller's tools."""
    blocks = list(content)
    found = {block.get("tool_use_id") for block in blocks}
    waits = any(block["type"] in _USES and block["id"] not in found for block in blocks)
    return waits and any(block["type"] == "tool_use" for block in blocks)


def _calls_of(content: Iterable[Json]) -> list[tuple[str, str]]:
    return [(block["type"], block["id"]) for block in content if block["type"] in _USES | {"tool_use"}]


def _check_thinking(messages: Sequence[Json], body: Mapping[str, Any]) -> None:
    for number, message in enumerate(messages[:-1]):
        if message["role"] == "assistant" and message["content"][-1]["type"] in _THINKING:
            raise refused(f"messages.{number}: The final block in an assistant message cannot be `thinking`.")
    thinking = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    if thinking["budget_tokens"] >= body["max_tokens"]:
        raise refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("temperature", 1) != 1:
        raise refused("`temperature` may only be set to 1 when thinking is enabled.")
    first = _loop_start(messages)
    if first is not None and messages[first]["content"][0]["type"] not in _THINKING:
        found = messages[first]["content"][0]["type"]
        raise refused(
            f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


def _loop_start(messages: Sequence[Json]) -> int | None:
    """The number of the message with which an answer begins whose tool results the request brings. Words of the user end an
    answer, also behind results."""
    number = len(messages) - 1
    while number >= 1 and all(block["type"] == "tool_result" for block in messages[number]["content"]):
        number -= 2
    return number + 1 if number < len(messages) - 1 else None
