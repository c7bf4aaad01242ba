"""The operator's rules about approvals: which calls of the gateway's tools their caller has to allow.

Law: pure; the first rule that fits a call decides. A rule that fits no known tool asks about more calls than it says, and
never about fewer. Source: docs/adr/0025.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.core.tools import spellings

KnownTools = Mapping[str, Json]
"""The JSON Schema of the arguments of each tool that a source has listed, by the tool's identity `source.tool`."""

_UNTOLD = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
"""Keywords with which the properties of an object may be declared elsewhere."""

_MISSING = object()


class ApprovalRule(msgspec.Struct, frozen=True):
    """A rule that says which calls need an approval. `tool` is a pattern for `source.tool`. `arguments` are pairs
    (path, pattern) of values that all have to match too.

    The names in a path are separated by dots. A value that is not text is compared in its JSON form. Of the spellings of a
    number, one has to match where the rule asks; where it does not ask, both the one in which it came and its digits.
    """

    tool: str
    ask: bool = True
    arguments: tuple[tuple[str, str], ...] = ()

    def fits(self, identity: str, arguments: Json) -> bool:
        return self.fits_tool(identity) and all(self._matches(arguments, *each) for each in self.arguments)

    def fits_tool(self, identity: str) -> bool:
        """Whether the rule fits some calls of this tool, as far as its name tells."""
        return _like(identity, self.tool)

    def _matches(self, arguments: Json, path: str, pattern: str) -> bool:
        value = _at(arguments, path)
        if value is _MISSING:
            return False
        if self.ask:
            return any(_like(text, pattern) for text in spellings.all_texts(value)) or spellings.means(pattern, value)
        if not _like(spellings.as_written(value), pattern):
            return False
        return _like(spellings.of_magnitude(value), pattern) or spellings.means(pattern, value)

    def sources(self, sources: Sequence[str]) -> list[str]:
        """Those of the sources whose tools the rule may mean."""
        return [source for source in sources if may_fit(self.tool, source)]

    def misfit(self, known: KnownTools) -> Literal["tool", "arguments"] | None:
        """The half of the rule that fits none of these tools, or None where the whole rule fits one of them."""
        schemas = [schema for identity, schema in known.items() if self.fits_tool(identity)]
        if not schemas:
            return "tool"
        takes = any(all(_may_take(schema, path) for path, _ in self.arguments) for schema in schemas)
        return None if takes else "arguments"


def asks(rules: Sequence[ApprovalRule], identity: str, arguments: Json) -> bool:
    """Whether the call needs an approval: the first rule that fits decides; without one it does not."""
    return next((rule.ask for rule in rules if rule.fits(identity, arguments)), False)


def in_force(rules: Sequence[ApprovalRule], sources: Sequence[str], known: KnownTools) -> tuple[ApprovalRule, ...]:
    """The rules that decide about calls of the tools of `sources`, of which `known` have been listed.

    In place of a rule that asks and fits none of the known tools stand rules that ask about every tool of the sources that
    it may mean; in place of one with arguments that no fitting tool takes stands one that asks about every call of these
    tools. The tool that such a rule was meant for has another name, or is not known yet.
    """
    return tuple(wider for rule in rules for wider in _wider(rule, sources, known))


def _wider(rule: ApprovalRule, sources: Sequence[str], known: KnownTools) -> Iterator[ApprovalRule]:
    match rule.misfit(known) if rule.ask else None:
        case "tool":
            # The name of a source has no character that is special in a pattern.
            yield from (ApprovalRule(f"{source}.*") for source in rule.sources(sources))
        case "arguments":
            yield replace(rule, arguments=())
        case None:
            yield rule


def may_fit(pattern: str, source: str) -> bool:
    """Whether a rule with this pattern can fit any tool of the source."""
    begins = f"{source}."
    # A beginning of the pattern matches the name of the source, and the rest can match the name of a tool.
    return any(
        _like(begins, pattern[:end]) and (end < len(pattern) or pattern.endswith("*"))
        for end in range(1, len(pattern) + 1)
    )


def _may_take(schema: Json, path: str) -> bool:
    """Whether arguments of this schema may have a value at the path; True where the schema does not tell."""
    for key in path.split("."):
        if not isinstance(schema, dict) or any(word in schema for word in _UNTOLD):
            return True
        if schema.get("type", "object") not in ("object", ["object"]):
            return isinstance(schema["type"], list) and "object" in schema["type"]
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return True
        if key not in properties:
            # A model sends the declared properties only, unless the schema says expressly that others may be sent.
            return schema.get("additionalProperties", False) is not False
        schema = properties[key]
    return True


def _like(text: str, pattern: str) -> bool:
    """Only `*` and `?` are special: a bracket in a rule, as of a list in JSON, matches a bracket."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _at(value: Json, path: str) -> Json:
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value
