"""When things happened: the ledger keeps the times of turns, service calls, tool calls and epochs. Source: docs/state-model.md,
section 3."""

from typing import Any

from gateway.ports.adapter import AdapterError, ErrorClass, ToolResultReady
from gateway.ports.conversation import Ownership
from tests.scenarios.test_approvals import PAY, asked, reply, setup, start, yes
from tests.scenarios.test_tool_loop import ALL, adapter_of, asks, call
from tests.support.core import Core, query
from tests.support.scripted import BR, G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

TOOL = "SELECT asked_at, started_at, ended_at FROM tool_call ORDER BY asked_at"
CALL = "SELECT prepared_at, first_at, ended_at FROM service_call ORDER BY round, attempt"
TURN = "SELECT accepted_at, started_at, ended_at FROM turn"
EPOCHS = "SELECT epoch, state, began_by FROM thread ORDER BY epoch"


def one(core: Core, sql: str) -> tuple[Any, ...]:
    [row] = query(core.path, sql)
    return row


def assert_in_order(*times: int | None) -> None:
    """Each is known, and later than the one before."""
    assert None not in times, times
    assert sorted({time for time in times if time is not None}) == list(times)


@ALL
async def test_a_tool_of_the_gateway_has_the_times_at_which_it_was_asked_for_started_and_ended(
    core: Core, ownership: Ownership
) -> None:
    core.time.step = 1
    core.agent(adapter_of(ownership, asks("r1", call("c1")), says("done")), toolset=ScriptedTools({"add": "3"}))
    await core.send("hi")
    assert_in_order(*one(core, TOOL))
    assert_in_order(*one(core, TURN))
    for prepared, first, ended in query(core.path, CALL):
        assert_in_order(prepared, first, ended)


async def test_a_tool_of_the_backend_has_the_times_at_which_the_backend_told_of_it(core: Core) -> None:
    core.time.step = 1
    ran: Script = [call("c1", handled=True), ToolResultReady("c1", "3")]
    core.agent(ScriptedAdapter(BR, [*ran, *says("done")]))
    await core.send("hi")
    assert_in_order(*one(core, TOOL))


async def test_a_tool_that_never_runs_has_no_start(core: Core) -> None:
    core.time.step = 1
    core.agent(ScriptedAdapter(G, asks("", call("c1", "nothing")), says("done")))
    await core.send("hi")
    asked_at, started, ended = one(core, TOOL)
    assert (started, asked_at < ended) == (None, True)


async def test_a_call_that_waited_for_its_caller_starts_when_it_runs(core: Core) -> None:
    core.time.step = 1
    setup(core, G, asks("", PAY), says("paid"))
    task = await start(core)
    [(_, started, ended)] = query(core.path, TOOL)
    assert (started, ended) == (None, None)
    at = core.time.now
    await reply(core, task.id, yes(asked(task)[0]["id"]))
    [(asked_at, started, ended)] = query(core.path, TOOL)
    assert_in_order(asked_at, at, started, ended)


async def test_an_epoch_says_why_it_began(core: Core) -> None:
    gone = AdapterError(ErrorClass.HANDLE_EXPIRED, "gone")
    core.agent(ScriptedAdapter(BR, says("a", "r1"), [gone], says("b", "r2")), on_lost_handle="rebuild")
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert query(core.path, EPOCHS) == [(1, "closed", "message"), (2, "open", "handle-expired")]
