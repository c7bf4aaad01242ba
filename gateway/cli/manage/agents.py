"""`agents`: the agents of a gateway."""

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call, open_address
from gateway.cli.console.output import Columns, Output, print_listing
from gateway.client.discovery import list_agents
from gateway.client.transport import text_at

_COLUMNS: Columns = {
    "AGENT": lambda agent: text_at(agent, "agent") or "",
    "NAME": lambda agent: text_at(agent, "name") or "",
    "DESCRIPTION": lambda agent: text_at(agent, "description") or "",
}


def print_agents(address: AgentAddress, output: Output) -> None:
    """Raises: Stop."""
    agents = call(open_address(address), lambda http: list_agents(http, address.url))
    print_listing(output, "agents", agents, _COLUMNS, "there are no agents")
