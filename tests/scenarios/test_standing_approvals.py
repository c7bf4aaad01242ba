"""A standing approval holds for one tool of one source, in one context, for one principal. Source: docs/state-model.md,
scenario 121."""

import dataclasses
from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Json, TaskState
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.operations.call import OperationCall
from tests.invariants import violations
from tests.scenarios.test_approvals import asked, one, reply
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core, query, running_core
from tests.support.scripted import G, Script, says
from tests.support.scripted_tools import ScriptedTools

GATED = (ApprovalRule("box.*"),)
PAY, MORE = call("c1", "pay", '{"sum": 1}'), call("c2", "pay_more")
READ = "standing_approvals"


def paying(core: Core, *scripts: Script, server: str = "test:box", **policies: Any) -> ScriptedTools:
    tools = Served({"pay": "paid", "pay_more": "paid more"}, server)
    settings = {"approvals": GATED, "standing_approvals": "allow"} | policies
    core.agent(adapter_of(G, *scripts), toolset=tools, **settings)
    return tools


class Served(ScriptedTools):
    """The same tools, of this server."""

    def __init__(self, answers: Any, server: str) -> None:
        super().__init__(answers)
        self.server = server

    async def offered(self) -> Any:
        return {name: dataclasses.replace(tool, server=self.server) for name, tool in (await super().offered()).items()}


def always(call_id: str, **more: Json) -> Json:
    return {"approvals": [{"id": call_id, "approved": True, "always": True, **more}]}


async def ask(core: Core, context: str = "c", by: OperationCall | None = None) -> Any:
    return await reply(core, None, "pay", context_id=context, call=by or core.call())


async def test_121_a_yes_for_always_is_asked_for_no_more_also_with_other_arguments_and_behind_a_restart(
    core: Core,
) -> None:
    tools = paying(core, asks("r", PAY), asks("r", call("c2", "pay", '{"sum": 2}')), says("done"))
    task = await ask(core)
    done = await reply(core, task.id, always(one(task)))
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, ["pay", "pay"])
    async with running_core(core.path, prefix="two", now=core.time.now) as two:
        later = paying(two, asks("r", PAY), says("again"))
        assert (await ask(two)).status.state is TaskState.COMPLETED
    assert later.ran == ["pay"]
    rows = query(core.path, "SELECT approval_required, approval_decision, standing IS NULL FROM tool_call ORDER BY id")
    assert rows == [(1, "approved", 0), (0, None, 1), (0, None, 1)]
    assert violations(core.path) == []


@pytest.mark.parametrize("other", ["tool", "server", "context", "principal"])
async def test_121_it_holds_for_no_other_tool_server_context_or_principal(core: Core, other: str) -> None:
    paying(core, asks("r", PAY), says("done"))
    task = await ask(core)
    await reply(core, task.id, always(one(task)))
    tools = paying(
        core, asks("r", MORE if other == "tool" else PAY), server="test:other" if other == "server" else "test:box"
    )
    by = core.call("eve") if other == "principal" else core.call()
    again = await ask(core, "d" if other == "context" else "c", by)
    assert [tool["name"] for tool in asked(again)] == ["pay_more" if other == "tool" else "pay"]
    assert tools.ran == []


async def test_121_a_plain_yes_is_for_one_call(core: Core) -> None:
    paying(core, asks("r", PAY), asks("r", PAY))
    task = await ask(core)
    again = await reply(core, task.id, {"approvals": [{"id": one(task), "approved": True, "always": False}]})
    assert again.status.state is TaskState.INPUT_REQUIRED


@pytest.mark.parametrize(
    ("entry", "settings", "why"),
    [
        (
            {"always": True},
            {"standing_approvals": "refuse"},
            r"approvals\[0\]\.always: this agent asks about every call",
        ),
        ({"always": True, "approved": False}, {}, r"\.always: only a yes to a tool of the gateway can be for always"),
        ({"always": "yes"}, {}, "must be true or false"),
    ],
)
async def test_121_where_it_may_not_be_given_it_is_refused_and_nothing_is_stored(
    core: Core, entry: dict[str, Json], settings: dict[str, Any], why: str
) -> None:
    tools = paying(core, asks("r", PAY), **settings)
    task = await ask(core)
    with pytest.raises(InvalidParams, match=why):
        await reply(core, task.id, {"approvals": [{"id": one(task), "approved": True, **entry}]})
    assert (await core.get(task.id), tools.ran) == (task, [])


async def test_121_nothing_is_read_where_nothing_can_stand(core: Core) -> None:
    paying(core, asks("r", PAY), standing_approvals="refuse")
    await ask(core)
    paying(core, asks("r", PAY), says("done"), approvals=())
    await ask(core, "d")
    assert READ not in core.ledger.reads
