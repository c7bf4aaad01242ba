"""Items -> the activity that a bot gets."""

import base64
import email
import email.policy

import pytest

from adapters.copilot.message import File, encode, multipart, signs
from gateway.a2a.model import Message, Part, Role
from gateway.ports.conversation import AssistantItem, OutputItem, ReasoningItem, UserItem


def user(*parts: Part) -> UserItem:
    return UserItem(Message(message_id="m", role=Role.USER, parts=parts))


def said(text: str) -> UserItem:
    return user(Part(text=text))


def test_a_message_is_its_text() -> None:
    assert encode((user(Part(text="one"), Part(text="two")),)).fields == {"type": "message", "text": "one\ntwo"}


def test_messages_that_were_not_sent_go_together() -> None:
    assert encode((said("one"), said("two"))).text == "one\n\ntwo"


def test_an_empty_message_is_a_message() -> None:
    assert encode((user(),)).fields == {"type": "message"}


@pytest.mark.parametrize(
    ("data", "value"),
    [(({"a": 1},), {"a": 1}), (({"a": 1}, [2]), [{"a": 1}, [2]]), ((), None), ((0,), 0), ((False,), False)],
)
def test_data_is_the_value_of_the_message(data: tuple[object, ...], value: object) -> None:
    outgoing = encode((user(*(Part(data=each) for each in data)),))
    assert outgoing.value == value
    assert ("value" in outgoing.fields) == bool(data)


def test_a_file_with_an_address_is_an_attachment_with_that_address() -> None:
    outgoing = encode((user(Part(url="https://files.example/a.png", media_type="image/png", filename="a.png")),))
    link = {"contentType": "image/png", "contentUrl": "https://files.example/a.png", "name": "a.png"}
    assert outgoing.fields["attachments"] == [link]
    assert outgoing.files == ()


def test_a_file_with_bytes_goes_beside_the_message() -> None:
    raw = base64.b64encode(b"hello").decode()
    outgoing = encode((user(Part(raw=raw, media_type="text/plain", filename="a.txt"), Part(raw=raw)),))
    octets = "application/octet-stream"
    assert outgoing.files == (File("a.txt", "text/plain", b"hello"), File("file-2", octets, b"hello"))
    assert outgoing.inline_files[0] == {
        "contentType": "text/plain",
        "name": "a.txt",
        "contentUrl": f"data:text/plain;base64,{raw}",
    }


def test_bytes_that_are_no_base64_are_refused() -> None:
    with pytest.raises(ValueError, match="no base64"):
        encode((user(Part(raw="no!")),))


def test_a_bot_that_lost_the_conversation_is_told_it_again() -> None:
    earlier = (
        said("Hi"),
        ReasoningItem("thinking"),
        AssistantItem((Part(text="Hello"),)),
        said("A picture"),
        AssistantItem((Part(url="https://files.example/a.png"),)),
        OutputItem("c", {"ok": True}),
    )
    assert encode((*earlier, said("And now?"))).text == (
        "Earlier in this conversation:\n\nUser: Hi\n\nYou: Hello\n\nUser: A picture\n\nYou: (a file)\n\n"
        'Result of a tool: {"ok":true}\n\nNow:\n\nAnd now?'
    )


def test_the_same_item_has_the_same_sign() -> None:
    first, second = signs((said("one"), said("two")))
    assert [first] == signs((said("one"),))
    assert first != second


def test_an_upload_is_a_form_that_any_reader_of_mime_takes() -> None:
    files = (File('a "b".txt', "text/plain", b"one\r\ntwo"), File("c\r\nd", "image/png\r\nX: y", b"\x00\xff"))
    body = multipart(b'{"type":"message"}', files, "boundary")
    head = b"MIME-Version: 1.0\r\nContent-Type: multipart/form-data; boundary=boundary\r\n\r\n"
    parsed = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    parts = list(parsed.iter_parts())
    assert [part.get_content_type() for part in parts] == [
        "application/vnd.microsoft.activity",
        "text/plain",
        "application/octet-stream",
    ]
    assert [part.get_filename() for part in parts] == [None, "a 'b'.txt", "c  d"]
    assert [part.get_payload(decode=True) for part in parts] == [b'{"type":"message"}', b"one\r\ntwo", b"\x00\xff"]
