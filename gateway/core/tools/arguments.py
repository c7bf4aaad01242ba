"""Checks a model's arguments, and results, by the JSON Schemas of a tool. Law: the schema is untrusted, nothing that it
refers to is ever fetched, and a check ends within its steps."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import jsonschema
import msgspec
import referencing
import referencing.exceptions
import structlog
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import validator_for
from referencing.jsonschema import DRAFT202012, Schema

from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.core.tools.keywords import Check, SchemaFacts, bounded, running
from gateway.core.tools.patterns import NoPattern
from gateway.core.tools.steps import Steps, StepsUsedUp

log = structlog.get_logger("gateway.core.tools.arguments")

_LONGEST = 300
_LARGEST = 256 * 1024
"""Bytes of a schema, as JSON."""
_NAME = 1024
"""Characters of a reference or an id."""
_SCHEMA_STEPS = 500_000
"""Steps for the check of the schema itself, which does not run on the event loop."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = (*_REFERENCES, "$id", "id")

T = TypeVar("T")

_Resolver = Any
"""A resolver of `referencing`, which does not export its type."""


class SchemaRefused(Exception):
    """No value can be checked with this schema; the text says why."""


class Checker(msgspec.Struct, frozen=True):
    """The check of values by one schema. `unchecked` are the regular expressions of the schema that RE2 cannot express: what
    they demand is not checked."""

    _validator: Any
    _facts: SchemaFacts
    unchecked: tuple[str, ...]

    def __call__(self, arguments: dict[str, Json], steps: Steps | None = None) -> str | None:
        """What is wrong with the arguments, None when they fit. `steps` are those that several checks share."""
        try:
            return self.complaint(arguments, steps or Steps())
        except StepsUsedUp:
            return "the arguments cannot be checked: with this schema that would take too long; send less"

    def complaint(self, value: Json, steps: Steps) -> str | None:
        """What is wrong with the value, None when it fits. Raises: StepsUsedUp."""
        try:
            error = _run(Check(self._facts, steps), best_match, self._validator, value)
        except StepsUsedUp:
            raise
        except RecursionError:
            return "the value cannot be checked: the schema refers to itself without an end"
        except Exception as error:  # noqa: BLE001  # the keywords of a stranger's schema meet any value
            log.warning("schema.not-applied", error=repr(error)[:_LONGEST])
            return "the value cannot be checked with this schema"
        if error is None:
            return None
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        return _short(f"{where.lstrip('.')}: {error.message}" if where else error.message)


def checker(parameters: dict[str, Json]) -> Checker:
    """The check of arguments by these parameters of a tool. Raises: SchemaRefused."""
    found = compiled(parameters)
    if parameters.get("type", "object") != "object":
        raise SchemaRefused("its parameters must be an object")
    return found


def compiled(schema: dict[str, Json]) -> Checker:
    """The check of values by any schema of a tool. Raises: SchemaRefused."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        _check_size(schema)
        _check_schema(kind, schema)
        facts, resolver = SchemaFacts(), _resolver(schema)
        unchecked = tuple(_unchecked(schema, resolver, facts))
    except SchemaRefused:
        raise
    except StepsUsedUp as error:
        raise SchemaRefused("its parameters would take too long to check") from error
    except RecursionError as error:
        raise SchemaRefused("its parameters are nested too deep") from error
    except Exception as error:
        raise SchemaRefused("its parameters cannot be read as a JSON Schema") from error
    # With a registry of its own, the validator does not fetch.
    validator = bounded(kind)(schema, registry=referencing.Registry(), _resolver=resolver)
    return Checker(validator, facts, unchecked)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _check_size(parameters: dict[str, Json]) -> None:
    """Raises: SchemaRefused."""
    if not nesting.fits(parameters):
        raise SchemaRefused("its parameters are nested too deep")
    size = len(msgspec.json.encode(parameters))
    if size > _LARGEST:
        raise SchemaRefused(f"its parameters are {size} bytes of JSON, more than {_LARGEST}")


def _run(check: Check, take: Callable[[Iterator[ValidationError]], T], validator: Any, value: Json) -> T:
    token = running.set(check)
    try:
        return take(validator.iter_errors(value))
    finally:
        running.reset(token)


@cache
def _meta_validator(kind: Any) -> tuple[Any, SchemaFacts]:
    return bounded(kind)(kind.META_SCHEMA, registry=referencing.Registry()), SchemaFacts()


def _check_schema(kind: Any, parameters: dict[str, Json]) -> None:
    """Raises: SchemaRefused, StepsUsedUp."""
    validator, facts = _meta_validator(kind)
    error = _run(Check(facts, Steps(_SCHEMA_STEPS)), lambda errors: next(errors, None), validator, parameters)
    if error is not None:
        raise SchemaRefused(f"its parameters are no JSON Schema: {_short(error.message)}")


def _resolver(parameters: dict[str, Json]) -> _Resolver:
    """A resolver for the references of the schema. Its registry knows all names in the schema, so that no look-up has to
    search for them again."""
    resource: referencing.Resource[Schema] = referencing.Resource.from_contents(parameters, DRAFT202012)
    base = resource.id() or ""
    return referencing.Registry[Schema]().with_resource(base, resource).crawl().resolver(base)


def _unchecked(parameters: dict[str, Json], resolver: _Resolver, facts: SchemaFacts) -> Iterator[str]:
    """The expressions that RE2 cannot express.

    Raises: SchemaRefused for a reference that leads outside the schema, or nowhere, and for what is no expression.
    """
    _check_names(parameters)
    root: referencing.Resource[Schema] = referencing.Resource.from_contents(parameters, DRAFT202012)
    waiting = [(root, resolver)]
    while waiting:
        inside, resolver = waiting.pop()
        contents = inside.contents if isinstance(inside.contents, Mapping) else {}
        for target in map(contents.get, _REFERENCES):
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except (referencing.exceptions.Unresolvable, ValueError) as error:
                    raise SchemaRefused(f"its parameters refer to {_short(target)!r}, which is not in them") from error
        for pattern in _expressions(contents):
            try:
                if not facts.patterns.add(pattern):
                    yield pattern
            except NoPattern as error:
                raise SchemaRefused(f"its parameters are no JSON Schema: {_short(str(error))}") from error
        waiting += [(below, resolver.in_subresource(below)) for below in inside.subresources()]


def _expressions(contents: Mapping[str, Json]) -> Iterator[str]:
    pattern, named = contents.get("pattern"), contents.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(named, dict):
        yield from named


def _check_names(parameters: dict[str, Json]) -> None:
    """Each use of a name costs time in proportion to its length. Raises: SchemaRefused."""
    waiting: list[Json] = [parameters]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(isinstance(name := value.get(key), str) and len(name) > _NAME for key in _NAMES):
                raise SchemaRefused(f"its parameters have an id or a reference of more than {_NAME} characters")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
