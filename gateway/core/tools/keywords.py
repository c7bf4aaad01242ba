"""The keywords of JSON Schema with bounds: jsonschema's own, each step counted, and replacements for the keywords whose work
grows faster than the schema and the value.

Law: no keyword runs uncounted, and no regular expression of a schema reaches Python's engine.

`pattern`, `patternProperties`, `additionalProperties` and the `unevaluated` keywords search with RE2; `uniqueItems`, `enum` and
`const` compare canonical texts of values. Whether an expression is found that RE2 cannot express is not known, and refuses
no value: neither by itself, nor by a match of `not` or a second match of `oneOf` that rests on it.
"""

import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import msgspec
from jsonschema import validators
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import lookup_recursive_ref

from gateway.a2a.model import Json
from gateway.core.tools.patterns import Patterns
from gateway.core.tools.steps import Steps

Errors = Iterator[ValidationError]
Keyword = Callable[[Any, Any, Any, Any], Errors]
"""(validator, value of the keyword, instance, schema) -> errors, as jsonschema calls it."""

_PER_STEP = 32
"""Members of a list or an object, or characters, that a step passes over."""

_TEXT_PER_STEP = 512
"""Characters of a message that a step writes."""

_NODES_PER_STEP = 4
"""Values that a step makes a text of, to compare them."""

_LARGE = 2**64
"""From here on, a whole number and a float are the same where the float is exact."""

_SCOPE = 10
"""Steps of a search through the scopes of a dynamic reference."""

_HEDGED = ("not", "oneOf", "if", "contains", "disallow", "unevaluatedProperties", "unevaluatedItems")
"""Keywords that refuse a value because a subschema accepts one."""


class SchemaFacts:
    """The facts of one schema that its checks share. The schema must not change."""

    def __init__(self) -> None:
        self.patterns = Patterns()
        self._allowed: dict[int, frozenset[str]] = {}

    def allowed(self, values: list[Json]) -> frozenset[str]:
        """The canonical texts of the values of an `enum` of the schema."""
        found = self._allowed.get(id(values))
        if found is None:
            unlimited = Check(self, Steps(sys.maxsize))
            found = self._allowed[id(values)] = frozenset(map(unlimited.canonical, values))
        return found


