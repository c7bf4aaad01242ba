"""The file of one exchange, written while its answer comes. Law: each write ends with a whole line, so that what a killed
process leaves can be read.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.ports.wire import End, Occasion, Request
from gateway.recording import form
from gateway.recording.fragments import is_fragment, joined
from gateway.recording.lines import Blocks, Event, Rows
from gateway.recording.masks import Masks

_MODE = 0o600
_EVENTS = "text/event-stream"
_WHOLE_TYPES = ("/json", "+json")


class ExchangeFile:
    """Written in one thread. `spend` is told of the bytes of each write, and says whether they may be written."""

    def __init__(self, path: Path, masks: Masks, spend: Callable[[int], bool]) -> None:
        """Raises: FileExistsError; OSError."""
        self._masks = masks
        self._spend = spend
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, _MODE)
        self._pieces: Blocks | Rows = Rows()
        self._whole = self._is_events = self._has_events = False
        self._latest = 0.0
        self._kept: list[tuple[float, bytes]] = []
        """What is written at the end of the answer: a body, or the events from the first arguments of a tool call on."""

    def begin(self, ids: Occasion, begun: str, request: Request) -> None:
        url, headers = self._masks.url(request.url), self._masks.headers(request.headers)
        lines = form.request_lines(request.method, url, headers, self._masks.body(request.body))
        self._write([*form.head_lines(ids, begun), *lines])

    def answer(self, at: float, status: int, headers: Mapping[str, str]) -> None:
        kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "")
        kind = kind.partition(";")[0].strip().lower()
        self._is_events = kind == _EVENTS
        self._whole = kind.endswith(_WHOLE_TYPES)
        if self._is_events:
            self._pieces = Blocks()
        self._latest = at
        self._write(form.answer_lines(at, status, self._masks.headers(headers)))

    def receive(self, at: float, chunk: bytes) -> None:
        # Pieces of one time were read together.
        self._latest = at if at > self._latest else round(self._latest + 0.001, 3)
        if self._whole:
            self._kept.append((self._latest, chunk))
            return
        pieces = [(self._latest, piece) for piece in self._pieces.feed(chunk)]
        if self._kept or (self._is_events and any(is_fragment(piece) for _, piece in pieces)):
            self._kept += pieces
        else:
            self._write_events(pieces)

    def end(self, at: float, how: End, why: str) -> None:
        try:
            self._write_end(max(at, self._latest), how, why)
        finally:
            os.close(self._descriptor)

    def _write_end(self, at: float, how: End, why: str) -> None:
        if self._whole and how is End.COMPLETE:
            body = b"".join(chunk for _, chunk in self._kept)
            self._write(form.body_lines(self._masks.body(body or None)))
        else:
            rest = self._pieces.rest()
            kept = [*self._kept, *([(self._latest, rest)] if rest else [])]
            if self._is_events and kept:
                whole = joined([block for _, block in kept], self._masks.arguments)
                kept = [(moment, block) for (moment, _), block in zip(kept, whole, strict=True)]
            self._write_events(kept, cut=how is not End.COMPLETE)
        self._write([form.end_line(form.Ending(at, how, self._masks.text(why)))])

    def _write_events(self, pieces: list[tuple[float, bytes]], *, cut: bool = False) -> None:
        """`cut`: more was to come behind the last piece."""
        if not pieces:
            return
        lines = [] if self._has_events else [form.EVENTS_BEGIN]
        self._has_events = True
        for number, (at, piece) in enumerate(pieces, 1):
            lines.append(form.event_line(at, self._masked(piece, cut=cut and number == len(pieces))))
        self._write(lines)

    def _masked(self, piece: bytes, *, cut: bool) -> bytes:
        event = Event.of(piece) if self._is_events else None
        if event is not None:
            frame = self._masks.secrets(event.frame)
            return Event(event.name, self._masks.json(event.data, cut=cut), frame).block()
        return self._masks.raw(piece, cut=cut)

    def _write(self, lines: list[str]) -> None:
        written = "".join(f"{line}\n" for line in lines).encode()
        if written and self._spend(len(written)):
            os.write(self._descriptor, written)
