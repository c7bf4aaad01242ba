"""Masks keep a replay exact: what is masked compares as equal, and nothing else does."""

import json
from pathlib import Path

import pytest

from gateway.a2a.redaction import json_path
from gateway.ports.wire import ReplayMissing
from gateway.recording.folders import key_of
from gateway.recording.masks import Masks, Secrets
from gateway.recording.player import Replay
from tests.gateway.recording.support import body_of, post, record, replay, written

SCHEMA = {"type": "object", "properties": {"card_no": {"type": "string"}, "password": {"type": "string"}}}
DECLARATIONS = [
    {"type": "function", "function": {"name": "pay", "description": "card_no: one", "parameters": SCHEMA}},
    {"type": "function", "name": "pay", "parameters": SCHEMA},
    {"name": "pay", "input_schema": SCHEMA},
    {"name": "pay", "inputSchema": SCHEMA, "annotations": {"title": "card_no: one"}},
    {"name": "pay", "description": "", "parameters": SCHEMA, "idempotent": False},
    {"functionDeclarations": [{"name": "pay", "parameters": {"type": "OBJECT", "properties": SCHEMA["properties"]}}]},
    {
        "name": "a",
        "skills": [],
        "capabilities": {},
        "securitySchemes": {"password": {"x": 1}},
        "security": [{"token": []}],
    },
    {"type": "json_schema", "name": "n", "schema": SCHEMA},
]


@pytest.mark.parametrize("declared", DECLARATIONS)
@pytest.mark.parametrize("redact", ["$.args.card_no", "$..card_no"])
def test_a_declaration_is_recorded_as_it_is(redact: str, declared: object) -> None:
    text = json.dumps({"tools": [declared]})
    assert Masks(Secrets(), [json_path(redact)]).json(text) == text


@pytest.mark.parametrize(
    "given",
    [
        {"type": "object", "password": "hunter2"},
        {"type": "object", "data": {"password": "hunter2"}},
        {"type": "object", "title": "Ada", "card_no": "hunter2"},
        {"type": "object", "properties": {"card_no": "hunter2"}},
        {"type": "object", "properties": {"password": {"value": "hunter2"}}},
        {"type": "Feature", "properties": {"password": {"value": "hunter2"}, "size": {"type": "number"}}},
        {"name": "pay", "parameters": {}, "api_key": "hunter2"},
        {"name": "pay", "parameters": {"card_no": "hunter2"}},
        {"name": "pay", "parameters": {"type": "object", "properties": {}, "card_no": "hunter2"}},
        {"name": "pay", "input_schema": SCHEMA, "_meta": {"password": "hunter2"}},
        {"type": "function", "function": {"name": "pay", "parameters": {}, "card_no": "hunter2"}},
        {"type": "function", "function": {"name": "pay"}, "card_no": "hunter2"},
    ],
)
def test_a_value_beside_the_parts_of_a_declaration_is_masked(given: object) -> None:
    masked = Masks(Secrets(), [json_path("$..card_no")]).json(json.dumps({"result": given}))
    assert "hunter2" not in masked


