"""Rows that another version wrote, or that nothing can read. Source: docs/state-model.md, scenarios of group K."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.a2a.errors import UnsupportedOperation
from gateway.a2a.model import TaskState
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.threads import Caller
from gateway.ports.adapter import CallCompleted, Ending, TextDelta
from gateway.ports.conversation import Ownership
from tests.support.core import Core, answer, query, running_core, soon
from tests.support.deletions import DAY, contexts, retention
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rows that cannot be read are logged with tracebacks, and drawing those takes seconds."""
    with capture_logs():
        yield


def of_version(ownership: Ownership, version: int) -> Ownership:
    return Ownership(ownership.owner, ownership.handle, state_version=version)


class Reading(ScriptedAdapter):
    """Continues from states of older versions."""

    def read_state(self, state: Any, version: int) -> Any:
        return {"from": version, **state}


def leaves(state: Any, handle: str = "r1") -> list[Any]:
    return [TextDelta("a"), CallCompleted(handle, state=state)]


# --- 128 ---


@BOTH
async def test_128_an_older_state_is_read_through_the_adapter_and_written_as_the_new_one(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="old") as old:
        old.agent(ScriptedAdapter(of_version(ownership, 1), leaves({"n": 1}), leaves({"n": 2}, "r2")))
        await old.send("1", context="c")
        await old.send("2", context="c")
    async with running_core(path, prefix="new") as new:
        adapter = Reading(of_version(ownership, 2), leaves({"m": 3}, "r3"), leaves(None, "r4"), says("b", "r5"))
        new.agent(adapter)
        for text in "345":
            await new.send(text, context="c")
        assert [request.state for request in adapter.requests] == [{"from": 1, "n": 2}, {"m": 3}, {"m": 3}]
        assert query(path, "SELECT adapter_state, state_version FROM thread") == [('{"m":3}', 2)]


@BOTH
async def test_128_a_newer_state_is_refused_untouched(tmp_path: Path, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="new") as new:
        new.agent(ScriptedAdapter(of_version(ownership, 2), leaves({"m": 1})))
        await new.send("1", context="c")
    before = query(path, "SELECT * FROM thread")
    async with running_core(path, prefix="old") as downgraded:
        adapter = ScriptedAdapter(of_version(ownership, 1), says("else", "r9"))
        downgraded.agent(adapter)
        with pytest.raises(
            UnsupportedOperation, match="A newer version of the agent 'echo' has worked on this context"
        ):
            await downgraded.send("2", context="c")
        assert (query(path, "SELECT * FROM thread"), adapter.requests) == (before, [])
        assert query(path, "SELECT count(*) FROM input") == [(1,)]
        assert answer(await downgraded.send("1", context="other")) == "else"


async def test_128_an_older_process_does_not_overwrite_what_a_newer_one_left_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="old") as old, running_core(path, prefix="new") as new:
        adapter = ScriptedAdapter(of_version(G, 1), leaves({"n": 1}))
        old.agent(adapter)
        new.agent(Reading(of_version(G, 2), leaves({"m": 2})))
        await old.send("1", context="c")
        reading = old.ledger.slow_read("context")

        async def late() -> None:
            with pytest.raises(UnsupportedOperation, match="A newer version"):
                await old.send("3", context="c")

        async with asyncio.TaskGroup() as group:
            group.create_task(late())
            await soon(reading.reached.wait())
            await new.send("2", context="c")
            reading.go.set()
        assert query(path, "SELECT adapter_state, state_version FROM thread") == [('{"m":2}', 2)]
        assert len(adapter.requests) == 1


