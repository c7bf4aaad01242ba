"""The problems of a configuration that show only when its parts are built, such as a missing Python function.

Law: nothing is contacted.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gateway.app.build import build_agent, build_source
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, KeyPath, Problem
from gateway.config.yaml import no_substitution, read
from gateway.core.agents import Agent, Agents
from gateway.engine.tool_sources import AttachedSource


async def build_problems(source: str, config: GatewayConfig) -> list[Problem]:
    """One for each source of tools and each agent that cannot be built, without line and column."""
    problems: list[Problem] = []
    registry = Registry()
    sources: dict[str, AttachedSource] = {}

    def add(path: str, error: ValueError) -> None:
        message = str(error).removeprefix(f"{path}: ")
        problems.append(Problem(file=source, line=None, column=None, path=path, message=message))

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
        places = read(file.read_text(encoding="utf-8"), str(file), no_substitution).places
    except (OSError, UnicodeDecodeError, ConfigInvalid):  # it has changed since
        return list(problems)
    found = []
    for problem in problems:
        path: KeyPath = tuple(problem.path.split("."))  # names of agents and sources hold no dot
        place = places.get(path)
        line, column = (place.key or place.value if place is not None else None) or (None, None)
        found.append(replace(problem, line=line, column=column))
    return found
