"""JSON paths and masking, in whatever shape the tool gave its output."""

import json
import time

import pytest

from gateway.a2a.model import Json
from gateway.a2a.redaction import MASK, JsonPath, Step, at_any_depth, json_path, redacted


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
        ("$.a.list.y", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": 2}, {"y": "[redacted]"}]}}),
        ("$.a..x", {**DOCUMENT, "a": {"token": "t", "list": [{"token": 1, "x": "[redacted]"}, {"y": 3}]}}),
        ("$..*", {"a": "[redacted]", "token": "[redacted]"}),
    ],
)
def test_a_path_masks_what_it_points_at_and_nothing_else(path: str, masked: Json) -> None:
    assert redacted(DOCUMENT, (json_path(path),)) == (masked, [path])


@pytest.mark.parametrize(
    "path", ["$.b", "$.a.list[2]", "$.a.list[-3]", "$.a[0]", "$.token.x", "$.a.list.z", "$..nothing"]
)
def test_a_path_that_points_at_nothing_changes_nothing(path: str) -> None:
    assert redacted(DOCUMENT, (json_path(path),)) == (DOCUMENT, [])


@pytest.mark.parametrize(
    "items", [[{"x": "s"}], [[{"x": "s"}], 1], ['{"x": "s"}'], '[{"x": "s"}]', '{"x": "s"}\n{"x": "s"}']
)
@pytest.mark.parametrize("path", ["$.a.x", "$.a[*].x", "$.a['X']"])
def test_a_name_is_looked_for_in_the_items_of_a_list(items: Json, path: str) -> None:
    masked, hit = redacted({"a": items, "b": "s"}, (json_path(path),))
    assert (str(masked).count("s'"), hit) == (1, [path])


def test_a_path_is_at_any_depth_from_its_second_step_on() -> None:
    assert at_any_depth(json_path("$.a.b[0].c")) == JsonPath("$.a.b[0].c", json_path("$.a..b[0].c").steps)
    for same in ("$.a", "$..a.b", "$.a..b"):
        assert at_any_depth(json_path(same)) == json_path(same)


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


@pytest.mark.parametrize(
    "value",
    ['{"x": 1}', '{"x": 1}\n\n[2]\n', "token", "[redacted]", "the token is here: x", '"a" or "b"', "tokens: 3", "1.5"],
)
def test_text_without_what_is_to_be_hidden_stays_word_for_word(value: str) -> None:
    assert redacted({"result": value}, (json_path("$..token"),)) == ({"result": value}, [])


def test_the_paths_that_masked_a_value_are_reported_once_each() -> None:
    paths = tuple(json_path(text) for text in ("$..a", "$.none", "$.b[*]"))
    assert redacted({"a": 1, "b": [{"a": 2}, 3]}, paths) == (
        {"a": "[redacted]", "b": ["[redacted]", "[redacted]"]},
        ["$..a", "$.b[*]"],
    )


SECONDS = 5.0
"""Of the processor; what grows with the square of the size would take minutes."""


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "API-Key", "Api Key", "APIKEY", "api.key", "ａpi_key", "a\u200bpiKey"]
)
@pytest.mark.parametrize("path", ["$..api_key", "$.x.apiKey", "$['x']['API KEY']"])
def test_a_name_is_found_in_every_spelling(path: str, name: str) -> None:
    assert redacted({"x": {name: "t", "id": 1}}, (json_path(path),)) == ({"x": {name: MASK, "id": 1}}, [path])


@pytest.mark.parametrize("name", ["api_keys", "my_api_key", "key", "apikei"])
def test_another_name_is_no_spelling_of_it(name: str) -> None:
    assert redacted({name: "t"}, (json_path("$..api_key"),)) == ({name: "t"}, [])


