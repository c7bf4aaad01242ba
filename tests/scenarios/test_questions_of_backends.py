"""A backend that asks whether it may run a tool of its own: its question goes to the caller, and the caller's decision is its
answer."""

from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.core.tools.tool_call import NOT_RUN
from gateway.engine.paused_turn import EXPIRED, REJECTED
from gateway.ports.adapter import ApprovalAsked, CallCompleted
from gateway.ports.conversation import OutputItem, Ownership
from tests.scenarios.test_approvals import asked, expiry, no, one, outcomes, reply, settled, start, yes
from tests.scenarios.test_tool_loop import adapter_of
from tests.support.core import Core, soon
from tests.support.scripted import BR, BS, Script, ScriptedAdapter, says

CHAINS = pytest.mark.parametrize("ownership", [BR, BS], ids=["BR", "BS"])
ASKS: Script = [ApprovalAsked("q1", "weather", '{"city": "Oslo"}', "wx"), CallCompleted("r1")]


def setup(core: Core, ownership: Ownership, *scripts: Script, **policies: Any) -> ScriptedAdapter:
    adapter = adapter_of(ownership, *scripts)
    core.agent(adapter, **policies)
    return adapter


def told(adapter: ScriptedAdapter) -> list[tuple[Any, bool | None]]:
    """The decisions of the second request."""
    return [(item.output, item.approved) for item in adapter.requests[1].items if isinstance(item, OutputItem)]


@CHAINS
async def test_110_the_question_of_a_backend_is_one_to_the_caller(core: Core, ownership: Ownership) -> None:
    setup(core, ownership, ASKS)
    [tool] = asked(await start(core))
    assert (tool["name"], tool["args"]) == ("weather", {"city": "Oslo"})
    assert outcomes(core) == [("weather", "pending_approval")]
    settled(core)


@CHAINS
async def test_112_a_yes_is_told_to_the_backend(core: Core, ownership: Ownership) -> None:
    adapter = setup(core, ownership, ASKS, says("sunny", "r2"))
    task = await start(core)
    done = await reply(core, task.id, yes(one(task)))
    assert done.status.state is TaskState.COMPLETED
    [(_, approved)] = told(adapter)
    assert approved is True
    assert outcomes(core) == [("weather", "completed")]
    settled(core)


@CHAINS
async def test_114_a_no_is_told_with_its_reason(core: Core, ownership: Ownership) -> None:
    adapter = setup(core, ownership, ASKS, says("a pity", "r2"))
    task = await start(core)
    await reply(core, task.id, no(one(task), "too cold"))
    assert told(adapter) == [(f"{REJECTED} Reason: too cold", False)]
    assert outcomes(core) == [("weather", "rejected")]
    settled(core)


@CHAINS
async def test_118_what_nobody_decides_is_a_no(core: Core, ownership: Ownership) -> None:
    adapter = setup(core, ownership, ASKS, says("fine", "r2"))
    task = await start(core)
    await reply(core, task.id, "never mind")
    assert told(adapter) == [(NOT_RUN, False)]
    settled(core)


@CHAINS
async def test_119_a_question_expires_as_a_no(core: Core, ownership: Ownership) -> None:
    adapter = setup(core, ownership, ASKS, says("fine", "r2"), approval_timeout=60.0)
    await start(core)
    core.time.now += 61_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert told(adapter) == [(EXPIRED, False)]
    settled(core)
