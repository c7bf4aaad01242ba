"""Every official client in front of one gateway process: what it sees of the same agent, over each of its transports."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, TypeAlias

import pytest

from tests.interop import peer_processes
from tests.interop.clients import CHECKS, CLIENTS, DESCRIPTION, NAME, PEERS, SKILL, Client
from tests.interop.clients_agent import PARTS
from tests.interop.peer_processes import Peer

_AGENT = "peer"
_CONFIGURATION = f"""\
version: 1
storage: {{url: 'sqlite:///gateway.db'}}
limits: {{stream_keepalive: 1h}}
agents:
  {_AGENT}:
    type: python
    ref: 'tests.interop.clients_agent:reply'
    card:
      name: {NAME}
      description: {DESCRIPTION}
      input_modes: [text/plain, application/pdf, application/json]
      skills: [{{id: {SKILL}, name: Repeat, description: Repeats a text, tags: [text]}}]
"""

_GRPC = "server: {grpc: {port: 0}}\n"

Outcomes: TypeAlias = Mapping[str, Mapping[str, Any]]
Meet: TypeAlias = Callable[[Client, str], Outcomes]


@pytest.fixture(scope="session")
def gateway_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peer_processes.gateway(tmp_path_factory.mktemp("gateway"), _CONFIGURATION) as peer:
        yield peer


@pytest.fixture(scope="session")
def grpc_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Another gateway, because Google ADK refuses every card with an address of gRPC."""
    with peer_processes.gateway(tmp_path_factory.mktemp("grpc"), _GRPC + _CONFIGURATION, "grpc") as peer:
        yield peer


@pytest.fixture(scope="session")
def meet(gateway_peer: Peer, grpc_peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Meet:
    """Lets a client make all its checks over a transport, in one process, and gives what it has seen in each."""

    @cache
    def met(peer: str, transport: str, checks: tuple[str, ...]) -> Outcomes:
        gateway = grpc_peer if transport == "GRPC" else gateway_peer
        url = f"{gateway.origin}/a2a/{_AGENT}"
        asked = {"url": url, "transport": transport, "checks": checks, "parts": PARTS}
        seen = peer_processes.client(peer, tmp_path_factory.mktemp(peer), asked)
        return {check: _read(outcome) for check, outcome in seen.items()}

    return lambda client, transport: met(client.peer, transport, tuple(client.checks))


def _read(seen: dict[str, Any]) -> dict[str, Any]:
    """The agent tells in its answer, in JSON, which parts have reached it; the end of a safe text is other each time."""
    if "echo" in seen:
        return {"parts": json.loads(seen["echo"])}
    return {**seen, "message": seen["message"].split(" (correlation id ")[0]} if "message" in seen else seen


@pytest.mark.parametrize(
    ("client", "transport", "check"),
    [
        # What one process does is told by one worker of pytest-xdist.
        pytest.param(client, transport, check, id=f"{name} {check}", marks=pytest.mark.xdist_group(name))
        for client in CLIENTS
        for transport in client.transports
        for name in [f"{client.title} {transport}"]
        for check in client.checks
    ],
)
def test_a_client_sees_what_the_agent_did(meet: Meet, client: Client, transport: str, check: str) -> None:
    assert meet(client, transport)[check] == client.expected(check)


def test_whatever_a_client_does_not_do_has_a_reason() -> None:
    named = {check for client in CLIENTS for check in (*client.cannot, *client.shows)}
    reasons = [
        why for client in CLIENTS for why in (*client.cannot.values(), *(one.why for one in client.shows.values()))
    ]
    assert named <= CHECKS.keys()
    assert all(reasons)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.title)
def test_the_version_of_a_client_is_the_one_that_is_installed(client: Client) -> None:
    pins = PEERS / client.peer
    if client.peer == "a2a-sdk":
        assert version("a2a-sdk") == client.version
    elif (pins / "package.json").exists():
        assert json.loads((pins / "package.json").read_text())["dependencies"][client.package] == client.version
    else:
        pinned = (pins / "requirements.txt").read_text().splitlines()
        assert f"{client.package}=={client.version}" in pinned
