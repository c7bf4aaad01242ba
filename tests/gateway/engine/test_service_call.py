"""Service calls: a fault of an adapter ends its own turn alone, and events after the end of a call are not read."""

from collections.abc import AsyncGenerator

import pytest

from gateway.a2a.model import Part, TaskState
from gateway.core.failures import safe_text
from gateway.ledger.calls import NameCall
from gateway.ledger.tasks import Append
from gateway.ports.adapter import (
    AdapterEvent,
    CallCompleted,
    CallStarted,
    DirectReply,
    ErrorClass,
    ServiceRequest,
    TextDelta,
)
from tests.support.core import CORRELATION_ID, Core, answer, query, reason, soon
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

SECRET = "sk-do-not-tell"


@pytest.mark.parametrize("script", [[], [TextDelta("a")], [CallStarted("r")], [DirectReply((Part(text="pong"),))]])
async def test_a_call_that_breaks_its_contract_fails_the_turn(core: Core, script: Script) -> None:
    core.agent(ScriptedAdapter(BR, script))
    assert reason(await core.send("hi")) == safe_text(ErrorClass.CONTRACT_BROKEN, CORRELATION_ID)


async def test_a_call_is_not_listened_to_after_its_end(core: Core) -> None:
    adapter = ScriptedAdapter(G, [TextDelta("a"), CallCompleted(), TextDelta("late")])
    core.agent(adapter)
    assert answer(await core.send("hi")) == "a"
    assert adapter.broken_off == 1


async def test_the_handle_of_a_call_under_way_is_stored_before_what_follows_is_shown(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [CallStarted("r1"), TextDelta("a"), pause, *says("b", "r1")]))
    await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    await core.get((await core.list()).tasks[0].id)
    [kinds] = [[type(p) for p in unit] for unit in core.ledger.units if any(isinstance(p, NameCall) for p in unit)]
    assert kinds == [NameCall, Append]
    assert query(core.path, "SELECT status, pending_handle, handle_out FROM service_call") == [("started", "r1", None)]
    assert query(core.path, "SELECT handle FROM thread") == [(None,)]
    pause.go.set()


class Untidy(ScriptedAdapter):
    """Fails when its stream is closed."""

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        try:
            async for event in super().call(request):
                yield event
        finally:
            raise RuntimeError(SECRET)


async def test_a_fault_after_the_end_changes_nothing(core: Core) -> None:
    core.agent(Untidy(G, says("a")))
    task = await core.send("hi")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "a")
    assert await core.get(task.id) == task
