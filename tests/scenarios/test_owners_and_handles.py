"""The owner of a conversation, and handles that are lost. Source: docs/state-model.md, scenarios of groups B and C."""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.app.build import build_agents
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.core.failures import OWNER_CONFLICT, safe_text
from gateway.engine.runtime import LEFT_ALONE
from gateway.foundation.retry import COOLDOWN
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta, ToolCallReady
from gateway.ports.capabilities import Backend
from gateway.ports.conversation import Ownership, StorageOwner
from gateway.ports.observer import Observer
from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.support.core import CORRELATION_ID, Core, answer, events, frames, query, reason, running_core, said, soon
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

G_EITHER = Ownership(G.owner, G.handle, either=True)
BR_EITHER = Ownership(BR.owner, BR.handle, either=True)
JOBS = "SELECT adapter, handle FROM delete_job ORDER BY handle"
EPOCHS = "SELECT epoch, storage_owner, handle, state FROM thread ORDER BY epoch"


def fails(kind: ErrorClass, retry_after: float | None = None) -> Script:
    return [AdapterError(kind, "no", retry_after=retry_after)]


def why(kind: str) -> str:
    return safe_text(kind, CORRELATION_ID)


class Unasked(ScriptedAdapter):
    """Its backend keeps what the gateway keeps, and says so."""

    def _told(self, event: Any) -> Any:
        return event


# --- B. storage owners ---


def config(agent: str, directory: Path) -> GatewayConfig:
    text = f"version: 1\nagents:\n  a: {{{agent}}}\n"
    return load(text, source="test.yaml", env={}, plugins=Registry(), base_dir=directory)


RESPONSES = "type: openai-responses, model: m, base_url: 'http://127.0.0.1:9/v1'"


def refused(agent: str, directory: Path) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        config(agent, directory)
    return "\n".join(str(problem) for problem in caught.value.problems)


def test_19_history_at_the_gateway_and_store_at_the_backend_are_an_error_of_the_file(tmp_path: Path) -> None:
    assert "store" in refused(f"{RESPONSES}, history: {{owner: gateway}}, extra_body: {{store: true}}", tmp_path)


def test_20_two_kinds_of_handles_are_an_error_of_the_file(tmp_path: Path) -> None:
    assert "conversation" in refused(f"{RESPONSES}, extra_body: {{conversation: conv_1}}", tmp_path)


@pytest.mark.parametrize("shadow", ["text", "none"])
def test_41_a_rebuild_from_less_than_a_full_shadow_is_an_error_of_the_file(tmp_path: Path, shadow: str) -> None:
    told = refused(f"{RESPONSES}, on_lost_handle: rebuild, shadow_history: {shadow}", tmp_path)
    assert "on_lost_handle: rebuild needs shadow_history: items" in told


UNFIT = {
    "a backend history of a function": (
        "type: python, ref: 'json:loads', history: {owner: backend}",
        "history.owner: backend is asked for",
    ),
    "adopt at a type that cannot go on from a handle": (
        "type: openai-chat, model: m, base_url: 'http://127.0.0.1:9/v1', on_owner_conflict: adopt",
        "on_owner_conflict: adopt needs a type",
    ),
}


@pytest.mark.parametrize("which", UNFIT)
def test_30_settings_that_the_type_cannot_honour_are_refused_at_the_start(tmp_path: Path, which: str) -> None:
    agent, told = UNFIT[which]
    with pytest.raises(ValueError, match=told):
        build_agents(config(agent, tmp_path), Registry())


KEPT: dict[str, Script] = {
    "a continuation id": [CallStarted("x1"), TextDelta("a"), CallCompleted("x1")],
    "its own word for it": [CallStarted("x1"), TextDelta("a"), CallCompleted("x1", stored=True)],
}


