"""What serving makes of a configuration, made once without serving it: finds what only shows then, such as a Python function
that is not there. Law: nothing is contacted."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gateway.agents import Agent, Agents
from gateway.app import build_agent
from gateway.attaching import build_source
from gateway.config import GatewayConfig
from gateway.config_problem import ConfigInvalid, KeyPath, Problem
from gateway.config_yaml import Literally, read
from gateway.offering import Attached
from gateway.registry import Registry


async def wrong_parts(source: str, config: GatewayConfig) -> list[Problem]:
    """Every source of tools and every agent that cannot work. Their places in the file are not known here."""
    problems: list[Problem] = []
    registry = Registry()
    sources: dict[str, Attached] = {}

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
