"""The keywords with bounds say of small schemas and values what jsonschema says of them."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.model import Json
from gateway.core.tools.arguments import checker

NAMES = ("a", "b", "ab")
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, -2, "", "a", "ab", "b1", 2**63, 1e20])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*NAMES, "c"]), inner, max_size=4),
    max_leaves=8,
)
PATTERNS = st.sampled_from(["a", "^a", "b$", "^[ab]+$", "[0-9]", ""])
SIMPLE = st.one_of(
    st.booleans(),
    st.just({}),
    st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "object", "array", "integer", "number", "null"])),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(lambda pattern: {"pattern": pattern}, PATTERNS),
    st.just({"uniqueItems": True}),
    st.builds(lambda number: {"multipleOf": number}, st.sampled_from([1, 2, 0.5])),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": named,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "propertyNames": inner,
            "dependentSchemas": named,
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "uniqueItems": st.booleans(),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )


SCHEMAS = st.recursive(SIMPLE, _larger, max_leaves=8)


@given(SCHEMAS, st.dictionaries(st.sampled_from([*NAMES, "c"]), VALUES, max_size=4))
def test_a_value_fits_where_jsonschema_says_so(schema: Any, arguments: dict[str, Json]) -> None:
    parameters: dict[str, Json] = {"properties": dict.fromkeys(NAMES, schema), "allOf": [schema]}
    fits = jsonschema.Draft202012Validator(parameters).is_valid(arguments)
    assert (checker(parameters)(arguments) is None) == fits, checker(parameters)(arguments)


@pytest.mark.parametrize(
    ("draft", "schema", "good", "bad"),
    [
        ("2020-12/schema", {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {}}}}}, {"a": 1}, {"b": 1}),
        ("2020-12/schema", {"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}}, {"a": 1}, {"b": 1}),
        ("2020-12/schema", {"dependentSchemas": {"a": {"properties": {"a": {}}}}}, {"a": 1}, {"b": 1}),
        ("2019-09/schema", {"allOf": [{"properties": {"a": {}}}]}, {"a": 1}, {"b": 1}),
        ("2020-12/schema", {"allOf": [{"patternProperties": {"^a": {}}}]}, {"ab": 1}, {"ba": 1}),
    ],
)
def test_a_property_counts_as_evaluated_by_any_schema_of_its_object(
    draft: str, schema: dict[str, Json], good: dict[str, Json], bad: dict[str, Json]
) -> None:
    check = checker({"$schema": f"https://json-schema.org/draft/{draft}", "unevaluatedProperties": False} | schema)
    assert check(good) is None
    assert check(bad) == "Unevaluated properties are not allowed ('b' was unexpected)" or "'ba'" in str(check(bad))


UNKNOWN = {"pattern": "^(?!x)"}


@pytest.mark.parametrize(
    "schema",
    [
        UNKNOWN,
        {"not": UNKNOWN},
        {"not": {"not": UNKNOWN}},
        {"oneOf": [UNKNOWN, {"type": "string"}]},
        {"if": UNKNOWN, "then": False},
        {"if": UNKNOWN, "else": False},
        {"allOf": [UNKNOWN], "anyOf": [UNKNOWN]},
    ],
)
@pytest.mark.parametrize("value", ["x", "y"])
def test_an_expression_that_cannot_be_searched_for_refuses_nothing(schema: Json, value: str) -> None:
    check = checker({"properties": {"a": schema}})
    assert check.unchecked == ("^(?!x)",) * str(schema).count("?!")
    assert check({"a": value}) is None


def test_it_refuses_no_property_either_and_demands_nothing_of_one() -> None:
    check = checker({"patternProperties": {"^(?=a)": {"type": "null"}, "^b": False}, "additionalProperties": False})
    assert check({"a": 1, "c": 1}) is None
    assert check({"b": 1}) == "False schema does not allow 1"
    contains = checker({"properties": {"a": {"contains": UNKNOWN, "maxContains": 0, "minContains": 0}}})
    assert contains({"a": ["x"]}) is None


def test_what_else_is_demanded_beside_it_holds() -> None:
    check = checker({"properties": {"a": {"pattern": "^(?!x)", "maxLength": 1}}})
    assert check({"a": "xx"}) == "a: 'xx' is too long"


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^\\d{3}$", "123", "12"),
        ("^\\d{3}$", "123", "123\n"),
        ("^\\u00e4+$", "ää", "a"),
        ("^\\u{1F600}$", "😀", "a"),
        ("^\\\\u0041$", "\\u0041", "A"),
        ("^[\\w.-]+@[\\w-]+\\.\\w+$", "a.b@c.de", "a@b"),
        ("^\\/a\\/$", "/a/", "a"),
        ("^(?<year>\\d+)-(?:a|b)$", "1-a", "1-c"),
        ("^\\p{L}+$", "äb", "1"),
        ("^[0-9a-f]{8}-[0-9a-f]{4}$", "0123abcd-0123", "0123abcd"),
        ("a", "xax", "x"),
    ],
)
def test_the_expressions_of_json_schema_mean_the_same(pattern: str, good: str, bad: str) -> None:
    check = checker({"properties": {"a": {"pattern": pattern}}})
    assert (check.unchecked, check({"a": good})) == ((), None)
    assert check({"a": bad}) is not None


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", "(a)\\1", "a{1,2000}", "[^]", "\\ud83d\\ude00", "\\cA"])
def test_what_re2_cannot_express_is_named(pattern: str) -> None:
    assert checker({"properties": {"a": {"pattern": pattern}}}).unchecked == (pattern,)
