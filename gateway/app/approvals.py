"""Compares the rules about approvals with the tools that the sources have, before anything is served.

Law: a rule that fits no tool is a problem of the configuration. A source that does not tell its tools in time is none: calls
under a rule that could not be compared ask (`gateway.core.tools.approval_rules`).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import structlog

from gateway.config.agents import AgentConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem
from gateway.config.tools import ApprovalConfig
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.engine.tool_sources import AttachedSource, Listing, known_tools
from gateway.foundation.text import did_you_mean
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import ToolError

log = structlog.get_logger("gateway.app.approvals")

_START_SECONDS = 10.0
_SHOWN = 12
"""So many names of tools stand in a problem."""


def approval_rule(config: ApprovalConfig) -> ApprovalRule:
    return ApprovalRule(config.tool, config.ask, tuple(sorted(config.arguments.items())))


async def refuse_misfits(config: GatewayConfig, sources: Mapping[str, AttachedSource]) -> None:
    """Asks the sources of the agents that have rules for their tools, for 10 seconds at most.

    Raises: ConfigInvalid with a problem for each rule that fits none of the tools that it may mean.
    """
    ruled = {source for agent in config.agents.values() if agent.approvals for source in agent.tools}
    async with asyncio.TaskGroup() as group:
        asked = {name: group.create_task(_listing(sources[name])) for name in config.tools if name in ruled}
    listings = {name: listed for name, task in asked.items() if (listed := task.result()) is not None}
    problems = misfits(config, listings)
    if problems:
        raise ConfigInvalid(problems)


async def _listing(attached: AttachedSource) -> Listing | None:
    """None where the source does not tell: its calls ask."""
    try:
        async with asyncio.timeout(_START_SECONDS):
            listed = await attached.tools()
    except TimeoutError as error:
        drop_tracebacks(error)
        reason = f"it did not say within {_START_SECONDS:g} s which tools it has"
    except ToolError as error:
        drop_tracebacks(error)
        reason = error.detail
    except Exception as error:  # noqa: BLE001  # a plug-in that breaks is a source that does not tell
        drop_tracebacks(error)
        reason = f"{type(error).__name__}: {error}"
    else:
        log.info("start.tools", source=attached.name, tools=len(listed))
        return listed
    log.warning("approvals.not-compared", source=attached.name, reason=reason)
    return None


def misfits(config: GatewayConfig, listings: Mapping[str, Listing]) -> list[Problem]:
    """A problem for each rule that fits none of the tools that it may mean, where all its sources have told their tools."""
    return [
        Problem(None, None, None, path, message)
        for name, agent in config.agents.items()
        for path, message in _misfits(f"agents.{name}.approvals", agent, listings)
    ]


def _misfits(path: str, agent: AgentConfig, listings: Mapping[str, Listing]) -> Iterator[tuple[str, str]]:
    for index, given in enumerate(agent.approvals):
        rule = approval_rule(given)
        meant = rule.sources(agent.tools)
        if any(source not in listings for source in meant):
            continue
        known = known_tools({source: listings[source] for source in meant})
        match rule.misfit(known):
            case "tool":
                yield f"{path}[{index}].tool", _no_tool(rule.tool, sorted(known))
            case "arguments":
                fitting = [identity for identity in known if rule.fits_tool(identity)]
                paths = ", ".join(repr(argument) for argument, _ in rule.arguments)
                message = f"no tool that {rule.tool!r} fits takes {paths}; it fits {_listed(sorted(fitting))}"
                yield f"{path}[{index}].arguments", message


def _no_tool(pattern: str, known: Sequence[str]) -> str:
    meant = did_you_mean(pattern, known)
    hint = f"did you mean {meant!r}? " if meant else ""
    return f"{pattern!r} fits no tool; {hint}there: {_listed(known)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
