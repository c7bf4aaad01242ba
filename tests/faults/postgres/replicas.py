"""Gateways of their own processes on one database of PostgreSQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from tests.a2a_client import A2A, a2a_http, user_message
from tests.support.fork_server import Forked, fork_server

ECHO = "echo: {type: python, ref: 'gateway.cli.demo.agent:reply'}"


@dataclass(frozen=True, slots=True)
class Replica:
    process: Forked
    http: httpx2.AsyncClient

    def agent(self, name: str = "echo") -> A2A:
        return A2A(self.http, name)

    async def checks(self) -> tuple[int, dict[str, str]]:
        """The status of /readyz, and what it says of each check."""
        answer = await self.http.get("/readyz?verbose")
        return answer.status_code, answer.json()["checks"]

    async def is_ready(self) -> bool:
        return (await self.http.get("/readyz")).status_code == 200

    async def refusal(self, text: str = "more", agent: str = "echo") -> tuple[int, Any, str]:
        """The status of a message that is refused, the word for what is wrong with the storage, and the message."""
        answer = await self.http.post(f"/a2a/{agent}/message:send", json={"message": user_message(text)})
        return _refused(answer)

    async def refused_read(self, task: str, agent: str = "echo") -> tuple[int, Any, str]:
        return _refused(await self.http.get(f"/a2a/{agent}/tasks/{task}"))


def _refused(answer: httpx2.Response) -> tuple[int, Any, str]:
    body = answer.json()
    assert "error" in body, body
    assert "postgres" not in answer.text.lower()
    return answer.status_code, body["error"]["details"][0]["metadata"].get("storage"), body["error"]["message"]


Start: TypeAlias = Callable[[], Awaitable[Replica]]


@asynccontextmanager
async def replicas(
    folder: Path, storage: str, agents: str = ECHO, *, settings: str = "", lease: str = "3s"
) -> AsyncIterator[Start]:
    """Gives a function that starts a gateway. `storage` and `agents` are YAML below these names, `settings` that of others."""
    file = folder / "gateway.yaml"
    lines = "".join(f"  {line}\n" for line in agents.splitlines())
    file.write_text(
        f"version: 1\nserver: {{port: 0}}\nstorage: {{lease_timeout: {lease}, {storage}}}\n{settings}\nagents:\n{lines}"
    )
    async with AsyncExitStack() as stack:
        parent = await stack.enter_async_context(fork_server())

        async def start() -> Replica:
            process = await parent.serving(file)
            return Replica(process, await stack.enter_async_context(a2a_http(process.url.result())))

        yield start
