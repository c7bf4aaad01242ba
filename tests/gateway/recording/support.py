"""Exchanges without a network: what one recorder is told, and what a replay of it answers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.a2a.redaction import json_path
from gateway.foundation.clock import Clock
from gateway.ports.wire import EVENTS, Answer, End, Occasion, Request, occasion
from gateway.recording.form import Exchange
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings

URL = "https://api.example.com/v1/responses"
JSON = {"Content-Type": "application/json; charset=utf-8"}


def post(body: str = "{}", url: str = URL, **headers: str) -> Request:
    return Request("POST", url, headers, body.encode())


@contextmanager
def at(**ids: str) -> Iterator[Occasion]:
    """A turn is at work while the block runs."""
    found = Occasion(
        **{"agent": "support", "context": "context", "task": "task", "turn": "turn", "call": "call", **ids}
    )
    token = occasion.set(found)
    try:
        yield found
    finally:
        occasion.reset(token)


def record(
    folder: Path,
    *exchanges: tuple[Request, bytes],
    secrets: Iterable[str] = (),
    redact: Iterable[str] = (),
    headers: dict[str, str] | None = None,
    how: End = End.COMPLETE,
) -> list[Exchange]:
    """Records these requests and answers, each in one read, and gives what was written."""
    with Recording(folder, Clock(monotonic=lambda: 0.0)) as recording:
        recording.secrets.add(secrets)
        tap = recording.tap("support", map(json_path, redact))
        for request, answer in exchanges:
            taking = tap.begin(request)
            taking.answered(200, EVENTS if headers is None else headers)
            if answer:
                taking.received(answer)
            taking.ended(how)
    return list(Recordings(folder).all())


def written(folder: Path) -> str:
    """All that stands in any file."""
    return "".join(f"{file}\n{file.read_text()}" for file in sorted(folder.rglob("*")) if file.is_file())


def replay(folder: Path, *requests: Request, speed: int = 0) -> list[Answer]:
    """What a replay answers to these requests of the agent, one after another."""
    player = Replay(folder, speed).tap("support")
    return [player.answer(request) for request in requests]


def body_of(answer: Answer) -> bytes:
    return b"".join(read for _, read in answer.reads)