VALUES = {
    "default": "hunter2",
    "const": "hunter2",
    "enum": ["hunter2", "hunter23", None],
    "examples": ["hunter2"],
    "example": {"a": "hunter2"},
    "x-value": "hunter2",
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_in_the_schema_of_a_secret_is_masked(name: str) -> None:
    member = {"type": "string", "description": "hunter", name: VALUES[name]}
    masks = Masks(Secrets())
    for of_secret in (member, {"anyOf": [member]}, {"type": "array", "items": member}, {"properties": {"a": member}}):
        schema = {"type": "object", "properties": {"pass_word": of_secret, "size": {"type": "string", "default": "M"}}}
        masked = masks.json(json.dumps({"tools": [{"name": "pay", "input_schema": schema}]}))
        assert "hunter2" not in masked
        assert masks.json(masked) == masked
        assert json.loads(masked)["tools"][0]["input_schema"]["properties"]["size"] == {
            "type": "string",
            "default": "M",
        }
        assert '"description":"hunter"' in masked


@pytest.mark.parametrize("below", [{"properties": {"a": "hunter2"}}, {"items": "hunter2"}, {"anyOf": ["hunter2"]}])
def test_what_is_no_schema_in_that_of_a_secret_is_masked(below: object) -> None:
    schema = {"type": "object", "properties": {"password": below}}
    assert "hunter2" not in Masks(Secrets()).json(json.dumps(schema))


def test_a_list_of_values_of_a_secret_stays_a_list() -> None:
    schema = {"type": "object", "properties": {"token": {"enum": ["a1", "a2", None]}}}
    masked = json.loads(Masks(Secrets()).json(json.dumps(schema)))
    assert masked["properties"]["token"]["enum"] == ["[redacted]", None]


def test_a_member_of_a_default_with_the_name_of_a_secret_is_masked() -> None:
    schema = {**SCHEMA, "default": {"password": "hunter2", "card_no": "1"}}
    masked = json.loads(Masks(Secrets()).json(json.dumps({"name": "pay", "parameters": schema})))
    assert masked["parameters"]["default"] == {"password": "[redacted]", "card_no": "1"}


@pytest.mark.parametrize("kind", ["Point", "date", ["string", "Point"], 5, {}])
def test_what_has_a_type_that_no_schema_has_is_none(kind: object) -> None:
    given = {"type": "object", "properties": {"password": {"type": kind, "title": "hunter2"}}}
    feature = {"type": kind, "properties": {"password": {"title": "hunter2"}}}
    assert "hunter2" not in Masks(Secrets()).json(json.dumps([given, feature]))


@pytest.mark.parametrize("kind", ["STRING", ["string", "null"], "Integer"])
def test_the_types_of_schemas_are_known_in_any_case(kind: object) -> None:
    text = json.dumps({"type": "OBJECT", "properties": {"password": {"type": kind, "title": "hunter2"}}})
    assert Masks(Secrets()).json(text) == text


def test_a_declaration_with_values_of_a_secret_replays(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string", "default": "hunter2", "enum": ["a1"]}}}
    body = json.dumps({"tools": [{"name": "pay", "input_schema": schema}]})
    record(tmp_path, (post(body), b"data: {}\n\n"))
    assert "hunter2" not in written(tmp_path)
    assert replay(tmp_path, post(body))
    masked = Masks(Secrets()).json(body)
    with pytest.raises(ReplayMissing):
        replay(tmp_path, post(masked.replace("input_schema", "parameters")))
    assert replay(tmp_path, post(masked))


def test_a_path_to_a_declaration_masks_it() -> None:
    assert Masks(Secrets(), [json_path("$..form")]).json(json.dumps({"form": SCHEMA})) == '{"form":"[redacted]"}'


def test_a_declaration_of_any_depth_is_read() -> None:
    schema: object = {"type": "string"}
    for _ in range(400):
        schema = {"properties": {"a": schema}}
    assert "[redacted]" in Masks(Secrets()).json(json.dumps({"password": "x", "schema": schema}))


def test_a_secret_of_the_configuration_is_masked_in_a_declaration_too() -> None:
    masked = Masks(Secrets(["sk-proj-0123"])).json(json.dumps({"name": "sk-proj-0123", "parameters": {}}))
    assert "sk-proj-0123" not in masked


def said(text: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}]})


@pytest.mark.parametrize(
    ("recorded", "other"),
    [
        ('Transfer 5 to Ada {"pin":"1"} today.', 'Cancel everything for Bob {"pin":"1"} now!'),
        ("pin: 1 and pay", "pin: 1 and cancel"),
        ('{"pin":"1', '{"pin":"2'),
        ("[INFO] started", "[INFO] ended"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 3}'),
    ],
)
def test_another_message_is_not_answered(tmp_path: Path, recorded: str, other: str) -> None:
    record(tmp_path, (post(said(recorded)), b"data: {}\n\n"), redact=["$..pin"])
    tap = Replay(tmp_path, 0).tap("support", [json_path("$..pin")])
    with pytest.raises(ReplayMissing):
        tap.answer(post(said(other)))
    assert body_of(tap.answer(post(said(recorded)))) == b"data: {}\n\n"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('Pay {"pin":"1","to":"Ada"} now', 'Pay {"pin":"[redacted]","to":"Ada"} now'),
        ('Pay {\\"pin\\": \\"1\\"} now', 'Pay {\\"pin\\": \\"[redacted]\\"} now'),
        ("see https://a.example/?pin2=1&x=2", "see https://a.example/?pin2=1&x=2"),
        ("plain words about a pin", "plain words about a pin"),
        ("[redacted] and {x}", "[redacted] and {x}"),
        ("see https://u:pw@a.example/x?token=abc&x=1", "see https://u:[redacted]@a.example/x?token=[redacted]&x=1"),
        ('a {"x": "\\"", "password": "hu\\nt", ', 'a {"x": "\\"", "password": "[redacted]", '),
        ('say "x \\"password\\": \\"hunter2\\" y"', 'say "x \\"password\\": \\"[redacted]\\" y"'),
    ],
)
def test_only_the_value_is_masked_in_a_text(text: str, masked: str) -> None:
    masks = Masks(Secrets(), [json_path("$..pin")])
    assert masks.text(text) == masked
    assert masks.text(masked) == masked


@pytest.mark.parametrize("text", ['cut {"password": "hunt', "run x --pin 12x4 --to y", "Pin = 12x4", "<pin>12x4</pin>"])
def test_a_value_without_an_end_is_masked_to_the_end(text: str) -> None:
    masks = Masks(Secrets(), [json_path("$..pin")])
    masked = masks.text(text)
    assert "2x4" not in masked
    assert "hunt" not in masked
    assert masks.text(masked) == masked


