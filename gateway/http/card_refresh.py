"""Asks the backends that describe their agents, in the background. Law: no card waits for a backend, and no request for a card
is one to a backend; without an answer a card says what it said before."""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import structlog

from gateway.core.agents import Agent, Agents
from gateway.foundation.clock import Clock
from gateway.foundation.retry import backoff
from gateway.foundation.shutdown import InFlight
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import CanDescribe

log = structlog.get_logger("gateway.http.card_refresh")

TIMEOUT = 30.0
"""Seconds for the backend's answer."""

_FIRST_WAIT = 5.0


def keep_descriptions(before: Agents, following: Agents, now: int) -> None:
    """A reload gives agents the descriptions that those of the same name and backend had, until they are asked themselves."""
    for agent in following:
        former = before.by_name.get(agent.name)
        if former is None or former.described is None or former.described.description is None:
            continue
        if agent.described is not None and agent.backend is not None and agent.backend == former.backend:
            with suppress(ValueError):
                agent.described.tell(former.described.description, now)


class _Due(msgspec.Struct):
    """When an agent's backend is asked next, and how often in a row it has not answered."""

    agent: Agent
    at: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class CardRefresh:
    """`agents` returns the agents in force; `interval` is in seconds, `chance` is from 0 to 1."""

    agents: Callable[[], Agents]
    clock: Clock
    interval: float
    chance: Callable[[], float] = random.random
    _due: dict[str, _Due] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _asking: InFlight = field(default_factory=InFlight)

    def wake(self) -> None:
        """There may be other agents."""
        self._woken.set()

    async def wait_current(self) -> None:
        """Returns when the backends that are asked now have answered: later ones are of the agents in force."""
        await self._asking.wait_current()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._woken.clear()
            pause = await self.ask_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    async def ask_due(self) -> float | None:
        """Asks all whose time has come, at once. Returns the seconds until the next; None where no agent is described."""
        self._due = {each.agent.name: each for each in self._described(self.agents())}
        now = self.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            for each in self._due.values():
                if each.at <= now:
                    group.create_task(self._ask(each))
        if not self._due:
            return None
        return max(0.0, min(each.at for each in self._due.values()) - self.clock.monotonic())

    def _described(self, agents: Agents) -> Iterable[_Due]:
        for agent in agents:
            if agent.described is not None:
                known = self._due.get(agent.name)
                yield known if known is not None and known.agent is agent else _Due(agent)

    async def _ask(self, due: _Due) -> None:
        with self._asking.now:
            told = await self._tell(due.agent, first=due.failures == 0)
        due.failures = 0 if told else due.failures + 1
        wait = self.interval if told else min(self.interval, backoff(_FIRST_WAIT, self.interval, due.failures))
        # Processes that started together do not ask together for ever.
        due.at = self.clock.monotonic() + wait * (0.8 + 0.2 * self.chance())

    async def _tell(self, agent: Agent, *, first: bool) -> bool:
        """Whether the backend has answered. `first`: a failure is news."""
        adapter, described = agent.adapter, agent.described
        if not isinstance(adapter, CanDescribe) or described is None:
            return False
        try:
            async with asyncio.timeout(TIMEOUT):
                description = await adapter.describe()
            if described.tell(description, self.clock.now()):
                card = described.cards.public
                log.info("card.described", agent=agent.name, name=card.name, skills=[each.id for each in card.skills])
        except Exception as error:  # noqa: BLE001  # whatever a plug-in raises: its card stays, and it is asked again
            detail = error.detail if isinstance(error, AdapterError) else f"{type(error).__name__}: {error}"
            (log.warning if first else log.debug)("card.not-described", agent=agent.name, detail=detail)
            drop_tracebacks(error)
            return False
        return True
