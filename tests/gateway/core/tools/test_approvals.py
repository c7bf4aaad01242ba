"""The calls that need an approval, and the scope of an approval."""

import json

import msgspec
import pytest

from gateway.a2a.model import Json
from gateway.core.tools.approval_rules import ApprovalRule, asks, in_force, may_fit
from gateway.core.tools.tool_call import digest, is_allowed
from gateway.ledger.tool_calls import StandingApproval

WRITES = (ApprovalRule("github.list_*", ask=False), ApprovalRule("github.*", ask=True))


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("github.list_issues", False),
        ("github.create_issue", True),
        ("GitHub.create_issue", False),
        ("other.github.create_issue", False),
        ("clock.now", False),
    ],
)
def test_the_first_rule_that_fits_decides_and_none_asks_nobody(identity: str, expected: bool) -> None:
    assert asks(WRITES, identity, {}) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "/tmp/a"}, False),
        ({"path": "/etc/a"}, True),
        ({"path": ["/tmp/a"]}, True),
        ({}, True),
        ({"path": None}, True),
        ("/tmp/a", True),
    ],
)
def test_a_rule_for_arguments_fits_only_where_they_are_there_and_fit(arguments: Json, expected: bool) -> None:
    rules = (ApprovalRule("files.write", ask=False, arguments=(("path", "/tmp/*"),)), ApprovalRule("files.*"))
    assert asks(rules, "files.write", arguments) is expected


def test_a_path_leads_into_objects_and_other_values_are_compared_as_json() -> None:
    rules = (ApprovalRule("bank.pay", arguments=(("to.country", "FI"), ("urgent", "true"), ("amount", "1*"))),)
    fits = {"to": {"country": "FI"}, "urgent": True, "amount": 100}
    assert asks(rules, "bank.pay", fits)
    assert not asks(rules, "bank.pay", {**fits, "urgent": "false"})
    assert not asks(rules, "bank.pay", {**fits, "to": "FI"})


def asked(pattern: str, value: Json, *, ask: bool = True) -> bool:
    """Whether a call with this value needs an approval, under a rule that asks about it, or that excepts it."""
    rule = ApprovalRule("bank.pay", ask=ask, arguments=(("to.amount", pattern),))
    rules = (rule,) if ask else (rule, ApprovalRule("bank.*"))
    return asks(rules, "bank.pay", {"to": {"amount": value}})


def sent(text: str) -> Json:
    value: Json = msgspec.json.decode(text)
    return value


@pytest.mark.parametrize(
    ("pattern", "spellings"),
    [
        ("100", "100 100.0 1e2 100.00 1E+2 1000e-1 0.1e3"),
        ("100.0", "100 100.0 1e2"),
        ("1e2", "100 100.0 1e2"),
        ("+100", "100 1e2"),
        ("1??", "100 100.0 1.5e2"),
        ("1??.0", "100 100.0 1e2"),
        ("1*0", "100 1e2 1e16"),
        ("1000?*", "1e16 1E+16 10000"),
        ("0", "0 -0 0.0 -0.0 0e5"),
        ("-0", "0 -0.0"),
        ("-5", "-5 -5.0 -50e-1"),
        ("0.00001", "1e-5 0.00001 0.1e-4"),
        ("0.0*", "1e-5 0.05"),
        ("10000000000000001", "10000000000000001"),
        ("10000000000000000", "10000000000000000 1e16 10000000000000000.0"),
        # The tool of a server that has only floats gets 10000000000000000.
        ("10000000000000000", "10000000000000001"),
        # An integer of 64 bits gets 9223372036854774784 from this float.
        ("9223372036854774784", "9.223372036854775e18"),
        ("99999999999999999999", "99999999999999999999"),
        ("100000000000000000000000", "1e23 100000000000000000000000"),
        ("true", "true"),
        ("null", "null"),
        ('["a",1]', '["a",1] ["a",1.0] ["a",10e-1]'),
        ('["a", 1.0]', '["a",1]'),
        ('{"b": 1, "a": [2]}', '{"a":[2.0],"b":1e0}'),
        ('*"amount":100}', '{"amount":1e2}'),
        # A tool with an argument of decimal.Decimal takes a text.
        ("100", '"100" "100.0" "1e2" "1E+2" "+100" "0100" " 100 " "1_00" "\uff11\uff10\uff10"'),
    ],
)
def test_a_rule_that_asks_fits_a_number_however_a_model_writes_it(pattern: str, spellings: str) -> None:
    assert [value for value in _split(spellings) if not asked(pattern, sent(value))] == []


