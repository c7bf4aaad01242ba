"""JSON paths and masking, in whatever shape the tool gave its output."""

import pytest

from gateway.a2a.model import Json
from gateway.a2a.redaction import JsonPath, Step, json_path, redacted


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$.a", (Step("a"),)),
        ("$.a.b-c", (Step("a"), Step("b-c"))),
        ("$['a b']", (Step("a b"),)),
        ('$["*"].x', (Step("*"), Step("x"))),
        ("$.a[0][-1]", (Step("a"), Step(0), Step(-1))),
        ("$.a[*].b", (Step("a"), Step(None), Step("b"))),
        ("$.a.*", (Step("a"), Step(None))),
        ("$..token", (Step("token", deep=True),)),
        ("$.a..b[*]", (Step("a"), Step("b", deep=True), Step(None))),
        ("$..['a b']", (Step("a b", deep=True),)),
        ("$..*", (Step(None, deep=True),)),
        ("$.prénom", (Step("prénom"),)),
    ],
)
def test_a_path_is_read_as_its_steps(text: str, steps: tuple[Step, ...]) -> None:
    assert json_path(text) == JsonPath(text, steps)


@pytest.mark.parametrize(
    "text", ["", "a", "$", "$.", "$..", "$...a", "$.a.", "$[", "$[a]", "$a", "$.a b", "$.1a", "$['']"]
)
def test_what_is_no_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a JSON path such as \$\.args\.password"):
        json_path(text)


def test_the_step_that_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\[a\]\.b' is no step"):
        json_path("$.x[a].b")


DOCUMENT = {"a": {"token": "t", "list": [{"token": 1, "x": 2}, {"y": 3}]}, "token": None}


@pytest.mark.parametrize(
    ("path", "masked"),
    [
        ("$.token", {**DOCUMENT, "token": "[redacted]"}),
        ("$.a", {**DOCUMENT, "a": "[redacted]"}),
        ("$.a.list[1]", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": 2}, "[redacted]"]}}),
        ("$.a.list[-2].x", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": "[redacted]"}, {"y": 3}]}}),
        ("$.a.list[*].y", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": 2}, {"y": "[redacted]"}]}}),
        (
            "$..token",
            {
                "a": {"token": "[redacted]", "list": [{"token": "[redacted]", "x": 2}, {"y": 3}]},
                "token": "[redacted]",
            },
        ),
        ("$.a..x", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": "[redacted]"}, {"y": 3}]}}),
        ("$..*", {"a": "[redacted]", "token": "[redacted]"}),
    ],
)
def test_a_path_masks_what_it_points_at_and_nothing_else(path: str, masked: Json) -> None:
    assert redacted(DOCUMENT, (json_path(path),)) == (masked, [path])


@pytest.mark.parametrize(
    "path", ["$.b", "$.a.list[2]", "$.a.list[-3]", "$.a[0]", "$.token.x", "$.a.list.x", "$..nothing"]
)
def test_a_path_that_points_at_nothing_changes_nothing(path: str) -> None:
    assert redacted(DOCUMENT, (json_path(path),)) == (DOCUMENT, [])


def test_the_document_that_was_given_stays_as_it_is() -> None:
    document: Json = {"a": [{"b": 1}]}
    redacted(document, (json_path("$..b"),))
    assert document == {"a": [{"b": 1}]}


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ('{"token": "t", "x": 1}', '{"token":"[redacted]","x":1}'),
        ('[{"token": 1}]', '[{"token":"[redacted]"}]'),
        (' {"text": "{\\"token\\": 1}"}', '{"text":"{\\"token\\":\\"[redacted]\\"}"}'),
    ],
)
def test_json_in_a_text_is_looked_into(value: str, masked: str) -> None:
    assert redacted({"result": value}, (json_path("$..token"),)) == ({"result": masked}, ["$..token"])


@pytest.mark.parametrize("value", ['{"x": 1}', "{broken token", "[1, ", "token", "[redacted]", "[" * 5000])
def test_text_without_what_is_to_be_hidden_stays_word_for_word(value: str) -> None:
    assert redacted({"result": value}, (json_path("$..token"),)) == ({"result": value}, [])


def test_the_paths_that_masked_a_value_are_reported_once_each() -> None:
    paths = tuple(json_path(text) for text in ("$..a", "$.none", "$.b[*]"))
    assert redacted({"a": 1, "b": [{"a": 2}, 3]}, paths) == (
        {"a": "[redacted]", "b": ["[redacted]", "[redacted]"]},
        ["$..a", "$.b[*]"],
    )
