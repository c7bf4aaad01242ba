"""Forms with files, as the body of a request.

Source: RFC 7578; names are written as browsers do (WHATWG HTML, section 4.10.21.8).
"""

from collections.abc import Iterable

import msgspec

from gateway.foundation.clock import uuid4


class FormField(msgspec.Struct, frozen=True):
    """A value, or with `filename` a file. `content_type` is the media type of the file."""

    name: str
    content: bytes
    filename: str | None = None
    content_type: str = "application/octet-stream"


def encode_form(fields: Iterable[FormField]) -> tuple[bytes, str]:
    """The body and its `Content-Type`. The boundary is random, so that no content holds it."""
    boundary = uuid4()
    pieces: list[bytes] = []
    for field in fields:
        disposition = f'form-data; name="{_quoted(field.name)}"'
        if field.filename is not None:
            kind = field.content_type.replace("\r", "").replace("\n", "")
            disposition += f'; filename="{_quoted(field.filename)}"\r\nContent-Type: {kind}'
        head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n"
        pieces += (head.encode(), field.content, b"\r\n")
    pieces.append(f"--{boundary}--\r\n".encode())
    return b"".join(pieces), f"multipart/form-data; boundary={boundary}"


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