@pytest.mark.parametrize("proof", KEPT)
async def test_21_a_call_that_was_kept_unasked_fails_and_the_next_turn_is_unaffected(core: Core, proof: str) -> None:
    adapter = Unasked(G, KEPT[proof], [TextDelta("b"), CallCompleted()])
    core.agent(adapter)
    task = await core.send("1", context="c")
    assert reason(task) == why(OWNER_CONFLICT)
    assert answer(task) == "a"
    assert query(core.path, JOBS) == [("echo", "x1")]
    assert query(core.path, "SELECT kind, replayable FROM history_item ORDER BY position") == [
        ("user", 1),
        ("assistant", 0),
    ]
    assert answer(await core.send("2", context="c")) == "b"
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1", "U 2"])]
    assert query(core.path, EPOCHS) == [(1, "gateway", None, "open")]


async def test_21_a_call_that_was_kept_under_no_name_fails_too(core: Core) -> None:
    core.agent(Unasked(G, [TextDelta("a"), CallCompleted(stored=True)]))
    assert reason(await core.send("1")) == why(OWNER_CONFLICT)
    assert query(core.path, JOBS) == []


async def test_22_where_it_is_warned_of_the_gateway_goes_on_and_warns_once_a_thread(
    core: Core, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = Unasked(G, says("A1", "x1"), says("A2", "x2"), says("A3", "x3"))
    core.agent(adapter, on_owner_conflict="warn")
    tasks = [await core.send("1", context="c"), await core.send("2", context="c"), await core.send("3", context="d")]
    assert [task.status.state for task in tasks] == [TaskState.COMPLETED] * 3
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 3"])]
    assert query(core.path, JOBS) == [("echo", "x1"), ("echo", "x2"), ("echo", "x3")]
    assert "".join(capsys.readouterr()).count("thread.owner-conflict") == 2


async def test_23_an_adopted_conversation_goes_on_from_its_handle_and_no_other_changes(core: Core) -> None:
    adapter = Unasked(
        G_EITHER,
        [TextDelta("A1"), CallCompleted()],
        [TextDelta("A2"), CallCompleted("x2")],
        [TextDelta("A3"), CallCompleted("x3")],
        [TextDelta("B"), CallCompleted()],
        [TextDelta("C"), CallCompleted()],
    )
    core.agent(adapter, on_owner_conflict="adopt", on_lost_handle="rebuild")
    for text in "123":
        assert (await core.send(text, context="c")).status.state is TaskState.COMPLETED
    for text in "45":
        assert (await core.send(text, context="other")).status.state is TaskState.COMPLETED
    assert adapter.sent == [
        (None, ["U 1"]),
        (None, ["U 1", "A A1", "U 2"]),
        ("x2", ["U 3"]),
        (None, ["U 4"]),
        (None, ["U 4", "A B", "U 5"]),
    ]
    assert [request.owner for request in adapter.requests] == [None, None, StorageOwner.BACKEND, None, None]
    assert query(core.path, EPOCHS) == [
        (1, "gateway", None, "closed"),
        (1, "gateway", None, "open"),
        (2, "backend", "x3", "open"),
    ]
    assert query(core.path, JOBS) == []


async def test_23_what_was_said_before_is_the_shadow_of_an_adopted_conversation(core: Core) -> None:
    adapter = Unasked(
        G_EITHER,
        [TextDelta("A1"), CallCompleted("x1")],
        fails(ErrorClass.HANDLE_EXPIRED),
        [TextDelta("A2"), CallCompleted("y1")],
    )
    core.agent(adapter, on_owner_conflict="adopt", on_lost_handle="rebuild")
    await core.send("1", context="c")
    assert answer(await core.send("2", context="c")) == "A2"
    assert adapter.sent[1:] == [("x1", ["U 2"]), (None, ["U 1", "A A1", "U 2"])]


async def test_25_a_tolerated_answer_without_a_handle_leaves_a_gap_that_can_be_seen(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), [TextDelta("A2"), CallCompleted()], says("A3", "r3"))
    core.agent(adapter, on_missing_handle="tolerate")
    await core.send("1", context="c")
    read = events(await frames(await core.stream("2", context="c")))
    assert read[-1].status_update is not None
    assert read[-1].status_update.metadata == {"contextGap": "backend-state-lost"}
    assert (await core.get(read[-1].status_update.task_id)).metadata == {"contextGap": "backend-state-lost"}
    assert query(core.path, "SELECT status, failure_class FROM turn ORDER BY number") == [
        ("completed", None),
        ("completed", "backend-state-lost"),
    ]
    await core.send("3", context="c")
    assert adapter.sent[2] == ("r1", ["U 2", "U 3"])


