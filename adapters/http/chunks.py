"""The bytes of an answer as they come, for an adapter that reads them itself."""

from adapters.http.sse import STREAM_LIMIT, StreamTooLarge


class ChunkReader:
    """Gives each network read as it is."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        self._size += len(chunk)
        if self._size > STREAM_LIMIT:
            raise StreamTooLarge
        return [chunk]

    def finish(self) -> None:
        return None
