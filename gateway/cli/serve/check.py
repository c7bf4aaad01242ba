"""What serving makes of a configuration, made once without serving it: finds what only shows then, such as a Python function
that is not there. Law: nothing is contacted.

`check --live`: asks every backend and source of tools, and says in plain words what it found. Law: the plug-ins know how
to ask.

`check` and `schema`: a configuration, without serving it.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.app.application import build_agent
from gateway.app.build import build_source, build_sources
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.terminal import json_text, visible
from gateway.cli.serve.targets import invalid, read_file
from gateway.config.agents import AgentConfig
from gateway.config.dump import printed
from gateway.config.gateway import GatewayConfig
from gateway.config.json_schema import schema
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, KeyPath, Problem
from gateway.config.yaml import Literally, read
from gateway.core.agents import Agent, Agents
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import Probe, ProbeReport
from gateway.ports.tools import ProgramNotStarted, ToolError


async def wrong_parts(source: str, config: GatewayConfig) -> list[Problem]:
    """Every source of tools and every agent that cannot work. Their places in the file are not known here."""
    problems: list[Problem] = []
    registry = Registry()
    sources: dict[str, AttachedSource] = {}

    def complain(path: str, error: ValueError) -> None:
        message = str(error).removeprefix(f"{path}: ")
        problems.append(Problem(file=source, line=None, column=None, path=path, message=message))

    for name, tool in config.tools.items():
        try:
            sources[name] = build_source(name, tool, registry)
        except ValueError as error:
            complain(f"tools.{name}", error)
    agents: list[Agent] = []
    for name, agent in config.agents.items():
        if any(each not in sources for each in agent.tools):
            continue
        try:
            agents.append(build_agent(name, agent, config, registry, sources))
        except ValueError as error:
            complain(f"agents.{name}", error)
    try:
        Agents(tuple(agents))
    except ValueError as error:
        complain("agents", error)
    for built in agents:
        await built.adapter.aclose()
    for attached in sources.values():
        await attached.source.aclose()
    return problems


def located(file: Path, problems: Iterable[Problem]) -> list[Problem]:
    """The same with line and column, where the file itself has what they are about."""
    try:
        places = read(file.read_text(encoding="utf-8"), str(file), Literally()).places
    except (OSError, UnicodeDecodeError, ConfigInvalid):  # it has changed meanwhile
        return list(problems)
    found = []
    for problem in problems:
        # Names of agents and sources hold no dot.
        path: KeyPath = tuple(problem.path.split("."))
        place = places.get(path)
        line, column = (place.key or place.value if place is not None else None) or (None, None)
        found.append(replace(problem, line=line, column=column))
    return found


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


async def _listing(path: str, attached: AttachedSource) -> Finding:
    """Which tools of this source a model would get; the log says why one is left out."""
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


def check_file(file: Path, *, live: bool, show: bool) -> int:
    """Raises: Stop (78) with every problem, one a line; `live` also Stop (69, 75, 77) for a backend that cannot be used."""
    try:
        config = read_file(file, {})
    except ConfigInvalid as error:
        raise invalid(error.problems) from error
    problems = asyncio.run(wrong_parts(str(file), config))
    if problems:
        raise invalid(located(file, problems))
    if show:
        sys.stdout.write(visible(printed(config)))
    # What is printed is a configuration and nothing else.
    beside = sys.stderr if show else sys.stdout
    beside.write(visible(f"{file}: ok; agents: {', '.join(config.agents)}\n"))
    if live:
        findings = asyncio.run(probe_all(config))
        beside.writelines(visible(f"{file}: {each.path}: {each.words}\n") for each in findings if not each.code)
        failed = [each for each in findings if each.code]
        if failed:
            code = min((each.code for each in failed), key=_GRAVITY.index)
            wrong = [Problem(str(file), None, None, each.path, each.words) for each in failed]
            raise Stop(code, "\n".join(str(problem) for problem in located(file, wrong)))
    return ExitCode.OK


_GRAVITY = (ExitCode.UNREACHABLE, ExitCode.NOT_AUTHORISED, ExitCode.CONFIG_INVALID, ExitCode.TRY_AGAIN)


def print_schema() -> int:
    sys.stdout.write(f"{json_text(schema(Registry()), indent=2)}\n")
    return ExitCode.OK
