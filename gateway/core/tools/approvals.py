"""The tool calls that need a person's approval. Law: pure; an approval is for one tool and one set of arguments."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.tool_calls import StandingApproval

_canonical = msgspec.json.Encoder(order="sorted")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """`tool`: a pattern for `source.tool`. `arguments`: (path, pattern) of values that all have to match too.

    A path leads into objects with dots. A value other than text is compared as JSON.
    """

    tool: str
    ask: bool = True
    arguments: tuple[tuple[str, str], ...] = ()

    def fits(self, identity: str, arguments: Json) -> bool:
        return _like(identity, self.tool) and all(
            _matches(arguments, path, pattern) for path, pattern in self.arguments
        )


def asks(rules: Sequence[ApprovalRule], identity: str, arguments: Json) -> bool:
    """Whether the call needs an approval: the first rule that fits decides; without one it does not."""
    return next((rule.ask for rule in rules if rule.fits(identity, arguments)), False)


def may_fit(pattern: str, source: str) -> bool:
    """Whether a rule with this pattern can fit any tool of the source."""
    begins = f"{source}."
    # A beginning of the pattern matches the name of the source, and the rest can match the name of a tool.
    return any(
        _like(begins, pattern[:end]) and (end < len(pattern) or pattern.endswith("*"))
        for end in range(1, len(pattern) + 1)
    )


def _matches(arguments: Json, path: str, pattern: str) -> bool:
    value = _at(arguments, path)
    if value is _MISSING:
        return False
    return _like(value if isinstance(value, str) else _canonical.encode(value).decode(), pattern)


def _like(text: str, pattern: str) -> bool:
    """Only `*` and `?` are special: a bracket in a rule, as of a list in JSON, matches a bracket."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _at(value: Json, path: str) -> Json:
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def digest(identity: str, arguments: str) -> str:
    """The digest of what an approval is for. `arguments`: the model's raw text; spaces and the order of keys do not count."""
    try:
        known = msgspec.json.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        known = arguments
    return hashlib.sha256(_canonical.encode([identity, known])).hexdigest()


def is_allowed(given: Sequence[StandingApproval], server: str, identity: str) -> bool:
    """Whether a standing approval is for this tool. The model's name for it depends on the other tools of the agent."""
    return any(one.server == server and one.digest == digest(identity, one.arguments) for one in given)
