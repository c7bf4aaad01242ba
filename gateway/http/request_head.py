"""The head of a request, as far as HTTP/1.1 frames and addresses it, where the parser and uvicorn take it as it is. Law: pure;
a head that this server does not understand is refused, never guessed.

Source: RFC 9110, section 2.5; RFC 9112, sections 3.2 and 6.1.
"""

import re
from collections.abc import Iterable

_VERSIONS = frozenset({"1.1", "1.0"})
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)([/?#].*)?", re.IGNORECASE | re.DOTALL)


class HeadRefused(Exception):
    """`status` is the HTTP status of the answer, `name` that of the error."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message


def check_framing(version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """`headers` have their names in lower case. The parser refuses transfer codings of which `chunked` is not the last, or not
    the only one of its name.

    Raises: HeadRefused.
    """
    if version not in _VERSIONS:
        raise HeadRefused(505, "UNIMPLEMENTED", f"this server speaks HTTP/1.1 and HTTP/1.0, not HTTP/{version}")
    lines = [value for name, value in headers if name == b"transfer-encoding"]
    if not lines:
        return
    if version == "1.0":
        # A reader of HTTP/1.0 may find another end of the body.
        raise HeadRefused(400, "INVALID_ARGUMENT", "a request of HTTP/1.0 has no Transfer-Encoding")
    codings = [coding.strip().lower() for line in lines for coding in line.split(b",") if coding.strip()]
    if codings[-1:] != [b"chunked"]:
        raise HeadRefused(
            400, "INVALID_ARGUMENT", "Transfer-Encoding must end with chunked: nothing else tells the end of a body"
        )
    if len(codings) > 1:
        raise HeadRefused(501, "UNIMPLEMENTED", "this server reads no Transfer-Encoding but chunked")


def read_target(target: bytes) -> tuple[bytes, bytes | None]:
    """The path with its query, or the asterisk; and where the target is a whole address, its authority, which takes the
    place of Host.

    Raises: HeadRefused.
    """
    if target.startswith(b"/") or target == b"*":
        return target, None
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        message = "the target of a request must be a path, or an http or https address without a user"
        raise HeadRefused(400, "INVALID_ARGUMENT", message)
    authority, rest = absolute.groups(b"")
    return rest if rest.startswith(b"/") else b"/" + rest, authority
