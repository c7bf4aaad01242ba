"""Is anything wrong now? And which agents are there?"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import quote

import msgspec

from gateway.core.agents import Agent, Agents
from gateway.core.diagnosis.health import AgentHealth, HealthState, agent_health, silent_since
from gateway.core.diagnosis.problems import OpenBreaker, Problem, ProblemKind, problems
from gateway.engine.runtime import Runtime
from gateway.ledger.admin.upkeep import Overview
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.ledger.states import TurnStatus
from gateway.ui.parts import Parts
from gateway.ui.problems import Told, grouped
from gateway.ui.security import is_overheard
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.words import many

_OVERHEARD = "Keys and sessions cross the network as plain text: put TLS in front, and set server.public_url to https."


class AgentRow(msgspec.Struct, frozen=True):
    name: str
    title: str
    health: AgentHealth


class Fact(msgspec.Struct, frozen=True):
    """The beginning of a sentence, and the agents that it is about with the pages that show more; `others` are not named."""

    words: str
    agents: tuple[tuple[str, str], ...]
    others: int


_NAMED = 5
"""Agents that a sentence names."""


async def show(visit: Visit) -> Outcome:
    parts = visit.parts
    found = await parts.ledger.admin.overview(visit.caller.tenant)
    health = {agent.name: health_of(agent, found, parts.runner.runtime) for agent in parts.agents}
    known = [*problems(found, _open_breakers(parts.agents, health)), *_unseen(health, found)]
    trouble = await _trouble(parts.ledger)
    wrong = [*_of_the_gateway(parts, trouble), *grouped(known)]
    values = {
        "problems": wrong,
        "sentence": f"{many(len(wrong), 'thing needs', 'things need')} you." if wrong else "",
        "facts": tuple(facts(found, parts.agents.by_name)),
        "agents": [AgentRow(agent.name, agent.public_card.name, health[agent.name]) for agent in parts.agents],
        "storage": ("ok", "good") if trouble is None else (trouble, "bad"),
        "hears": parts.ledger.hears(),
        "found": found,
        "open": sum(count.turns for count in found.open_counts),
    }
    return Page("overview.html", "Overview", values)


async def _trouble(ledger: Ledger) -> str | None:
    """What is wrong with the storage, in a word."""
    try:
        await ledger.ready()
    except LedgerUnavailable as error:
        return error.trouble
    return None


def _of_the_gateway(parts: Parts, trouble: str | None) -> Iterator[Told]:
    if trouble is not None:
        yield Told(f"The storage does not work as it should: {trouble}.", "/readyz?verbose")
    if parts.asks_for_keys and is_overheard(parts.public_url):
        yield Told(_OVERHEARD, "/ui/")


def health_of(agent: Agent, found: Overview, runtime: Runtime) -> AgentHealth:
    return agent_health(found, agent.name, runtime.breakers.outage(agent), runtime.calls.silences(agent.name))


def _open_breakers(agents: Agents, health: Mapping[str, AgentHealth]) -> Iterator[OpenBreaker]:
    """Of each backend that counts as down in this process."""
    of_backend: defaultdict[str, list[str]] = defaultdict(list)
    for agent in agents:
        if health[agent.name].state in (HealthState.LEFT_ALONE, HealthState.DOWN) and agent.backend is not None:
            of_backend[agent.backend.address].append(agent.name)
    for address, names in of_backend.items():
        first = health[names[0]]
        yield OpenBreaker(address, tuple(names), 1000 * (first.rest or 0), first.since or 0)


def _unseen(health: Mapping[str, AgentHealth], found: Overview) -> Iterator[Problem]:
    """Calls that are silent in the middle of an answer: their process alone knows of them, and not which they are."""
    for name, each in health.items():
        seen = sum(turn.agent == name and silent_since(turn, found.now) is not None for turn in found.turns)
        if each.silent > seen and each.state is HealthState.SILENT and each.since is not None:
            number, silence = each.silent - seen, found.now - each.since
            yield Problem(ProblemKind.SILENT, name, number=number, since=each.since, took=silence)


def facts(found: Overview, agents: Collection[str]) -> Iterator[Fact]:
    """What has failed lately, and what waits. `agents` are those that have a page."""
    failed = Counter(failure.agent for failure in found.failures)
    if failed:
        pages = {name: f"/ui/agents/{quote(name, safe='')}#failures" for name in failed if name in agents}
        yield _fact(f"{many(failed.total(), 'turn')} failed in the last hour", failed, "failed", pages)
    waiting: Counter[str] = Counter()
    for count in (*found.open_counts, *found.question_counts):
        if count.status is TurnStatus.WAITING:
            waiting[count.agent] += count.turns
    if waiting:
        yield _fact(many(waiting.total(), "waits for its caller", "wait for their callers"), waiting, "waiting", {})


def _fact(words: str, turns: Counter[str], state: str, pages: Mapping[str, str]) -> Fact:
    """`turns` are counted by agent. One that has none of `pages` leads to its contexts in this state."""
    named = tuple(
        (name, pages.get(name) or f"/ui/contexts?agent={quote(name, safe='')}&standing={state}")
        for name, _ in turns.most_common(_NAMED)
    )
    return Fact(words, named, len(turns) - len(named))
