"""`agents`: the agents of a gateway."""

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import call
from gateway.cli.console.output import Columns, Output, print_listing
from gateway.client.discovery import list_agents
from gateway.client.transport import open_http, text_at

_COLUMNS: Columns = {
    "AGENT": lambda agent: text_at(agent, "agent") or "",
    "NAME": lambda agent: text_at(agent, "name") or "",
    "DESCRIPTION": lambda agent: text_at(agent, "description") or "",
}


def print_agents(address: AgentAddress, output: Output) -> None:
    """Raises: Stop."""
    connection = open_http(address.url, address.request_headers, address.ca, address.proxy)
    agents = call(connection, lambda http: list_agents(http, address.url))
    print_listing(output, "agents", agents, _COLUMNS, "there are no agents")
