"""Parts of messages, tools and calls in the form of both OpenAI wires. Law: the same id stands on a call and on its output,
and on no other; a name stands on one tool.

Source: OpenAI API description 2.3.0, schemas `FunctionTool` and `ChatCompletionTool`.
"""

import hashlib
import mimetypes
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec import UNSET

from adapters.http.failures import Failures
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import ErrorClass
from gateway.ports.conversation import OutputItem, joined
from gateway.ports.tools import ToolDeclaration

_NO_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_CALL_ID_LIMIT = 64
# OpenAI refuses these fields in a request without tools.
_ONLY_WITH_TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def part_text(part: Part) -> str | None:
    """The text of a part of text or data, None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else json_text(part.data)


def answer_text(parts: tuple[Part, ...]) -> str:
    """An earlier answer of the model. The model cannot take its own files back: a file becomes its name."""
    texts = []
    for part in parts:
        text = part_text(part)
        texts.append(f"[{part.filename or part.url or media_type(part)}]" if text is None else text)
    return joined(texts)


def media_type(part: Part) -> str:
    guessed = mimetypes.guess_type(part.filename or part.url or "")[0]
    return part.media_type or guessed or "application/octet-stream"


def file_url(part: Part) -> str:
    """The file's address; a data URL for a file whose bytes are in the part."""
    return part.url if part.url is not None else f"data:{media_type(part)};base64,{part.raw}"


def file_name(part: Part) -> str:
    return part.filename or f"file{mimetypes.guess_extension(media_type(part)) or ''}"


class ToolOffer:
    """The fields of every request, with the tools of one request. `fields` may hold tools of the backend's own."""

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
                raise self._failures.error(ErrorClass.NOT_SERVED, f"two tools are called {tool.name!r}")
            names.add(tool.name)
        return self._fields | {"tools": [*self._own, *map(self._encode, declared)]}


def tool_names(tools: Iterable[dict[str, Json]]) -> list[str]:
    """Names of the settings' tools, of either wire. Most tools that the service runs itself have none."""
    named = (tool["function"] if isinstance(tool.get("function"), dict) else tool for tool in tools)
    return [tool["name"] for tool in named if isinstance(tool.get("name"), str)]


NOTHING_RENAMED: Mapping[str, str] = MappingProxyType({})


class CallIds:
    """The ids of one request's calls, in the order of its items. `renamed` are the backend's own ids of calls that it keeps, by
    those under which the core knows them."""

    def __init__(self, renamed: Mapping[str, str] = NOTHING_RENAMED) -> None:
        self._renamed = renamed
        self._taken: set[str] = set()
        self._open: dict[str, deque[str]] = {}

    def of_call(self, given: str) -> str:
        """OpenAI refuses empty ids and ids longer than its own; other servers make both, and make the same id again."""
        wanted = given if len(given) <= _CALL_ID_LIMIT else f"call_{hashlib.sha256(given.encode()).hexdigest()[:32]}"
        unique, number = wanted or "call_1", 1
        while unique in self._taken:
            number += 1
            unique = f"{wanted[: _CALL_ID_LIMIT - 8] or 'call'}_{number}"
        self._taken.add(unique)
        self._open.setdefault(given, deque()).append(unique)
        return unique

    def of_output(self, given: str) -> str:
        """The id of the first call of that id without an output. Without one, the call is in the backend's own chain."""
        waiting = self._open.get(given)
        return waiting.popleft() if waiting else self._renamed.get(given, given)


def function_name(name: str) -> str:
    """Both wires refuse other characters, which MCP servers may use."""
    return _NO_NAME_CHARACTER.sub("_", name) or "_"


def arguments_text(arguments: str) -> str:
    """A JSON object: many servers parse it for the model's template, and refuse the whole conversation for any other text."""
    if not arguments.strip():
        return "{}"
    try:
        _decode_object(arguments)
    except (msgspec.DecodeError, RecursionError):
        return json_text({"raw": arguments})
    return arguments


def output_text(item: OutputItem) -> str:
    """Neither wire has a mark for a tool that failed."""
    text = item.output if isinstance(item.output, str) else json_text(item.output)
    return f"Error: {text}" if item.error and not text.lower().startswith("error") else text
