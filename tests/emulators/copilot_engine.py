"""Copilot Studio's engine without a channel: conversations, turns, and answers as streams of activities.

Law: only what the vendor's own client takes is sent. Source: microsoft-agents-copilotstudio-client 1.9.0.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.emulators.bot_activities import BotAnswer, user_items
from tests.emulators.scripts import Conversation, Delay, Item, Json, Pause, Step
from tests.emulators.server import Emulator, Refused

CONVERSATIONS = "/copilotstudio/dataverse-backed/authenticated/bots/{schema}/conversations"
GREETING = "Hello, I am an agent."


class EngineReply:
    """One answer: `event: activity` for each activity, and `event: end`."""

    ended = False

    def __init__(self, conversation: str, reply_to: str | None) -> None:
        self._answer = BotAnswer(reply_to, deltas=True)
        self._conversation = conversation

    def begin(self) -> Iterable[bytes]:
        return ()

    def take(self, step: Step) -> Iterator[bytes | Pause | Delay]:
        for produced in self._answer.take(step):
            yield produced if isinstance(produced, Pause | Delay) else self._frame(produced)

    def finish(self) -> Iterator[bytes]:
        yield from map(self._frame, self._answer.finish())
        yield b"event: end\r\ndata: end\r\n\r\n"

    def drained(self) -> tuple[int, Json]:
        raise NotImplementedError("every answer of the engine is a stream")

    def _frame(self, activity: Json) -> bytes:
        whole = activity | {"id": token_hex(16), "conversation": {"id": self._conversation}}
        return f"event: activity\r\ndata: {json.dumps(whole, ensure_ascii=False)}\r\n\r\n".encode()


class CopilotEngine(Emulator):
    """`turns` holds the texts of each conversation, by its id."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.turns: dict[str, list[str]] = {}
        super().__init__(*args, **options)

    def routes(self) -> Iterable[Route]:
        one = f"{CONVERSATIONS}/{{id}}"
        return (self.route("POST", CONVERSATIONS, self._start), self.route("POST", one, self._execute))

    def forget_everything(self) -> None:
        self.turns.clear()

    async def _start(self, request: Request) -> Response:
        body = await self.read(request, "StartRequest")
        name = token_hex(16)
        self.turns[name] = []
        reply = EngineReply(name, None)
        answer = await self.answer(reply, _greeting(body), stream=True)
        answer.headers["x-ms-conversationid"] = name
        return answer

    async def _execute(self, request: Request) -> Response:
        body = await self.read(request, "ExecuteTurnRequest")
        name = request.path_params["id"]
        if name not in self.turns:
            raise Refused(404, {"error": {"code": "ConversationNotFound", "message": f"No conversation {name}"}})
        texts = [*self.turns[name], body["activity"].get("text", "")]
        opened = await self.open(Conversation(user_items(texts), body))
        if isinstance(opened, Response):
            return opened
        self.turns[name] = texts
        answer = await self.answer(EngineReply(name, token_hex(8)), opened, stream=True)
        answer.headers["x-ms-conversationid"] = name
        return answer


async def _greeting(body: Json) -> AsyncGenerator[Step]:
    if body.get("emitStartConversationEvent"):
        yield Item({"type": "message", "text": GREETING})