async def test_28_a_backend_that_keeps_nothing_after_all_is_told_whole_in_an_epoch_of_the_gateway(core: Core) -> None:
    adapter = ScriptedAdapter(
        BR_EITHER,
        says("A1", "r1"),
        fails(ErrorClass.STORAGE_DISABLED),
        [TextDelta("A2"), CallCompleted()],
        [TextDelta("A3"), CallCompleted()],
    )
    core.agent(adapter, on_lost_handle="rebuild")
    for text in "123":
        assert (await core.send(text, context="c")).status.state is TaskState.COMPLETED
    assert adapter.sent == [
        (None, ["U 1"]),
        ("r1", ["U 2"]),
        (None, ["U 1", "A A1", "U 2"]),
        (None, ["U 1", "A A1", "U 2", "A A2", "U 3"]),
    ]
    assert [request.owner for request in adapter.requests] == [None, None, StorageOwner.GATEWAY, StorageOwner.GATEWAY]
    assert query(core.path, EPOCHS) == [(1, "backend", "r1", "closed"), (2, "gateway", None, "open")]


@pytest.mark.parametrize(("ownership", "policies"), [(BR, {"on_lost_handle": "rebuild"}), (BR_EITHER, {})])
async def test_28_otherwise_it_is_an_error_and_never_a_call_without_history(
    core: Core, ownership: Ownership, policies: dict[str, Any]
) -> None:
    adapter = ScriptedAdapter(ownership, says("A1", "r1"), otherwise=lambda _: fails(ErrorClass.STORAGE_DISABLED))
    core.agent(adapter, **policies)
    await core.send("1", context="c")
    assert reason(await core.send("2", context="c")) == why(ErrorClass.STORAGE_DISABLED)
    assert reason(await core.send("3", context="c")) == why(ErrorClass.STORAGE_DISABLED)
    assert [handle for handle, _ in adapter.sent] == [None, "r1", "r1"]


@pytest.mark.parametrize(("old", "new"), [("backend", "gateway"), ("gateway", "backend")])
async def test_29_a_thread_goes_on_with_its_own_owner_where_the_type_can_do_both(
    core: Core, old: str, new: str
) -> None:
    from adapters.openai.responses.adapter import factory

    server = ResponsesServer(lambda conversation: [Say(" ".join(conversation.user_texts))])
    async with serve(server.app) as url:

        def flip(owner: str) -> Any:
            settings = {"model": "m", "base_url": f"{url}/v1", "history": {"owner": owner}}
            adapter = factory.build(factory.settings.model_validate(settings))
            core.agent(adapter)
            return adapter

        before, after = flip(old), None
        await core.send("one", context="c")
        after = flip(new)
        assert answer(await core.send("two", context="c")) == "one two"
        assert answer(await core.send("three", context="c")) == "one two three"
        assert answer(await core.send("four", context="new")) == "four"
        await before.aclose()
        await after.aclose()
    keeps = [old == "backend"] * 3 + [new == "backend"]
    assert [body["store"] for body in server.requests] == keeps
    assert ["previous_response_id" in body for body in server.requests[1:3]] == [old == "backend"] * 2


# --- C. handles that are lost ---

LOST = [ErrorClass.HANDLE_EXPIRED, ErrorClass.HANDLE_NOT_FOUND]


async def test_40_a_handle_that_is_not_found_is_asked_for_once_more_and_kept(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), fails(ErrorClass.HANDLE_NOT_FOUND), says("A2", "r2"))
    core.agent(adapter)
    await core.send("1", context="c")
    assert answer(await core.send("2", context="c")) == "A2"
    assert adapter.sent[1:] == [("r1", ["U 2"])] * 2
    assert core.waits == [1.0]