def _split(spellings: str) -> list[str]:
    decoder, values = json.JSONDecoder(), []
    while spellings:
        _, end = decoder.raw_decode(spellings)
        values.append(spellings[:end])
        spellings = spellings[end:].lstrip()
    return values


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("100", "1000"),
        ("100", "100.5"),
        ("100", '"1e3"'),
        ("1", "true"),
        ("1", "[1]"),
        ("10000000000000001", "10000000000000000"),
        ("10000000000000001", "1e16"),
        ('["a",1]', '["a",2]'),
        ("inf", '"1e999999999999999999"'),
        ("nan", '"NaN "'),
    ],
)
def test_a_rule_that_asks_does_not_fit_another_number(pattern: str, value: str) -> None:
    assert not asked(pattern, sent(value))


@pytest.mark.parametrize(
    ("pattern", "value", "needed"),
    [
        ("100", "100", False),
        ("100", "100.0", True),
        ("100.0", "100.0", False),
        ("100", '"100"', False),
        ("100", '"1e2"', True),
        ("??", "10", False),
        ("????", "1e16", True),
        ("???", '"1e9"', True),
        ("????????", '"1e999999"', True),
        ("1e16", "1e16", False),
        ("1e9", '"1e9"', False),
        ("00*", '"007"', False),
        ("1?.5", "12.5", False),
        ("[1]", "[1]", False),
        ("[1]", "[1.0]", True),
        ("[?,?]", "[1,2]", False),
        ("[????]", "[1e16]", True),
        ("*", '"1e999999"', False),
        ("true", "true", False),
        ("0", "-0.0", True),
        ("/tmp/*", '"/tmp/1e9"', False),
    ],
)
def test_an_exception_from_a_rule_fits_the_spelling_and_the_value(pattern: str, value: str, needed: bool) -> None:
    assert asked(pattern, sent(value), ask=False) is needed


@pytest.mark.parametrize(
    "text", ["1" * 200_000, "1" * 4_000 + "e-4000", "1e-999999999", "0" * 200_000 + "e9", "9" * 9999]
)
def test_a_long_number_is_compared_in_no_time(text: str) -> None:
    assert not asked("7*", text)
    assert not asked("*", text, ask=False)


def test_a_long_integer_is_compared() -> None:
    assert asked("7*", sent("7" * 4000))
    assert not asked("8*", sent("7" * 4000))


def test_a_digest_is_of_the_meaning_and_not_of_the_spelling() -> None:
    assert digest("a.b", '{"x":1,"y":2}') == digest("a.b", ' {"y": 2, "x": 1}')
    assert digest("a.b", "") == digest("a.b", "{}")


@pytest.mark.parametrize(
    ("identity", "arguments"), [("a.c", '{"x":1}'), ("a.b", '{"x":2}'), ("a.b", '{"x":"1"}'), ("a.b", '{"x":1')]
)
def test_another_tool_or_other_arguments_have_another_digest(identity: str, arguments: str) -> None:
    assert digest(identity, arguments) != digest("a.b", '{"x":1}')


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("github.*", True),
        ("github.create_issue", True),
        ("git*", True),
        ("*", True),
        ("*.create_*", True),
        ("gi?hub.x", True),
        ("github?create", True),
        ("github.", False),
        ("github", False),
        ("create_issue", False),
        ("githb.*", False),
        ("GitHub.*", False),
    ],
)
def test_a_pattern_may_fit_a_source_whatever_tools_it_has(pattern: str, expected: bool) -> None:
    assert may_fit(pattern, "github") is expected


@pytest.mark.parametrize(("given", "expected"), [(["a", 1], True), ("a[1]", False), ('["a",1]', True), ("a", False)])
def test_a_bracket_in_a_pattern_is_a_bracket(given: Json, expected: bool) -> None:
    assert ApprovalRule("f.x", arguments=(("v", '["a",?]'),)).fits("f.x", {"v": given}) is expected
    assert ApprovalRule("f.[x]").fits("f.[x]", {})
    assert not ApprovalRule("f.[x]").fits("f.x", {})


def test_a_yes_for_always_is_for_that_tool_of_that_server_with_whatever_arguments() -> None:
    given = (StandingApproval("mcp:github", digest("github.create_issue", '{"title": "a"}'), '{ "title": "a" }'),)
    assert is_allowed(given, "mcp:github", "github.create_issue")
    assert not is_allowed(given, "mcp:github", "github.create_issues")
    assert not is_allowed(given, "http:github", "github.create_issue")
    assert not is_allowed((), "mcp:github", "github.create_issue")


