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

_DESCRIPTION = Path(__file__).parents[2] / "shared" / "spec" / "openai-openapi.subset.json"

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
