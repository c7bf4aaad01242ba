"""What never stands in a file, and what stands there instead."""

import json
import time
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from gateway.a2a.redaction import json_path
from gateway.ports.wire import End
from gateway.recording.masks import Masks, Secrets
from tests.gateway.recording.support import JSON, body_of, post, record, replay, written

SECRET = 'sk-"proj/ä 0123'


@pytest.mark.parametrize(
    "spelt",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET, safe=""),
        b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_masked_however_it_is_spelt(tmp_path: Path, spelt: str) -> None:
    body = f"the key is {spelt}."
    answers = f"data: {body}\n\n".encode()
    record(tmp_path, (post(body), answers), secrets=[SECRET])
    assert written(tmp_path).count("the key is [redacted]") == 2


def test_a_secret_is_masked_in_every_place(tmp_path: Path) -> None:
    secret = "sk-proj-0123456789"
    sent = post(json.dumps({"a": [secret], secret: 1}), url=f"https://a.example/x?key={secret}", Location=f"/{secret}")
    record(
        tmp_path,
        (sent, json.dumps({"echo": f"you sent {secret}"}).encode()),
        (sent, f"{secret}\nand {secret}".encode()),
        (sent, b"\xff" + secret.encode() + b"\n"),
        secrets=[secret],
        headers={**JSON, "Location": secret, "Set-Cookie": secret},
    )
    record(tmp_path, (sent, f"event: {secret}\ndata: {{}}\n\n: {secret}\n\n".encode()), secrets=[secret])
    assert secret not in written(tmp_path)


def test_a_word_that_is_json_by_itself_is_no_secret() -> None:
    masks = Masks(Secrets(["true", "8080", "abc"]))
    assert masks.json('{"a": true, "port": 8080, "abc": "abc"}') == '{"a": true, "port": 8080, "abc": "abc"}'


def test_headers_are_masked_but_for_those_that_say_nothing() -> None:
    given = {
        "Authorization": "Bearer x",
        "X-Api-Key": "k",
        "Cookie": "c",
        "Content-Type": "text/plain",
        "A2A-Version": "1.0",
    }
    assert Masks(Secrets()).headers(given) == {
        "a2a-version": "1.0",
        "authorization": "[redacted]",
        "content-type": "text/plain",
        "cookie": "[redacted]",
        "x-api-key": "[redacted]",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/x", "https://a.example/x"),
        ("https://a.example/x?limit=1&api_key=abc&flag", "https://a.example/x?limit=1&api_key=[redacted]&flag"),
        ("https://a.example/x?sig=a%3Db", "https://a.example/x?sig=[redacted]"),
    ],
)
def test_parameters_with_the_name_of_a_secret_are_masked(url: str, expected: str) -> None:
    assert Masks(Secrets()).url(url) == expected


def test_members_with_the_name_of_a_secret_are_masked() -> None:
    masked = Masks(Secrets()).json('{"token":"t","usage":{"total_tokens":3},"a":[{"clientSecret":"s","name":"n"}]}')
    assert masked == '{"token":"[redacted]","usage":{"total_tokens":3},"a":[{"clientSecret":"[redacted]","name":"n"}]}'


def test_what_only_the_backend_can_read_is_a_hash_in_both_directions(tmp_path: Path) -> None:
    blob = "gAAAA" * 20
    answer = b'event: done\ndata: {"encrypted_content":"%s"}\n\n' % blob.encode()
    again = post(json.dumps({"input": [{"type": "reasoning", "encrypted_content": blob}]}))
    _, second = record(tmp_path, (post(), answer), (again, answer))
    assert blob not in written(tmp_path)
    [given] = replay(tmp_path, post())
    sealed = json.loads(body_of(given).partition(b"data: ")[2])["encrypted_content"]
    assert sealed.startswith("[sealed ")
    assert second.body == {"input": [{"type": "reasoning", "encrypted_content": sealed}]}
    assert replay(tmp_path, post(json.dumps(second.body)))


def test_a_thought_that_is_hidden_is_a_hash() -> None:
    thought = {"type": "redacted_thinking", "data": "x" * 40}
    assert "x" * 40 not in Masks(Secrets()).json(json.dumps(thought))


_CALL = {"type": "function_call", "arguments": '{"user": "ada", "password": "hunter2"}'}
_OUTPUT = {"type": "function_call_output", "call_id": "c", "output": '{"rows": [{"email": "ada@example.com"}]}'}


@pytest.mark.parametrize("path", ["$.args.password", "$..password"])
def test_a_path_into_arguments_masks_them_in_any_body(tmp_path: Path, path: str) -> None:
    record(tmp_path, (post(json.dumps({"input": [_CALL]})), b"data: {}\n\n"), redact=[path])
    assert "hunter2" not in written(tmp_path)
    assert "ada" in written(tmp_path)


def test_a_path_into_results_masks_them_in_any_body(tmp_path: Path) -> None:
    record(tmp_path, (post(json.dumps({"input": [_OUTPUT]})), b"data: {}\n\n"), redact=["$.response.rows[*].email"])
    assert "ada@" not in written(tmp_path)


@pytest.mark.parametrize(
    "result",
    [
        _OUTPUT,
        {"role": "tool", "content": "ada@"},
        {"type": "tool_result", "content": [{"type": "text", "text": "ada@"}]},
    ],
)
def test_results_are_masked_as_a_whole(result: object) -> None:
    masks = Masks(Secrets(), [json_path("$.response")])
    assert "ada@" not in masks.json(json.dumps({"messages": [result]}))


