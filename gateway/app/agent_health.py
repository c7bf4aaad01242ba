"""The health of agents for the admin API, out of the reads of the pages. Law: numbers of a tenant, and nothing
of its conversations."""

from gateway.core.agents import Agent, Agents
from gateway.core.diagnosis.health import agent_health
from gateway.engine.runtime import Runtime
from gateway.foundation.clock import timestamp
from gateway.http.admin import HealthOfAgent, HealthOfAgents
from gateway.ledger.admin.upkeep import Overview
from gateway.ledger.port import Ledger
from gateway.ledger.threads import Caller


async def read_health(ledger: Ledger, runtime: Runtime, agents: Agents, caller: Caller) -> HealthOfAgents:
    """Raises: LedgerUnavailable."""
    found = await ledger.admin.overview(caller.tenant)
    return HealthOfAgents([_told(agent, found, runtime) for agent in agents])


def _told(agent: Agent, found: Overview, runtime: Runtime) -> HealthOfAgent:
    health = agent_health(found, agent.name, runtime.breakers.outage(agent), runtime.calls.silences(agent.name))
    return HealthOfAgent(
        agent=agent.name,
        state=health.state.value,
        open_calls=health.calls,
        silent_calls=health.silent,
        running_turns=health.running,
        queued_turns=health.queued,
        waiting_turns=health.waiting,
        failed_turns=health.failed,
        since=None if health.since is None else timestamp(health.since),
        asked_again_in=health.rest,
        first_event=health.first,
    )
