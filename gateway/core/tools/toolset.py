"""The tools of one agent: distinct names for the tools of several sources, checked arguments, bounded results. Law: only an
offered tool can be called; names do not depend on the order of the sources; a result is JSON within its limit."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from gateway.a2a.model import Json
from gateway.a2a.nesting import DEEPEST, TOO_DEEP
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.steps import Steps
from gateway.ports.tools import ResultTooDeep, ToolDeclaration, ToolError, ToolOutput, ToolRun, ToolSource

_LONGEST = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def offered_names(tools: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One name of 1 to 64 of a-z, A-Z, 0-9, _ and - for each (source, own name), no two the same.

    It is the tool's own name, and `source_tool` for every party of a collision.
    """
    candidates = [_candidates(source, own) for source, own in tools]
    steps = [0] * len(tools)
    while True:
        names = [each[step] for each, step in zip(candidates, steps, strict=True)]
        taken = Counter(names)
        # When tools share a name, the tools with the simplest form of the name use their next candidate.
        lowest = {name: min(step for other, step in zip(names, steps, strict=True) if other == name) for name in taken}
        moving = [
            index
            for index, name in enumerate(names)
            if taken[name] > 1 and steps[index] == lowest[name] and steps[index] + 1 < len(candidates[index])
        ]
        if not moving:
            return tuple(names)
        for index in moving:
            steps[index] += 1


def _candidates(source: str, own: str) -> tuple[str, str, str]:
    mark = hashlib.sha256(f"{source}.{own}".encode(errors="replace")).hexdigest()[:8]
    both = f"{source}_{own}"
    return _valid(own or source, mark), _valid(both, mark), f"{_valid(both, mark)[: _LONGEST - 9]}_{mark}"


def _valid(name: str, mark: str) -> str:
    name = _FOREIGN.sub("_", name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}_{mark}"


_DIGITS = 20


def cleaned(output: ToolOutput) -> ToolOutput:
    """The output as JSON. Raises: ToolError when it is none, ResultTooDeep when it is nested too deep."""
    return ToolOutput(_json(output.output, 0), output.error)


def bounded(output: ToolOutput, limit: int) -> ToolOutput:
    """At most `limit` bytes of the output, with a note where it was cut; the same object where it was not."""
    value = output.output
    if isinstance(value, str):
        # Each character is one to four bytes, so most texts need no copy to be measured.
        if len(value) * 4 <= limit or (size := len(data := value.encode())) <= limit:
            return output
        return ToolOutput(f"{_beginning(data, limit)}\n[truncated: {limit} of {size} bytes]", output.error)
    if (size := len(data := msgspec.json.encode(value))) <= limit:
        return output
    return ToolOutput({"truncated": True, "bytes": size, "beginning": _beginning(data, limit)}, output.error)


def beginning_of(output: Json) -> str | UnsetType:
    """The beginning of the value that `bounded` has cut, or UNSET for any other output."""
    match output:
        case {"truncated": True, "bytes": int(), "beginning": str(text)}:
            return text
    return UNSET


def _beginning(data: bytes, limit: int) -> str:
    return data[:limit].decode(errors="ignore")


def _json(value: object, depth: int) -> Json:
    """A copy with replacements for values that JSON does not have: results hold NUL, half characters and infinities."""
    if depth > DEEPEST:
        raise ResultTooDeep(f"the result is {TOO_DEEP}")
    match value:
        case None | bool():
            return value
        case str():
            return _text(value)
        case int():
            return int(value) if abs(value) < 10**_DIGITS else str(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_json(each, depth + 1) for each in value]
        case dict():
            return {_text(str(key)): _json(each, depth + 1) for key, each in value.items()}
        case _:
            detail = f"the result holds a {type(value).__name__}, which JSON does not have"
            raise ToolError(detail, may_have_run=True)


def _text(value: str) -> str:
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    if value.isascii():
        return value
    return value.encode(errors="surrogatepass").decode(errors="replace")


class Complaint(Protocol):
    def __call__(self, arguments: dict[str, Json], steps: Steps | None = None) -> str | None:
        """A text about wrong arguments, or None when they fit. `steps` are those that several checks share."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the model of one agent may call it. `identity` is `source.tool`, the name in the rules. `server` is the
    name of the source that callers see.

    `timeout` is in seconds, `max_result` in bytes of what the model gets. `complaint` is the check of arguments.
    """

    declaration: ToolDeclaration
    identity: str
    server: str
    own_name: str
    source: ToolSource
    timeout: float
    complaint: Complaint
    idempotent: bool = False
    max_result: int = 65536

    async def run(self, run: ToolRun) -> ToolOutput:
        """The whole result, which may be larger than `max_result`. Raises: ToolError."""
        return cleaned(await self.source.run(run))


class Toolset(Protocol):
    async def offered(self) -> Mapping[str, OfferedTool]:
        """The tools by the name that the model sees, in a stable order.

        Raises: ToolError when a source cannot list its tools.
        """

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        """The rules that decide about calls of the tools that were last offered: `approval_rules.in_force`."""
