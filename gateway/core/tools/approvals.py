"""Which tool calls a person has to allow, and what exactly is allowed. Law: pure; a yes is for one tool and one set of
arguments, and what is not understood is no yes."""

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
    """`tool` is a pattern for `source.tool`. `arguments`: (path, pattern) of values that all have to fit as well.

    A path leads into objects with dots. A value that is no text is compared as JSON.
    """

    tool: str
    ask: bool = True
    arguments: tuple[tuple[str, str], ...] = ()

    def fits(self, identity: str, arguments: Json) -> bool:
        return _like(identity, self.tool) and all(
            _matches(arguments, path, pattern) for path, pattern in self.arguments
        )


def asks(rules: Sequence[ApprovalRule], identity: str, arguments: Json) -> bool:
    """Whether somebody has to say yes first: as the first rule that fits says, no where none does."""
    return next((rule.ask for rule in rules if rule.fits(identity, arguments)), False)


def may_fit(pattern: str, source: str) -> bool:
    """Whether a rule with this pattern can ever fit a tool of the source, whatever tools it has."""
    begins = f"{source}."
    # Some beginning of the pattern fits the name of the source, and what is left of it fits the name of a tool.
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
    """`*` and `?` alone have a meaning: a rule with a bracket in it, as of a list in JSON, fits that bracket."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _at(value: Json, path: str) -> Json:
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def digest(identity: str, arguments: str) -> str:
    """Of what a yes is for. `arguments` is the model's raw text: spaces and the order of keys make no difference."""
    try:
        known = msgspec.json.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        known = arguments
    return hashlib.sha256(_canonical.encode([identity, known])).hexdigest()


def is_allowed(given: Sequence[StandingApproval], server: str, identity: str) -> bool:
    """Whether a yes for always is for this very tool. What a model calls it depends on the other tools of its agent."""
    return any(one.server == server and one.digest == digest(identity, one.arguments) for one in given)
