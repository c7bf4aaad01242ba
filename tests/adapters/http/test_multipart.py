"""Forms with files, as another library reads them."""

from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from typing import cast

from adapters.http.multipart import FormField, encode_form
from tests.adapters.http.conftest import Connect
from tests.adapters.raw_server import Received, StartRaw, plain


def _parts(body: bytes, content_type: str) -> list[tuple[str, str | None, str, bytes]]:
    """The name, the file name, the media type and the content of each part."""
    whole = BytesParser(EmailMessage, policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    return [
        (
            part["content-disposition"].params["name"],
            part.get_filename(),
            part.get_content_type(),
            cast("bytes", part.get_payload(decode=True)),
        )
        for part in whole.iter_parts()
    ]


def test_values_and_files_come_as_they_are() -> None:
    body, content_type = encode_form(
        (
            FormField("purpose", "é".encode()),
            FormField("file", b"\x00\r\n--\r\n\xff", "übersicht.pdf", "application/pdf"),
            FormField("file", b"", "empty"),
        )
    )
    assert _parts(body, content_type) == [
        ("purpose", None, "text/plain", "é".encode()),
        ("file", "übersicht.pdf", "application/pdf", b"\x00\r\n--\r\n\xff"),
        ("file", "empty", "application/octet-stream", b""),
    ]


def test_a_name_of_a_file_adds_no_line_and_no_parameter() -> None:
    body, content_type = encode_form([FormField("file", b"1", 'a";x="b\r\nX: 1', "text/plain\r\nX: 1")])
    assert _parts(body, content_type) == [("file", "a%22;x=%22b%0D%0AX: 1", "text/plainx: 1", b"1")]


async def test_a_form_is_the_body_of_a_request(raw: StartRaw, connect: Connect) -> None:
    server = await raw(lambda exchange: exchange.send(plain("200 OK", b'{"id":"file_1"}')))
    body, content_type = encode_form([FormField("file", b"x" * 2_000_000, "large")])
    reply = await connect().request("POST", server.url, body, headers={"Content-Type": content_type})
    assert reply.body == b'{"id":"file_1"}'
    request: Received = server.requests[0]
    [(_, filename, _, content)] = _parts(request.body, request.header("Content-Type") or "")
    assert (filename, len(content)) == ("large", 2_000_000)
