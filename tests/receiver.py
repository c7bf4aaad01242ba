"""A receiver of push notifications on loopback, which can misbehave on request."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.testing.serving import DROP, serve
from tests.support.core import BOUND
from tests.support.ports import free_port

Json = dict[str, Any]

STALL = "stall"
RESET = "reset"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Letter:
    """A notification that arrived, and whether it was answered with success."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    accepted: bool

    @property
    def event(self) -> Json:
        told: Json = json.loads(self.body)
        return told


class Receiver:
    """`answers` are given first, in order: an answer, `STALL` or `RESET`. Everything else is accepted."""

    def __init__(self) -> None:
        self.url = ""
        self.letters: list[Letter] = []
        self.answers: deque[Answer | str] = deque()
        self.otherwise: Callable[[], Answer | str] = Answer
        self.open = 0
        self.most_open = 0
        self._arrived = asyncio.Condition()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = self.answers.popleft() if self.answers else self.otherwise()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._answer(answer, Letter(scope["path"], headers, body, _accepts(answer)), scope, send)
        finally:
            self.open -= 1

    async def _answer(self, answer: Answer | str, letter: Letter, scope: Scope, send: Send) -> None:
        async with self._arrived:
            self.letters.append(letter)
            self._arrived.notify_all()
        match answer:
            case Answer(status=status, headers=headers, body=told):
                listed = [(name.encode(), value.encode()) for name, value in headers.items()]
                listed.append((b"content-length", str(len(told)).encode()))
                await send({"type": "http.response.start", "status": status, "headers": listed})
                await send({"type": "http.response.body", "body": told})
            case "stall":
                await asyncio.Event().wait()
            case _:
                scope["state"][DROP]()

    @property
    def accepted(self) -> list[Letter]:
        return [letter for letter in self.letters if letter.accepted]

    async def ended(self, seconds: float = BOUND) -> list[Letter]:
        """The letters, as soon as the last one says that the task has ended."""
        return await self.until(_is_last, seconds)

    async def until(self, enough: Callable[[list[Letter]], bool], seconds: float = BOUND) -> list[Letter]:
        """The letters, as soon as they are enough."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: enough(self.letters))
        return self.letters


def _is_last(letters: list[Letter]) -> bool:
    return bool(letters) and letters[-1].accepted and b"TASK_STATE_COMPLETED" in letters[-1].body


def _accepts(answer: Answer | str) -> bool:
    return isinstance(answer, Answer) and 200 <= answer.status < 300


@asynccontextmanager
async def receiving(receiver: Receiver | None = None) -> AsyncGenerator[Receiver]:
    """One that has died comes back at its address when it is given."""
    receiver = receiver or Receiver()
    async with serve(receiver, int(receiver.url.rpartition(":")[2] or free_port())) as url:
        receiver.url = url
        yield receiver


LOOPBACK = "allow_http: true, allow_private_networks: [127.0.0.0/8], ports: []"
"""Settings with which a receiver of this machine can be reached."""