def test_a_name_without_letters_means_itself() -> None:
    assert redacted({"*": 1, "-": 2}, (json_path("$['*']"),)) == ({"*": MASK, "-": 2}, ["$['*']"])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('{"token": "s3cret", "x": 1}', '{"token":"[redacted]","x":1}'),
        ('[{"token": "s3cret"}]', '[{"token":"[redacted]"}]'),
        ('{"token": "s3cret', MASK),
        ('// it\n{"token": "s3cret"', MASK),
        ('{"x": 1}', '{"x": 1}'),
        ("a:token", "a:token"),
    ],
)
def test_json_that_is_the_name_of_a_member_is_looked_into(name: str, shown: str) -> None:
    for path in ("$..token", "$.a.token"):
        assert redacted({"a": {name: 1}}, (json_path(path),))[0] == {"a": {shown: 1}}
    assert redacted(json.dumps({name: 1}), (json_path("$..token"),))[0] in (
        json.dumps({name: 1}),
        json.dumps({shown: 1}, separators=(",", ":")),
    )


# --- text -------------------------------------------------------------------------------------------------------------


def in_text(text: str, path: str = "$..token") -> Json:
    masked, _ = redacted({"result": text}, (json_path(path),))
    assert isinstance(masked, dict)
    return masked["result"]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('\ufeff{"token": 1}', '{"token":"[redacted]"}'),
        ('/* a */ // b\n{"token": 1}', '{"token":"[redacted]"}'),
        ('\x1e{"token": 1}\n\x1e{"x": 2}\n', '{"token":"[redacted]"}\n{"x":2}'),
        ('{"x": 1}\n{"token": 1}\n', '{"x":1}\n{"token":"[redacted]"}'),
        ('{"x": 1},{"token": 1}', '{"x":1}\n{"token":"[redacted]"}'),
        ('{"x": 1}{"token": 1}', '{"x":1}\n{"token":"[redacted]"}'),
        (r'"{\"token\": 1}"', r'"{\"token\":\"[redacted]\"}"'),
        (r'"\"{\\\"token\\\": 1}\""', r'"\"{\\\"token\\\":\\\"[redacted]\\\"}\""'),
        (r'{"a": "[{\"token\": 1}]"}', r'{"a":"[{\"token\":\"[redacted]\"}]"}'),
        ('{"tok\\u0065n": "a\nb"}', '{"token":"[redacted]"}'),
    ],
)
def test_json_is_read_in_every_form_in_which_tools_send_it(text: str, masked: str) -> None:
    assert in_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1, "secret": "t',
        '[{"secret": "t"}',
        '{"x": 1}\n{"secret": "t',
        '{"x": 1} and more',
        '\ufeff {"secret": "t',
        '\ufffd\ufffd{\ufffd"\ufffds\ufffd',
        r'"{\"secret\": \"t',
        r'"\u007b\"secret\": \"t',
        "{'secret': 't'}",
        '{"secret": "t",}',
        '{"x": {"secret": "t"}, "x": 1}',
        '{"x": "\\ud800", "token": 1}',
        "[INFO] started",
        "[" * 5000,
        '/* of it */ {"secret" /* y */ : "t"}',
        '// of it\n\n[{"secret" // y\n : "t"}]',
    ],
)
def test_a_text_that_begins_like_json_and_cannot_be_read_is_masked_as_a_whole(text: str) -> None:
    assert in_text(text) == MASK


@pytest.mark.parametrize(
    "text",
    [
        'Result: {"token": "t',
        '```json\n{"Token": "t"}\n```',
        'data: {"x": 1, "tok\\u0065n": "t"}\n\n',
        r'{"x": 1} is in "{\"token\" : \"t"'.removeprefix('{"x": 1} '),
        "id: 3\ntoken: t",
        "TOKEN=t",
        "https://x.example/?a=b&token=t",
        "https://x.example/?tok%65n=t",
        "https://x.example/?a=b&%74%6F%6b%65%6E=t",
        "https://x.example/?x=%41token=t",
        "a%7B%22token%22%3A%22t%22",
        "x --token t",
        "x --Tok-En\n't'",
        "<p>&quot;token&quot;: &quot;t&quot;</p>",
        "<token>t</token>",
        "| x | token | t |",
        r"first\ntoken: t",
        "x\ufffdt\ufffdo\ufffdk\ufffde\ufffdn\ufffd:\ufffdt",
        f"token{' ' * 5000}: t",
        'it: {"token" /* of a: b */ : "t"}',
        'it: {"token" // the key\n : "t"}',
        'it: {token # the key\n = "t"}',
        'it: {"url": "http://x", "token" /* y */ // z\n : "t"}',
        "token /*: t",
        "token %22%3D t",
    ],
)
def test_any_other_text_that_gives_a_value_to_the_name_is_masked_as_a_whole(text: str) -> None:
    assert in_text(text) == MASK


