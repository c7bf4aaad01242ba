"""Valid and invalid JSON Schemas, without the cost of jsonschema's check."""

from typing import Any

import jsonschema
import pytest
from jsonschema.exceptions import SchemaError

from gateway.core.tools.client_tools import fault

GOOD: list[Any] = [
    {},
    {"type": "object"},
    {"type": "object", "properties": {"city": {"type": "string", "maxLength": 5}}, "required": ["city"]},
    {"properties": {"a": True, "b": False, "c": {"type": ["string", "null"]}}},
    {"properties": {"type": {"type": "string"}, "required": {"enum": [1, None]}, "$ref": {"const": 1}}},
    {"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}}, "$defs": {"a/b": {"minimum": -1.5}}},
    {"properties": {"tree": {"$ref": "#"}}, "additionalProperties": False},
    {"anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}], "$comment": "x", "x-mine": [1]},
    {"properties": {"n": {"multipleOf": 0.1, "exclusiveMinimum": 0, "minLength": 2.0}}, "default": {}, "examples": []},
    {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a/anyOf/1"}, {"type": "null"}]}}},
]

BAD: list[tuple[Any, str]] = [
    ({"type": "array"}, ".type"),
    ({"type": "objekt"}, ".type"),
    ({"properties": {"a": {"type": "str"}}}, ".properties.a.type"),
    ({"properties": {"a": {"type": []}}}, ".properties.a.type"),
    ({"properties": {"a": {"type": ["string", "string"]}}}, ".properties.a.type"),
    ({"properties": {"a": {"type": ["string", 1]}}}, ".properties.a.type"),
    ({"properties": ["a"]}, ".properties"),
    ({"properties": {"a": "string"}}, ".properties.a"),
    ({"required": "a"}, ".required"),
    ({"required": ["a", "a"]}, ".required"),
    ({"required": [1]}, ".required"),
    ({"properties": {"a": {"items": {"minimum": "1"}}}}, ".properties.a.items.minimum"),
    ({"properties": {"a": {"minLength": -1}}}, ".properties.a.minLength"),
    ({"properties": {"a": {"minLength": 1.5}}}, ".properties.a.minLength"),
    ({"properties": {"a": {"maximum": True}}}, ".properties.a.maximum"),
    ({"properties": {"a": {"multipleOf": 0}}}, ".properties.a.multipleOf"),
    ({"anyOf": []}, ".anyOf"),
    ({"anyOf": [{"enum": 1}]}, ".anyOf[0].enum"),
    ({"oneOf": {}}, ".oneOf"),
    ({"uniqueItems": 1}, ".uniqueItems"),
    ({"description": 1}, ".description"),
    ({"not": None}, ".not"),
]

ONLY_OURS: list[tuple[Any, str]] = [
    ({"properties": {"a": {"$ref": "https://example.com/schema"}}}, ".properties.a.$ref"),
    ({"properties": {"a": {"$ref": "#/$defs/none"}}}, ".properties.a.$ref"),
    ({"$ref": "#/anyOf/3", "anyOf": [{}]}, ".$ref"),
    ({"$ref": "#/required", "required": ["a"]}, ".$ref"),
]
"""Accepted, although nothing could be checked with it."""


@pytest.mark.parametrize("schema", GOOD)
def test_what_jsonschema_takes_is_taken(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert fault(schema) is None


@pytest.mark.parametrize(("schema", "where"), [*BAD, *ONLY_OURS])
def test_what_is_no_schema_is_named_where_it_is_wrong(schema: Any, where: str) -> None:
    found = fault(schema)
    assert found is not None
    assert found[0] == where


@pytest.mark.parametrize("schema", [schema for schema, _ in BAD[1:]])
def test_jsonschema_refuses_the_same(schema: Any) -> None:
    with pytest.raises(SchemaError):
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("schema", ["object", [], None, 1, True])
def test_what_is_no_object_is_none(schema: Any) -> None:
    assert fault(schema) is not None
