"""Export and import of contexts, and adoption of conversations that a backend has."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import Busy, InvalidParams, NotFound, UnsupportedOperation
from gateway.a2a.limits import Limits
from gateway.a2a.model import Part, TaskState
from gateway.core.agents import Agents
from gateway.ledger.documents import Import
from gateway.ledger.threads import Caller
from gateway.operations.contexts import ContextTransfer
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    Ending,
    ErrorClass,
    PartReady,
    Progress,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.core import Core, answer, frames, query, running_core, said, soon
from tests.support.deletions import DAY, DeletingAdapter, contexts, deletions, retention
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

ADA = Caller("ada")
EVE = Caller("eve")
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])

RICH: Script = [
    Progress("looking"),
    ToolCallReady("c1", "add", "{}", handled=True),
    ToolResultReady("c1", {"sum": 3}),
    PartReady(Part(data={"ü": [1, None]})),
    TextDelta("three"),
    CallCompleted("r1", usage={"input_tokens": 7}, state={"n": 1}),
]
ASKS: Script = [CallCompleted("r2", Ending.INPUT_REQUIRED, (Part(text="which?"),))]
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")


@pytest.fixture
async def other(tmp_path: Path) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "other.db", prefix="other") as other:
        yield other


def transfer(core: Core) -> ContextTransfer:
    return ContextTransfer(core.ledger, core.time.clock)


def agents(core: Core) -> Agents:
    return Agents(tuple(core.agents))


async def exported(core: Core, context: str = "c") -> Any:
    return json.loads(await transfer(core).export(ADA, context))


async def taken(core: Core, document: Any, caller: Caller = ADA) -> str:
    return await transfer(core).import_document(caller, agents(core), document, Limits())


# --- export and import ---


@BOTH
async def test_the_next_message_continues_the_exported_conversation(
    core: Core, other: Core, ownership: Ownership
) -> None:
    here = ScriptedAdapter(ownership, RICH, [TextDelta("hm"), CUT], says("A3", "r3"))
    core.agent(here)
    for text in "123":
        await core.send(text, context="c")
    there = ScriptedAdapter(ownership, says("A4", "r4"))
    other.agent(there)
    assert await taken(other, await exported(core), EVE) == "c"
    task = await other.send("4", other.call("eve"), context="c")
    assert (answer(task), task.context_id) == ("A4", "c")
    assert there.requests[0].state == {"n": 1}
    if ownership is BR:
        assert there.sent == [("r3", ["U 4"])]
    else:
        [(handle, items)] = there.sent
        assert (handle, items) == (None, [*here.sent[2][1], "A A3", "U 4"])


async def test_imported_tasks_are_shown_as_before_and_their_streams_can_be_resumed(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(G, RICH, ASKS))
    other.agent(ScriptedAdapter(G, says("A3")))
    done, asked = [await core.send(text, context="c") for text in "12"]
    before = await frames(await core.subscribe(done.id, core.call(last=0)))
    await taken(other, await exported(core))
    assert [await other.get(task.id) for task in (done, asked)] == [done, asked]
    assert (await other.list(context_id="c", include_artifacts=True)).tasks == (asked, done)
    assert await frames(await other.subscribe(done.id, other.call(last=0))) == before
    ended = await other.send("3", task=asked.id)
    assert (ended.status.state, said(ended)) == (TaskState.COMPLETED, ["U 2", "A which?", "U 3"])


async def test_a_key_means_the_same_message_there(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    adapter = ScriptedAdapter(G)
    other.agent(adapter)
    task = await core.send("1", core.call(key="k"), context="c")
    await taken(other, await exported(core))
    again = await other.send("1", other.call(key="k"), context="c")
    assert (again.id, adapter.requests) == (task.id, [])


async def test_a_context_whose_events_are_over_their_time_can_travel(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    other.agent(ScriptedAdapter(G))
    task = await core.send("1", context="c")
    core.time.now += 8 * DAY
    await retention(core).sweep()
    await taken(other, await exported(core))
    assert await other.get(task.id) == task


async def test_an_imported_context_can_be_deleted_with_all_its_handles(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("A1", "r1"), says("A2", "r2")))
    adapter = DeletingAdapter(BR)
    other.agent(adapter)
    for text in "12":
        await core.send(text, context="c")
    await taken(other, await exported(core))
    await contexts(other).delete(ADA, "c")
    await soon(deletions(other).run_due())
    assert sorted(adapter.asked) == ["r1", "r2"]


@pytest.mark.parametrize("state", ["open", "deleted", "expired"])
async def test_an_id_that_was_ever_used_is_refused(core: Core, state: str) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    await core.send("1", context="c")
    document = await exported(core)
    if state == "deleted":
        await contexts(core).delete(ADA, "c")
    elif state == "expired":
        core.time.now += 91 * DAY
        await retention(core).sweep()
    with pytest.raises(InvalidParams, match="contextId: 'c' exists here already"):
        await taken(core, document)


async def test_ids_of_another_callers_context_are_refused_without_a_trace(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    await core.send("1", context="c")
    document = await exported(core)
    before = query(core.path, "SELECT * FROM task")
    with pytest.raises(InvalidParams, match="ids of this document exist here already"):
        await taken(core, document, EVE)
    assert query(core.path, "SELECT * FROM task") == before
    assert query(core.path, "SELECT count(*) FROM context") == [(1,)]


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        (("another", G), r"threads\[0\]\.agent: no agent is called 'echo' here"),
        (
            ("echo", BR),
            r"threads\[0\]\.owner: the history is kept by the gateway \(none\), and the agent 'echo' is set",
        ),
    ],
)
async def test_an_agent_that_could_not_continue_is_refused(
    core: Core, other: Core, agent: tuple[str, Ownership], place: str
) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    name, ownership = agent
    other.agent(ScriptedAdapter(ownership), name)
    await core.send("1", context="c")
    with pytest.raises(InvalidParams, match=place):
        await taken(other, await exported(core))
    assert not other.ledger.stored(Import)


@pytest.mark.parametrize("state", ["closed", "expired", "deleted"])
async def test_an_ended_thread_is_imported_whatever_its_agent(core: Core, other: Core, state: str) -> None:
    core.agent(ScriptedAdapter(BR, says("A1", "r1")), "removed")
    task = await core.send("1", context="c")
    change(core.path, "UPDATE thread SET state = ?", state)
    other.agent(ScriptedAdapter(G, says("A2")))
    await taken(other, await exported(core))
    assert query(other.path, "SELECT id, state FROM task") == [(task.id, "TASK_STATE_COMPLETED")]
    assert answer(await other.send("2", context="c")) == "A2"


async def test_a_state_of_a_newer_adapter_is_refused(core: Core, other: Core) -> None:
    newer = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, state_version=2)
    core.agent(ScriptedAdapter(newer, RICH))
    other.agent(ScriptedAdapter(G))
    await core.send("1", context="c")
    with pytest.raises(InvalidParams, match=r"threads\[0\]\.stateVersion: 2 is newer than 1"):
        await taken(other, await exported(core))


async def test_a_busy_context_cannot_be_exported_yet(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("A1")]))
    await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    with pytest.raises(Busy):
        await transfer(core).export(ADA, "c")
    pause.go.set()
    await soon(core.runner.idle())
    assert len((await exported(core))["tasks"]) == 1


async def test_only_the_callers_own_context_is_exported(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    await core.send("1", context="c")
    for caller, context in ((EVE, "c"), (ADA, "unknown")):
        with pytest.raises(NotFound, match=f"there is no context '{context}' of yours"):
            await transfer(core).export(caller, context)


async def test_a_document_names_no_caller(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    await core.send("1", core.call("ada-lovelace"), context="c")
    assert b"lovelace" not in await transfer(core).export(Caller("ada-lovelace"), "c")


# --- adopting ---


async def adopted(core: Core, handle: str = "resp_68", context: str | None = None) -> str:
    assert core.default is not None
    return await transfer(core).adopt(ADA, core.default, handle, context, Limits())


@pytest.mark.parametrize("context", ["c", None])
async def test_the_first_message_of_an_adopted_context_continues_at_the_handle(core: Core, context: str | None) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), says("A2", "r2"))
    core.agent(adapter)
    made = await adopted(core, "resp_" + "6" * 600, context)
    for text in "12":
        await core.send(text, context=made)
    assert made == (context or made)
    assert adapter.sent == [("resp_" + "6" * 600, ["U 1"]), ("r1", ["U 2"])]


async def test_where_the_gateway_keeps_the_history_there_is_nothing_to_adopt(core: Core) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(UnsupportedOperation, match="The backend of the agent 'echo' keeps no conversation"):
        await adopted(core)


@pytest.mark.parametrize(
    ("handle", "context"), [("", None), (" ", None), ("a\nb", None), ("r", "a\0b"), ("r", "c" * 257)]
)
async def test_a_handle_or_an_id_that_is_none_is_refused(core: Core, handle: str, context: str | None) -> None:
    core.agent(ScriptedAdapter(BR))
    with pytest.raises(InvalidParams):
        await adopted(core, handle, context)


async def test_a_context_that_exists_cannot_be_turned_to_another_handle(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), says("A2", "r2"))
    core.agent(adapter)
    await core.send("1", context="c")
    with pytest.raises(InvalidParams, match="contextId: 'c' exists here already"):
        await adopted(core, context="c")
    await core.send("2", context="c")
    assert adapter.sent[1][0] == "r1"


async def test_another_caller_does_not_reach_an_adopted_context(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"))
    core.agent(adapter)
    await adopted(core, context="c")
    await core.send("1", core.call("eve"), context="c")
    assert adapter.sent == [(None, ["U 1"])]
