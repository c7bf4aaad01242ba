"""Tools of the gateway whose source wants the user's consent first: the tool did nothing yet, the task waits as AUTH_REQUIRED
with the page, and the next message makes the same call again."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Task, TaskState
from gateway.a2a.tool_calls import URI
from gateway.core.tools.tool_call import FAILED, NOT_RUN
from gateway.engine.paused_turn import EXPIRED, NO_CONSENT, REJECTED
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.points import CommitPoint
from gateway.ledger.tool_calls import ToolEnds, ToolStarts, ToolWaits
from gateway.ledger.turns import Decide, Resume, Suspend
from gateway.ports.conversation import Ownership
from gateway.ports.tools import ConsentNeeded, ConsentPage
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_approvals import (
    CAMERA,
    GATED,
    PAY,
    SAFE,
    asked,
    expiry,
    no,
    one,
    open_calls,
    outcomes,
    reply,
    result,
    start,
    yes,
)
from tests.scenarios.test_tool_loop import ALL, BOTH_WAYS, adapter_of, asks, call
from tests.support.core import START, Core, Done, answer, frames, query, running_core, said, soon, states
from tests.support.scripted import BR, G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import Answer, ScriptedTools
from tests.tool_call_vectors import valid

PAGE = "https://login.example/consent?state=1"
MAIL = call("c1", "mail")
AUTH, INPUT, COMPLETED = TaskState.AUTH_REQUIRED, TaskState.INPUT_REQUIRED, TaskState.COMPLETED


def unwilling(*pages: str, text: str = "To read your mail.") -> ConsentNeeded:
    return ConsentNeeded("no token", tuple(ConsentPage(page, text) for page in pages or (PAGE,)))


def in_turn(*answers: Any) -> Answer:
    """One after the other; an exception is raised."""
    left: Iterator[Any] = iter(answers)

    def run(_: dict[str, Any]) -> Any:
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    return run


def setup(
    core: Core, ownership: Ownership, *scripts: Script, mail: Answer = None, **policies: Any
) -> tuple[ScriptedAdapter, ScriptedTools]:
    """An agent with a tool `mail` that wants a consent, once unless it is said otherwise, a gated `pay` and a safe `look`."""
    adapter = adapter_of(ownership, *scripts)
    wants = in_turn(unwilling(), "two letters") if mail is None else mail
    tools = ScriptedTools({"look": "seen", "pay": "paid", "mail": wants})
    core.agent(adapter, toolset=tools, **({"approvals": GATED} | policies))
    return adapter, tools


def consent(task: Task) -> dict[str, Any]:
    assert task.status.message is not None
    metadata: Any = task.status.message.metadata
    assert valid("consent", metadata[URI])
    found: dict[str, Any] = metadata[URI]["consent"]
    return found


def pages(task: Task) -> list[str]:
    """Those that a task waits for with nothing else."""
    assert task.status.state is AUTH
    return [link["url"] for link in consent(task)["links"]]


def settled(core: Core) -> None:
    assert violations(core.path) == []


# --- asked, and made again


@ALL
@BOTH_WAYS
async def test_110_a_call_that_needs_a_consent_leaves_its_task_waiting_with_the_page(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", MAIL))
    task = await start(core, streaming=streaming)
    assert pages(task) == [PAGE]
    [link] = consent(task)["links"]
    [(call_id,)] = query(core.path, "SELECT id FROM tool_call")
    assert (link["callId"], link["server"], link["text"]) == (call_id, "test:box", "To read your mail.")
    assert task.status.message is not None
    words, url = (part.text or "" for part in task.status.message.parts)
    assert words.startswith("Your consent for test:box is needed at a third party. It says: To read your mail.")
    assert (url, outcomes(core), tools.ran, len(adapter.requests)) == (PAGE, [("mail", "pending_consent")], ["mail"], 1)
    assert query(core.path, "SELECT status FROM turn") == [("waiting",)]
    assert query(core.path, "SELECT lease_holder FROM thread") == [(None,)]
    settled(core)


@ALL
@BOTH_WAYS
async def test_112_the_next_message_makes_the_call_once_more_and_reaches_the_model_behind_its_result(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", MAIL), says("Two letters.", "r2"), says("bye", "r3"))
    task = await start(core)
    done = await reply(core, task.id, "I have done it", streaming=streaming)
    assert (done.status.state, answer(done), tools.ran) == (COMPLETED, "Two letters.", ["mail", "mail"])
    assert len({run.key for run in tools.runs}) == 1
    outputs = ["O c1 two letters", "U I have done it"]
    assert adapter.sent[1][1] == (["U 1", "C c1 mail", *outputs] if ownership is G else outputs)
    assert [line for line in said(done) if line.startswith("U")] == ["U 1", "U I have done it"]
    settled(core)
    await start(core, "2")
    assert tools.ran == ["mail", "mail"]
    settled(core)


async def test_112_the_stream_of_each_message_ends_where_the_task_waits(core: Core) -> None:
    setup(core, G, asks("r1", MAIL), says("Two letters."), mail=in_turn(unwilling(), unwilling(PAGE + "0"), "letters"))
    assert states(await frames(await core.stream("1", context="c"))) == ["WORKING", "AUTH_REQUIRED"]
    [listed] = (await core.list()).tasks
    again = await core.stream("done", task=listed.id)
    assert states(await frames(again)) == ["WORKING", "AUTH_REQUIRED"]
    assert pages(await core.get(listed.id)) == [PAGE + "0"]
    assert states(await frames(await core.stream("really", task=listed.id))) == ["WORKING", "COMPLETED"]
    settled(core)


async def test_106_who_subscribes_hears_how_it_goes_on(core: Core) -> None:
    setup(core, BR, asks("r1", MAIL), says("Two letters.", "r2"))
    task = await start(core)
    stream = await core.subscribe(task.id)
    await reply(core, task.id, "done")
    assert states(await frames(stream)) == ["AUTH_REQUIRED", "WORKING", "COMPLETED"]


async def test_107_a_repeat_of_the_message_makes_no_further_call(core: Core) -> None:
    _, tools = setup(core, BR, asks("r1", MAIL), mail=unwilling())
    task = await start(core)
    for _ in range(2):
        assert pages(await reply(core, task.id, "done", key="k")) == [PAGE]
    assert tools.ran == ["mail", "mail"]
    settled(core)


async def test_120_each_message_is_one_try(core: Core) -> None:
    adapter, tools = setup(core, BR, asks("r1", MAIL), mail=unwilling())
    task = await start(core)
    for tries in range(2, 5):
        assert pages(await reply(core, task.id, "done")) == [PAGE]
        assert (len(tools.ran), len(adapter.requests)) == (tries, 1)
    settled(core)


# --- beside other calls


@ALL
async def test_111_what_its_siblings_gave_is_held_until_the_call_was_made(core: Core, ownership: Ownership) -> None:
    adapter, tools = setup(core, ownership, asks("r1", call("c0", "look"), MAIL), says("done", "r2"))
    task = await start(core)
    assert (pages(task), sorted(tools.ran), len(adapter.requests)) == ([PAGE], ["look", "mail"], 1)
    done = await reply(core, task.id, "done")
    assert (done.status.state, sorted(tools.ran)) == (COMPLETED, ["look", "mail", "mail"])
    assert adapter.sent[1][1][-3:] == ["O c0 seen", "O c1 two letters", "U done"]
    settled(core)


@ALL
async def test_112_a_yes_that_was_given_holds_for_the_call_that_is_made_again(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, asks("r1", PAY), says("done", "r2"))
    tools = ScriptedTools({"pay": in_turn(unwilling(), "paid")})
    core.agent(adapter, toolset=tools, approvals=GATED)
    task = await start(core)
    waiting = await reply(core, task.id, yes(one(task)))
    assert pages(waiting) == [PAGE]
    columns = "SELECT status, approval_decision, approval_by, approval_consumed_at IS NULL FROM tool_call"
    assert query(core.path, columns) == [("pending_consent", "approved", "ada", 1)]
    settled(core)
    done = await reply(core, task.id, "I have done it")
    assert (done.status.state, tools.ran) == (COMPLETED, ["pay", "pay"])
    assert query(core.path, columns) == [("completed", "approved", "ada", 0)]
    settled(core)


async def test_113_the_yes_once_more_is_no_message_that_goes_on(core: Core) -> None:
    adapter = adapter_of(BR, asks("r1", PAY))
    tools = ScriptedTools({"pay": unwilling()})
    core.agent(adapter, toolset=tools, approvals=GATED)
    task = await start(core)
    decision = yes(one(task))
    assert pages(await reply(core, task.id, decision)) == [PAGE]
    assert pages(await reply(core, task.id, decision)) == [PAGE]
    assert tools.ran == ["pay"]
    settled(core)


@ALL
async def test_111_a_call_that_waits_for_a_yes_beside_it_is_asked_about_in_the_same_question(
    core: Core, ownership: Ownership
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", MAIL, PAY), says("done", "r2"))
    task = await start(core)
    assert task.status.state is INPUT
    assert [link["url"] for link in consent(task)["links"]] == [PAGE]
    done = await reply(core, task.id, yes(one(task)))
    assert (done.status.state, sorted(tools.ran)) == (COMPLETED, ["mail", "mail", "pay"])
    assert adapter.sent[1][1][-2:] == ["O c1 two letters", "O c2 paid"]
    settled(core)


async def test_111_a_no_to_the_sibling_makes_the_call_once_more_too(core: Core) -> None:
    adapter, tools = setup(core, BR, asks("r1", MAIL, PAY), says("done", "r2"))
    task = await start(core)
    done = await reply(core, task.id, no(one(task)))
    assert (done.status.state, tools.ran) == (COMPLETED, ["mail", "mail"])
    assert adapter.sent[1][1] == ["O c1 two letters", f"O c2 {REJECTED}"]
    settled(core)


async def test_119_the_call_waits_on_while_another_is_undecided(core: Core) -> None:
    _, tools = setup(core, BR, asks("r1", MAIL, PAY, call("c3", "pay")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    still = await reply(core, task.id, yes(first))
    assert (still.status.state, one(still), tools.ran) == (INPUT, second, ["mail"])
    done = await reply(core, task.id, yes(second))
    assert (done.status.state, sorted(tools.ran)) == (COMPLETED, ["mail", "mail", "pay", "pay"])
    settled(core)


async def test_73_a_result_of_the_client_makes_the_call_once_more(core: Core) -> None:
    camera = call("c2", "camera")
    adapter, tools = setup(core, BR, asks("r1", MAIL, camera), says("done", "r2"), client_tools=(CAMERA,))
    task = await start(core)
    assert task.status.state is INPUT
    done = await reply(core, task.id, result(open_calls(task)["camera"], "a cat"))
    assert (done.status.state, tools.ran) == (COMPLETED, ["mail", "mail"])
    assert adapter.sent[1][1] == ["O c1 two letters", "O c2 a cat"]
    settled(core)


async def test_118_words_beside_an_undecided_call_cancel_both(core: Core) -> None:
    adapter, tools = setup(core, BR, asks("r1", MAIL, PAY), says("fine", "r2"))
    task = await start(core)
    done = await reply(core, task.id, "never mind")
    assert (done.status.state, tools.ran) == (COMPLETED, ["mail"])
    assert outcomes(core) == [("mail", "cancelled"), ("pay", "cancelled")]
    assert adapter.sent[1][1] == [f"O c1 {NOT_RUN}", f"O c2 {NOT_RUN}", "U never mind"]
    settled(core)


# --- ended


@ALL
async def test_119_a_consent_that_does_not_come_in_time_is_told_to_the_model(core: Core, ownership: Ownership) -> None:
    adapter, tools = setup(core, ownership, asks("r1", MAIL), says("a pity", "r2"), approval_timeout=60.0)
    task = await start(core)
    core.time.now += 59_000
    await expiry(core).sweep()
    assert await core.get(task.id) == task
    core.time.now += 2_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    done = await core.get(task.id)
    assert (done.status.state, tools.ran, outcomes(core)) == (COMPLETED, ["mail"], [("mail", "rejected")])
    assert adapter.sent[1][1][-1] == f"O c1 {NO_CONSENT}"
    settled(core)


async def test_119_behind_a_sibling_that_expired_the_page_is_still_named(core: Core) -> None:
    def late(_: dict[str, Any]) -> Any:
        core.time.now += 30_000
        raise unwilling()

    adapter, tools = setup(core, BR, asks("r1", MAIL, PAY), says("done", "r2"), mail=late, approval_timeout=60.0)
    task = await start(core)
    assert task.status.state is INPUT
    core.time.now += 40_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    waiting = await core.get(task.id)
    assert pages(waiting) == [PAGE]
    assert consent(waiting)["links"] == consent(task)["links"]
    assert query(core.path, "SELECT state FROM task") == [("TASK_STATE_AUTH_REQUIRED",)]
    core.time.now += 60_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert adapter.sent[1][1] == [f"O c1 {NO_CONSENT}", f"O c2 {EXPIRED}"]
    assert tools.ran == ["mail"]
    settled(core)


@ALL
async def test_119_a_cancelled_task_closes_the_call_and_the_next_turn_is_whole(
    core: Core, ownership: Ownership
) -> None:
    adapter, tools = setup(core, ownership, asks("r1", SAFE, call("c2", "mail")), says("new", "r2"))
    task = await start(core)
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert outcomes(core) == [("look", "completed"), ("mail", "cancelled")]
    settled(core)
    await start(core, "2")
    whole = ["U 1", "C c1 look", "O c1 seen", "U 2"]
    assert adapter.sent[1][1] == (whole if ownership is G else ["O c1 seen", f"O c2 {NOT_RUN}", "U 2"])
    assert tools.ran == ["look", "mail"]
    settled(core)


async def test_118b_a_new_task_beside_it_is_refused(core: Core) -> None:
    setup(core, BR, asks("r1", MAIL))
    task = await start(core)
    with pytest.raises(Exception, match=f"Task '{task.id}' of this context waits"):
        await start(core, "2")


async def test_115_another_principal_does_not_even_see_the_task(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", MAIL))
    task = await start(core)
    with pytest.raises(TaskNotFound):
        await reply(core, task.id, "done", call=core.call("eve"))
    assert (tools.ran, outcomes(core)) == (["mail"], [("mail", "pending_consent")])


@pytest.mark.parametrize(
    "needed", [unwilling("http://evil.example/"), unwilling(PAGE, "javascript:x"), ConsentNeeded("none", ())]
)
async def test_104_a_page_that_nobody_should_open_is_a_tool_that_failed(core: Core, needed: ConsentNeeded) -> None:
    adapter, _ = setup(core, BR, asks("r1", MAIL), says("a pity", "r2"), mail=needed)
    task = await start(core)
    assert (task.status.state, adapter.sent[1][1]) == (COMPLETED, [f"O c1 {FAILED}"])
    assert "evil.example" not in str(task)
    settled(core)


# --- other processes


@ALL
async def test_120_a_restart_while_a_call_waits_for_consent_loses_nothing(tmp_path: Path, ownership: Ownership) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(0.2)
    async with running_core(path, prefix="a", lease=lease) as first:
        setup(first, ownership, asks("r1", SAFE, call("c2", "mail")))
        task = await start(first)
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        adapter, tools = setup(second, ownership, says("done", "r2"), mail="two letters")
        assert await second.get(task.id) == task
        done = await reply(second, task.id, "and hurry")
        assert (done.status.state, answer(done), tools.ran) == (COMPLETED, "done", ["mail"])
        assert adapter.sent[0][1][-3:] == ["O c1 seen", "O c2 two letters", "U and hurry"]
        assert query(path, "SELECT round FROM service_call ORDER BY round") == [(0,), (1,)]
        settled(second)


@pytest.mark.parametrize("point", [ToolWaits, Suspend, Decide, Resume, ToolStarts, ToolEnds])
async def test_120_a_process_that_dies_around_the_consent_leaves_a_whole_conversation(
    tmp_path: Path, point: type
) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(0.2)
    async with running_core(path, prefix="a", lease=lease) as first:
        setup(first, BR, asks("r1", MAIL), says("lost", "r2"))
        lost = first.ledger.refuse(point) if point in (ToolWaits, Suspend) else None
        task = await start(first, at_once=lost is not None)
        if lost is None:
            lost = first.ledger.refuse(point)
            with suppress(LedgerUnavailable):
                await reply(first, task.id, "done", at_once=True)
        await soon(lost.wait())
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        _, tools = setup(second, BR, says("done", "r2"), says("more", "r3"), mail="two letters")
        second.time.now += 60_000
        await expiry(second).sweep()
        await soon(second.runner.idle())
        state = (await second.get(task.id)).status.state
        if point is Decide:
            assert state is AUTH
            assert (await reply(second, task.id, "done")).status.state is COMPLETED
            assert tools.ran == ["mail"]
        elif point in (Resume, ToolStarts):
            assert (state, tools.ran) == (COMPLETED, ["mail"])
        elif point is Suspend:
            assert (state, outcomes(second)) == (TaskState.FAILED, [("mail", "cancelled")])
        else:
            # Nobody knows that nothing was done.
            assert (state, tools.ran) == (TaskState.FAILED, [])
            assert outcomes(second) == [("mail", "interrupted")]
        settled(second)


class Dying:
    """The ledger of a process of which only this many units arrive."""

    def __init__(self, ledger: Any, units: int) -> None:
        self.behind, self.left = ledger, units

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        if self.left > 0:
            self.left -= 1
            self.behind.submit(points, done)
        else:
            self.behind.submit((), lambda _: done(LedgerUnavailable("it is dead")))


class Mailbox:
    """A tool that works once its user has consented. `runs`: so often it did."""

    def __init__(self) -> None:
        self.consented, self.runs = False, 0

    def __call__(self, _: dict[str, Any]) -> str:
        if not self.consented:
            raise unwilling()
        self.runs += 1
        return "two letters"


async def one_death(path: Path, ownership: Ownership, units: int) -> tuple[bool, int]:
    """A process dies after so many commits and another one continues; whether it had finished, and the runs of the tool."""
    lease, mail, dying = LeaseTimes(0.2), Mailbox(), Dying(None, units)

    def around(ledger: Any) -> Dying:
        dying.behind = ledger
        return dying

    async with running_core(path, prefix="a", lease=lease, before=lambda ledger: ledger.wrap(around)) as first:
        setup(first, ownership, asks("r1", SAFE, call("c2", "mail")), says("done", "r2"), mail=mail)
        with suppress(LedgerUnavailable, UnsupportedOperation):
            task = await start(first, at_once=True)
            await soon(first.runner.idle())
            mail.consented = True
            await reply(first, task.id, "I have", at_once=True)
            await soon(first.runner.idle())
        await first.die()
    mail.consented = True
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        scripts = [says(f"said {number}", f"s{number}") for number in range(4)]
        setup(second, ownership, *scripts, mail=mail)
        second.time.now += 60_000
        await expiry(second).sweep()
        await soon(second.runner.idle())
        for found in (await second.list()).tasks:
            if found.status.state is AUTH:
                await reply(second, found.id, "I have")
        assert (await start(second, "2")).status.state is COMPLETED
        settled(second)
    return dying.left > 0, mail.runs


@ALL
async def test_120_a_process_that_dies_at_any_commit_leaves_one_run_at_most_and_a_whole_conversation(
    tmp_path: Path, ownership: Ownership
) -> None:
    ran: set[int] = set()
    for units in count():
        is_through, runs = await one_death(tmp_path / f"{units}.db", ownership, units)
        ran.add(runs)
        if is_through:
            break
    assert ran == {0, 1}
    assert units > 8


async def test_29_a_tool_that_is_gone_meanwhile_is_not_there(core: Core) -> None:
    adapter, _ = setup(core, BR, asks("r1", MAIL), says("a pity", "r2"))
    task = await start(core)
    core.agents.clear()
    core.agent(adapter, toolset=ScriptedTools({"look": "seen"}))
    done = await reply(core, task.id, "done")
    assert (done.status.state, outcomes(core)) == (COMPLETED, [("mail", "not_found")])
    settled(core)