async def test_128_a_turn_that_waited_meanwhile_fails_and_leaves_the_newer_state_untouched(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(of_version(G, 1), [pause, *leaves({"n": 1})])
    core.agent(adapter)
    await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    waiting = await core.send("2", context="c", at_once=True)
    newer = "UPDATE thread SET adapter_state = '{}', state_version = 2, generation = generation + 1"
    change(core.path, newer)
    pause.go.set()
    await soon(core.runner.idle())
    assert (await core.get(waiting.id)).status.state is TaskState.FAILED
    assert query(core.path, "SELECT adapter_state, state_version FROM thread") == [("{}", 2)]
    assert len(adapter.requests) == 1


# --- 130 ---


SPOILED = {
    "an item that is no JSON": "UPDATE history_item SET payload = 'canary' WHERE kind = 'assistant' AND thread = ?",
    "an item of no known kind": """UPDATE history_item SET payload = '{"kind":"canary"}'
        WHERE kind = 'assistant' AND thread = ?""",
    "an item that is no text": """UPDATE history_item SET payload = CAST(x'ff63616e617279' AS TEXT)
        WHERE kind = 'assistant' AND thread = ?""",
    "a message that cannot be read": """UPDATE input SET payload = 'canary'
        WHERE turn IN (SELECT id FROM turn WHERE thread = ?)""",
    "a state that cannot be read": "UPDATE thread SET adapter_state = 'canary' WHERE id = ?",
    "a state that is no text": "UPDATE thread SET adapter_state = CAST(x'ff63616e617279' AS TEXT) WHERE id = ?",
}

_NO_TEXT = pytest.mark.sqlite("PostgreSQL keeps no text that is none")
ANY_OF_THEM = pytest.mark.parametrize(
    "what", [pytest.param(what, marks=_NO_TEXT if "is no text" in what else ()) for what in SPOILED]
)

QUESTION = "UPDATE task SET status_message = 'canary' WHERE id IN (SELECT task FROM turn WHERE thread = ?)"

_DATA = '{"messageId":"m","role":"ROLE_AGENT","parts":[{"data":DEEP}]}'
DEEP = {
    "a message": SPOILED["a message that cannot be read"].replace("canary", _DATA),
    "a question": QUESTION.replace("canary", _DATA),
    "an answer": f"UPDATE turn SET messages = '[{_DATA}]' WHERE thread = ?",
}


def spoil(path: Path, sql: str, context: str) -> None:
    found = "SELECT thread.id FROM thread JOIN context ON context.id = thread.context WHERE public_id = ?"
    [(thread,)] = query(path, found, context)
    assert change(path, sql, thread) == 1


@ANY_OF_THEM
async def test_130_a_row_that_cannot_be_read_fails_its_own_thread_closed_and_no_other(core: Core, what: str) -> None:
    adapter = ScriptedAdapter(G, *(leaves({"n": number}) for number in range(9)))
    core.agent(adapter)
    for context in ("bad", "good"):
        await core.send("1", context=context)
    spoil(core.path, SPOILED[what], "bad")
    for _ in range(2):
        assert "canary" not in await refusal_of(core, lambda: core.send("2", context="bad"))
    assert len(adapter.requests) == 2
    assert answer(await core.send("2", context="good")) == "a"
    assert adapter.requests[2].state == {"n": 1}


async def refusal_of(core: Core, send: Callable[[], Any]) -> str:
    """The error of either form; never an answer."""
    try:
        task = await send()
    except CorruptRecord:
        return ""  # the binding tells a correlation id, and nothing of its text
    assert task.status.state is TaskState.FAILED
    return str(task)


@ANY_OF_THEM
async def test_130_what_cannot_be_read_is_not_taken_for_absent(core: Core, what: str) -> None:
    core.agent(ScriptedAdapter(G, leaves({"n": 1}), leaves({"n": 2})))
    await core.send("1", context="bad")
    spoil(core.path, SPOILED[what], "bad")
    before = query(core.path, "SELECT adapter_state, handle FROM thread")
    await refusal_of(core, lambda: core.send("2", context="bad"))
    assert query(core.path, "SELECT adapter_state, handle FROM thread") == before
    assert query(core.path, "SELECT count(*) FROM thread") == [(1,)]


async def test_130_a_list_tells_of_a_task_that_cannot_be_read_and_of_all_the_others(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    bad = await core.send("1", context="bad")
    good = await core.send("2", context="good")
    spoil(core.path, SPOILED["a message that cannot be read"], "bad")
    with capture_logs() as logs:
        listed = {task.id: task for task in (await core.list(include_artifacts=True)).tasks}
    assert listed[good.id] == good
    shown = listed[bad.id]
    assert (shown.status, shown.history, shown.artifacts) == (bad.status, None, None)
    assert shown.metadata is not None
    assert shown.metadata["unreadable"] is True
    [line] = [line for line in logs if line["event"] == "task.unreadable"]
    assert (line["task"], line["correlation_id"]) == (bad.id, shown.metadata["correlationId"])
    assert "canary" not in str(shown)


async def test_130_a_list_tells_of_a_task_whose_question_cannot_be_read(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), CallCompleted(ending=Ending.INPUT_REQUIRED)], says("b")))
    bad = await core.send("1", context="bad")
    good = await core.send("2", context="good")
    spoil(core.path, QUESTION, "bad")
    listed = {task.id: task for task in (await core.list(include_artifacts=True)).tasks}
    assert listed[good.id] == good
    shown = listed[bad.id]
    assert (shown.status.state, shown.status.message, shown.history) == (bad.status.state, None, None)
    assert shown.metadata is not None
    assert shown.metadata["unreadable"] is True


@pytest.mark.parametrize("place", ["a message", "a question", "an answer"])
async def test_130_a_value_that_was_stored_before_there_was_a_limit_hides_no_other_task(core: Core, place: str) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), CallCompleted(ending=Ending.INPUT_REQUIRED)], says("b")))
    bad = await core.send("1", context="bad")
    good = await core.send("2", context="good")
    for depth in (800, 2000):
        spoil(core.path, DEEP[place].replace("DEEP", "[" * depth + "]" * depth), "bad")
        listed = {task.id: task for task in (await core.list(include_artifacts=True)).tasks}
        assert listed[good.id] == good
        msgspec.json.encode(listed[bad.id])


@pytest.mark.parametrize("how", ["deleted", "expired"])
@pytest.mark.parametrize("what", [*SPOILED, "a question that cannot be read"])
async def test_130_what_cannot_be_read_can_still_go(core: Core, what: str, how: str) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), CallCompleted(ending=Ending.INPUT_REQUIRED, state={"n": 1})]))
    await core.send("1", context="bad")
    spoil(core.path, SPOILED.get(what, QUESTION), "bad")
    if how == "deleted":
        await contexts(core).delete(Caller("ada"), "bad")
    else:
        core.time.now += 91 * DAY
        await retention(core).sweep()
    assert query(core.path, "SELECT state FROM context") == [(how,)]
    assert query(core.path, "SELECT 1 FROM turn") == query(core.path, "SELECT 1 FROM task") == []
