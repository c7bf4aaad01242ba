"""Standing approvals with several agents in one context: each is for one tool of one source, whatever name a model uses, and
never for another tool of the same name. Source: docs/state-model.md, scenario 121."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from gateway.a2a.model import TaskState
from gateway.core.tools.approval_rules import ApprovalRule
from tests.invariants import violations
from tests.scenarios.test_approvals import asked, one, reply
from tests.scenarios.test_standing_approvals import always, ask
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core
from tests.support.scripted import G, Script, says
from tests.support.scripted_tools import ScriptedTools

ALL_TOOLS = (ApprovalRule("*"),)


class Named(ScriptedTools):
    """`tools`: (source, own name) by the name that the model has for it."""

    def __init__(self, tools: Mapping[str, tuple[str, str]]) -> None:
        super().__init__(dict.fromkeys(tools, "done"))
        self._tools = tools

    async def offered(self) -> Any:
        return {
            name: dataclasses.replace(
                tool, identity=".".join(self._tools[name]), server=f"test:{self._tools[name][0]}", own_name=name
            )
            for name, tool in (await super().offered()).items()
        }


def agent(core: Core, name: str, tools: Mapping[str, tuple[str, str]], *scripts: Script, **policies: Any) -> Named:
    toolset = Named(tools)
    settings = {"approvals": ALL_TOOLS, "standing_approvals": "allow"} | policies
    core.agent(adapter_of(G, *scripts), name, toolset=toolset, **settings)
    return toolset


async def allowed(core: Core, name: str, tools: Mapping[str, tuple[str, str]]) -> None:
    """The agent has called the first of its tools, and has a standing approval for it."""
    [called, *_] = tools
    agent(core, f"first-{name}", tools, asks("r", call("c1", called, '{"sum": 1}')), says("done"))
    task = await ask(core)
    done = await reply(core, task.id, always(one(task)))
    assert done.status.state is TaskState.COMPLETED


async def test_121_another_agent_with_a_tool_of_the_same_name_from_another_source_has_to_ask(core: Core) -> None:
    await allowed(core, "one", {"pay": ("bank", "pay")})
    tools = agent(core, "two", {"pay": ("shop", "pay")}, asks("r", call("c1", "pay", '{"sum": 1}')))
    assert [tool["name"] for tool in asked(await ask(core))] == ["pay"]
    assert tools.ran == []
    assert violations(core.path) == []


async def test_121_a_name_that_stood_for_another_tool_of_the_same_source_has_to_be_asked_about(core: Core) -> None:
    """Both have a `pay`, so that the bank's is called `bank_pay`; another bank has a tool of that very name."""
    await allowed(core, "one", {"bank_pay": ("bank", "pay"), "shop_pay": ("shop", "pay")})
    tools = agent(core, "two", {"bank_pay": ("bank", "bank_pay")}, asks("r", call("c1", "bank_pay", '{"sum": 1}')))
    assert [tool["name"] for tool in asked(await ask(core))] == ["bank_pay"]
    assert tools.ran == []


async def test_121_it_holds_for_the_same_tool_of_the_same_source_whatever_it_is_called(core: Core) -> None:
    await allowed(core, "one", {"bank_pay": ("bank", "pay"), "shop_pay": ("shop", "pay")})
    tools = agent(core, "two", {"pay": ("bank", "pay")}, asks("r", call("c1", "pay", '{"sum": 2}')), says("done"))
    assert (await ask(core)).status.state is TaskState.COMPLETED
    assert tools.ran == ["pay"]


async def test_121_an_agent_that_asks_about_every_call_heeds_nothing_that_was_said_to_another(core: Core) -> None:
    await allowed(core, "one", {"pay": ("bank", "pay")})
    tools = agent(
        core, "two", {"pay": ("bank", "pay")}, asks("r", call("c1", "pay", "{}")), standing_approvals="refuse"
    )
    assert len(asked(await ask(core))) == 1
    assert tools.ran == []


async def test_121_none_of_it_holds_any_more_once_an_agent_asks_about_every_call_again(core: Core) -> None:
    tools = {"pay": ("bank", "pay")}
    await allowed(core, "one", tools)
    for setting, asks_again in (("refuse", True), ("allow", False)):
        agent(core, "first-one", tools, asks("r", call("c1", "pay", "{}")), says("done"), standing_approvals=setting)
        task = await ask(core)
        assert (task.status.state is TaskState.INPUT_REQUIRED) is asks_again
        if asks_again:
            await core.cancel(task.id)