class Check(msgspec.Struct):
    """One check of one value. `unsure` counts the searches for expressions that RE2 cannot express."""

    known: SchemaFacts
    steps: Steps
    unsure: int = 0

    def search(self, pattern: str, text: str) -> bool | None:
        """Whether the expression is found in the text; None where that is not known."""
        found = self.known.patterns.search(pattern, text, self.steps)
        if found is None:
            self.unsure += 1
        return found

    def canonical(self, value: Json) -> str:
        """The same text for equal values of JSON, and for no others: 1 equals 1.0, and true equals neither."""
        match value:
            case str():
                self.steps.spend(len(value) // _TEXT_PER_STEP)
                return f'"{len(value)}:{value}'
            case None | bool():
                return str(value)
            case int() | float():
                return _number(value)
            case dict():
                self.steps.spend(1 + len(value) // _NODES_PER_STEP + sum(map(len, value)) // _TEXT_PER_STEP)
                members = (f"{len(key)}:{key}{self.canonical(value[key])}" for key in sorted(value))
                return f"{{{','.join(members)}}}"
            case _:
                self.steps.spend(1 + len(value) // _NODES_PER_STEP)
                return f"[{','.join(map(self.canonical, value))}]"


def _number(value: float) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _LARGE else repr(value)
    if abs(value) < _LARGE:
        return str(value)
    try:
        same = float(value)
    except OverflowError:
        return hex(value)
    return repr(same) if same == value else hex(value)


running: ContextVar[Check] = ContextVar("running")
"""The check that the keywords work for."""


@cache
def bounded(kind: Any) -> Any:
    """The validator class of the same dialect with these keywords."""
    keywords: dict[str, Keyword] = dict(kind.VALIDATORS)
    for name, replaced in _REPLACED.items():
        if name in keywords:
            keywords[name] = replaced(keywords[name])
    for name in _HEDGED:
        if name in keywords:
            keywords[name] = _hedged(keywords[name])
    extend: Any = validators.extend
    found = extend(kind, {name: _counted(name, keyword) for name, keyword in keywords.items()})
    # The library takes the class of another dialect, without these keywords, for a subschema with a `$schema` of its own.
    found.evolve = _evolve
    return found


def _evolve(validator: Any, **changes: Any) -> Any:
    running.get().steps.spend(1)
    schema, resolver = changes.get("schema", validator.schema), changes.get("_resolver", validator._resolver)
    return type(validator)(schema, registry=validator._registry, _resolver=resolver)


def _counted(name: str, keyword: Keyword) -> Keyword:
    scope = _SCOPE if name in ("$dynamicRef", "$recursiveRef") else 0
    refers = name in ("$ref", "$dynamicRef")
    nested = name in ("dependentRequired", "dependencies")

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        steps = running.get().steps
        size = _size(value) + _size(instance)
        if nested:
            size += sum(map(_size, value.values()))
        elif refers:
            # The library walks the whole pointer again for each of its parts.
            size += value.count("/") ** 2
        steps.spend(1 + scope + size // _PER_STEP)
        for error in keyword(validator, value, instance, schema):
            # An error of a subschema has been counted with its text there.
            steps.spend(1 if error.schema_path else 1 + len(error.message) // _TEXT_PER_STEP)
            yield error

    return counted


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else 0


def _hedged(keyword: Keyword) -> Keyword:
    """Drops the errors that rest on an expression which RE2 cannot express."""

    def hedged(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        check = running.get()
        before = check.unsure
        errors = list(keyword(validator, value, instance, schema))
        if check.unsure == before:
            yield from errors

    return hedged


# --- keywords with other work ---


def _pattern(_: Keyword) -> Keyword:
    def pattern(validator: Any, value: Any, instance: Any, _schema: Any) -> Errors:
        if validator.is_type(instance, "string") and running.get().search(value, instance) is False:
            yield ValidationError(f"{instance!r} does not match {value!r}")

    return pattern


def _pattern_properties(_: Keyword) -> Keyword:
    def pattern_properties(validator: Any, value: Any, instance: Any, _schema: Any) -> Errors:
        if not validator.is_type(instance, "object"):
            return
        check = running.get()
        for pattern, subschema in value.items():
            for name, member in instance.items():
                if check.search(pattern, name):
                    yield from validator.descend(member, subschema, path=name, schema_path=pattern)

    return pattern_properties


def _additional_properties(keyword: Keyword) -> Keyword:
    def additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if validator.is_type(instance, "object"):
            named = _named(instance, schema)
            rest = {name: member for name, member in instance.items() if name not in named}
            yield from keyword(validator, value, rest, {})

    return additional_properties


def _unevaluated_properties(keyword: Keyword) -> Keyword:
    def unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if validator.is_type(instance, "object"):
            seen = _evaluated(validator, instance, _without(schema, "unevaluatedProperties"))
            rest = {name: member for name, member in instance.items() if name not in seen}
            yield from keyword(validator, value, rest, {})

    return unevaluated_properties


def _unevaluated_items(keyword: Keyword) -> Keyword:
    def unevaluated_items(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if validator.is_type(instance, "array"):
            seen = _evaluated(validator, instance, _without(schema, "unevaluatedItems"))
            rest = [each for index, each in enumerate(instance) if index not in seen]
            fits = validator.evolve(schema=value).is_valid
            yield from keyword(validator, value, [each for each in rest if not fits(each)], {})

    return unevaluated_items


def _unique_items(_: Keyword) -> Keyword:
    def unique_items(validator: Any, value: Any, instance: Any, _schema: Any) -> Errors:
        if value and validator.is_type(instance, "array"):
            check = running.get()
            if len(set(map(check.canonical, instance))) < len(instance):
                yield ValidationError(f"{instance!r} has non-unique elements")

    return unique_items


def _enum(_: Keyword) -> Keyword:
    def enum(_validator: Any, value: Any, instance: Any, _schema: Any) -> Errors:
        check = running.get()
        if check.canonical(instance) not in check.known.allowed(value):
            yield ValidationError(f"{instance!r} is not one of {value!r}")

    return enum


def _const(_: Keyword) -> Keyword:
    def const(_validator: Any, value: Any, instance: Any, _schema: Any) -> Errors:
        check = running.get()
        if check.canonical(instance) != check.canonical(value):
            yield ValidationError(f"{value!r} was expected")

    return const


_REPLACED: dict[str, Callable[[Keyword], Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "const": _const,
}


# --- what a schema evaluates: names of properties, indexes of items ---


def _without(schema: dict[str, Json], name: str) -> dict[str, Json]:
    return {key: value for key, value in schema.items() if key != name}


def _named(instance: dict[str, Json], schema: dict[str, Json]) -> set[str]:
    """The properties that `properties` and `patternProperties` of this very schema name."""
    check = running.get()
    named = instance.keys() & (schema.get("properties") or {}).keys()
    for pattern in schema.get("patternProperties") or {}:
        named |= {name for name in instance if check.search(pattern, name) is not False}
    return named


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[Any]:
    """The members that the schema evaluates: itself, or by a schema that it applies to the same instance."""
    running.get().steps.spend(1 + _size(instance) // _PER_STEP)
    if not isinstance(schema, dict):
        return set()
    own = _own_names if isinstance(instance, dict) else _own_indexes
    found: set[Any] = set(own(validator, instance, schema))
    for inside, subschema in _applied(validator, instance, schema):
        found |= _evaluated(inside, instance, subschema)
    return found


def _own_names(_validator: Any, instance: dict[str, Json], schema: dict[str, Any]) -> Iterator[str] | set[str]:
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    return _named(instance, schema)


def _own_indexes(validator: Any, instance: list[Json], schema: dict[str, Any]) -> set[int]:
    items = schema.get("items")
    if isinstance(items, dict | bool) or "unevaluatedItems" in schema or ("additionalItems" in schema and items):
        return set(range(len(instance)))
    first = items if isinstance(items, list) else schema.get("prefixItems") or ()
    found = set(range(min(len(first), len(instance))))
    if "contains" in schema:
        fits = validator.evolve(schema=schema["contains"]).is_valid
        found |= {index for index, each in enumerate(instance) if fits(each)}
    return found


def _applied(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schemas that this one applies to the same instance, and the validators that know their references."""
    for word in ("$ref", "$dynamicRef"):
        if word in schema:
            resolved = validator._resolver.lookup(schema[word])
            yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
    if "$recursiveRef" in schema:
        resolved = lookup_recursive_ref(validator._resolver)
        yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
    for word in ("allOf", "anyOf", "oneOf"):
        for subschema in schema.get(word) or ():
            if validator.evolve(schema=subschema).is_valid(instance):
                yield validator, subschema
    if isinstance(instance, dict):
        for name, subschema in (schema.get("dependentSchemas") or {}).items():
            if name in instance:
                yield validator, subschema
    if "if" in schema:
        if validator.evolve(schema=schema["if"]).is_valid(instance):
            yield validator, schema["if"]
            yield validator, schema.get("then")
        else:
            yield validator, schema.get("else")
