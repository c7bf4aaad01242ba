"""Whether what a client calls a JSON Schema is one. Law: pure, and linear in its size: a client chooses both; nothing that it
refers to is ever fetched.

jsonschema's own check of a schema takes a second for 16 KiB of the right kind. This one knows the words of drafts 7 to
2020-12 and what may stand behind each; a word that it does not know may have anything.
"""

from collections.abc import Callable, Iterator
from math import inf

from gateway.errors import echo
from gateway.model import Json

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_A_SCHEMA = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef", "$ref"})

Fault = tuple[str, str]
"""Where it is, as `.properties.city.type`, and what is wrong there."""


def fault(schema: Json) -> Fault | None:
    """What is wrong with the parameters of a tool; None: they are a JSON Schema of an object."""
    if not isinstance(schema, dict):
        return "", f"must be the JSON Schema of an object, not {echo(schema)}"
    if schema.get("type", "object") != "object":
        return ".type", f"must be object, as arguments are, not {echo(schema['type'])}"
    return next(_faults(schema, schema, ""), None)


def _faults(schema: Json, root: dict[str, Json], at: str) -> Iterator[Fault]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield at, f"must be a JSON Schema, which is an object, true or false, not {echo(schema)}"
        return
    for word, value in schema.items():
        here = f"{at}.{word}"
        known = _VALUES.get(word)
        if known is not None and not known[0](value):
            yield here, f"must be {known[1]}, not {echo(value)}"
        elif word in _REFERENCES and isinstance(value, str) and not _leads_somewhere(value, root):
            yield here, f"must refer to something in the schema itself, as #/$defs/NAME; {echo(value)} is not in it"
        yield from _below(word, value, root, here)


def _below(word: str, value: Json, root: dict[str, Json], at: str) -> Iterator[Fault]:
    if word in _A_SCHEMA or (word == "items" and not isinstance(value, list)):
        yield from _faults(value, root, at)
    elif word in _SCHEMAS or word == "items":
        if not isinstance(value, list) or not (value or word == "items"):
            yield at, f"must be a list of JSON Schemas, not {echo(value)}"
            return
        for index, each in enumerate(value):
            yield from _faults(each, root, f"{at}[{index}]")
    elif word in _NAMED_SCHEMAS:
        if not isinstance(value, dict):
            yield at, f"must be an object of JSON Schemas, not {echo(value)}"
            return
        for name, each in value.items():
            yield from _faults(each, root, f"{at}.{name}")


def _leads_somewhere(reference: str, root: dict[str, Json]) -> bool:
    """A pointer is followed; another name inside the schema is believed."""
    if not reference.startswith("#"):
        return False
    value: Json = root
    for step in reference[1:].split("/")[1:] if reference.startswith("#/") else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return False
    return isinstance(value, dict | bool)


def _is_type(value: Json) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_names(value) and _TYPES.issuperset(str(each) for each in value)
    return isinstance(value, str) and value in _TYPES


def _are_names(value: Json) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, str) for each in value)
        and len(set(map(str, value))) == len(value)
    )


def _at_least(least: float, *, whole: bool = False) -> Callable[[Json], bool]:
    def fits(value: Json) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return value >= least and (not whole or isinstance(value, int) or value.is_integer())

    return fits


_NUMBER = _at_least(-inf), "a number"
_LENGTH = _at_least(0, whole=True), "a whole number, 0 or more"
_WORDS: tuple[Callable[[Json], bool], str] = (lambda value: isinstance(value, str)), "text"

_VALUES: dict[str, tuple[Callable[[Json], bool], str]] = {
    "type": (_is_type, f"one of {', '.join(sorted(_TYPES))}, or a list of them"),
    "required": (_are_names, "a list of names, each once"),
    "enum": ((lambda value: isinstance(value, list)), "a list"),
    "uniqueItems": ((lambda value: isinstance(value, bool)), "true or false"),
    "multipleOf": ((lambda value: _NUMBER[0](value) and value > 0), "a number above 0"),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _NUMBER),
    **dict.fromkeys(
        (
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "minContains",
            "minItems",
            "minLength",
            "minProperties",
        ),
        _LENGTH,
    ),
    **dict.fromkeys(("$anchor", "$id", "$schema", "description", "format", "pattern", "title", *_REFERENCES), _WORDS),
}
"""What may stand behind a word that has no schemas behind it, and how to say so."""
