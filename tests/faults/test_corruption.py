"""A row of the database that cannot be read: its task answers with an error, everything else works."""

import time
from pathlib import Path

import pytest

from gateway.foundation.clock import Clock
from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, Json, Refused, a2a_http, failed, streamed_text, text_of, why
from tests.interop.echo_agent import knows
from tests.running import local_gateway
from tests.support.rows import change

_AGENT = "function: {type: python, ref: 'tests.interop.echo_agent:reply'}"
_WORDS = "canary of the database"


def _spoil(directory: Path, statement: str, task: str) -> None:
    assert change(directory / "gateway.db", statement, _WORDS, task) == 1


def _later() -> Clock:
    """Beyond every lease."""
    return Clock(now=lambda: time.time_ns() // 1_000_000 + 60_000)


async def _interrupted(directory: Path, *texts: str) -> list[Json]:
    """Tasks that were at work when their gateway ended."""
    tasks = []
    async with local_gateway(_AGENT, directory) as gateway, a2a_http(gateway.url) as http:
        for text in texts:
            async with A2A(http, "function").stream(text) as stream:
                frames = await stream.read_until(lambda frames: streamed_text(frames) == "before ")
                tasks.append(frames[0].event["task"])
    return tasks


@pytest.mark.fault("D8")
async def test_a_poisoned_task_ends_without_what_cannot_be_read_and_stops_no_other(tmp_path: Path) -> None:
    poisoned, fine = await _interrupted(tmp_path, f"hold {tmp_path} 1", f"hold {tmp_path} 2")
    _spoil(tmp_path, "UPDATE event SET payload = ? WHERE task = ?", poisoned["id"])

    async with local_gateway(_AGENT, tmp_path, clock=_later()) as gateway, a2a_http(gateway.url) as http:
        caller = A2A(http, "function")
        for task in (fine, poisoned):
            assert why(await caller.get(task["id"])) == failed(RESTARTED)
        with pytest.raises(Refused):
            async with caller.subscribe(poisoned["id"], after=0):
                pass
        listed = (await caller.call("ListTasks"))["tasks"]
        other = await caller.send("hello")

    assert _WORDS not in caller.seen.decode()
    assert {task["id"] for task in listed} == {poisoned["id"], fine["id"]}
    assert (why(other), text_of(other)) == (COMPLETED, knows("hello"))


@pytest.mark.fault("D8")
async def test_a_context_with_an_unreadable_item_fails_and_others_go_on(tmp_path: Path) -> None:
    async with local_gateway(_AGENT, tmp_path) as gateway, a2a_http(gateway.url) as http:
        caller = A2A(http, "function")
        first = await caller.send("one")
        statement = "UPDATE history_item SET payload = ? WHERE kind = 'assistant' AND turn = (SELECT id FROM turn "
        _spoil(tmp_path, f"{statement} WHERE task = ?)", first["id"])
        second = await caller.send("two", first["contextId"])
        elsewhere = await caller.send("three")

    assert why(second)[0] == "TASK_STATE_FAILED"
    assert "correlation id" in second["status"]["message"]["parts"][0]["text"]
    assert _WORDS not in caller.seen.decode()
    assert text_of(elsewhere) == knows("three")
