"""The tokens of service calls, turns and tasks, in one form for all backends. Law: pure; a number that no backend reported is
absent, and a report in an unknown form counts as none.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.ledger.calls import Complete, Fail
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import Usage

USAGE = "usage"
"""The key in the metadata of a task, and of the status update that ends or pauses a turn."""

_LARGEST = 2**53 - 1
"""The largest whole number that every reader of JSON takes."""

NONE = Usage()

_SHOWN = tuple(field.encode_name for field in msgspec.structs.fields(Usage))


_Places = tuple[tuple[str, ...], ...]
"""The places of one number, each the way to it through nested objects."""


class _Spelling(NamedTuple):
    """The names of one wire. `sign` is a name that tells the wire from those further down. Of the places of `cached` and
    `reasoning` the first that has a number counts. The numbers under `beside_input` and `beside_output` are not among the
    input and output tokens of the wire, but are of the same kind."""

    sign: str
    input: str
    cached: _Places
    output: str
    reasoning: _Places
    total: str
    beside_input: tuple[str, ...] = ()
    beside_output: tuple[str, ...] = ()


_CHAT = _Spelling(
    "prompt_tokens",
    "prompt_tokens",
    (
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),  # DeepSeek
        ("cached_tokens",),  # Moonshot, Together
        ("num_cached_tokens",),  # Mistral
        ("cache_read_input_tokens",),  # Anthropic's models behind proxies
    ),
    "completion_tokens",
    (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),  # the second: Perplexity, SGLang
    "total_tokens",
)
_RESPONSES = _Spelling(
    "input_tokens_details",
    "input_tokens",
    (("input_tokens_details", "cached_tokens"),),
    "output_tokens",
    (("output_tokens_details", "reasoning_tokens"),),
    "total_tokens",
)
_LANGCHAIN = _RESPONSES._replace(
    sign="input_token_details",
    cached=(("input_token_details", "cache_read"),),
    reasoning=(("output_token_details", "reasoning"),),
)
_ANTHROPIC = _RESPONSES._replace(
    sign="cache_read_input_tokens",
    cached=(("cache_read_input_tokens",),),
    reasoning=(("output_tokens_details", "thinking_tokens"),),
    beside_input=("cache_read_input_tokens", "cache_creation_input_tokens"),
)
_BEDROCK = _Spelling(
    "inputTokens",
    "inputTokens",
    (("cacheReadInputTokens",),),
    "outputTokens",
    (),
    "totalTokens",
    beside_input=("cacheReadInputTokens", "cacheWriteInputTokens"),
)
_GEMINI = _Spelling(
    "promptTokenCount",
    "promptTokenCount",
    (("cachedContentTokenCount",),),
    "candidatesTokenCount",
    (("thoughtsTokenCount",),),
    "totalTokenCount",
    beside_output=("thoughtsTokenCount",),
)
_SPELLINGS = (_CHAT, _RESPONSES, _LANGCHAIN, _ANTHROPIC, _RESPONSES._replace(sign="input_tokens"), _BEDROCK, _GEMINI)


def storable(report: Json) -> Json:
    """The report as it is kept with its service call; None for a value that is nested too deep."""
    return report if nesting.fits(report) else None


def read(report: Json) -> Usage:
    """The numbers in a backend's own report."""
    if not isinstance(report, dict):
        return NONE
    for names in _SPELLINGS:
        if names.sign in report:
            break
    else:
        names = _CHAT
    tokens, output = _number(report.get(names.input)), _number(report.get(names.output))
    if names.beside_input:
        tokens = _sum((tokens, *(_number(report.get(name)) for name in names.beside_input)))
    if names.beside_output:
        output = _sum((output, *(_number(report.get(name)) for name in names.beside_output)))
    total = _number(report.get(names.total))
    if total is None and tokens is not None and output is not None:
        total = tokens + output
    cached, reasoning = _first(report, names.cached), _first(report, names.reasoning)
    if tokens is not None and output is not None and reasoning and tokens + output + reasoning == total:
        # xAI counts reasoning beside the output, which the total shows.
        output += reasoning
    found = Usage(tokens, cached, output, reasoning, total)
    return NONE if found == NONE else found


def reported(points: Iterable[CommitPoint]) -> Usage:
    """The tokens of the service calls that end in these commit points, whether they count or not."""
    return total(read(point.usage) for point in points if isinstance(point, Complete | Fail))


def total(usages: Iterable[Usage]) -> Usage:
    counted = [each for each in usages if each is not NONE]
    if len(counted) < 2:
        return counted[0] if counted else NONE
    return Usage(*map(_sum, zip(*map(msgspec.structs.astuple, counted), strict=True)))


def in_metadata(turn: Usage, task: Usage) -> dict[str, Json]:
    """The metadata that shows the tokens of a turn, and of its task so far; empty where nothing was reported."""
    if task is NONE:
        return {}
    whole = msgspec.to_builtins(task)
    if turn is task:
        return {USAGE: {"turn": whole, "task": whole}}
    return {USAGE: {"task": whole} if turn is NONE else {"turn": msgspec.to_builtins(turn), "task": whole}}


def shown_in(metadata: Mapping[str, Json] | None) -> Usage | None:
    """The tokens of the turn that these metadata of a status update show."""
    match metadata:
        case {"usage": {"turn": {**turn}}}:
            return Usage(*(_number(turn.get(name)) for name in _SHOWN))
    return None


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _first(report: Json, places: _Places) -> int | None:
    for path in places:
        value = report
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and (number := _number(value)) is not None:
            return number
    return None


def _number(value: Json) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None
