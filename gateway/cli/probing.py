"""`check --live`: asks every backend and source of tools, and says in plain words what it found. Law: the plug-ins know how
to ask."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.abilities import Probe, ProbeReport
from gateway.attaching import build_sources
from gateway.cli.exits import ExitCode
from gateway.config import GatewayConfig
from gateway.config_agents import AgentConfig
from gateway.offering import Attached, AttachedTools
from gateway.ports import AdapterError, ErrorClass
from gateway.registry import Registry
from gateway.tool_port import NotStarted, ToolError

_UNREACHABLE = "cannot be used ({detail}); is it running, and is its address right?"
_FAILURES = {
    ErrorClass.UNAUTHORISED: (
        ExitCode.NOT_AUTHORISED,
        "is reachable, but refuses the credentials ({detail}); check the key",
    ),
    ErrorClass.REJECTED: (
        ExitCode.CONFIG_INVALID,
        "is reachable, but refuses the request ({detail}); check the model and the other settings",
    ),
    ErrorClass.STORAGE_DISABLED: (
        ExitCode.CONFIG_INVALID,
        "keeps no conversations for this account ({detail}); let the gateway keep them: history: {{owner: gateway}}",
    ),
    ErrorClass.CONTRACT_BROKEN: (
        ExitCode.CONFIG_INVALID,
        "answers otherwise than this type of agent needs ({detail}); check the address, and that it can stream",
    ),
    ErrorClass.RATE_LIMITED: (
        ExitCode.TRY_AGAIN,
        "is reachable, but takes no more requests now ({detail}); try again later",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is OK where the backend, or the source of tools, can be used. `path` is its place in the configuration."""

    path: str
    code: ExitCode
    words: str


async def probe_all(config: GatewayConfig) -> tuple[Finding, ...]:
    """One for each agent, then one for each source of tools, in their order; all are asked at once."""
    sources = build_sources(config, Registry())
    async with asyncio.TaskGroup() as group:
        tasks = [
            *(group.create_task(_probe(f"agents.{name}", agent)) for name, agent in config.agents.items()),
            *(group.create_task(_listing(f"tools.{name}", attached)) for name, attached in sources.items()),
        ]
    return tuple(task.result() for task in tasks)


async def _listing(path: str, attached: Attached) -> Finding:
    """Which tools of this source a model would get; the log says why one is left out."""
    try:
        total = len(await attached.tools())
        offered = await AttachedTools([attached]).offered()
    except NotStarted as error:
        return Finding(path, ExitCode.UNREACHABLE, f"cannot be used: {error.detail}")
    except ToolError as error:
        return Finding(path, ExitCode.UNREACHABLE, _UNREACHABLE.format(detail=error.detail))
    finally:
        await attached.source.aclose()
    more = f" (of {total})" if total > len(offered) else ""
    if not offered:
        return Finding(path, ExitCode.CONFIG_INVALID, f"works, but has no tool that can be used{more}; check `allow`")
    return Finding(
        path, ExitCode.OK, f"{len(offered)} tool{'' if len(offered) == 1 else 's'}{more}: {', '.join(offered)}"
    )


async def _probe(name: str, agent: AgentConfig) -> Finding:
    adapter = Registry().adapter(agent.type, agent.settings)
    try:
        if not isinstance(adapter, Probe):
            return Finding(name, ExitCode.OK, f"an agent of type {agent.type} cannot be asked without a message")
        report = await adapter.probe()
    except AdapterError as error:
        code, words = _FAILURES.get(error.kind, (ExitCode.UNREACHABLE, _UNREACHABLE))
        return Finding(name, code, words.format(detail=error.detail))
    finally:
        await adapter.aclose()
    return Finding(name, ExitCode.OK, "; ".join(_words(report)) or "works")


def _words(report: ProbeReport) -> Iterator[str]:
    match report.model:
        case True:
            yield "the model is listed"
        case False:
            yield "the model is not listed, but answers"
    match report.streams:
        case True:
            yield "it streams"
        case False:
            yield "it does not stream: answers come whole"
    match report.verifies_chain:
        case True:
            yield "it refuses a response id that it does not know"
        case False:
            yield "it takes a response id that it does not know: a conversation that it has lost goes on without its beginning"
    yield from report.notes