# --- rules that fit no tool

SOURCES = ("everything", "clock")
TEXT: Json = {"type": "object", "properties": {"text": {"type": "string"}, "to": {"$ref": "#/$defs/To"}}}
KNOWN: dict[str, Json] = {"everything.get-sum": TEXT, "everything.echo": {"type": "object"}, "clock.now": TEXT}
ALL_OF_EVERYTHING = (ApprovalRule("everything.*"),)


@pytest.mark.parametrize("pattern", ["everything.get-sum", "everything.get*", "*.now", "*", "every*-sum"])
def test_a_rule_that_fits_a_tool_stands_as_it_is_written(pattern: str) -> None:
    rules = (ApprovalRule(pattern),)
    assert in_force(rules, SOURCES, KNOWN) == rules


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ApprovalRule("everything.getsum"), ALL_OF_EVERYTHING),
        (ApprovalRule("everything.Get-Sum"), ALL_OF_EVERYTHING),
        (ApprovalRule("everything.get-sum "), ALL_OF_EVERYTHING),
        (ApprovalRule("everything.sum*"), ALL_OF_EVERYTHING),
        (ApprovalRule("every*.getsum", arguments=(("a", "1"),)), ALL_OF_EVERYTHING),
        (ApprovalRule("*.getsum"), (ApprovalRule("everything.*"), ApprovalRule("clock.*"))),
        (ApprovalRule("elsewhere.getsum"), ()),
        (ApprovalRule("everything.getsum", ask=False), (ApprovalRule("everything.getsum", ask=False),)),
    ],
)
def test_a_rule_that_fits_no_tool_asks_about_all_that_it_may_mean(
    rule: ApprovalRule, expected: tuple[ApprovalRule, ...]
) -> None:
    assert in_force((rule,), SOURCES, KNOWN) == expected


def test_while_no_tool_is_known_every_rule_that_asks_asks_about_all_that_it_may_mean() -> None:
    rules = (ApprovalRule("clock.now", ask=False), ApprovalRule("everything.get-sum"))
    assert in_force(rules, SOURCES, {}) == (rules[0], *ALL_OF_EVERYTHING)


def test_a_wider_rule_stands_where_the_misspelt_one_stood() -> None:
    rules = (ApprovalRule("everything.echo", ask=False), ApprovalRule("everything.getsum"))
    before = in_force((*rules, ApprovalRule("everything.*", ask=False)), SOURCES, KNOWN)
    assert not asks(before, "everything.echo", {})
    assert asks(before, "everything.get-sum", {})
    behind = in_force((ApprovalRule("everything.*", ask=False), *rules), SOURCES, KNOWN)
    assert not asks(behind, "everything.get-sum", {})


@pytest.mark.parametrize(
    ("path", "schema", "fits"),
    [
        ("text", TEXT, True),
        ("txt", TEXT, False),
        ("text.length", TEXT, False),
        ("to.country", TEXT, True),
        ("txt", {"type": "object"}, True),
        ("txt", True, True),
        ("txt", {"type": "object", "properties": {}}, False),
        ("txt", {"type": "object", "properties": {}, "additionalProperties": True}, True),
        ("txt", {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, True),
        ("txt", {"type": "object", "properties": {}, "additionalProperties": False}, False),
        ("txt", {"type": "object", "properties": {}, "anyOf": [{}]}, True),
        ("txt", {"type": "object", "properties": {}, "patternProperties": {"^t": {}}}, True),
        ("a.b", {"properties": {"a": {"type": ["object", "null"]}}}, True),
        ("a.b", {"properties": {"a": {"type": ["string", "null"]}}}, False),
        ("a.b", {"properties": {"a": {"properties": {"c": {}}}}}, False),
    ],
)
def test_a_rule_for_arguments_that_no_tool_takes_asks_about_every_call_of_the_tools(
    path: str, schema: Json, fits: bool
) -> None:
    rule = ApprovalRule("box.write", arguments=((path, "/etc/*"),))
    assert in_force((rule,), ("box",), {"box.write": schema}) == ((rule,) if fits else (ApprovalRule("box.write"),))


def test_a_rule_for_arguments_fits_where_one_of_several_tools_takes_all_of_them() -> None:
    rule = ApprovalRule("everything.*", arguments=(("text", "x"), ("other", "x")))
    assert rule.misfit({"everything.get-sum": TEXT}) == "arguments"
    assert rule.misfit(KNOWN) is None
    assert rule.misfit({}) == "tool"
