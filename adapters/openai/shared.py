"""Parts and items as both OpenAI wires want them, as far as the two agree.

What `check --live` asks of an OpenAI wire. Law: a probe stores nothing, and reads no more than the beginning.

Tools that a model is offered and its calls, as far as both OpenAI wires agree. Law: the same id stands on a call and
on its output, and on no other; a name stands on one tool.

Source: OpenAI API description 2.3.0, schemas `FunctionTool` and `ChatCompletionTool`.
"""

import hashlib
import mimetypes
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import AdapterEvent, CallStarted, ErrorClass
from gateway.ports.conversation import OutputItem
from gateway.ports.tools import ToolDeclaration

_DEFAULT_MEDIA_TYPE = "application/octet-stream"


def compact(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def part_text(part: Part) -> str | None:
    """What a part of text or data says, None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else compact(part.data)


def said(parts: tuple[Part, ...]) -> str:
    """An answer of the model's, to be shown to it again; it cannot take its own files back."""
    texts = []
    for part in parts:
        text = part_text(part)
        texts.append(f"[{part.filename or part.url or media_type(part)}]" if text is None else text)
    return "".join(texts)


def media_type(part: Part) -> str:
    if part.media_type:
        return part.media_type
    return mimetypes.guess_type(part.filename or part.url or "")[0] or _DEFAULT_MEDIA_TYPE


def file_url(part: Part) -> str:
    """The file's address; for a file that came along a data URL."""
    return part.url if part.url is not None else f"data:{media_type(part)};base64,{part.raw}"


def file_name(part: Part) -> str:
    return part.filename or f"file{mimetypes.guess_extension(media_type(part)) or ''}"


QUESTION = "ping"


async def lists_model(http: HttpClient, base_url: str, model: str) -> bool | None:
    """None where the server has no list. Raises: AdapterError."""
    match await http.get_json(f"{base_url}/models"):
        case {"data": [_, *_] as entries}:
            # Ollama leaves out the tag in a request, not in the list.
            return any(isinstance(entry, dict) and entry.get("id") in (model, f"{model}:latest") for entry in entries)
    return None


async def begin(
    http: HttpClient,
    url: str,
    body: dict[str, Json],
    read: Callable[[bytes], Sequence[AdapterEvent]],
    failures: Failures,
    **options: Any,
) -> str | None:
    """Returns at the first thing that is said, with the handle, and drops the rest. Raises: AdapterError."""
    handle = None
    async with http.post_stream(url, msgspec.json.encode(body), **options) as stream:
        async for batch in stream:
            for event in (event for data in batch for event in read(data)):
                if not isinstance(event, CallStarted):
                    return handle
                handle = event.handle
    raise failures.error(ErrorClass.INTERRUPTED, "the stream ended before it began")


_NO_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_CALL_ID_LIMIT = 64
# OpenAI refuses them where no tool is offered.
_ONLY_WITH_TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})


# --- what is offered


class Offer:
    """What every request says, with the tools of this one. `fields` may hold tools of the backend's own."""

    def __init__(
        self, fields: dict[str, Json], encode: Callable[[ToolDeclaration], dict[str, Json]], failures: Failures
    ) -> None:
        self._own: Sequence[dict[str, Json]] = fields.get("tools") or ()
        self._own_names = frozenset(tool_names(self._own))
        self._fields = fields
        self._without = (
            fields if self._own else {name: value for name, value in fields.items() if name not in _ONLY_WITH_TOOLS}
        )
        self._encode = encode
        self._failures = failures

    def fields(self, declared: Sequence[ToolDeclaration] = ()) -> dict[str, Json]:
        """Raises: AdapterError for a name that occurs twice."""
        if not declared:
            return self._without
        names = set(self._own_names)
        for tool in declared:
            if tool.name in names:
                raise self._failures.error(ErrorClass.REJECTED, f"two tools are called {tool.name!r}")
            names.add(tool.name)
        return self._fields | {"tools": [*self._own, *map(self._encode, declared)]}


def tool_names(tools: Iterable[dict[str, Json]]) -> list[str]:
    """Names in settings, of either wire; what the service runs itself mostly has none."""
    names = []
    for tool in tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name")
        if isinstance(name, str):
            names.append(name)
    return names


# --- calls and outputs


class CallIds:
    """The ids of one request's calls, in the order of its items."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._open: dict[str, deque[str]] = {}

    def of_call(self, given: str) -> str:
        """OpenAI refuses longer ids than it makes, and empty ones; other servers make both, and the same one again."""
        wanted = given if len(given) <= _CALL_ID_LIMIT else f"call_{hashlib.sha256(given.encode()).hexdigest()[:32]}"
        unique, number = wanted or "call_1", 1
        while unique in self._taken:
            number += 1
            unique = f"{wanted[: _CALL_ID_LIMIT - 8] or 'call'}_{number}"
        self._taken.add(unique)
        self._open.setdefault(given, deque()).append(unique)
        return unique

    def of_output(self, given: str) -> str:
        """Of the first call of that id that has none; else it answers one that the backend keeps, under its own id."""
        waiting = self._open.get(given)
        return waiting.popleft() if waiting else given


def function_name(name: str) -> str:
    """Both wires refuse other characters than these, which MCP servers may use."""
    return _NO_NAME_CHARACTER.sub("_", name) or "_"


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def arguments_text(arguments: str) -> str:
    """Many servers read them again for the model's template, and refuse the whole conversation where they cannot."""
    if not arguments.strip():
        return "{}"
    try:
        _decode_object(arguments)
    except (msgspec.DecodeError, RecursionError):
        return _text({"raw": arguments})
    return arguments


def output_text(item: OutputItem) -> str:
    """Neither wire has a mark for a tool that failed."""
    text = item.output if isinstance(item.output, str) else _text(item.output)
    return f"Error: {text}" if item.error and not text.lower().startswith("error") else text


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
