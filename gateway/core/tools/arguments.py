"""Checks a model's arguments by the tool's JSON Schema. Law: the schema is untrusted, and nothing that it refers to is ever
fetched."""

from collections.abc import Callable, Mapping

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from referencing.jsonschema import DRAFT202012, Schema

from gateway.a2a.model import Json

_LONGEST = 300
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Complaint = Callable[[dict[str, Json]], str | None]


class SchemaRefused(Exception):
    """No arguments can be checked with this schema; the text says why."""


def checker(parameters: dict[str, Json]) -> Complaint:
    """A function that says what is wrong with arguments, None when they fit. Raises: SchemaRefused."""
    kind = validator_for(parameters, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(parameters)
        _check_references(parameters)
    except SchemaError as error:
        raise SchemaRefused(f"its parameters are no JSON Schema: {_short(error.message)}") from error
    except RecursionError as error:
        raise SchemaRefused("its parameters are nested too deep") from error
    if parameters.get("type", "object") != "object":
        raise SchemaRefused("its parameters must be an object")
    # With a registry of its own, the validator does not fetch.
    validator = kind(parameters, registry=referencing.Registry())

    def complaint(arguments: dict[str, Json]) -> str | None:
        try:
            error = best_match(validator.iter_errors(arguments))
        except RecursionError:
            return "the arguments cannot be checked: the schema refers to itself without an end"
        if error is None:
            return None
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        return _short(f"{where.lstrip('.')}: {error.message}" if where else error.message)

    return complaint


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _check_references(parameters: dict[str, Json]) -> None:
    """Raises: SchemaRefused for a reference that leads outside the schema, or nowhere."""
    resource: referencing.Resource[Schema] = referencing.Resource.from_contents(parameters, DRAFT202012)
    waiting = [(resource, referencing.Registry[Schema]().resolver_with_root(resource))]
    while waiting:
        inside, resolver = waiting.pop()
        contents = inside.contents if isinstance(inside.contents, Mapping) else {}
        for target in map(contents.get, _REFERENCES):
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except referencing.exceptions.Unresolvable as error:
                    raise SchemaRefused(f"its parameters refer to {_short(target)!r}, which is not in them") from error
        waiting += [(below, resolver.in_subresource(below)) for below in inside.subresources()]
