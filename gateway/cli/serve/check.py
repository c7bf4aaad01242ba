"""`check` and `schema`: a configuration without serving it, and its problems that show only when its parts are built.

Law: only `check --live` contacts a backend or a source of tools; the plug-ins know how to ask.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from gateway.app.approvals import misfits
from gateway.app.audit import audit_problem
from gateway.app.build import build_agent, build_source, build_sources
from gateway.app.grpc_port import grpc_problem
from gateway.app.pages import pages_problem
from gateway.app.tracing import tracing_problem
from gateway.cli.console.address import check_trust
from gateway.cli.console.output import ExitCode, Stop, json_text, reason_of, visible
from gateway.cli.serve.sources import doubts, invalid, load_file, warn
from gateway.config.agents import AgentConfig
from gateway.config.connections import ConnectionSettings
from gateway.config.dump import dump
from gateway.config.gateway import GatewayConfig, open_listen_problem
from gateway.config.json_schema import schema
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, Problem, display, read_path
from gateway.config.workers import ledger_problem, system_problem
from gateway.config.yaml import read
from gateway.core.agents import Agent, Agents
from gateway.engine.tool_sources import AttachedSource, Listing, SourceToolset
from gateway.foundation.logs import configure_logging
from gateway.foundation.tls import tls_problem
from gateway.http.server import listen
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import CanDescribe, CanProbe, Description, ProbeReport
from gateway.ports.tools import ProgramNotStarted, TlsFailed, ToolError

_PRECEDENCE = (ExitCode.UNREACHABLE, ExitCode.NOT_AUTHORISED, ExitCode.CONFIG_INVALID, ExitCode.TRY_AGAIN)
"""The first of these that a probe found is the exit code."""
_UNREACHABLE = "cannot be used ({detail}); is it running, and is its address right?"
_UNREACHABLE_BY_PROXY = (
    "cannot be used ({detail}); are `proxy`, its credentials and the address right, and is it running?"
)
_UNUSABLE = "cannot be used ({detail}); is it running, and are its settings right?"
_REFUSED = (
    ExitCode.CONFIG_INVALID,
    "is reachable, but refuses the request ({detail}); check the model and the other settings",
)
_FAILURES = {
    ErrorClass.UNAUTHORISED: (
        ExitCode.NOT_AUTHORISED,
        "is reachable, but refuses the credentials ({detail}); check the key",
    ),
    ErrorClass.REJECTED: _REFUSED,
    ErrorClass.NOT_SERVED: _REFUSED,
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


_Finding: TypeAlias = tuple[ExitCode, str]
"""OK and a fact where a backend or a source can be used, another code and the problem where it cannot."""


def check_file(file: Path, *, live: bool, show: bool) -> None:
    """Raises: Stop (78) with a line for each problem; with `live` also Stop (69, 75, 77)."""
    # What is told beside the findings, such as a tool that is left out, must not stand among them.
    configure_logging(form="text")
    check_trust(ExitCode.CONFIG_INVALID)
    config = load_file(file)
    problems = asyncio.run(build_problems(str(file), config))
    if problems:
        raise invalid(with_positions(file, problems))
    unusable = _storage_problem(config)
    warn([*doubts(config), *_listening_doubts(config), *([unusable] if unusable is not None and not live else [])])
    if show:
        sys.stdout.write(visible(dump(config)))
    # With --print, standard output holds a configuration and nothing else.
    verdict = sys.stderr if show else sys.stdout
    kept = "" if Registry().ledger(config.storage.url).keeps else f"; storage {config.storage.address}: nothing is kept"
    verdict.write(visible(f"{file}: ok; agents: {', '.join(config.agents)}{kept}\n"))
    if live:
        findings, listings = asyncio.run(_probe_all(config))
        verdict.writelines(visible(f"{file}: {path}: {text}\n") for path, (code, text) in findings.items() if not code)
        wrong = [Problem(str(file), None, None, path, text) for path, (code, text) in findings.items() if code]
        codes = {code for code, _ in findings.values() if code}
        if unusable is not None:
            wrong.append(replace(unusable, file=str(file)))
            codes.add(ExitCode.UNREACHABLE)
        for problem in misfits(config, listings):
            wrong.append(replace(problem, file=str(file)))
            codes.add(ExitCode.CONFIG_INVALID)
        if wrong:
            code = min(codes, key=_PRECEDENCE.index)
            raise Stop(code, "\n".join(str(problem) for problem in with_positions(file, wrong)))


def print_schema() -> None:
    sys.stdout.write(f"{json_text(schema(Registry()), indent=2)}\n")


def _listening_doubts(config: GatewayConfig) -> Iterator[Problem]:
    """What `serve` refuses without an option, and what this machine refuses; another may be meant to run the gateway."""
    for problem in (open_listen_problem(config, insecure=False), system_problem(config)):
        if problem is not None:
            yield problem
    hosts = {"server.host": config.server.host}
    if config.metrics.listen is not None:
        hosts["metrics.listen"] = urlsplit(f"//{config.metrics.listen}").hostname or ""
    for path, host in hosts.items():
        try:
            listen(host, 0).close()
        except OSError as error:
            message = f"this machine cannot listen on {display(host)}: {reason_of(error)}"
            yield Problem(None, None, None, path, message)


def _storage_problem(config: GatewayConfig) -> Problem | None:
    """What keeps this user on this machine from opening the ledger."""
    ask = Registry().ledger(config.storage.url).problem
    why = None if ask is None else ask(config.storage.settings)
    return None if why is None else Problem(None, None, None, "storage.url", why)


async def build_problems(source: str, config: GatewayConfig) -> list[Problem]:
    """One for each source of tools and each agent that cannot be built, for gRPC, pages and traces without their packages, for
    an audit log that cannot be opened, and for processes that the ledger has no use for, without line and column."""
    registry = Registry()
    parts = (grpc_problem(config), pages_problem(config), tracing_problem(config), audit_problem(config))
    problems = [replace(each, file=source) for each in (ledger_problem(config, registry), *parts) if each is not None]
    sources: dict[str, AttachedSource] = {}

    def add(path: str, error: ValueError) -> None:
        problems.append(Problem(source, None, None, path, str(error).removeprefix(f"{path}: ")))

    for name, tool in config.tools.items():
        try:
            sources[name] = build_source(name, tool, registry)
        except ValueError as error:
            add(f"tools.{name}", error)
    agents: list[Agent] = []
    for name, agent in config.agents.items():
        if any(each not in sources for each in agent.tools):
            continue
        try:
            agents.append(build_agent(name, agent, config, registry, sources))
        except ValueError as error:
            add(f"agents.{name}", error)
    try:
        Agents(tuple(agents))
    except ValueError as error:
        add("agents", error)
    for built in agents:
        await built.adapter.aclose()
    for attached in sources.values():
        await attached.source.aclose()
    return problems


def with_positions(file: Path, problems: Iterable[Problem]) -> list[Problem]:
    """The same problems with line and column, where the file holds the key."""
    try:
        places = read(file.read_text(encoding="utf-8"), str(file)).places
    except (OSError, UnicodeDecodeError, ConfigInvalid):  # it has changed since
        return list(problems)
    found = []
    for problem in problems:
        path = read_path(problem.path)  # names of agents and sources hold no dot
        place = places.get(path)
        line, column = (place.key or place.value if place is not None else None) or (None, None)
        found.append(replace(problem, line=line, column=column))
    return found


async def _probe_all(config: GatewayConfig) -> tuple[dict[str, _Finding], dict[str, Listing]]:
    """By key of the configuration: each agent, then each source of tools; all are asked at once. Then the tools of the
    sources that told them, by the names of the sources."""
    sources = build_sources(config, Registry())
    async with asyncio.TaskGroup() as group:
        agents = {name: group.create_task(_probe_agent(agent)) for name, agent in config.agents.items()}
        tools = {name: group.create_task(_probe_source(attached)) for name, attached in sources.items()}
    findings = {f"agents.{name}": task.result() for name, task in agents.items()}
    findings |= {f"tools.{name}": task.result()[0] for name, task in tools.items()}
    return findings, {name: listed for name, task in tools.items() if (listed := task.result()[1]) is not None}


async def _probe_source(attached: AttachedSource) -> tuple[_Finding, Listing | None]:
    """What a model would get of this source, and all its tools where it told them; the log says why one is left out."""
    try:
        listed = await attached.tools()
        offered = await SourceToolset([attached]).offered()
    except (ProgramNotStarted, TlsFailed) as error:
        return (ExitCode.UNREACHABLE, f"cannot be used: {error.detail}"), None
    except ToolError as error:
        return (ExitCode.UNREACHABLE, _UNUSABLE.format(detail=error.detail)), None
    except Exception as error:  # noqa: BLE001  # a plug-in that breaks must not keep the others from being asked
        return (ExitCode.UNREACHABLE, f"cannot be used: it raised {type(error).__name__}: {error}"), None
    finally:
        await attached.source.aclose()
    more = f" (of {len(listed)})" if len(listed) > len(offered) else ""
    if not offered:
        return (ExitCode.CONFIG_INVALID, f"works, but has no tool that can be used{more}; check `allow`"), listed
    many = "" if len(offered) == 1 else "s"
    return (ExitCode.OK, f"{len(offered)} tool{many}{more}: {', '.join(offered)}"), listed


async def _probe_agent(agent: AgentConfig) -> _Finding:
    adapter = Registry().factory(agent.type).build(agent.settings)
    try:
        if not isinstance(adapter, CanProbe | CanDescribe):
            return ExitCode.OK, f"an agent of type {agent.type} cannot be asked without a message"
        report = await adapter.probe() if isinstance(adapter, CanProbe) else ProbeReport()
        described = await adapter.describe() if isinstance(adapter, CanDescribe) else None
    except AdapterError as error:
        if error.kind is ErrorClass.UNREACHABLE and tls_problem(error, "`ca`") is not None:
            return ExitCode.UNREACHABLE, f"cannot be used: {error.detail}"
        proxied = isinstance(agent.settings, ConnectionSettings) and agent.settings.proxy is not None
        unreachable = _UNREACHABLE_BY_PROXY if proxied else _UNREACHABLE
        code, text = _FAILURES.get(error.kind, (ExitCode.UNREACHABLE, unreachable))
        return code, text.format(detail=error.detail)
    except Exception as error:  # noqa: BLE001  # as for a source
        return ExitCode.UNREACHABLE, f"cannot be used: it raised {type(error).__name__}: {error}"
    finally:
        await adapter.aclose()
    told = [*_sentences(report), *([] if described is None else [_described(described)])]
    return ExitCode.OK, "; ".join(told) or "works"


def _described(description: Description) -> str:
    """What the card would say without words of the operator."""
    name = f"it calls itself {display(description.name)}" if description.name else "it tells no name"
    skills = [skill.id for skill in description.skills]
    return f"{name}, with the skills {', '.join(skills)}" if skills else f"{name}, with no skills"


def _sentences(report: ProbeReport) -> Iterator[str]:
    for fact, (yes, no) in zip((report.model, report.streams, report.verifies_chain), _FACTS, strict=True):
        if fact is not None:
            yield yes if fact else no
    yield from report.notes
