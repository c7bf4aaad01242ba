"""What an adapter keeps as its secret: the next call has it, the database has it sealed, and nobody else."""

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Json, Task, TaskState
from gateway.foundation.clock import Clock
from gateway.ledger.documents import Import
from gateway.ledger.threads import Caller
from gateway.operations.contexts import Contexts
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta
from gateway.ports.capabilities import Fate, Fetched, Tail
from tests.support.core import START, Core, query, running_core, soon
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.rows import change
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.unknown_calls import FetchingAdapter, TailAdapter

CANARY = "canary-token"
TOKEN: Json = {"token": CANARY, "expires": 7}
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")


def gives(secret: Any, state: Json = None, handle: str = "r1") -> Script:
    return [CallStarted(handle), TextDelta("well"), CallCompleted(handle, state=state, secret=secret)]


def secrets(adapter: ScriptedAdapter) -> list[Json]:
    return [request.secret for request in adapter.requests]


def stored(path: Path) -> list[tuple[Any, ...]]:
    return query(path, "SELECT adapter_secret FROM thread ORDER BY epoch")


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def ended(task: Task) -> tuple[TaskState, Any]:
    message = task.status.message
    return task.status.state, (message.metadata or {}).get("errorClass") if message is not None else None


# --- what cannot be kept ---


class NoJson:
    pass


def deep() -> Json:
    value: Json = CANARY
    for _ in range(200):
        value = [value]
    return value


@pytest.mark.parametrize("secret", [deep(), NoJson()], ids=["too deep", "no JSON"])
async def test_a_secret_that_cannot_be_stored_breaks_the_contract_and_is_in_no_error(core: Core, secret: Any) -> None:
    adapter = ScriptedAdapter(BR, gives(TOKEN), gives(secret, handle="r2"), gives(None, handle="r3"))
    core.agent(adapter)
    await core.send("1", context="c")
    failed = await core.send("2", context="c")
    assert ended(failed) == (TaskState.FAILED, "contract-broken")
    await core.send("3", context="c")
    assert [request.handle for request in adapter.requests] == [None, "r1", "r1"]
    assert secrets(adapter)[2] == TOKEN


async def test_a_secret_of_another_key_is_none_and_the_conversation_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BR, gives(TOKEN, state={"n": 1})))
        await one.send("1", context="c")
    change(path, "UPDATE secret SET value = ? WHERE name = 'adapters'", os.urandom(32))
    async with running_core(path, prefix="two") as two:
        adapter = ScriptedAdapter(BR, gives({"token": "new"}, handle="r2"), gives(None, handle="r3"))
        two.agent(adapter)
        for text in "23":
            assert ended(await two.send(text, context="c"))[0] is TaskState.COMPLETED
    assert secrets(adapter) == [None, {"token": "new"}]
    assert [request.state for request in adapter.requests] == [{"n": 1}] * 2
    told = capsys.readouterr()
    assert "thread.secret-unreadable" in told.out + told.err
    assert CANARY not in told.out + told.err


async def test_a_secret_that_was_moved_to_another_conversation_is_none(core: Core) -> None:
    adapter = ScriptedAdapter(BR, gives(TOKEN), gives({"token": "other"}, handle="o1"), gives(None, handle="o2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("1", context="other")
    change(core.path, "UPDATE thread SET adapter_secret = (SELECT adapter_secret FROM thread WHERE handle = 'r1')")
    await core.send("2", context="other")
    assert secrets(adapter) == [None, None, None]


# --- what is kept ---


@pytest.mark.parametrize("ownership", [BR, BS, G], ids=["BR", "BS", "G"])
async def test_the_next_call_gets_it_and_none_leaves_it(core: Core, ownership: Any) -> None:
    handles = ["r1"] * 4 if ownership is BS else [f"r{n}" for n in range(4)]
    given = (TOKEN, None, {"token": "second"}, None)
    adapter = ScriptedAdapter(ownership, *(gives(each, handle=of) for each, of in zip(given, handles, strict=True)))
    core.agent(adapter)
    for text in "1234":
        assert ended(await core.send(text, context="c"))[0] is TaskState.COMPLETED
    assert secrets(adapter) == [None, TOKEN, TOKEN, {"token": "second"}]


async def test_it_is_sealed_in_the_database_and_in_no_event(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, gives(TOKEN)))
    task = await core.send("1", context="c")
    assert CANARY not in repr(await core.get(task.id))
    assert CANARY.encode() not in on_disk(core.path)
    assert stored(core.path) != [(None,)]


async def test_another_process_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BR, gives(TOKEN)))
        await one.send("1", context="c")
    async with running_core(path, prefix="two") as two:
        adapter = ScriptedAdapter(BR, gives(None, handle="r2"))
        two.agent(adapter)
        await two.send("2", context="c")
    assert secrets(adapter) == [TOKEN]


