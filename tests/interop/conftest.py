"""The real peers, each started once per test process, on first use."""

from collections.abc import Generator, Iterator

import pytest

from tests.interop import peer_processes
from tests.interop.peer_processes import Aimock, Llmock, Peer
from tests.interop.recording_proxy import RecordingProxy, recording_proxy
from tests.running import start_local

__all__ = ["start_local"]

_PEERS = {"aimock_peer", "ogx_peer", "mcp_peer", "agentserver_peer", "llmock_peer", "langgraph_peer", "m365_peer"}


@pytest.fixture(scope="session")
def aimock_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    """A scripted Chat Completions model; OGX's model is this one."""
    with peer_processes.aimock(tmp_path_factory.mktemp("aimock")) as peer:
        yield peer


@pytest.fixture(scope="session")
def ogx_peer(tmp_path_factory: pytest.TempPathFactory, aimock_peer: Aimock) -> Iterator[Peer]:
    """A full Responses server that keeps conversations; ask it for model openai/gpt-4."""
    with peer_processes.ogx(tmp_path_factory.mktemp("ogx"), aimock_peer.url) as peer:
        yield peer


@pytest.fixture(scope="session")
def mcp_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A server of tools that OGX can call."""
    with peer_processes.mcp_server(tmp_path_factory.mktemp("mcp")) as peer:
        yield peer


@pytest.fixture(scope="session")
def agentserver_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A Foundry hosted agent in its plain mode."""
    with peer_processes.agentserver(tmp_path_factory.mktemp("agentserver")) as peer:
        yield peer


@pytest.fixture(scope="session")
def llmock_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llmock]:
    """A server of faults; call `play` first, for it remembers the test before."""
    with peer_processes.llmock(tmp_path_factory.mktemp("llmock")) as peer:
        yield peer


@pytest.fixture(scope="session")
def langgraph_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """An Agent Server of LangGraph."""
    with peer_processes.langgraph(tmp_path_factory.mktemp("langgraph")) as peer:
        yield peer


@pytest.fixture(scope="session")
def m365_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A bot on Microsoft's 365 Agents SDK."""
    with peer_processes.m365_bot(tmp_path_factory.mktemp("m365")) as peer:
        yield peer


@pytest.fixture
def ogx_proxy(ogx_peer: Peer) -> Iterator[RecordingProxy]:
    """A recording proxy in front of OGX, new for each test."""
    with recording_proxy(ogx_peer.url) as proxy:
        yield proxy


@pytest.fixture
def agentserver_proxy(agentserver_peer: Peer) -> Iterator[RecordingProxy]:
    """A recording proxy in front of the hosted agent, new for each test."""
    with recording_proxy(agentserver_peer.url) as proxy:
        yield proxy


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests that want a peer on one worker of pytest-xdist, so that each peer starts once."""
    for item in items:
        if _PEERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("peers"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows with a failure what the peers of the test wrote."""
    report = yield
    if report.failed:
        wanted = getattr(item, "fixturenames", ())
        used = [peer for peer in peer_processes.RUNNING if f"{peer.name}_peer" in wanted]
        report.sections += [(f"log of {peer.name}", peer.log_tail()) for peer in used]
    return report
