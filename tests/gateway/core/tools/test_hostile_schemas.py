"""A stranger's schema and a model's arguments cannot keep the event loop busy: each check ends within its steps, whatever the
two have agreed on. A check that was unbounded takes ten seconds and more here; the limit leaves room for a slow machine and
for coverage."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gateway.a2a.model import Json
from gateway.core.tools.arguments import SchemaRefused, checker
from gateway.core.tools.steps import Steps

SECONDS = 3.0
"""Of the processor, so that what else the machine does is not counted."""
LONG = "a" * 5_000 + "!"


@dataclass(frozen=True)
class Case:
    name: str
    schema: Callable[[], dict[str, Json]]
    arguments: Callable[[], dict[str, Json]]


def of(subschema: Json, **more: Json) -> dict[str, Json]:
    return {"properties": {"a": subschema}, **more}


def chain(word: str, depth: int, **end: Json) -> dict[str, Json]:
    """Each definition applies the next one twice."""
    found: dict[str, Json] = {
        f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(depth)
    }
    return {"$defs": found | {f"d{depth}": end}, "$ref": "#/$defs/d0"}


def nested(depth: int, inside: Json = 1) -> Json:
    for _ in range(depth):
        inside = {"a": inside}
    return inside


def tree(word: str, depth: int) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "string"}
    for _ in range(depth):
        schema = {word: [schema, schema], "unevaluatedProperties": False}
    return schema


CASES = [
    Case("uniqueItems over objects", lambda: of({"uniqueItems": True}), lambda: {"a": [{"n": n} for n in range(9000)]}),
    Case(
        "uniqueItems over numbers and texts",
        lambda: of({"uniqueItems": True}),
        lambda: {"a": [n if n % 2 else str(n) for n in range(20_000)]},
    ),
    Case(
        "uniqueItems over lists whose hashes are equal",
        lambda: of({"uniqueItems": True}),
        lambda: {"a": [[(2**61 - 1) * (n >> 3 * k & 7) for k in range(4)] for n in range(4096)]},
    ),
    Case(
        "uniqueItems on every level",
        lambda: {"$defs": {"l": {"uniqueItems": True, "items": {"$ref": "#/$defs/l"}}}, **of({"$ref": "#/$defs/l"})},
        lambda: {"a": [[[[[n, m] for n in range(20)] for m in range(20)] for _ in range(5)] for _ in range(5)]},
    ),
    Case("a pattern", lambda: of({"pattern": "^(a+)+$"}), lambda: {"a": LONG}),
    Case("a pattern of alternatives", lambda: of({"pattern": "^(a|a|aa)*$"}), lambda: {"a": LONG}),
    Case("a pattern with many repetitions", lambda: of({"pattern": "(.*,){30}x"}), lambda: {"a": "," * 20_000}),
    Case("a pattern with many states", lambda: of({"pattern": "(a|b)*a(a|b){300}c"}), lambda: {"a": "ab" * 50_000}),
    Case(
        "large patterns on a large text",
        lambda: of({"allOf": [{"pattern": f"(x{n}|.){{400}}y"} for n in range(100)]}),
        lambda: {"a": "x" * 500_000},
    ),
    Case(
        "a large pattern on as much text as may be",
        lambda: of({"pattern": "(x0|.){400}y"}),
        lambda: {"a": "x" * 9_900},
    ),
    Case("the name of a property", lambda: {"patternProperties": {"^(a+)+$": False}}, lambda: {LONG: 1}),
    Case(
        "an additional property",
        lambda: {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        lambda: {LONG: 1},
    ),
    Case(
        "an unevaluated property",
        lambda: {"allOf": [{"patternProperties": {"^(a+)+$": {}}}], "unevaluatedProperties": False},
        lambda: {LONG: 1},
    ),
    Case("names of properties", lambda: {"propertyNames": {"pattern": "^(a+)+$"}}, lambda: {LONG: 1}),
    Case(
        "a pattern in a dialect of its own",
        lambda: of({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}),
        lambda: {"a": LONG},
    ),
    Case(
        "a pattern that only a reference reaches",
        lambda: {"x": {"y": {"pattern": "^(a+)+$"}}, **of({"$ref": "#/x/y"})},
        lambda: {"a": LONG},
    ),
    Case(
        "many patterns and many properties",
        lambda: {"patternProperties": {f"{n}$": {"type": "string"} for n in range(150)}},
        lambda: {f"k{n}": 1 for n in range(20_000)},
    ),
    Case("anyOf, twice at each of 40 levels", lambda: chain("anyOf", 40, type="string"), dict),
    Case("oneOf, twice at each of 40 levels", lambda: chain("oneOf", 40, type="string"), dict),
    Case("allOf, twice at each of 40 levels", lambda: chain("allOf", 40, type="object"), dict),
    Case("unevaluatedProperties at each of 8 levels", lambda: tree("anyOf", 8), lambda: {"a": 1}),
    Case(
        "references that only unevaluatedProperties follows",
        lambda: {
            "unevaluatedProperties": False,
            "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}", "$dynamicRef": f"#/$defs/d{n + 1}"} for n in range(40)}
            | {"d40": {}},
            "$ref": "#/$defs/d0",
        },
        lambda: {"a": 1},
    ),
    Case("a reference to itself", lambda: {"$ref": "#"}, dict),
    Case("two references to itself", lambda: {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, dict),
    Case(
        "alternatives on every level of the arguments",
        lambda: {"properties": {"a": {"anyOf": [{"$ref": "#", "type": "string"}, {"$ref": "#"}, {"type": "null"}]}}},
        lambda: nested(90),
    ),
    Case(
        "a long enum for many values",
        lambda: of({"items": {"enum": [{"n": n} for n in range(9000)]}}),
        lambda: {"a": [{"n": -n} for n in range(9000)]},
    ),
    Case(
        "a large const for many values",
        lambda: of({"items": {"const": list(range(30_000))}}),
        lambda: {"a": [list(range(100))] * 3000},
    ),
    Case("multiples of a tiny number", lambda: of({"items": {"multipleOf": 1e-300}}), lambda: {"a": [1e300] * 50_000}),
    Case("multiples of a huge number", lambda: of({"items": {"multipleOf": 10**18}}), lambda: {"a": [1e300] * 50_000}),
    Case(
        "contains over a long list",
        lambda: of({"contains": {"contains": {"const": 1}}, "minContains": 0}),
        lambda: {"a": [[0] * 300] * 3000},
    ),
    Case(
        "required names of many objects",
        lambda: of({"items": {"required": [f"k{n}" for n in range(20_000)]}}),
        lambda: {"a": [{}] * 3000},
    ),
    Case(
        "dependencies of many objects",
        lambda: of({"items": {"dependentRequired": {"k": [f"k{n}" for n in range(20_000)]}}}),
        lambda: {"a": [{"k": 1, **{f"k{n}": 1 for n in range(50)}}] * 3000},
    ),
    Case("items of no demand", lambda: of({"items": {}}), lambda: {"a": [0] * 300_000}),
    Case(
        "a large value with many faults", lambda: of({"anyOf": [{"maxItems": 1}] * 2000}), lambda: {"a": [0] * 99_999}
    ),
    Case(
        "references with long ways",
        lambda: of({"items": {"$ref": "#/" + "/".join(["$defs", "d"] * 45)}}, **dict([_way(45)])),
        lambda: {"a": [0] * 50_000},
    ),
    Case(
        "references with long names",
        lambda: {"$defs": {"%" * 330: {}}, **of({"items": {"$ref": "#/$defs/" + "%25" * 330}})},
        lambda: {"a": [0] * 50_000},
    ),
    Case(
        "references to anchors",
        lambda: {"$defs": {f"d{n}": {"$anchor": f"x{n}"} for n in range(4000)}, **of({"items": {"$ref": "#x3999"}})},
        lambda: {"a": [0] * 50_000},
    ),
    Case(
        "dynamic references",
        lambda: {"$dynamicAnchor": "x", **of({"items": {"$dynamicRef": "#x"}, "minItems": 1})},
        lambda: {"a": [{"a": [{"a": [{}] * 30}] * 30}] * 30},
    ),
]


def _way(depth: int) -> tuple[str, Json]:
    inside: Json = {}
    for _ in range(depth - 1):
        inside = {"$defs": {"d": inside}}
    return "$defs", {"d": inside}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_check_ends_in_time(case: Case) -> None:
    schema = case.schema()
    arguments = msgspec.json.decode(msgspec.json.encode(case.arguments()))
    began = time.process_time()
    try:
        check = checker(schema)
    except SchemaRefused:
        assert time.process_time() - began < 5 * SECONDS
        return
    assert time.process_time() - began < 5 * SECONDS
    began = time.process_time()
    check(arguments)
    took = time.process_time() - began
    assert took < SECONDS


def test_the_checks_of_one_answer_share_their_steps() -> None:
    check = checker({"properties": {"a": {"uniqueItems": True}}})
    arguments: dict[str, Json] = {"a": [[n] for n in range(9000)]}
    steps = Steps()
    assert check(arguments, steps) is None
    answers = [check(arguments, steps) for _ in range(100)]
    assert answers[-1] == "the arguments cannot be checked: with this schema that would take too long; send less"
    assert check(arguments) is None


def test_a_large_table_of_a_usual_schema_can_be_checked() -> None:
    row = {
        "type": "object",
        "properties": {f"c{n}": {"type": "string", "maxLength": 100} for n in range(5)},
        "required": ["c0"],
        "additionalProperties": False,
    }
    check = checker({"type": "object", "properties": {"rows": {"type": "array", "items": row}}, "required": ["rows"]})
    rows: list[Any] = [{f"c{n}": "text" for n in range(5)} for _ in range(1000)]
    assert check({"rows": rows}) is None
    assert check({"rows": [*rows, {"c0": 1}]}) == "rows[1000].c0: 1 is not of type 'string'"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$id": "x" * 2000}}},
        {"properties": {"a": {"$ref": "#/$defs/" + "x" * 2000}}},
        {"description": "x" * 300_000},
        {"$defs": {f"d{n}": {"pattern": "("} for n in range(3)}},
        {"$id": "http://[bad", "properties": {"a": {"$id": "http://[bad"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": 5, "definitions": {"a": {"$defs": 7}}},
        {"properties": {"a": {"multipleOf": 10**400}}},
    ],
)
def test_a_strange_schema_is_refused_or_used_and_breaks_nothing(schema: dict[str, Json]) -> None:
    try:
        check = checker(schema)
    except SchemaRefused:
        return
    check({"a": 1.5})
