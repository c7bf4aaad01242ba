"""Is anything wrong now? And which agents are there?"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from statistics import median
from urllib.parse import quote

import msgspec

from gateway.core.agents import Agent, Agents
from gateway.core.diagnosis.problems import OpenBreaker, problems
from gateway.ledger.admin.upkeep import Overview
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.states import TurnStatus
from gateway.ui.problems import Told, told
from gateway.ui.security import is_overheard
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.words import many

_OVERHEARD = "Keys and sessions cross the network as plain text: put TLS in front, and set server.public_url to https."


class AgentRow(msgspec.Struct, frozen=True):
    """`first` is the median time to the first event of an answer, in ms; `alone` as in `problems`. Counts are of turns."""

    name: str
    title: str
    alone: int | None
    running: int
    queued: int
    waiting: int
    failed: int
    first: float | None


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
    breakers = parts.runner.runtime.breakers
    alone = {agent.name: breakers.left_alone(agent) for agent in parts.agents}
    wrong = [*await _of_the_gateway(visit), *map(told, problems(found, _open_breakers(parts.agents, alone)))]
    values = {
        "problems": wrong,
        "sentence": f"{many(len(wrong), 'thing needs', 'things need')} you." if wrong else "",
        "facts": tuple(facts(found, parts.agents.by_name)),
        "agents": [_row(agent, found, alone[agent.name]) for agent in parts.agents],
        "found": found,
        "open": sum(count.turns for count in found.open_counts),
    }
    return Page("overview.html", "Overview", values)


async def _of_the_gateway(visit: Visit) -> list[Told]:
    parts, found = visit.parts, []
    try:
        await parts.ledger.ready()
    except LedgerUnavailable as error:
        found.append(Told(f"The storage does not work as it should: {error.trouble}.", "/readyz?verbose"))
    if parts.asks_for_keys and is_overheard(parts.public_url):
        found.append(Told(_OVERHEARD, "/ui/"))
    return found


def _open_breakers(agents: Agents, alone: Mapping[str, int | None]) -> Iterator[OpenBreaker]:
    """Of each backend that this process leaves alone."""
    of_backend: defaultdict[str, list[str]] = defaultdict(list)
    for agent in agents:
        if alone[agent.name] is not None and agent.backend is not None:
            of_backend[agent.backend.address].append(agent.name)
    for address, names in of_backend.items():
        yield OpenBreaker(address, tuple(names), 1000 * (alone[names[0]] or 0))


def facts(found: Overview, agents: Collection[str]) -> Iterator[Fact]:
    """What has failed lately, and what waits. `agents` are those that have a page."""
    failed = Counter(failure.agent for failure in found.failures)
    if failed:
        pages = {name: f"/ui/agents/{quote(name, safe='')}#failures" for name in failed if name in agents}
        yield _fact(f"{many(failed.total(), 'turn')} failed in the last hour", failed, "failed", pages)
    waiting: Counter[str] = Counter()
    for count in found.open_counts:
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


def _row(agent: Agent, found: Overview, alone: int | None) -> AgentRow:
    counts: defaultdict[str, int] = defaultdict(int)
    for count in found.open_counts:
        if count.agent == agent.name:
            counts[count.status] += count.turns
    firsts = [each.first for each in found.call_times if each.agent == agent.name and each.first is not None]
    return AgentRow(
        agent.name,
        agent.public_card.name,
        alone,
        counts[TurnStatus.RUNNING],
        counts[TurnStatus.ACCEPTED],
        counts[TurnStatus.WAITING],
        sum(failure.agent == agent.name for failure in found.failures),
        median(firsts) if firsts else None,
    )
