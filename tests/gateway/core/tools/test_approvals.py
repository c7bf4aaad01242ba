"""The calls that need an approval, and the scope of an approval."""

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
