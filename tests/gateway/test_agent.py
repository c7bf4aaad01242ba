"""The values of a Python agent: types are checked when a value is made, contents when it is decoded."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.a2a.model import Part
from gateway.agent import (
    Artifact,
    AuthRequired,
    DirectMessage,
    InputRequired,
    Reject,
    Status,
    ToolCall,
    ToolResult,
    Turn,
    decode_json,
    decode_part,
    decode_parts,
    decode_text,
)

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}, {"data": 1}, {"text": "world"}]}


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_the_text_of_a_turn_is_that_of_its_text_parts_on_lines_of_their_own() -> None:
    assert Turn(message=MESSAGE, first_message=MESSAGE).text == "Hello\nworld"


def test_a_turn_without_text_has_an_empty_one() -> None:
    message = {**MESSAGE, "parts": [{"data": {"text": "no"}}]}
    assert Turn(message=message, first_message=message).text == ""


def test_a_turn_is_cancelled_when_it_is_asked_to_stop() -> None:
    asked = [False, True]
    turn = Turn(message=MESSAGE, first_message=MESSAGE, asked_to_stop=lambda: asked.pop(0))
    assert [turn.cancelled, turn.cancelled] == [False, True]


def test_a_turn_made_by_hand_starts_with_an_empty_history_and_state() -> None:
    turn = Turn(message=MESSAGE, first_message=MESSAGE)
    assert (turn.history, turn.state, turn.cancelled) == ([], {}, False)


@pytest.mark.parametrize(
    ("kind", "given", "named", "said"),
    [
        (Status, [5], {}, "Status: its text must be text, not int"),
        (ToolCall, [1, "lookup"], {}, "ToolCall: call_id must be text, not int"),
        (ToolCall, ["c", None], {}, "ToolCall: name must be text, not NoneType"),
        (ToolCall, ["c", "lookup", "{}"], {}, "ToolCall: arguments must be a dict, not str"),
        (ToolResult, [b"c", 1], {}, "ToolResult: call_id must be text, not bytes"),
        (ToolResult, ["c", 1, "no"], {}, "ToolResult: error must be True or False, not str"),
        (Artifact, ["text"], {}, "Artifact: parts must be a list, not str"),
        (Artifact, [[b"text"]], {}, "Artifact: every entry of its content must be text or a part"),
        (Artifact, [["x"]], {"artifact_id": 7}, "Artifact: artifact_id must be text, not int"),
        (Artifact, [["x"]], {"metadata": []}, "Artifact: metadata must be a dict, not list"),
        (Artifact, [["x"]], {"last_chunk": 1}, "Artifact: last_chunk must be True or False, not int"),
        (Artifact, [["x"]], {"append": True}, "append needs the artifact_id"),
        (DirectMessage, [None], {}, "DirectMessage: its content must be text, a part"),
        (InputRequired, [ValueError("x")], {}, "InputRequired: its content must be text, a part"),
        (AuthRequired, [[1]], {}, "AuthRequired: every entry of its content must be text or a part"),
        (Reject, [3.5], {}, "Reject: its content must be text, a part"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_it_is_made(
    kind: Callable[..., object], given: list[Any], named: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        kind(*given, **named)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("Hi", Part(text="Hi")),
        ({"text": "", "metadata": {"k": [1, None]}}, Part(text="", metadata={"k": [1, None]})),
        ({"data": None}, Part(data=None)),
        ({"data": {"a": (1, 2.5, "x", True)}}, Part(data={"a": [1, 2.5, "x", True]})),
        ({"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"},
         Part(raw="aGk=", filename="hi.txt", media_type="text/plain")),
        ({"url": "https://example.com/a.png"}, Part(url="https://example.com/a.png")),
    ],
)  # fmt: skip
def test_a_part_is_read_as_a2a_writes_it(value: Any, part: Part) -> None:
    assert decode_part(value) == part


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "the part must have exactly one of text, raw, url and data; it has none of them"),
        ({"txt": "Hi"}, "none of them but ['txt']"),
        ({"text": "Hi", "data": 1}, "exactly one of text, raw, url and data; it has text and data"),
        ({"kind": "text", "text": "Hi"}, "the part has the unknown key 'kind'"),
        ({"text": "Hi", "media_type": "text/plain"}, "the part has the unknown key 'media_type'; known are"),
        ({"text": None}, "the part.text must be text, not NoneType"),
        ({"raw": b"hi"}, "the part.raw must be text, not bytes: base64.b64encode"),
        ({"raw": "h i"}, "the part.raw is not base64"),
        ({"raw": "aGk"}, "the part.raw is not base64"),
        ({"raw": "é"}, "the part.raw is not base64"),
        ({"text": "Hi", "metadata": []}, "the part.metadata must be a dict, not list"),
        ({"data": float("nan")}, "the part.data is nan, which JSON does not have"),
        ({"data": {"a": [0, float("-inf")]}}, "the part.data['a'][1] is -inf, which JSON does not have"),
        ({"data": {1: 2}}, "the part.data has the key 1: JSON has only text for keys"),
        ({"data": {"when": object()}}, "the part.data['when'] is of type object, which JSON does not have"),
        ({"data": 10**20}, "the part.data is a whole number of more than 20 digits"),
        ({"data": nested(101)}, "the part.data is nested more than 100 deep"),
        ({"data": {"\ud800": 1}}, "a key of the part.data holds half of a surrogate pair"),
        ("a\udfff", "the part holds half of a surrogate pair at position 1"),
        ("a\0", "the part holds a NUL at position 1"),
    ],
)
def test_a_bad_part_is_refused_with_the_place_and_the_reason(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match="the part") as caught:
        decode_part(value)
    assert said in str(caught.value)


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        decode_json(loop, "it")


def test_what_is_huge_is_refused() -> None:
    with pytest.raises(ValueError, match="the text has 8388609 characters, more than 8388608"):
        decode_text("x" * (8 * 1024 * 1024 + 1))
    with pytest.raises(ValueError, match="it is 8500001 bytes of JSON, more than 8388608"):
        decode_json(["x" * 84_997] * 100, "it")


def test_json_is_copied() -> None:
    value = {"a": [1]}
    copy = decode_json(value, "it")
    value["a"].append(2)
    assert copy == {"a": [1]}


def test_content_is_text_or_a_part_or_a_list_of_both() -> None:
    assert decode_parts("Hi") == (Part(text="Hi"),)
    assert decode_parts({"data": 1}) == (Part(data=1),)
    assert decode_parts(["Hi", {"data": 1}]) == (Part(text="Hi"), Part(data=1))


def test_content_without_any_part_is_refused() -> None:
    with pytest.raises(ValueError, match="the content has no part"):
        decode_parts([])


def test_a_bad_part_in_a_list_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"the artifact\[1\]\.text must be text, not int"):
        decode_parts(["fine", {"text": 1}], "the artifact")
