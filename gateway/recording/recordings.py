"""Reads a folder of recordings, also one that is being written. Law: a file that cannot be read is left out, and named in
the log.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from gateway.recording.folders import OUTSIDE, conversations, files, first_ids, ids_of
from gateway.recording.form import Exchange, NoRecording, read

log = structlog.get_logger("gateway.recording.recordings")


class Recordings:
    """What lies in a folder now. Each call reads files: in an event loop, call it in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._contexts: dict[Path, str] = {}
        """The contexts of folders; a folder keeps its own."""

    def of_call(self, context: str, call: str) -> tuple[Exchange, ...]:
        """The exchanges of a service call of this context, in the order in which they began: each try and look-up, and the
        tools that it asked for. Raises: OSError."""
        return tuple(
            exchange
            for folder in conversations(self.folder)
            if self._context_of(folder) == context
            for _, file in files(folder)
            if (ids := ids_of(file)) is not None and ids.call == call
            if (exchange := self._read(file)) is not None
        )

    def all(self) -> Iterator[Exchange]:
        """All exchanges, by agent, conversation and number. Raises: OSError."""
        for agent in sorted(self.folder.iterdir()):
            if agent.is_dir():
                known = [folder for folder in agent.iterdir() if folder.is_dir()]
                for folder in sorted(known, key=lambda each: (each.name != OUTSIDE, len(each.name), each.name)):
                    for _, file in files(folder):
                        exchange = self._read(file)
                        if exchange is not None:
                            yield exchange

    def _context_of(self, folder: Path) -> str | None:
        known = self._contexts.get(folder)
        if known is None:
            first = first_ids(folder)
            if first is None:
                return None
            known = self._contexts[folder] = first.context
        return known

    def _read(self, file: Path) -> Exchange | None:
        name = file.relative_to(self.folder).as_posix()
        try:
            held = file.read_bytes()
            # A killed process may leave half a line.
            return read(held[: held.rfind(b"\n") + 1].decode(), name)
        except (NoRecording, UnicodeDecodeError) as error:
            log.warning("recording.unreadable", file=name, reason=str(error))
            return None
