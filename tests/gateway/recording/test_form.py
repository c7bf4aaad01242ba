"""The form of a file: what a person sees, and that it is read back."""

from pathlib import Path

import pytest
import yaml

from gateway.ports.wire import End
from gateway.recording.form import NoRecording, read
from tests.gateway.recording.support import JSON, at, post, record

ASKED = '{"model":"m","input":[{"role":"user","content":"Where is my order?"}],"stream":true,"n":1.5,"none":null}'
ANSWER = b'event: delta\ndata: {"delta":"It "}\n\nevent: done\ndata: {}\n\n'

FILE = """\
ids: {"agent": "support", "context": "context", "task": "task", "turn": "turn", "call": "call"}
at: "TIME"
request:
  method: "POST"
  url: "https://api.example.com/v1/responses"
  headers: {"authorization": "[redacted]", "content-type": "application/json"}
  body:
    "model": "m"
    "input":
    - {"role": "user", "content": "Where is my order?"}
    "stream": true
    "n": 1.5
    "none": null
response:
  at: 0.0
  status: 200
  headers: {"content-type": "text/event-stream"}
  events:
  - [0.001, "delta", {"delta":"It "}]
  - [0.001, "done", {}]
end: {"at": 0.001, "how": "complete"}
"""


def the_file(folder: Path) -> str:
    sent = post(ASKED, **{"Authorization": "Bearer key", "Content-Type": "application/json"})
    with at():
        [exchange] = record(folder, (sent, ANSWER))
    return exchange.text.replace(exchange.begun, "TIME")


def test_a_file_reads_like_this(tmp_path: Path) -> None:
    assert the_file(tmp_path) == FILE


def test_a_file_is_yaml(tmp_path: Path) -> None:
    held = yaml.safe_load(the_file(tmp_path))
    assert held["request"]["body"]["input"] == [{"role": "user", "content": "Where is my order?"}]
    assert held["response"]["events"][0] == [0.001, "delta", {"delta": "It "}]


def test_a_file_is_read_back() -> None:
    found = read(FILE, "support/c01/0001.yaml")
    assert (found.ids.agent, found.ids.call, found.method, found.status) == ("support", "call", "POST", 200)
    assert found.body == {
        "model": "m",
        "input": [{"role": "user", "content": "Where is my order?"}],
        "stream": True,
        "n": 1.5,
        "none": None,
    }
    assert found.reads == ((0.001, ANSWER),)
    assert (found.end.how, found.end.at) == (End.COMPLETE, 0.001)


@pytest.mark.parametrize("lines", range(3, FILE.count("\n")))
def test_the_beginning_of_a_file_is_a_recording_that_was_cut(lines: int) -> None:
    beginning = "".join(FILE.splitlines(keepends=True)[:lines])
    if "url" not in beginning:
        with pytest.raises(NoRecording, match="f is no recording"):
            read(beginning, "f")
    else:
        assert read(beginning, "f").end.how is End.CUT


def test_comments_and_empty_lines_are_allowed() -> None:
    commented = "# found in production\n\n" + FILE.replace("response:", "# then\nresponse:")
    assert read(commented, "f").reads == ((0.001, ANSWER),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('  method: "POST"', "  method: POST"),
        ('"model": "m"', '   "model": "m"'),
        ("status: 200", "status: ok"),
        ('"how": "complete"', '"how": "well"'),
        ('  - [0.001, "done", {}]', "  - done"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(old: str, new: str) -> None:
    with pytest.raises(NoRecording, match=r"support/c01/0001\.yaml is no recording"):
        read(FILE.replace(old, new), "support/c01/0001.yaml")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"id": "r", "output": []}', '  body:\n    "id": "r"\n    "output": []\n'),
        (b"[1, 2]", "  body: [1, 2]\n"),
        (b"<html>", '  text: "<html>"\n'),
        (b"\xff\x00", '  base64: "/wA="\n'),
    ],
)
def test_a_whole_body_is_read_back(tmp_path: Path, body: bytes, expected: str) -> None:
    [exchange] = record(tmp_path, (post(), body), headers=JSON)
    assert expected in exchange.text
    assert [each for _, each in exchange.reads] in ([body], [body.replace(b" ", b"")])


def test_a_whole_body_that_is_cut_keeps_what_came(tmp_path: Path) -> None:
    [exchange] = record(tmp_path, (post(), b'{"id": "r", "ou'), headers=JSON, how=End.CUT)
    assert exchange.reads == ((0.001, b'{"id": "r", "ou'),)
    assert exchange.end.how is End.CUT


def test_an_answer_without_a_body_has_none(tmp_path: Path) -> None:
    [exchange] = record(tmp_path, (post(), b""), headers=JSON)
    assert (exchange.status, exchange.reads) == (200, ())