@pytest.mark.parametrize(
    "text", ["x --token", "x --token --verbose", "the token t", "a --tokens t", "x - token t", "%74oken t"]
)
def test_a_name_without_a_value_masks_nothing(text: str) -> None:
    assert in_text(text) == text


@pytest.mark.parametrize("path", ["$.result.user.token", "$.result.token[*]", "$.result..token.*"])
def test_of_a_path_the_last_name_is_looked_for_in_plain_text(path: str) -> None:
    assert in_text("user: x", path) == "user: x"
    assert in_text("token: x", path) == MASK


def test_lines_of_json_are_also_a_list_for_a_path_with_an_index() -> None:
    assert in_text('{"token": 1}\n{"token": 2}', "$.result[1].token") == '{"token":1}\n{"token":"[redacted]"}'


@pytest.mark.parametrize(
    "piece",
    [
        "token",
        "token ",
        "token/*",
        "token//",
        "token#",
        "/*",
        "//",
        "# ",
        " ",
        "/*x*/",
        "&quot;",
        "%22",
        "t",
        "t-o-k-e-n-",
        "--",
        "--token",
        "--token --",
        "%74%6f",
        "%74oken ",
        "\\",
    ],
)
@pytest.mark.parametrize("before", ["x: ", "x: token "])
def test_a_large_text_that_gives_no_value_is_soon_looked_through(before: str, piece: str) -> None:
    text = before + piece * (1_000_000 // len(piece)) + "x"
    began = time.process_time()
    assert in_text(text) == (MASK if before.endswith("token ") and piece in ("/*", "/*x*/") else text)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("piece", ["token\n//", "//token\n", "#token\n", "/*token*/", "/*x*/", "#/*token\n"])
def test_a_name_before_very_many_comments_counts_as_given_a_value_and_is_soon_found(piece: str) -> None:
    text = "x: token " + piece * (1_000_000 // len(piece)) + "x"
    began = time.process_time()
    assert in_text(text) == MASK
    assert time.process_time() - began < SECONDS


def test_a_name_before_some_comments_is_given_a_value_behind_them_alone() -> None:
    assert in_text("token " + "/*x*/ " * 20 + "= x") == MASK
    assert in_text("x: token " + "/*x*/ " * 20 + "x") == "x: token " + "/*x*/ " * 20 + "x"


@pytest.mark.parametrize("depth", [150, 900, 50_000])
@pytest.mark.parametrize("in_text", [False, True])
def test_a_document_is_masked_however_deep_it_is(in_text: bool, depth: int) -> None:
    document: Json = {"token": "s3cret"}
    if in_text:
        document = "[" * depth + '{"token": "s3cret"}' + "]" * depth
    for _ in range(0 if in_text else min(depth, 900)):
        document = [document]
    masked, hit = redacted({"result": document}, (json_path("$..token"),))
    assert "s3cret" not in str(masked)
    assert hit == ["$..token"]


@pytest.mark.parametrize("depth", [101, 950, 5000, 100_000])
def test_json_in_a_text_is_masked_however_deep_it_is(depth: int) -> None:
    text = '{"token":"s3cret","a":' + "[" * depth + "]" * depth + "}"
    masked, hit = redacted({"out": text}, (json_path("$..token"),))
    assert hit == ["$..token"]
    assert "s3cret" not in str(masked)
