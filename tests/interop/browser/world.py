"""A gateway with a scripted model, for browsers: a tool that has to be allowed, one that need not be, tools of the client, an
answer that is slow, and one that is hostile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Pause, Say, Status, Think, by_keyword, in_rounds
from tests.running import Local, local_gateway

TOOLS = '''
import asyncio
from pathlib import Path


def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"


def look(city: str) -> str:
    """Looks for hotels."""
    return f"three hotels in {city}"


async def wait(for_: str) -> str:
    """Waits for a bell."""
    while not Path(__file__).with_name("bell").exists():
        await asyncio.sleep(0.02)
    return "rung"
'''
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><p hx-post=/ui/keys/new hx-trigger=load>{{7*7}}"
    "\u202eright to left\u202c \u200b\u0007 javascript:alert(3) [link](javascript:alert(4)) "
)


HUGE = EVIL * (1_000_000 // len(EVIL))
"""The same, a million characters long."""


@dataclass(frozen=True)
class World:
    local: Local
    go: asyncio.Event
    """Set: what is slow goes on."""

    folder: Path

    def ring(self) -> None:
        """Ends the tool that waits for it."""
        (self.folder / "bell").touch()

    @property
    def url(self) -> str:
        return self.local.url


@asynccontextmanager
async def world(folder: Path, settings: str = "") -> AsyncIterator[World]:
    go = asyncio.Event()
    script = by_keyword(
        {
            "book": in_rounds([Think("It wants a room."), Call("book", {"hotel": "Ritz"})], [Say("All done.")]),
            "first": in_rounds([Say("I look. "), Call("look", {"city": "Oslo"})], [Say("There are three.")]),
            "time": in_rounds([Call("wait", {"for_": "bell"})], [Say("It has rung.")]),
            "look": in_rounds([Call("look", {"city": "Oslo"})], [Say("There are three.")]),
            "camera": in_rounds([Call("camera", {"zoom": 2})], [Say("A nice picture.")]),
            "slow": [Say("The first part. "), Pause(go), Say("The second part.")],
            "evil": in_rounds([Call("look", {"city": EVIL})], [Say(EVIL)]),
            "fail": [Status(400, {"error": {"message": EVIL, "code": "bad", "type": "x"}})],
            "many": _many,
            "grow": in_rounds(_calls(15), [*_calls(1), Pause(go), *_calls(15)], [Say("Enough.")]),
            "huge": in_rounds([Think(HUGE), Call("look", {"city": HUGE})], [Say(HUGE)]),
            "break": [Status(400, {"error": {"message": HUGE, "code": HUGE, "type": HUGE}})],
        },
        [Say("Hello.", 3)],
    )
    (folder / "desk.py").write_text(TOOLS, encoding="utf-8")
    async with serve(ResponsesServer(script).app) as backend:
        agents = (
            f"hotel: {{type: openai-responses, model: m, base_url: '{backend}/v1', tools: [book, look, wait], default: true,"
            " approvals: [{tool: 'book.*'}]}\n"
            f"inn: {{type: openai-responses, model: m, base_url: '{backend}/v1', tools: [book],"
            " approvals: [{tool: 'book.*'}], standing_approvals: allow}\n"
            "echo: {type: python, ref: 'gateway.cli.demo.agent:reply'}\n"
            "file: {type: python, ref: 'tests.interop.browser.agents:files'}\n"
            "down: {type: openai-responses, model: m, base_url: 'http://127.0.0.1:9/v1'}"
        )
        tools = (
            "tools: {book: {type: python, ref: './desk.py:book'}, look: {type: python, ref: './desk.py:look'},"
            " wait: {type: python, ref: './desk.py:wait'}}"
        )
        async with local_gateway(
            agents, folder, settings=f"{tools}\nlimits: {{tool_arguments: 4MiB}}\n{settings}"
        ) as local:
            yield World(local, go, folder)


def _calls(number: int) -> list[Call | Pause]:
    return [Call("look", {"city": f"{at}"}) for at in range(number)]


MANY = 3
"""Rounds of forty tool calls."""


def _many(conversation: object) -> list[Call | Say]:
    rounds = getattr(conversation, "round", 0)
    return [Call("look", {"city": f"{rounds}-{number}"}) for number in range(40)] if rounds < MANY else [Say("Enough.")]
