"""The process dies during its recovery, again and again, and then has much to recover: it starts all the same, and every open
task ends. Source: docs/state-model.md, section 14, K12.

`RECOVERY_TASKS=10000` shows how soon a process serves that finds so many open tasks; no test asserts a time.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, user_message, why
from tests.faults.paused_agents import AGENTS, paused_agents
from tests.faults.unfinished import all_ended, expire_leases
from tests.invariants import violations
from tests.support.core import running_core
from tests.support.fork_server import fork_server
from tests.support.scripted import G, Pause, ScriptedAdapter

pytestmark = pytest.mark.xdist_group("torture")

TASKS = int(os.environ.get("RECOVERY_TASKS", "300"))

_KILLS = 20
_OPEN = 60
_BOUND_SECONDS = 300


async def _settled(database: Path) -> None:
    async with asyncio.timeout(_BOUND_SECONDS):
        await all_ended(database)


async def test_a_process_that_dies_twenty_times_while_it_recovers_leaves_nothing_open(tmp_path: Path) -> None:
    """The points differ: before or after the commit that ends a turn, the first commit or a later one."""
    file, database = tmp_path / "gateway.yaml", tmp_path / "gateway.db"
    texts = {f"silent {agent} {number}": agent for number in range(_OPEN // 2) for agent in AGENTS}
    async with asyncio.timeout(_BOUND_SECONDS), paused_agents(tmp_path) as held, fork_server() as parent:
        # A call that is made again is ended by its turn, and not by recovery.
        once = held.agents.replace("model: m,", "model: m, repeat_unknown: false,")
        agents = "".join(f"  {line}\n" for line in once.splitlines())
        file.write_text(f"version: 1\nserver: {{port: 0}}\nstorage: {{url: 'sqlite:///gateway.db'}}\nagents:\n{agents}")
        child = await parent.serving(file)
        acked = {}
        async with a2a_http(child.url.result()) as http:
            for text, agent in texts.items():
                sent = await A2A(http, agent).call(
                    "SendMessage", message=user_message(text, text), configuration={"returnImmediately": True}
                )
                acked[text] = sent["task"]["id"]
            for text in texts:
                await held.arrived[text].wait()
            await child.kill()
        deaths = 0
        for number in range(_KILLS):
            expire_leases(database)
            where = "stored" if number % 5 == 4 else "before"
            child = await parent.fork(file, f"*finish*.{where}:{1 + number % 4}")
            # It may serve before: how much it recovers first is a matter of time.
            deaths += not (await child.ready() and await all_ended(database, child.ended))
            await child.kill()
            assert child.ended.result() == -9
            assert violations(database, settled=False) == []
        assert deaths > _KILLS // 2
        expire_leases(database)
        child = await parent.serving(file)
        await _settled(database)
        assert violations(database) == []
        async with a2a_http(child.url.result()) as http:
            for text, agent in texts.items():
                assert why(await A2A(http, agent).get(acked[text])) == failed(RESTARTED)
            for text in list(texts)[:2]:
                following = await A2A(http, texts[text]).send("next", text)
                assert (why(following), text_of(following)) == (COMPLETED, f"{text} | next")


async def test_a_process_that_finds_many_open_tasks_serves_and_ends_them_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, file = tmp_path / "gateway.db", tmp_path / "gateway.yaml"
    await _leave_many_open(database)
    (tmp_path / "echo.py").write_text("def reply(text):\n    return text\n")
    file.write_text(
        "version: 1\nserver: {port: 0}\nstorage: {url: 'sqlite:///gateway.db'}\n"
        "agents:\n  echo: {type: python, ref: './echo.py:reply'}\n"
    )
    async with asyncio.timeout(_BOUND_SECONDS), fork_server() as parent:
        child = await parent.fork(file)
        began = time.monotonic()
        assert await child.ready()
        async with a2a_http(child.url.result()) as http:
            ready = await http.get("/readyz")
            served = time.monotonic() - began
            answered = await A2A(http, "echo").send("hello")
            await _settled(database)
    ended = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{TASKS} open tasks: served after {served:.2f} s, all ended after {ended:.2f} s")  # noqa: T201
    assert (ready.status_code, why(answered)) == (200, COMPLETED)
    assert violations(database) == []


async def _leave_many_open(database: Path) -> None:
    """Each in a context of its own, begun by a process that died."""
    async with running_core(database, prefix="dead") as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, otherwise=lambda _: [pause]))
        numbers = iter(range(TASKS))

        async def send() -> None:
            for number in numbers:
                await core.send("hi", context=f"context-{number}", at_once=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(send())