def deltas(*pieces: str) -> list[tuple[str, bytes]]:
    """The same arguments in fragments, on each wire."""
    chat = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": p}}]}}]}
        for p in pieces
    ]
    responses = [{"type": "response.function_call_arguments.delta", "item_id": "i", "delta": piece} for piece in pieces]
    messages = [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in pieces
    ]
    return [
        (name, b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in wire))
        for name, wire in (("chat", chat), ("responses", responses), ("messages", messages))
    ]


@pytest.mark.parametrize("wire", range(3))
def test_arguments_in_fragments_are_masked_as_one(tmp_path: Path, wire: int) -> None:
    _, stream = deltas('{"user":"ada","pass', 'word":"hun', 'ter2"}')[wire]
    record(tmp_path, (post(), stream), redact=["$.args.password"])
    assert "hun" not in written(tmp_path)
    assert "ter2" not in written(tmp_path)
    [answer] = replay(tmp_path, post())
    expected = json.dumps('{"user":"ada","password":"[redacted]"}').encode()
    assert expected in body_of(answer)
    assert body_of(answer).count(b"data: ") == 3


def test_fragments_of_which_nothing_is_masked_stand_as_they_came(tmp_path: Path) -> None:
    _, stream = deltas('{"user":"ada","na', 'me":"x"}')[0]
    record(tmp_path, (post(), stream), redact=["$.args.password"])
    [answer] = replay(tmp_path, post())
    assert body_of(answer) == stream


def test_a_member_with_the_name_of_a_secret_is_masked_in_fragments(tmp_path: Path) -> None:
    _, stream = deltas('{"user":"ada","pass', 'word":"hun', 'ter2"}')[0]
    record(tmp_path, (post(), stream))
    assert "ter2" not in written(tmp_path)
    assert "ada" in written(tmp_path)


def test_masking_twice_is_masking_once() -> None:
    masks = Masks(Secrets(["sk-proj-0123456789"]), [json_path("$.args.password")])
    text = json.dumps({"token": "t", "a": "sk-proj-0123456789", "encrypted_content": "x" * 99, "input": [_CALL]})
    assert masks.json(masks.json(text)) == masks.json(text)


CUT = [
    SECRET[:6],
    SECRET[:-1],
    SECRET[:9].upper(),
    json.dumps(SECRET)[1:-2],
    json.dumps(SECRET)[1:14],
    quote(SECRET)[:-1],
]


def results(begun: str, folder: Path) -> Path:
    """Where a result was cut behind this text: by the gateway, in a text and in another value, and by the wire."""
    text = f"the key {begun}\n[truncated: 65536 of 70000 bytes]"
    value = {"truncated": True, "bytes": 70000, "beginning": f'{{"the key": "{begun}'}
    bodies = [text, json.dumps(value), value]
    messages = json.dumps({"messages": [{"role": "tool", "content": each} for each in bodies]})
    cut = f'{{"the key": "{begun}'.encode()
    record(folder / "json", (post(messages), cut), secrets=[SECRET], how=End.CUT, headers=JSON)
    record(folder / "rows", (post(), cut), secrets=[SECRET], how=End.TIMEOUT, headers={"Content-Type": "text/plain"})
    _, stream = deltas('{"the key":"', begun[:4], begun[4:])[0]
    record(folder / "arguments", (post(), stream), secrets=[SECRET], how=End.CUT)
    said = b"data: %s\n\n" % json.dumps({"delta": f"the key {begun}"}).encode()
    record(folder / "event", (post(), said[:-4]), secrets=[SECRET], how=End.CUT)
    return folder


@pytest.mark.parametrize("begun", CUT)
def test_the_beginning_of_a_secret_is_masked_where_a_text_is_cut(tmp_path: Path, begun: str) -> None:
    found = written(results(begun, tmp_path))
    assert begun[:6] not in found
    assert found.count("the key") == 7
    assert found.count("[redacted]") == 7


def test_what_two_secrets_begin_with_is_masked_once() -> None:
    masks = Masks(Secrets(["sk-proj-0123", "sk-proj-4567", "sk-proj-sk-proj-89"]))
    for begun in ("sk-proj-", "sk-proj-sk-pro"):
        assert masks.text(f"a {begun}\n[truncated: 1 of 2 bytes]") == "a [redacted]\n[truncated: 1 of 2 bytes]"


def test_less_than_six_characters_of_a_secret_are_words(tmp_path: Path) -> None:
    assert "[redacted]" not in written(results(SECRET[:5], tmp_path))


def test_the_beginning_of_a_secret_stays_where_nothing_is_cut() -> None:
    masks, begun = Masks(Secrets([SECRET])), SECRET[:8].replace('"', "'")
    for text in (f"{begun} and more\n[truncated: 1 of 2 bytes]", json.dumps({"a": begun})):
        assert masks.json(text) == masks.text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        '"password": "',
        '"token"=',
        "token=[redacted] ",
        "token=",
        "token: x ",
        "//token\n",
        "\\",
        "\\n[truncated: ",
        "?b=%2525253F",
        "?b=x",
        '{"token":"',
    ],
)
def test_a_large_text_is_soon_masked(piece: str) -> None:
    began = time.process_time()
    Masks(Secrets(["sk-proj-0123456789"])).json(piece * (400_000 // len(piece)) + "[truncated: ")
    assert time.process_time() - began < _SECONDS


_SECONDS = 20
"""Ten times what it takes; a quadratic search takes minutes."""
