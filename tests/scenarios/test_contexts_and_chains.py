"""Contexts, storage owners, rotating handles. Source: docs/state-model.md, scenarios of groups A to C."""

from pathlib import Path

import pytest

from gateway.a2a.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Json, TaskState
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    ServiceRequest,
    TextDelta,
)
from gateway.ports.conversation import Ownership
from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.support.core import START, Core, answer, events, frames, query, running_core, said, soon
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
SEEN_BY_CALLERS = "SELECT payload FROM event UNION ALL SELECT payload FROM input UNION ALL SELECT artifacts FROM turn"


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return says(f"re {text}", f"resp_{text}")


def counts(path: Path) -> dict[str, int]:
    tables = ("context", "thread", "task", "turn", "input", "history_item", "service_call")
    return {table: query(path, f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def files(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in folder.iterdir()}


# --- A. contexts ---


@BOTH
async def test_1_a_message_without_a_context_gets_one_on_everything(core: Core, ownership: Ownership) -> None:
    core.agent(ScriptedAdapter(ownership, otherwise=echo))
    read = events(await frames(await core.stream("hi")))
    first = read[0].task
    assert first is not None
    ids = {first.context_id, *(message.context_id for message in first.history or ())}
    ids |= {u.context_id for event in read for u in (event.status_update, event.artifact_update) if u is not None}
    assert ids == {query(core.path, "SELECT public_id FROM context")[0][0]}
    names = [type(point).__name__ for point in core.ledger.units[0]]
    assert names == ["Accept", "Prepare"]
    assert counts(core.path) == dict.fromkeys(counts(core.path), 1) | {"history_item": 2}


async def test_2_a_context_id_of_the_callers_is_kept_and_bound_to_him(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    assert (await core.send("hi", context="mine")).context_id == "mine"
    assert query(core.path, "SELECT public_id, principal FROM context") == [("mine", "ada")]


async def test_2_an_agent_that_forbids_it_refuses_the_message_and_nothing_is_made(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), client_context_ids_allowed=False)
    with pytest.raises(InvalidParams):
        await core.send("hi", context="mine")
    assert set(counts(core.path).values()) == {0}


@BOTH
async def test_3_turn_2_reaches_another_process_and_goes_on(tmp_path: Path, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(ownership, says("A1", "r1")))
        await one.send("1", context="c")
    async with running_core(path, prefix="two") as two:
        adapter = ScriptedAdapter(ownership, says("A2", "r2"))
        two.agent(adapter)
        await two.send("2", context="c")
    assert adapter.sent == [("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A A1", "U 2"])]


async def test_4_no_backend_id_reaches_a_caller_and_no_public_id_is_a_handle(core: Core) -> None:
    adapter = ScriptedAdapter(
        BR, [CallStarted("resp_p"), *says("a", "resp_1")], [CallStarted("resp_q"), TextDelta("b")]
    )
    core.agent(adapter)
    read = await frames(await core.stream("1", context="c"))
    read += await frames(await core.stream("2", context="c"))
    assert not any(b"resp_" in payload for _, payload in read)
    assert not any("resp_" in (value or "") for (value,) in query(core.path, SEEN_BY_CALLERS))
    assert [handle for handle, _ in adapter.sent] == [None, "resp_1"]


class Careless(ScriptedAdapter):
    """Names ids although the gateway keeps the conversation."""

    def _told(self, event: AdapterEvent) -> AdapterEvent:
        return event


async def test_5_an_id_of_a_response_that_nobody_keeps_is_no_handle(core: Core) -> None:
    adapter = Careless(G, [CallStarted("resp_p"), TextDelta("a"), CallCompleted()], says("b", "resp_b"), says("c", ""))
    core.agent(adapter)
    states = [(await core.send(text, context="c")).status.state for text in "12"]
    assert states == [TaskState.COMPLETED, TaskState.FAILED]
    assert [handle for handle, _ in adapter.sent] == [None, None]
    assert query(core.path, "SELECT handle, clean_handle FROM thread") == [(None, None)]


async def waiting(core: Core) -> str:
    core.agent(ScriptedAdapter(G, [CallCompleted(ending=Ending.INPUT_REQUIRED)], otherwise=echo))
    return (await core.send("1", context="c")).id


async def test_6_a_task_alone_names_its_context(core: Core) -> None:
    assert (await core.send("2", task=await waiting(core))).context_id == "c"


async def test_7_a_task_of_another_context_is_refused_before_anything_is_written(core: Core) -> None:
    task = await waiting(core)
    before = counts(core.path)
    with pytest.raises(InvalidParams):
        await core.send("2", task=task, context="d")
    assert counts(core.path) == before


async def test_8_an_unknown_task_and_anothers_task_are_answered_alike_and_nothing_is_made(core: Core) -> None:
    task = await waiting(core)
    before = counts(core.path)
    texts = set()
    for call, name in ((core.call("bob"), task), (core.call(), "nobody's"), (core.call("bob"), "nobody's")):
        for operation in (core.get, core.cancel, core.subscribe):
            with pytest.raises(TaskNotFound) as caught:
                await operation(name, call)
            texts.add((caught.value.message, caught.value.metadata["taskId"] == name))
        with pytest.raises(TaskNotFound) as caught:
            await core.send("2", call, task=name)
        texts.add((caught.value.message, caught.value.metadata["taskId"] == name))
    assert texts == {("Task not found", True)}
    assert counts(core.path) == before


@BOTH
async def test_9_a_task_that_has_ended_takes_no_message_and_a_reference_to_it_goes_on_with_its_thread(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, otherwise=echo)
    core.agent(adapter)
    task = await core.send("1", context="c")
    before = counts(core.path)
    with pytest.raises(UnsupportedOperation):
        await core.send("2", task=task.id)
    assert counts(core.path) == before
    await core.send("2", context="c", references=(task.id,))
    assert adapter.sent[1] == (("resp_1", ["U 2"]) if ownership is BR else (None, ["U 1", "A re 1", "U 2"]))
    assert counts(core.path)["thread"] == 1


async def test_10_two_tasks_of_a_context_share_the_model_s_history_and_nothing_that_is_shown(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter)
    first, second = await core.send("1", context="c"), await core.send("2", context="c")
    assert adapter.sent[1] == (None, ["U 1", "A re 1", "U 2"])
    for task, text in ((first, "1"), (second, "2")):
        shown = await core.get(task.id)
        assert (said(shown), answer(shown)) == ([f"U {text}"], f"re {text}")


async def test_11_the_context_of_another_principal_is_one_of_ones_own(core: Core) -> None:
    adapter = ScriptedAdapter(BR, otherwise=echo)
    core.agent(adapter)
    await core.send("secret", context="c")
    mine = await core.send("hi", core.call("bob"), context="c")
    assert adapter.sent[1] == (None, ["U hi"])
    assert mine.context_id == "c"
    assert said(mine) == ["U hi"]
    assert (await core.list(core.call("bob"), context_id="c")).total_size == 1
    assert query(core.path, "SELECT principal, public_id FROM context ORDER BY principal") == [
        ("ada", "c"),
        ("bob", "c"),
    ]


@pytest.mark.parametrize(
    "hostile", ["../x", "a\x00b", "\x1b[31m", "x" * 10_000, "'; DROP TABLE task; --", "c\nd", "☃", "%s%n", '{"a":1}']
)
async def test_12_a_hostile_id_is_data(core: Core, tmp_path: Path, hostile: str) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    call = core.call(key=hostile)
    task = await core.send("1", call, context=hostile, message_id=hostile)
    assert task.context_id == hostile
    assert await core.send("1", call, context=hostile, message_id=hostile) == task
    [listed] = (await core.list(context_id=hostile)).tasks
    assert listed.id == task.id
    for operation in (core.get, core.cancel, core.subscribe):
        with pytest.raises(TaskNotFound):
            await operation(hostile)
    assert files(tmp_path) <= {"ledger.db"}


async def test_13_what_happens_to_one_agents_thread_leaves_the_others_alone(core: Core) -> None:
    one = ScriptedAdapter(BR, says("a", "one_1"), [AdapterError(ErrorClass.HANDLE_NOT_FOUND, "gone")])
    other = ScriptedAdapter(BR, says("b", "two_1"), says("c", "two_2"))
    agents = core.agent(one, "one"), core.agent(other, "other")
    for text, agent in (("1", 0), ("2", 1), ("3", 0), ("4", 1)):
        await core.send(text, core.call(agent=agents[agent]), context="c")
    assert other.sent == [(None, ["U 2"]), ("two_1", ["U 4"])]
    assert query(core.path, "SELECT agent, handle FROM thread ORDER BY agent") == [("one", "one_1"), ("other", "two_2")]
    assert counts(core.path)["context"] == 1


# --- B. storage owners ---


@BOTH
async def test_18_owner_and_kind_are_known_before_the_first_byte(core: Core, ownership: Ownership) -> None:
    found: list[tuple[str, str]] = []

    def look(_: ServiceRequest) -> Script:
        found.extend(query(core.path, "SELECT storage_owner, handle_kind FROM thread"))
        return says("a", "r1")

    core.agent(ScriptedAdapter(ownership, otherwise=look))
    await core.send("1")
    assert found == [(str(ownership.owner), str(ownership.handle))]


@pytest.mark.parametrize(("old", "new"), [(G, BR), (BR, G)], ids=["G to BR", "BR to G"])
async def test_29_a_thread_keeps_its_owner_when_the_configuration_is_flipped(
    core: Core, old: Ownership, new: Ownership
) -> None:
    core.agent(ScriptedAdapter(old, otherwise=echo))
    await core.send("1", context="c")
    flipped = ScriptedAdapter(new, otherwise=echo)
    core.agent(flipped)
    before = counts(core.path)
    with pytest.raises(UnsupportedOperation, match=f"kept by the {old.owner}.*kept by the {new.owner}"):
        await core.send("2", context="c")
    assert counts(core.path) == before
    assert flipped.requests == []
    core.agent(ScriptedAdapter(old, otherwise=echo))
    assert answer(await core.send("2", context="c")) == "re 2"


async def test_31_instructions_go_with_every_call_of_a_chain(core: Core) -> None:
    from adapters.openai.responses.adapter import factory

    server = ResponsesServer(api_key="sk-1")
    async with serve(server.app) as url:
        options = {"model": "m", "api_key": "sk-1", "base_url": f"{url}/v1", "instructions": "Be brief."}
        tools: list[Json] = [{"type": "web_search"}]
        settings = factory.settings.model_validate(options | {"tools": tools})
        adapter = factory.build(settings)
        core.agent(adapter)
        for text in "12":
            assert (await core.send(text, context="c")).status.state is TaskState.COMPLETED
        await adapter.aclose()
    first, second = server.requests
    assert "previous_response_id" not in first
    assert second["previous_response_id"]
    assert [(body["instructions"], body["tools"]) for body in (first, second)] == [("Be brief.", tools)] * 2
    assert [len(body["input"]) for body in (first, second)] == [1, 1]


# --- C. rotating handles ---


async def test_33_a_chain_goes_from_handle_to_handle(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("a", "r1"), says("b", "r2"), says("c", "r3"))
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"]), ("r2", ["U 3"])]
    assert query(core.path, "SELECT handle, clean_handle FROM thread") == [("r3", "r3")]


async def test_34_items_and_handle_of_a_call_are_one_commit_and_survive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause = Pause()
        one.agent(ScriptedAdapter(BR, says("a", "r1"), [TextDelta("b"), pause]))
        await one.send("1", context="c")
        [unit] = [unit for unit in one.ledger.units if "Complete" in {type(point).__name__ for point in unit}]
        assert [type(point).__name__ for point in unit] == ["Complete", "Finish", "Release"]
        await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
    async with running_core(path, prefix="two", now=START + 6000) as two:
        adapter = ScriptedAdapter(BR, says("c", "r3"))
        two.agent(adapter)
        await two.send("3", context="c")
    assert adapter.sent == [("r1", ["U 2", "U 3"])]


WEAK: dict[str, Script] = {
    "created, then failed": [CallStarted("r2"), AdapterError(ErrorClass.BACKEND_FAILED, "failed")],
    "created, then dropped": [CallStarted("r2"), TextDelta("b"), AdapterError(ErrorClass.INTERRUPTED, "cut")],
    "created, then silence": [CallStarted("r2"), TextDelta("b")],
    "created, then nonsense": [CallStarted("r2"), RuntimeError("bug")],
    "completed without an id": [CallStarted("r2"), CallCompleted()],
}


@pytest.mark.parametrize("evidence", WEAK)
async def test_35_a_handle_does_not_move_on_weak_evidence_and_the_id_stays_pending(core: Core, evidence: str) -> None:
    adapter = ScriptedAdapter(BR, says("a", "r1"), WEAK[evidence], says("c", "r3"))
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert [handle for handle, _ in adapter.sent] == [None, "r1", "r1"]
    calls = query(core.path, "SELECT status, handle_in, pending_handle, handle_out FROM service_call ORDER BY id")
    assert calls[1] == ("failed", "r1", "r2", None)


async def test_35_a_canceled_call_leaves_its_id_pending(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [CallStarted("r1"), TextDelta("a"), pause]))
    task = await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert query(core.path, "SELECT status, pending_handle, handle_out FROM service_call") == [("failed", "r1", None)]
    assert query(core.path, "SELECT handle FROM thread") == [(None,)]


async def test_36_a_response_without_id_between_two_with_one_leaves_the_last_known_handle(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("a", "r1"), [TextDelta("b"), CallCompleted()], says("c", "r3"), says("d", "r4"))
    core.agent(adapter, on_missing_handle="tolerate")
    tasks = [await core.send(text, context="c") for text in "1234"]
    assert [task.status.state for task in tasks] == [TaskState.COMPLETED] * 4
    assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"]), ("r3", ["U 4"])]


async def test_44_no_handle_is_ever_forgotten(core: Core) -> None:
    core.agent(
        ScriptedAdapter(BR, says("a", "r1"), [CallStarted("r2"), RuntimeError("x")], says("c", "r3"), says("d", "r4"))
    )
    for text in "1234":
        await core.send(text, context="c")
    calls = query(core.path, "SELECT handle_in, pending_handle, handle_out FROM service_call ORDER BY id")
    assert calls == [(None, None, "r1"), ("r1", "r2", None), ("r1", None, "r3"), ("r3", None, "r4")]
