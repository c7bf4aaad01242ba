"""A document in the place of an event stream: the only event of its answer. Law: it is given out whole or not at all."""

from adapters.http.half_characters import with_whole_characters
from adapters.http.sse import EVENT_LIMIT, StreamTooLarge


class DocumentReader:
    """Gives the JSON of an answer with whole characters, when all of it has come."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises: StreamTooLarge."""
        self._size += len(chunk)
        if self._size > EVENT_LIMIT:
            raise StreamTooLarge
        self._pieces.append(chunk)
        return []

    def finish(self) -> bytes:
        """Empty for an answer without a byte."""
        return with_whole_characters(b"".join(self._pieces))
