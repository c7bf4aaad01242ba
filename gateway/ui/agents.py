"""What is this agent, and may it be trusted?"""

import asyncio
from collections.abc import Iterator, Mapping

import msgspec

from gateway.a2a.errors import NotFound, echo
from gateway.a2a.wire.card import card_json
from gateway.core.agents import Agent
from gateway.core.diagnosis.health import SILENCE, AgentHealth, HealthState
from gateway.core.diagnosis.problems import slow_calls
from gateway.core.diagnosis.tool_times import usual_times
from gateway.ledger.admin.upkeep import FailureKey, Overview
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.ports.observer import Target
from gateway.ports.tools import ToolError
from gateway.ui.keyset import given, named
from gateway.ui.overview import health_of
from gateway.ui.problems import task_page
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.words import many, took

_PATIENCE = 2.0
"""Seconds that a source of tools has to tell them."""

_OWNERS = {
    HandleKind.NONE: "the gateway keeps the conversation, and sends it with each request",
    HandleKind.ROTATING: "the backend keeps the conversation; each answer has a new id, from which the next one goes on",
    HandleKind.STATIC: "the backend keeps the conversation under one id",
}
_BUSY = {
    "queue": "waits for the running one",
    "reject": "is refused",
    "interrupt": "cancels the running one",
    "rollback": "cancels the running one, which is then no part of the conversation",
}


class ToolRow(msgspec.Struct, frozen=True):
    name: str
    server: str
    description: str
    idempotent: bool


async def show(visit: Visit) -> Outcome:
    parts = visit.parts
    agent = parts.agents.by_name.get(visit.path["name"])
    if agent is None:
        raise NotFound(f"no agent is called {echo(visit.path['name'])}")
    before = given(visit.query.get("before"), FailureKey)
    failures = await parts.ledger.admin.failures(visit.caller.tenant, agent.name, before)
    if any(turn.principal != visit.caller.principal for turn in failures.turns):
        visit.audited("context.listed", Target(agent=agent.name))
    tools, trouble = await _tools(agent)
    found = await parts.ledger.admin.overview(visit.caller.tenant)
    usual = usual_times(found.tool_times)
    health = health_of(agent, found, parts.runner.runtime)
    values = {
        "agent": agent,
        "card": card_json(agent.public_card),
        "health": health,
        "sentence": _sentence(health),
        "policies": tuple(_policies(agent)),
        "tools": tools,
        "usual": {name: most for (of, name), most in usual.items() if of == agent.name},
        "slow": slow_tools(found, usual, agent.name),
        "trouble": trouble,
        "failures": failures,
        "records": parts.recordings is not None,
        "older": named(visit, "before", failures.before),
    }
    return Page("agent.html", agent.name, values)


def _sentence(health: AgentHealth) -> str:
    match health.state:
        case HealthState.LEFT_ALONE:
            return f"Its backend was not there several times in a row, and is not asked for another {health.rest} s."
        case HealthState.DOWN:
            return "Its backend was not there several times in a row, and is asked again with the next request."
        case HealthState.SILENT:
            calls = f"{health.silent} of {many(health.calls, 'call')} under way"
            return f"Nothing has come of {calls} for {took(SILENCE)} or longer."
        case HealthState.OK:
            return "Its backend is asked."


def slow_tools(found: Overview, usual: Mapping[tuple[str, str], int], agent: str) -> dict[str, str]:
    """The tools of an agent that are slow now, and the page that shows the oldest call of each."""
    slow = [call for call in slow_calls(found.tools, usual, found.now) if call.agent == agent]
    slow.sort(key=lambda call: call.since or 0, reverse=True)
    return {call.subject: task_page(call.task, call.turn) for call in slow}


async def _tools(agent: Agent) -> tuple[list[ToolRow], str | None]:
    """The tools that the gateway runs for it, or why they are not known."""
    if agent.toolset is None:
        return [], None
    try:
        async with asyncio.timeout(_PATIENCE):
            offered = await agent.toolset.offered()
    except ToolError as error:
        return [], error.detail
    except TimeoutError:
        return [], "a source of tools does not answer"
    rows = [
        ToolRow(name, tool.server, tool.declaration.description or "", tool.idempotent)
        for name, tool in offered.items()
    ]
    return rows, None


def _policies(agent: Agent) -> Iterator[tuple[str, str]]:
    """What its settings mean, in words."""
    policies, owned = agent.policies, agent.adapter.ownership
    yield "Conversation", _OWNERS[owned.handle]
    if owned.owner is StorageOwner.BACKEND:
        lost = "begins anew, told from what the gateway remembers" if policies.on_lost_handle == "rebuild" else "fails"
        yield "A conversation that the backend has lost", lost
    elif policies.history_messages is not None or policies.history_tokens is not None:
        window = [f"{policies.history_messages} messages"] if policies.history_messages is not None else []
        window += [f"{policies.history_tokens:,} tokens"] if policies.history_tokens is not None else []
        yield "Sent of a long conversation", f"the latest {' or '.join(window)}"
    yield "A message while another is worked on", _BUSY[policies.busy_context]
    yield "A turn may take", took(policies.turn_timeout * 1000)
    asks = sum(rule.ask for rule in policies.approvals)
    yield (
        "Tools that need a yes",
        f"those that {many(asks, 'rule')} of approvals {'names' if asks == 1 else 'name'}"
        if asks
        else "none of the gateway's",
    )
    yield "A question waits for", took(policies.approval_timeout * 1000)
    yield "Rounds of tools", f"{policies.tool_rounds}"
    shown = policies.tool_calls
    yield "Callers see of tool calls", "nothing" if shown.when == "never" else f"{shown.exposure} ({shown.when})"
    if shown.redact:
        yield "Masked for callers", ", ".join(path.text for path in shown.redact)
