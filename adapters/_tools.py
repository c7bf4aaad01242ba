"""Tools that a model is offered and its calls, as far as both OpenAI wires agree. Law: the same id stands on a call and
on its output, and on no other; a name stands on one tool.

Source: OpenAI API description 2.3.0, schemas `FunctionTool` and `ChatCompletionTool`.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from adapters._failures import Failures
from gateway.items import OutputItem
from gateway.model import Json
from gateway.ports import ErrorClass
from gateway.tool_port import ToolDeclaration

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
