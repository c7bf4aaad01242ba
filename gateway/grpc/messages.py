"""Messages as they are on the wire: a flag, a length, and the bytes. Law: nothing is kept beyond the largest message.

Source: the description of gRPC over HTTP/2, "Length-Prefixed-Message".
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from gateway.a2a.errors import EncodingNotSupported, InvalidRequest, PayloadTooLarge

_PREFIX = struct.Struct(">BI")


_LARGE = 2**16
"""Bytes of a message that is not copied behind its prefix."""


def parts(messages: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of uncompressed messages, in as few parts as there are without a copy of a large one."""
    small: list[bytes] = []
    for message in messages:
        size = len(message)
        small.append(b"\0" + size.to_bytes(4))
        if size < _LARGE:
            small.append(message)
        else:
            yield b"".join(small)
            yield message
            small.clear()
    if small:
        yield b"".join(small)


def portions(messages: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """The messages in order, in portions of about `size` bytes, each of at least one message."""
    begin, held = 0, 0
    for at, message in enumerate(messages):
        held += len(message)
        if held >= size:
            yield messages[begin : at + 1]
            begin, held = at + 1, 0
    if begin < len(messages):
        yield messages[begin:]


class Incoming:
    """The bytes of a call, as they come. `begun` says that a message has been taken, `ended` that no more bytes come."""

    __slots__ = ("_bytes", "_left", "begun", "ended", "largest")

    def __init__(self, largest: int, length: int | None = None) -> None:
        """`largest` is the number of bytes of the largest message, `length` that of all bytes, where it is known."""
        self._bytes = bytearray()
        self._left = length
        self.largest = largest
        self.begun = self.ended = False

    @property
    def complete(self) -> bool:
        """Whether there is nothing more than what has been taken."""
        return self.ended and not self._bytes

    def feed(self, data: bytes) -> None:
        self._bytes += data
        if self._left is not None:
            self._left -= len(data)

    @property
    def size(self) -> int:
        """Bytes that have not been taken."""
        return len(self._bytes)

    def next(self) -> bytes | None:
        """The first message that is complete, None where there is none yet.

        Raises: PayloadTooLarge and EncodingNotSupported as soon as its prefix is there, InvalidRequest when it is cut off, and
        when there are more or fewer bytes than was said.
        """
        if self._left is not None and (self._left < 0 or (self.ended and self._left)):
            raise InvalidRequest("the header 'content-length' is not the size of the body")
        if len(self._bytes) >= _PREFIX.size:
            compressed, length = _PREFIX.unpack_from(self._bytes)
            if compressed:
                raise EncodingNotSupported("compressed messages are not supported")
            if length > self.largest:
                raise PayloadTooLarge(f"the message has more than {self.largest} bytes")
            end = _PREFIX.size + length
            if len(self._bytes) >= end:
                message = bytes(memoryview(self._bytes)[_PREFIX.size : end])
                del self._bytes[:end]
                self.begun = True
                return message
        if self.ended and self._bytes:
            raise InvalidRequest("the message is cut off")
        return None
