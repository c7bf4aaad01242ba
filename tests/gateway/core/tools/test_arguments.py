"""Arguments are checked by the tool's schema, which never makes the gateway fetch anything."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gateway.a2a.model import Json
from gateway.core.tools.arguments import SchemaRefused, checker

WEATHER: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"type": "string", "minLength": 1}},
}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"city": "Oslo"}, None),
        ({"city": "Oslo", "days": [1, 2]}, None),
        ({}, "'city' is a required property"),
        ({"city": 3}, "city: 3 is not of type 'string'"),
        ({"city": "Oslo", "days": [1, "x"]}, "days[1]: 'x' is not of type 'integer'"),
        ({"city": "Oslo", "land": 1}, "Additional properties are not allowed ('land' was unexpected)"),
    ],
)
def test_it_says_what_is_wrong_and_where(arguments: dict[str, Json], complaint: str | None) -> None:
    assert checker(WEATHER)(arguments) == complaint


def test_a_complaint_is_short() -> None:
    complaint = checker(WEATHER)({"city": ["x" * 1000]})
    assert complaint is not None
    assert len(complaint) == 300


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {
            "$id": "http://example.com/tool",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"type": "null"}},
        },
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"a": {"const": {"$ref": "http://example.com/x"}}}},
        {"$schema": "http://example.com/unknown"},
    ],
)
def test_a_schema_that_stands_for_itself_can_be_used(parameters: dict[str, Json]) -> None:
    assert checker(parameters)({}) is None


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"type": "objekt"}, "its parameters are no JSON Schema: 'objekt' is not valid"),
        ({"properties": {"a": {"pattern": "("}}}, "its parameters are no JSON Schema"),
        ({"type": "array"}, "its parameters must be an object"),
        (
            {"properties": {"a": {"$ref": "#/$defs/none"}}},
            "its parameters refer to '#/$defs/none', which is not in them",
        ),
        (
            {"$id": "http://a/b", "properties": {"a": {"$ref": "c"}}},
            "its parameters refer to 'c', which is not in them",
        ),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refer to 'file:///etc/passwd'"),
        ({"properties": {"a": {"allOf": [{"$dynamicRef": "http://a/b#x"}]}}}, "refer to 'http://a/b#x'"),
        ({"properties": {"a": {"$ref": "http://[bad"}}}, "refer to 'http://[bad'"),
    ],
)
def test_another_is_refused_with_the_reason(parameters: dict[str, Json], why: str) -> None:
    with pytest.raises(SchemaRefused) as error:
        checker(parameters)
    assert why in str(error.value)


def test_a_schema_without_an_end_is_a_complaint() -> None:
    assert "cannot be checked" in (checker({"$ref": "#"})({}) or "")


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    schema: dict[str, Json] = {}
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(SchemaRefused, match="nested too deep"):
        checker(schema)


@pytest.fixture
def trap() -> Iterator[tuple[str, list[str]]]:
    """A server that counts its connections."""
    seen: list[str] = []

    class Trap(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Trap) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("place", ["$ref", "$dynamicRef", "$schema", "$id"])
def test_nothing_that_a_schema_names_is_fetched(place: str, trap: tuple[str, list[str]]) -> None:
    url, seen = trap
    with contextlib.suppress(SchemaRefused):
        checker({"properties": {"a": {place: f"{url}/a"}}, place: f"{url}/b"})({"a": 1})
    assert seen == []
