"""The bytes of an answer as they come, for an adapter that reads them itself."""

from adapters.http.sse import LimitedReader


class ChunkReader(LimitedReader):
    """Gives each network read as it is."""

    __slots__ = ()

    def feed(self, chunk: bytes) -> list[bytes]:
        self._count(chunk)
        return [chunk]

    def finish(self) -> None:
        return None