@pytest.mark.parametrize("kind", LOST)
async def test_41_a_lost_handle_is_an_error_now_and_later_and_never_a_fresh_start(core: Core, kind: ErrorClass) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), *[fails(kind)] * (2 if kind is ErrorClass.HANDLE_NOT_FOUND else 1))
    core.agent(adapter)
    await core.send("1", context="c")
    asked = len(adapter.requests)
    lost = [await core.send(text, context="c") for text in "234"]
    assert [reason(task) for task in lost] == [why(kind), *[why(ErrorClass.HANDLE_EXPIRED)] * 2]
    assert {handle for handle, _ in adapter.sent[asked:]} == {"r1"}
    assert len(adapter.requests) - asked == len(core.waits) + 1
    assert query(core.path, EPOCHS) == [(1, "backend", "r1", "lost")]


class Losses(Observer):
    """Keeps whether each loss that it hears of was mended at once."""

    def __init__(self) -> None:
        self.rebuilt: list[bool] = []

    def handle_lost(self, agent: str, *, rebuilt: bool) -> None:
        self.rebuilt.append(rebuilt)


@pytest.mark.parametrize(
    ("shadow", "before", "after", "told"),
    [
        ("items", "fail", "fail", [False]),
        ("items", "fail", "rebuild", [False]),
        ("items", "rebuild", "rebuild", [True]),
        ("none", "rebuild", "rebuild", [False]),
    ],
)
async def test_41_a_loss_is_told_once_however_many_messages_follow(
    tmp_path: Path, shadow: str, before: str, after: str, told: list[bool]
) -> None:
    losses = Losses()
    async with running_core(tmp_path / "ledger.db", observer=losses) as core:
        lost, again = fails(ErrorClass.HANDLE_NOT_FOUND), [says(f"A{number}", f"q{number}") for number in (2, 3)]
        adapter = ScriptedAdapter(BR, says("A1", "r1"), lost, lost, *again)
        core.agent(adapter, shadow_history=shadow)
        await core.send("1", context="c")
        core.agent(adapter, on_lost_handle=before)
        await core.send("2", context="c")
        core.agent(adapter, on_lost_handle=after)
        for text in "34":
            await core.send(text, context="c")
    assert losses.rebuilt == told


async def test_41_a_lost_conversation_stays_lost_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BR, says("A1", "r1"), fails(ErrorClass.HANDLE_EXPIRED)))
        await one.send("1", context="c")
        await one.send("2", context="c")
    async with running_core(path, prefix="two") as two:
        adapter = ScriptedAdapter(BR, says("A2", "q1"))
        two.agent(adapter)
        assert reason(await two.send("3", context="c")) == why(ErrorClass.HANDLE_EXPIRED)
        assert adapter.requests == []
        two.agent(adapter, on_lost_handle="rebuild")
        assert answer(await two.send("4", context="c")) == "A2"
        assert adapter.sent == [(None, ["U 1", "A A1", "U 2", "U 3", "U 4"])]


@pytest.mark.parametrize("kind", LOST)
async def test_41_a_rebuilt_conversation_is_told_whole_once_in_a_new_epoch_and_the_caller_hears_of_it(
    core: Core, kind: ErrorClass
) -> None:
    handled: Script = [ToolCallReady("c1", "add", "{}"), *says("A1", "r1")]
    tries = 2 if kind is ErrorClass.HANDLE_NOT_FOUND else 1
    adapter = ScriptedAdapter(BR, handled, *[fails(kind)] * tries, says("A2", "q1"), says("A3", "q2"))
    core.agent(adapter, on_lost_handle="rebuild", unknown_tool="fail")
    await core.send("1", context="c")
    read = events(await frames(await core.stream("2", context="c")))
    told = [event.status_update for event in read if event.status_update and event.status_update.metadata]
    assert [update.metadata for update in told] == [{"contextRebuilt": kind}]
    task = (await core.list(context_id="c", include_artifacts=True)).tasks[0]
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "A2")
    whole_task = await core.get(task.id)
    assert any("had lost this conversation" in line for line in said(whole_task))
    kept = [message.metadata for message in whole_task.history or () if message.metadata]
    assert kept == [{"contextRebuilt": kind}]
    await core.send("3", context="c")
    whole = ["U 1", "C c1 add", "A A1", "O c1 This tool is not available.", "U 2"]
    assert [(handle, sorted(items)) for handle, items in adapter.sent[1 + tries :]] == [
        (None, sorted(whole)),
        ("q1", ["U 3"]),
    ]
    assert query(core.path, EPOCHS) == [(1, "backend", "r1", "closed"), (2, "backend", "q2", "open")]
    assert query(
        core.path,
        "SELECT attempt, status, handle_in FROM service_call WHERE turn IN"
        " (SELECT id FROM turn WHERE number = 2) ORDER BY attempt",
    ) == [
        *((n, "failed", "r1") for n in range(tries)),
        (tries, "completed", None),
    ]