async def test_a_call_that_is_taken_over_has_it_and_leaves_another(tmp_path: Path) -> None:
    path, cut = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ResumingAdapter(gives(TOKEN), [CallStarted("r2"), cut]))
        await one.send("1", context="c")
        await one.send("2", context="c", at_once=True)
        await soon(cut.reached.wait())
        await one.die()
    adapter = ResumingAdapter(gives(None, handle="r3"), again=[gives({"token": "second"}, handle="r2")])
    async with running_core(path, prefix="two", now=START + 6000, adapter=adapter) as two:
        await soon(two.runner.idle())
        await two.send("3", context="c")
    assert adapter.resumed == ["r2"]
    assert [request.secret for request in (*adapter.requests_again, *adapter.requests)] == [TOKEN, {"token": "second"}]


async def test_a_call_that_is_found_completed_leaves_its_own(core: Core) -> None:
    found = Fetched(Fate.COMPLETED, tuple(gives({"token": "found"}, handle="r2")))  # type: ignore[arg-type]  # events alone
    adapter = FetchingAdapter(gives(TOKEN), [CallStarted("r2"), CUT], gives(None, handle="r3"), found=[found])
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert secrets(adapter) == [None, TOKEN, {"token": "found"}]


async def test_the_list_of_a_conversation_is_read_with_it_and_its_answer_leaves_its_own(core: Core) -> None:
    tail = Tail(1, tuple(gives({"token": "found"}, handle="c")))  # type: ignore[arg-type]  # events alone
    adapter = TailAdapter(gives(TOKEN, handle="c"), [CUT], gives(None, handle="c"), found=[tail])
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert [request.secret for request in adapter.asked] == [TOKEN]
    assert secrets(adapter) == [None, TOKEN, {"token": "found"}]


# --- where it goes ---


async def test_an_export_is_without_it_and_the_imported_conversation_goes_on_with_none(
    core: Core, tmp_path: Path
) -> None:
    core.agent(ScriptedAdapter(BR, gives(TOKEN, state={"n": 1})))
    await core.send("1", context="c")
    document = await core.ledger.export(Caller("ada"), "c")
    assert document is not None
    assert CANARY not in repr(document)
    assert stored(core.path)[0][0] not in repr(document)
    async with running_core(tmp_path / "other.db", prefix="other") as other:
        await other.ledger.commit(Import(Caller("ada"), document, START))
        adapter = ScriptedAdapter(BR, gives(None, handle="r2"))
        other.agent(adapter)
        assert ended(await other.send("2", context="c"))[0] is TaskState.COMPLETED
    assert [(request.state, request.secret) for request in adapter.requests] == [({"n": 1}, None)]


async def test_a_new_epoch_begins_without_it(core: Core) -> None:
    lost = AdapterError(ErrorClass.HANDLE_NOT_FOUND, "no such response")
    adapter = ScriptedAdapter(BR, gives(TOKEN), [lost], [lost], says("again", "n1"), says("on", "n2"))
    core.agent(adapter, on_lost_handle="rebuild")
    for text in "123":
        await core.send(text, context="c")
    assert [(request.handle, request.secret) for request in adapter.requests][-2:] == [(None, None), ("n1", None)]
    assert stored(core.path) == [(None,), (None,)]


async def test_a_deleted_context_has_none(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, gives(TOKEN)))
    await core.send("1", context="c")
    await Contexts(core.ledger, core.runner, core.fanout, Clock(), core.drain).delete(core.call().caller, "c")
    assert all(secret is None for (secret,) in stored(core.path))
