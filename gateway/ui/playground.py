"""Does it work? A client of the public wire, in the browser."""

from gateway.a2a.errors import NotFound, echo
from gateway.a2a.tool_calls import URI, Phase
from gateway.a2a.wire import v1_0
from gateway.ui.foreign import SHOWN, UNSEEN_IN_SCRIPTS
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.wire import Wire


async def show(visit: Visit) -> Outcome:
    agents = visit.parts.agents
    default = agents.default.name if agents.default is not None else next(iter(agents.by_name))
    name = visit.query.get("agent") or default
    agent = agents.by_name.get(name)
    if agent is None:
        raise NotFound(f"no agent is called {echo(name)}")
    values = {
        "agents": [each.name for each in agents],
        "agent": agent,
        "context": visit.query.get("context", ""),
        "task": visit.query.get("task", ""),
        "wire": f"{Wire.BASE}{agent.name}",
        "public": f"{visit.parts.public_url}/a2a/{agent.name}",
        "extension": URI,
        "asking": Phase.AWAITING_APPROVAL,
        "standing": agent.policies.standing_approvals == "allow",
        "version": v1_0.VERSION,
        "unseen": UNSEEN_IN_SCRIPTS,
        "named": SHOWN,
        "files": [mode for mode in agent.takes if mode != "text/plain"],
    }
    return Page("playground.html", "Playground", values)