async def test_41_a_rebuild_that_fails_is_tried_again_whole_by_the_next_turn(core: Core) -> None:
    adapter = ScriptedAdapter(
        BR, says("A1", "r1"), fails(ErrorClass.HANDLE_EXPIRED), fails(ErrorClass.UNAUTHORISED), says("A3", "q1")
    )
    core.agent(adapter, on_lost_handle="rebuild")
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[2:] == [(None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "U 3"])]
    assert query(core.path, EPOCHS) == [(1, "backend", "r1", "closed"), (2, "backend", "q1", "open")]


async def test_41_a_rebuild_for_which_the_backend_is_left_alone_is_tried_again_whole_by_the_next_turn(
    core: Core,
) -> None:
    adapter = ScriptedAdapter(
        BR, says("A1", "r1"), fails(ErrorClass.HANDLE_EXPIRED), *[fails(ErrorClass.UNREACHABLE)] * 5, says("A5", "q1")
    )
    backend = Backend("http://backend/v1")
    core.agent(adapter, backend=backend)
    for text in "12":
        await core.send(text, context="c")
    for text in "xy":
        await core.send(text, context="another")
    core.agent(adapter, backend=backend, on_lost_handle="rebuild")
    told = safe_text(ErrorClass.UNREACHABLE, CORRELATION_ID, 30, hint=LEFT_ALONE)
    assert reason(await core.send("3", context="c")) == told
    assert len(adapter.requests) == 7
    core.time.monotonic += COOLDOWN
    await core.send("4", context="c")
    assert adapter.sent[7] == (None, ["U 1", "A A1", "U 2", "U 3", "U 4"])


async def test_41_a_shadow_with_gaps_is_not_told_for_the_whole(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), fails(ErrorClass.HANDLE_EXPIRED))
    core.agent(adapter, shadow_history="none")
    await core.send("1", context="c")
    core.agent(adapter, on_lost_handle="rebuild")
    assert reason(await core.send("2", context="c")) == why(ErrorClass.HANDLE_EXPIRED)
    assert reason(await core.send("3", context="c")) == why(ErrorClass.HANDLE_EXPIRED)
    assert len(adapter.requests) == 2


async def test_41_turns_that_waited_behind_a_rebuild_go_on_from_its_chain(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(
        BR, says("A1", "r1"), [pause, *fails(ErrorClass.HANDLE_EXPIRED)], says("A2", "q1"), says("A3", "q2")
    )
    core.agent(adapter, on_lost_handle="rebuild")
    await core.send("1", context="c")
    await core.send("2", context="c", at_once=True)
    await soon(pause.reached.wait())
    third = await core.send("3", context="c", at_once=True)
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.get(third.id)) == "A3"
    assert adapter.sent[2:] == [(None, ["U 1", "A A1", "U 2"]), ("q1", ["U 3"])]


async def test_39_of_two_that_go_on_from_one_handle_one_wins_and_the_other_is_an_orphan(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause = Pause()
        one.agent(ScriptedAdapter(BR, says("A1", "r1"), [pause, *says("late", "r2")]))
        await one.send("1", context="c")
        await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        async with running_core(path, prefix="two", now=one.time.now + 6000) as two:
            adapter = ScriptedAdapter(BR, says("A3", "r3"))
            two.agent(adapter)
            assert answer(await two.send("3", context="c")) == "A3"
            assert adapter.sent == [("r1", ["U 2", "U 3"])]
            pause.go.set()
            await soon(one.runner.idle())
    assert query(path, EPOCHS) == [(1, "backend", "r3", "open")]
    assert query(path, JOBS) == [("echo", "r2")]
