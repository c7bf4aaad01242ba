"""`check --live`: asks every backend and every source of tools. Law: the plug-ins know how to ask."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.app.build import build_sources
from gateway.cli.console.exits import ExitCode
from gateway.config.agents import AgentConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import CanProbe, ProbeReport
from gateway.ports.tools import ProgramNotStarted, ToolError

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

_FACTS = (
    ("the model is listed", "the model is not listed, but answers"),
    ("it streams", "it does not stream: answers come whole"),
    (
        "it refuses a response id that it does not know",
        "it takes a response id that it does not know: a conversation that it has lost goes on without its beginning",
    ),
)
"""What a ProbeReport says of model, streaming and chain, where it is true and where it is false."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is OK where the backend or source can be used. `path` is its key in the configuration."""

    path: str
    code: ExitCode
    text: str


async def probe_all(config: GatewayConfig) -> tuple[Finding, ...]:
    """One for each agent, then one for each source of tools, in the order of the file; all are asked at once."""
    sources = build_sources(config, Registry())
    async with asyncio.TaskGroup() as group:
        tasks = [
            *(group.create_task(_probe_agent(f"agents.{name}", agent)) for name, agent in config.agents.items()),
            *(group.create_task(_probe_source(f"tools.{name}", attached)) for name, attached in sources.items()),
        ]
    return tuple(task.result() for task in tasks)


async def _probe_source(path: str, attached: AttachedSource) -> Finding:
    """The tools of this source that a model would get; the log says why one is left out."""
    try:
        total = len(await attached.tools())
        offered = await SourceToolset([attached]).offered()
    except ProgramNotStarted as error:
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


async def _probe_agent(name: str, agent: AgentConfig) -> Finding:
    adapter = Registry().factory(agent.type).build(agent.settings)
    try:
        if not isinstance(adapter, CanProbe):
            return Finding(name, ExitCode.OK, f"an agent of type {agent.type} cannot be asked without a message")
        report = await adapter.probe()
    except AdapterError as error:
        code, text = _FAILURES.get(error.kind, (ExitCode.UNREACHABLE, _UNREACHABLE))
        return Finding(name, code, text.format(detail=error.detail))
    finally:
        await adapter.aclose()
    return Finding(name, ExitCode.OK, "; ".join(_sentences(report)) or "works")


def _sentences(report: ProbeReport) -> Iterator[str]:
    for fact, (yes, no) in zip((report.model, report.streams, report.verifies_chain), _FACTS, strict=True):
        if fact is not None:
            yield yes if fact else no
    yield from report.notes
