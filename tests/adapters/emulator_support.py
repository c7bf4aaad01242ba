"""Settings and scripts for tests of adapters against an emulator."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from gateway.ports.adapter import Adapter
from tests.emulators.scripts import Call, Say, Script, Step, in_rounds
from tests.emulators.server import Emulator

KEY = "sk-proj-0123456789abcdef"
Start: TypeAlias = Callable[[Emulator], Awaitable[str]]
Build: TypeAlias = Callable[..., Adapter]


def settings(url: str, **values: Any) -> dict[str, Any]:
    return {"model": "m", "api_key": KEY, "base_url": url} | values


def plays(*steps: Step) -> Script:
    return lambda _: steps


def calls_in(*rounds: Sequence[tuple[str, dict[str, Any]]]) -> Script:
    """Rounds of calls, then an answer. An id ends with the name of its tool."""
    calls = [
        [Call(name, arguments, f"call_{place}_{index}_{name}") for index, (name, arguments) in enumerate(made)]
        for place, made in enumerate(rounds)
    ]
    return in_rounds(*calls, [Say("Done")])


def trickling(app: ASGIApp, wanted: Callable[[], bool]) -> ASGIApp:
    """The same application, whose answers come one byte at a time where that is wanted."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_slowly(event: Event) -> None:
            for byte in event.get("body", b"") if wanted() else b"":
                await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
                await asyncio.sleep(0)  # lets the client read it
            await send({**event, "body": b""} if wanted() else event)

        await app(scope, receive, send_slowly)

    return answer
