"""Records a ledger: gateways in processes of their own, one after another, and what their clients send and receive."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.a2a_client import A2A, Json, a2a_http, user_message
from tests.ledgers import process
from tests.ledgers.fixture import Seen, Talk
from tests.ledgers.world import World
from tests.running import Child

_PROJECT = Path(__file__).parents[2]
_CHANGELOG = _PROJECT / "CHANGELOG.md"
DATABASE = "gateway.db"
_MINUTE = 60_000

START = 1_795_168_800_000


def version() -> str:
    """The one that the changelog begins with."""
    begun = re.search(r"^## \[(\S+)\] - ", _CHANGELOG.read_text(), re.MULTILINE)
    assert begun is not None
    return begun[1]


def released(changelog: str = "") -> set[str]:
    """The released versions of a changelog, by default that of the project."""
    text = changelog or _CHANGELOG.read_text()
    return set(re.findall(r"^## \[(\S+)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE))


@dataclass(slots=True)
class Recording:
    """The state of the recording. `stage` counts the processes."""

    folder: Path
    world: World
    now: int = START
    stage: int = 0
    keys: dict[str, str] = field(default_factory=dict)
    talks: dict[str, Talk] = field(default_factory=dict)
    tasks: dict[str, Seen] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.folder / DATABASE

    def later(self, milliseconds: int = 1000) -> None:
        """The processes see it at their next look."""
        self.now += milliseconds
        fresh = self.folder / "time.new"
        fresh.write_text(str(self.now))
        fresh.rename(self.folder / process.TIME)

    @asynccontextmanager
    async def gateway(self, fail: str = "") -> AsyncIterator[tuple[Child, httpx2.AsyncClient]]:
        """One that dies in the block, by itself or with it; whatever the one before it held has run out."""
        self.stage += 1
        self.later(_MINUTE)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("A2A_GATEWAY__")}
        command = [sys.executable, "-m", process.__name__, str(self.folder), str(self.stage), fail]
        _, child = await asyncio.get_running_loop().subprocess_exec(
            Child,
            *command,
            cwd=_PROJECT,
            env=environment,
            stdin=None,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await child.ready()
            async with a2a_http(child.url) as http:
                http.headers["X-API-Key"] = self.keys["good"]
                yield child, http
        finally:
            await child.aclose()

    def said(self, agent: str, context: str, text: str, *outputs: str, **message: Any) -> Json:
        """The message, and what its context will know of it."""
        self.later()
        talk = self.talks.setdefault(context, Talk(agent))
        talk.said.append(text)
        talk.outputs += outputs
        return user_message(text, context, messageId=text, **message)

    def saw(self, agent: str, message: Json, task: Json, *, becomes: str | None = None) -> None:
        self.tasks[task["id"]] = Seen(agent, task["contextId"], message, task, becomes=becomes)

    async def say(
        self, http: httpx2.AsyncClient, agent: str, context: str, text: str, *outputs: str, **more: Any
    ) -> Json:
        message = self.said(agent, context, text, *outputs, **more)
        task: Json = (await A2A(http, agent).call("SendMessage", message=message))["task"]
        self.saw(agent, message, task)
        return task

    async def answer(self, http: httpx2.AsyncClient, task: Json, *data: Json) -> Json:
        """To what the task asks."""
        self.later()
        agent = self.tasks[task["id"]].agent
        parts = [{"data": each} for each in data]
        message = {"messageId": "answer", "role": "ROLE_USER", "taskId": task["id"], "parts": parts}
        answered: Json = (await A2A(http, agent).call("SendMessage", message=message))["task"]
        self.tasks[task["id"]].task = answered
        return answered


def asked(task: Json) -> list[Json]:
    """The calls that the caller has to approve."""
    metadata = task["status"]["message"]["metadata"].values()
    [approval] = [each["approval"] for each in metadata if "approval" in each]
    tools: list[Json] = approval["tools"]
    return tools


def decision(task: Json, *answers: bool, always: bool = False) -> Json:
    more = {"always": True} if always else {}
    pairs = zip(asked(task), answers, strict=True)
    return {"approvals": [{"id": tool["id"], "approved": yes} | (more if yes else {}) for tool, yes in pairs]}


def shot(task: Json, response: Json) -> Json:
    """The answer of the caller's tool."""
    calls = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    [call] = [each for each in calls if each.get("name") == "camera"]
    return {"id": call["id"], "name": "camera", "response": response}
