"""Messages from the command line."""

import io
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.console.output import Stop
from gateway.cli.console.parameters import SendOptions
from gateway.cli.talk.message import build_message


def built(text: str = "Hi", **options: Any) -> dict[str, Any]:
    message = build_message(SendOptions(text, **options))
    assert len(message.pop("messageId")) == 36
    return message


def refused(text: str = "Hi", **options: Any) -> str:
    with pytest.raises(Stop) as caught:
        built(text, **options)
    assert caught.value.code == 2
    return caught.value.text


def test_a_text_is_a_message_of_the_user() -> None:
    assert built("Hi \u00e9") == {"role": "ROLE_USER", "parts": [{"text": "Hi \u00e9"}]}


def test_a_message_may_name_a_context_and_a_task() -> None:
    assert built(context="c", task="t") == {
        "role": "ROLE_USER",
        "parts": [{"text": "Hi"}],
        "contextId": "c",
        "taskId": "t",
    }


def test_files_and_data_are_parts_after_the_text(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    (tmp_path / "what").write_bytes(b"")
    parts = built(files=[tmp_path / "dot.png", tmp_path / "what"], data='{"a": [1, null]}')["parts"]
    assert parts == [
        {"text": "Hi"},
        {"raw": "iVBORw==", "filename": "dot.png", "mediaType": "image/png"},
        {"raw": "", "filename": "what", "mediaType": "application/octet-stream"},
        {"data": {"a": [1, None]}},
    ]


def test_without_a_text_other_parts_are_enough() -> None:
    assert built("", data="1")["parts"] == [{"data": 1}]
    assert "there is nothing to send" in refused("")


def test_a_dash_reads_standard_input_without_its_last_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\n")))
    assert built("-")["parts"] == [{"text": "one\ntwo"}]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert refused("-") == "standard input is not UTF-8; send it as a file: --file PATH"


def test_a_text_that_is_not_utf8_is_refused() -> None:
    assert refused("half \udcff") == "TEXT is not UTF-8; send it as a file: --file PATH"


@pytest.mark.parametrize("data", ["", "{a: 1}", "NaN", "[1,]", "[" * 100_000])
def test_data_that_is_not_json_is_refused(data: str) -> None:
    assert refused(data=data).startswith("--data is not JSON: ")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert refused(files=[tmp_path]) == f"--file {str(tmp_path)!r} cannot be read: is a directory"