def test_a_value_without_a_certain_end_has_a_digest_of_the_recording_beside_its_mask(tmp_path: Path) -> None:
    record(tmp_path, (post(said("pin: 1234 please\nand more")), b"data: {}\n\n"), redact=["$..pin"])
    record(tmp_path / "other", (post(said("pin: 1234 please\nand more")), b"data: {}\n\n"), redact=["$..pin"])
    masks = Masks(Secrets(key=key_of(tmp_path)), [json_path("$..pin")])
    once = masks.text("pin: 1234 please\nand more")
    assert "1234" not in written(tmp_path)
    assert json.dumps(once)[1:-1] in written(tmp_path)
    assert once.startswith("pin: [redacted ")
    assert once.endswith("]\nand more")
    assert masks.text(once) == once
    assert key_of(tmp_path) != key_of(tmp_path / "other")


NAMES = [
    "token",
    "access_token",
    "refresh_token",
    "session_token",
    "auth_token",
    "id_token",
    "accessToken",
    "api_key",
    "x-api-key",
    "password",
    "passwd",
    "pwd",
    "db_password",
    "passphrase",
    "secret",
    "client_secret",
    "secret_key",
    "private_key",
    "privateKey",
    "credentials",
    "authorization",
    "cookie",
    "set-cookie",
    "jwt",
    "signature",
    "Ocp-Apim-Subscription-Key",
    "aws_secret_access_key",
    "connection_string",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_member_with_the_name_of_a_secret_is_masked_in_every_place(name: str) -> None:
    inner = {name: "VALUE", "x": 1}
    bodies = [inner, {"content": json.dumps(inner)}, {"arguments": json.dumps({"a": json.dumps(inner)})}]
    bodies += [
        {"text": f"I saw {json.dumps(inner)} there"},
        {name: ["VALUE"]},
        {name: {"a": "VALUE"}},
        {name: 567890123},
    ]
    masks = Masks(Secrets())
    for body in bodies:
        masked = masks.json(json.dumps(body))
        assert "VALUE" not in masked
        assert "567890123" not in masked
        assert masks.json(masked) == masked


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 5, "max_output_tokens": 5, "token_count": 3, "usage": {"total_tokens": 3, "input_tokens": 1}},
        {"next_page_token": "abc", "nextToken": "abc", "continuation_token": "abc", "page_token": "abc"},
        {"previous_response_id": "resp_1", "prompt_cache_key": "k", "key": "k", "safety_identifier": "s"},
        {"session_id": "s", "idempotency_key": "k", "password": None, "secret": True, "token": ""},
        {
            "logprobs": {
                "content": [{"token": "Hi", "logprob": -1.0, "top_logprobs": [{"token": "Hi", "logprob": -1.0}]}]
            }
        },
        {"text": "the token: it is a word, see https://a.example/?t=30&page_token=5"},
    ],
)
def test_what_only_resembles_a_secret_stays(value: object) -> None:
    text = json.dumps(value)
    assert Masks(Secrets()).json(text) == text


def test_a_result_that_was_masked_for_its_names_is_sent_on_in_a_replay(tmp_path: Path) -> None:
    def request(result: object) -> str:
        return json.dumps({"messages": [{"role": "tool", "content": json.dumps(result)}]})

    given = {"ok": "bob", "session_token": "SESS", "password": 1}
    record(tmp_path, (post(request(given)), b"data: {}\n\n"))
    assert replay(tmp_path, post(request({"ok": "bob", "session_token": "[redacted]", "password": "[redacted]"})))


SPELLINGS = [
    "PASS-WORD",
    "pass_word",
    "pass word",
    "p.assword",
    "to_ken",
    "coo_kie",
    "sig_nature",
    "client_sec_ret",
    "connection-string",
    "pass\nword",
    "to\\ken",
    "tok\u200ben",
]
ESCAPED = ['{"p\\u0061ssword": "VALUE"}', '{"a": "{\\"p\\\\u0061ss_word\\": \\"VALUE\\"}"}', '{"\\u0070wd":"VALUE"}']


@pytest.mark.parametrize("text", [*(json.dumps({name: "VALUE"}) for name in SPELLINGS), *ESCAPED])
def test_a_result_is_masked_in_the_request_as_in_the_file_of_its_tool(text: str) -> None:
    """Nothing else in the text says that a secret is in it."""
    masks = Masks(Secrets())
    of_tool = json.loads(masks.json(json.dumps({"response": json.loads(text)})))["response"]
    request = json.loads(masks.json(json.dumps({"messages": [{"role": "tool", "content": text}]})))
    assert "VALUE" not in json.dumps([of_tool, request])
    assert json.loads(request["messages"][0]["content"]) == of_tool
    assert "VALUE" not in masks.text(text)
    assert "VALUE" not in masks.text(f"It says {text} there")


@pytest.mark.parametrize("name", ['{"password": "VALUE"}', '{"pass_word":"VALUE"}', 'x {"token": "VALUE"}'])
def test_json_in_the_name_of_a_member_is_masked(name: str) -> None:
    masks = Masks(Secrets())
    masked = masks.json(json.dumps({name: 1, "text": json.dumps({name: 1})}))
    assert "VALUE" not in masked
    assert masks.json(masked) == masked


def test_a_name_in_escapes_is_masked_in_json_that_was_cut() -> None:
    assert Masks(Secrets()).text('cut {"p\\u0061ss_word": "VALUE", "a": ') == (
        'cut {"p\\u0061ss_word": "[redacted]", "a": '
    )
