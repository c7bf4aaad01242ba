"""One row of the matrix at work: its emulator, a gateway in front of it, a caller. Every request that the emulator answers is
kept with the conversation that its model saw."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.a2a_client import A2A, a2a_http
from tests.contract.backends import KEY, Row
from tests.emulators.scripts import Conversation, Script, Step, steps_of
from tests.invariants import violations
from tests.running import AT_ONCE, Local, local_gateway
from tests.support.ports import free_port

_TOOLS = '''
def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


def height(city: str) -> str:
    """The height of a city."""
    return f"high in {city}"
'''
_TOOL_SETTINGS = (
    "tools: {weather: {type: python, ref: './desk.py:weather'}, height: {type: python, ref: './desk.py:height'}}"
)


class Bench:
    """`seen` are the texts of the user that the model saw with each request, oldest first; `rounds` the outputs of tools."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row = row
        self.folder = folder
        self.server = row.emulator(self._play, api_key=KEY)
        self.seen: list[tuple[str, ...]] = []
        self.outputs: list[dict[str, str]] = []
        self.decisions: list[dict[str, bool]] = []
        self.script: Script = lambda _: ()
        self._stack = AsyncExitStack()
        self._port = free_port()
        self._served: AsyncExitStack | None = None

    async def _play(self, conversation: Conversation) -> AsyncGenerator[Step]:
        self.seen.append(conversation.user_texts)
        self.outputs.append(conversation.tool_outputs)
        self.decisions.append(conversation.decisions)
        async for step in steps_of(self.script, conversation):
            yield step

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start_backend(self) -> None:
        self._served = AsyncExitStack()
        await self._served.enter_async_context(self.server.serve(self._port))

    async def stop_backend(self) -> None:
        """Its address refuses connections; what it keeps stays."""
        if self._served is not None:
            await self._served.aclose()
            self._served = None

    def agent(self, **more: Any) -> str:
        settings = {"type": self.row.type, **self.row.settings(self.url), **self.row.more, **more}
        return f"mine: {json.dumps(settings)}"

    @asynccontextmanager
    async def caller(self, limits: str = "", **more: Any) -> AsyncIterator["Caller"]:
        """A caller of a gateway in this process. `limits` are those of the file; `more` are settings of the agent."""
        tools = {"tools": ["weather", "height"]} if self.row.calls else {}
        (self.folder / "desk.py").write_text(_TOOLS, encoding="utf-8")
        settings = f"limits: {{{limits}}}\n{_TOOL_SETTINGS if tools else ''}"
        gateway = local_gateway(self.agent(**tools, **more), self.folder, settings=settings, pace=AT_ONCE)
        async with gateway as local, a2a_http(local.url) as http:
            yield Caller(A2A(http, "mine"), local)
        assert violations(self.folder / "gateway.db") == []

    def check_nothing_is_doubled(self) -> None:
        """No model ever saw a message of the caller twice in one conversation."""
        for texts in self.seen:
            doubled = [text for text, times in Counter(texts).items() if times > 1]
            assert not doubled, f"the model saw {doubled} twice in {texts}"


class Caller:
    """Sends to the agent; what it gets are tasks as JSON."""

    def __init__(self, agent: A2A, local: Local) -> None:
        self.agent = agent
        self.gateway = local

    async def say(self, text: str, after: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
        return await self.agent.send(text, None if after is None else after["contextId"], **message)


def state_of(task: dict[str, Any]) -> str:
    """`COMPLETED`, or `FAILED: interrupted` with the class of the error."""
    status = task["status"]
    word = str(status["state"]).removeprefix("TASK_STATE_")
    kind = (status.get("message") or {}).get("metadata", {}).get("errorClass")
    return f"{word}: {kind}" if kind else word


def plays(*steps: Step) -> Script:
    return lambda _: steps


def first(steps: Iterable[Step], then: Iterable[Step]) -> Script:
    """Plays `steps` for one request, and `then` for all later ones."""
    left = [tuple(steps)]
    later = tuple(then)
    return lambda _: left.pop() if left else later
