"""Parts and the content of LangChain's messages."""

from typing import Any

import pytest

from adapters.langgraph import content
from adapters.langgraph.wire import Message
from gateway.a2a import model
from gateway.a2a.model import Part, Role
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem

TEXT, DATA = Part(text="Look"), Part(data={"a": 1})
PNG = Part(raw="aGk=", media_type="image/png", filename="a.png")


def said(*parts: Part, name: str = "m", task: str | None = None) -> model.Message:
    return model.Message(message_id=name, role=Role.USER, parts=parts, task_id=task)


@pytest.mark.parametrize(
    ("parts", "encoded"),
    [
        ([TEXT], "Look"),
        ([TEXT, DATA], 'Look\n\n{"a":1}'),
        ([PNG], [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]),
        (
            [TEXT, Part(url="http://host.example/a.png")],
            [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "http://host.example/a.png"}},
            ],
        ),
        (
            [Part(raw="aGk=", media_type="application/pdf", filename="a.pdf")],
            [{"type": "file", "mime_type": "application/pdf", "base64": "aGk=", "filename": "a.pdf"}],
        ),
        (
            [Part(url="http://host.example/a", media_type="audio/wav")],
            [{"type": "audio", "mime_type": "audio/wav", "url": "http://host.example/a"}],
        ),
        ([Part(raw="aGk=")], [{"type": "file", "mime_type": "application/octet-stream", "base64": "aGk="}]),
    ],
)
def test_parts_are_one_text_or_blocks(parts: list[Part], encoded: Any) -> None:
    assert content.encode_parts(parts) == encoded


def test_an_answer_of_data_alone_is_the_data() -> None:
    assert [content.encode_answer(parts) for parts in ([DATA], [TEXT], [TEXT, DATA])] == [
        {"a": 1},
        "Look",
        'Look\n\n{"a":1}',
    ]


def test_a_message_has_the_same_id_every_time_and_no_other_message_has_it() -> None:
    sent = [
        said(TEXT),
        said(TEXT, task="t"),
        said(TEXT, name="n"),
        said(Part(text="Hear")),
    ]
    names = [content.message_id(each) for each in sent]
    assert len(set(names)) == 4
    assert content.encode_message(UserItem(said(TEXT))) == {"role": "user", "content": "Look", "id": names[0]}


def test_a_whole_conversation_is_told_with_the_calls_that_have_results() -> None:
    call, other, open_ = (
        CallItem(f"c{n}", "pay", arguments) for n, arguments in enumerate(('{"to":"a"}', "{to", "{}"))
    )
    items: list[Item] = [
        UserItem(said(TEXT)),
        *(CallItem("q", "pay", "{}", asking="graph"), OutputItem("q", "", approved=True)),
        *(call, other, open_, OutputItem("c0", {"paid": 1}), OutputItem("c1", "no", error=True), OutputItem("c9", "x")),
        AssistantItem((Part(text="Done."),)),
        UserItem(said(Part(text="Thanks"))),
    ]
    messages = content.encode_conversation(items)
    assert len({message.pop("id") for message in messages}) == 6
    assert messages == [
        {"role": "user", "content": "Look"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"name": "pay", "args": {"to": "a"}, "id": "c0", "type": "tool_call"},
                {"name": "pay", "args": {"raw": "{to"}, "id": "c1", "type": "tool_call"},
            ],
        },
        {"role": "tool", "content": '{"paid":1}', "tool_call_id": "c0", "status": "success"},
        {"role": "tool", "content": "no", "tool_call_id": "c1", "status": "error"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thanks"},
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "url": "http://host.example/a.png"},
            Part(url="http://host.example/a.png", media_type="image/png"),
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            Part(raw="aGk=", media_type="image/png"),
        ),
        ({"type": "image_url", "image_url": "http://host.example/a"}, Part(url="http://host.example/a")),
        (
            {"type": "file", "source_type": "base64", "data": "aGk=", "mime_type": "application/pdf"},
            Part(raw="aGk=", media_type="application/pdf"),
        ),
        (
            {"type": "file", "base64": "aGk=", "mime_type": "text/csv", "extras": {"filename": "a.csv"}},
            Part(raw="aGk=", media_type="text/csv", filename="a.csv"),
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;base64,aGk=", "filename": "a.csv"}},
            Part(raw="aGk=", media_type="text/csv", filename="a.csv"),
        ),
        ({"type": "text-plain", "text": "hi"}, Part(raw="aGk=", media_type="text/plain")),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            Part(raw="aGk=", media_type="audio/mp3"),
        ),
    ],
)
def test_a_file_of_an_answer_is_a_part_whatever_its_form(block: Any, part: Part) -> None:
    assert content.files_of(Message(content=[block])) == [part]


@pytest.mark.parametrize("block", [{"type": "file"}, {"type": "image", "file_id": "f1"}, "text", 7, None])
def test_a_block_without_a_file_is_none(block: Any) -> None:
    assert content.files_of(Message(content=[block])) == []


def test_the_blocks_of_a_text_are_joined() -> None:
    blocks = ["a", {"type": "text", "text": "b"}, {"type": "output_text", "text": "c"}, {"type": "tool_use", "id": "x"}]
    assert content.text_of(Message(content=blocks)) == "abc"
    assert [content.output_of(Message(content=each)) for each in ("a", blocks[:3], blocks, None)] == [
        "a",
        "abc",
        blocks,
        "",
    ]
