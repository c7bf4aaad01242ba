"""Validates bodies against the vendor's API description, which is not part of the repository."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012

_DESCRIPTIONS = Path(__file__).parents[2] / "shared" / "spec"
_DESCRIPTION = _DESCRIPTIONS / "openai-openapi.subset.json"
_LANGGRAPH = _DESCRIPTIONS / "langgraph-api-0.16.7.openapi.json"

# The description's unions overlap: a user message with a list of parts is both an EasyInputMessage and an
# InputMessage. Read as `oneOf` they would refuse the vendor's own examples.
_Validator = extend(Draft202012Validator, {"oneOf": Draft202012Validator.VALIDATORS["anyOf"]})  # type: ignore[no-untyped-call]


def openai_validator() -> Callable[[str, object], list[str]]:
    """Name of a schema, body -> what is wrong with the body. Skips the test when the description is absent."""
    if not _DESCRIPTION.exists():
        pytest.skip(f"OpenAI's API description is not at {_DESCRIPTION.parent}")
    registry = _registry()

    def errors(schema: str, body: object) -> list[str]:
        validator = _Validator({"$ref": f"urn:openai#/components/schemas/{schema}"}, registry=registry)
        found = []
        for error in validator.iter_errors(body):
            deepest = best_match([error]) or error
            found.append(f"{deepest.json_path}: {deepest.message}")
        return found

    return errors


@cache
def openai_event_schemas() -> dict[str, str]:
    """Type of a stream event of the Responses API -> name of its schema."""
    schemas = _registry().contents("urn:openai")["components"]["schemas"]
    events = {}
    for reference in schemas["ResponseStreamEvent"]["anyOf"]:
        name = reference["$ref"].rpartition("/")[2]
        events[schemas[name]["properties"]["type"]["enum"][0]] = name
    return events


@cache
def _registry() -> Registry[Any]:
    contents = json.loads(_DESCRIPTION.read_text())
    registry: Registry[Any] = Registry().with_resource("urn:openai", DRAFT202012.create_resource(contents))
    return registry


def langgraph_judge() -> Callable[[str, object], list[str]] | None:
    """As `openai_validator`, for requests to an Agent Server of LangGraph; None where its description is absent. The
    description allows fields that it does not name; a request must not have any."""
    if not _LANGGRAPH.exists():
        return None
    schemas = _langgraph_registry().contents("urn:langgraph")["components"]["schemas"]

    def errors(schema: str, body: object) -> list[str]:
        validator = _Validator({"$ref": f"urn:langgraph#/components/schemas/{schema}"}, registry=_langgraph_registry())
        known = _properties(schemas, schemas[schema])
        unknown = (
            [f"$: {name!r} is not described" for name in body if name not in known] if isinstance(body, dict) else []
        )
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(body)] + unknown

    return errors


def _properties(schemas: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    named = set(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        named |= _properties(schemas, schemas[part["$ref"].rpartition("/")[2]] if "$ref" in part else part)
    return named


@cache
def _langgraph_registry() -> Registry[Any]:
    contents = json.loads(_LANGGRAPH.read_text())
    registry: Registry[Any] = Registry().with_resource("urn:langgraph", DRAFT202012.create_resource(contents))
    return registry
