"""Items of a thread -> `messages` of the Messages API. Law: roles alternate; a message with calls is followed by one with the
results of all of them, which come first; the order of what the model said is kept.

Source: Anthropic's Messages API, version 2023-06-01.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from adapters.anthropic.content import Block, UserContent, answer, json_text
from adapters.anthropic.replay import THINKING, Replay
from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    Item,
    OpaqueItem,
    OutputItem,
    ReasoningItem,
    UserItem,
)

_NO_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64


def encode_messages(items: Sequence[Item], model: str, content: UserContent) -> list[Block]:
    """Questions for approval, and thinking of another model, have no place on this wire. Raises: AdapterError for a file
    that the model cannot take."""
    replay, messages = Replay(items, model), _Messages(items)
    for item in items:
        match item:
            case UserItem(message=message):
                messages.add_user(content.blocks(message.parts))
            case AssistantItem(parts=parts):
                messages.add_assistant(*answer(parts))
            case ReasoningItem():
                if (block := replay.thinking(item)) is not None:
                    messages.add_assistant(block)
            case OpaqueItem():
                if (block := replay.block(item)) is not None:
                    messages.add_assistant(block)
            case CallItem(asking=None) if not replay.is_own(item.call_id):
                messages.add_call(item)
            case OutputItem(approved=None) if not replay.is_own(item.call_id):
                messages.end_answer()
            case _:
                pass
    messages.end_answer()
    return messages.whole


class _Messages:
    def __init__(self, items: Iterable[Item]) -> None:
        self.whole: list[Block] = []
        self._outputs: dict[str, deque[OutputItem]] = {}
        for item in items:
            if isinstance(item, OutputItem):
                self._outputs.setdefault(item.call_id, deque()).append(item)
        self._taken: set[str] = set()
        self._open: list[tuple[str, OutputItem]] = []
        """The calls of the message of the model that grows: id on the wire, and outcome."""

    def add_user(self, blocks: Iterable[Block]) -> None:
        self.end_answer()
        self._add("user", blocks)

    def add_assistant(self, *blocks: Block) -> None:
        self._add("assistant", blocks)

    def add_call(self, call: CallItem) -> None:
        """Ids may repeat in a thread: a call has the first output left."""
        wire_id = self._unique(call.call_id)
        self._open.append((wire_id, self._outputs[call.call_id].popleft()))
        named = {"type": "tool_use", "id": wire_id, "name": tool_name(call.name)}
        self._add("assistant", [{**named, "input": _input(call.arguments)}])

    def end_answer(self) -> None:
        """The results of the calls so far follow."""
        results, self._open = [_result(*each) for each in self._open], []
        self._add("user", results)

    def _add(self, role: str, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if role == "user":
                self._drop_last_thoughts()
            if not self.whole or self.whole[-1]["role"] != role:
                self.whole.append({"role": role, "content": []})
            self.whole[-1]["content"].append(block)

    def _drop_last_thoughts(self) -> None:
        """The service refuses an answer that ends with thinking, which is all that is left of an answer that was cut."""
        while self.whole and self.whole[-1]["role"] == "assistant":
            blocks = self.whole[-1]["content"]
            if blocks and blocks[-1]["type"] not in THINKING:
                return
            if blocks:
                blocks.pop()
            else:
                self.whole.pop()

    def _unique(self, given: str) -> str:
        """The service refuses other characters, and an id that stands on two calls."""
        plain = _NO_ID_CHARACTER.sub("_", given)
        if plain != given or len(given) > _LONGEST or not given:
            plain = f"toolu_{hashlib.sha256(given.encode()).hexdigest()[:32]}"
        unique, number = plain, 1
        while unique in self._taken:
            number += 1
            unique = f"{plain}_{number}"
        self._taken.add(unique)
        return unique


def tool_name(name: str) -> str:
    """The service refuses other characters, which MCP servers may use."""
    return _NO_ID_CHARACTER.sub("_", name) or "_"


def called_tools(messages: Iterable[Block]) -> list[str]:
    """The names of the tools that were called, each once, in their order."""
    blocks = (block for message in messages for block in message["content"])
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def lacks_thinking(messages: Sequence[Block]) -> bool:
    """Whether the model is in the middle of an answer that has no thinking at its beginning. A request for thinking within a
    budget is then refused."""
    loop = list(messages)
    for index in reversed(range(len(messages))):
        blocks = messages[index]["content"]
        if messages[index]["role"] == "user" and all(block["type"] != "tool_result" for block in blocks):
            loop = list(messages[index + 1 :])
            break
    return bool(loop) and loop[0]["role"] == "assistant" and loop[0]["content"][0]["type"] not in THINKING


def _input(arguments: str) -> Json:
    """A JSON object, which the wire demands."""
    if not arguments.strip():
        return {}
    try:
        value = nesting.decode(arguments)
    except msgspec.DecodeError:
        value = None
    return value if isinstance(value, dict) else {"raw": arguments}


def _result(wire_id: str, item: OutputItem) -> Block:
    text = item.output if isinstance(item.output, str) else json_text(item.output)
    content = {"content": text} if text else {}
    return {"type": "tool_result", "tool_use_id": wire_id, **content, **({"is_error": True} if item.error else {})}
