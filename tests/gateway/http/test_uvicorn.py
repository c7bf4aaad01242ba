"""What the HTTP connection relies on in uvicorn, which does not promise any of it (docs/adr/0015)."""

import asyncio
import inspect
import re

import pytest
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http import flow_control, httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server, ServerState

from gateway.http.batching_transport import BatchingTransport
from gateway.http.connection import Connection

MINOR = "0.54"

UPGRADE = (
    f"uvicorn {uvicorn.__version__} is not the {MINOR}.* that gateway/http/connection.py was made for: read the changes of "
    "uvicorn/protocols/http/httptools_impl.py and uvicorn/server.py, run tests/gateway/http, then change the pin in "
    "pyproject.toml, this test and docs/adr/0015"
)

OVERRIDDEN = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "eof_received": ["self"],
    "on_message_begin": ["self"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "pause_writing": ["self"],
    "resume_writing": ["self"],
    "timeout_keep_alive_handler": ["self"],
    "_start_asgi_task": ["self", "cycle", "app"],
}
CALLED = {"_unset_keepalive_if_required": ["self"], "shutdown": ["self"]}
ATTRIBUTES = [
    "cycle",
    "expect_100_continue",
    "flow",
    "headers",
    "logger",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "timeout_keep_alive",
    "transport",
]
OF_A_CYCLE = [
    "chunked_encoding",
    "expected_content_length",
    "default_headers",
    "disconnected",
    "keep_alive",
    "message_event",
    "more_body",
    "response_complete",
    "response_started",
    "scope",
]


def changed(what: str) -> str:
    return f"{what}: not as in uvicorn {MINOR}. {UPGRADE}"


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_the_installed_version_is_the_one_that_the_connection_was_made_for() -> None:
    assert uvicorn.__version__.startswith(f"{MINOR}."), UPGRADE


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_a_method_that_is_overridden_is_there_with_its_parameters(name: str) -> None:
    assert parameters(getattr(HttpToolsProtocol, name, lambda: None)) == OVERRIDDEN[name], changed(name)


def test_nothing_else_of_the_protocol_is_overridden() -> None:
    ours = {name for name, value in vars(Connection).items() if callable(value) and hasattr(HttpToolsProtocol, name)}
    assert ours - {"__init__"} == set(OVERRIDDEN), "add the method to OVERRIDDEN, or name the own one differently"


@pytest.mark.parametrize("name", CALLED)
def test_a_method_that_is_called_is_there(name: str) -> None:
    assert parameters(getattr(HttpToolsProtocol, name, lambda: None)) == CALLED[name], changed(name)


async def test_a_connection_is_made_as_before_and_has_the_attributes_that_are_used() -> None:
    arguments = ["self", "config", "server_state", "app_state", "_loop"]
    assert parameters(HttpToolsProtocol.__init__) == arguments, changed("HttpToolsProtocol")
    config = Config(lambda: None, ws="none", lifespan="off", log_config=None)
    protocol = HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    for name in ATTRIBUTES:
        assert hasattr(protocol, name), changed(f"HttpToolsProtocol.{name}")
    assert protocol.cycle is None, changed("HttpToolsProtocol.cycle before the first request")
    assert "self.url += url" in inspect.getsource(HttpToolsProtocol.on_url), changed("HttpToolsProtocol.url")
    made = inspect.getsource(HttpToolsProtocol.__init__)
    assert "set_dangerous_leniencies(lenient_data_after_close=True)" in made, changed("the parser of a connection")


@pytest.mark.parametrize("name", OF_A_CYCLE)
def test_a_cycle_has_the_attributes_that_are_used(name: str) -> None:
    made = inspect.getsource(RequestResponseCycle.__init__)
    assert re.search(rf"self\.{name}(: [^=]+)? = ", made), changed(f"RequestResponseCycle.{name}")


def test_every_method_of_a_transport_that_uvicorn_calls_is_there() -> None:
    called = set()
    for module in (httptools_impl, flow_control):
        called |= set(re.findall(r"transport\.(\w+)\(", inspect.getsource(module)))
    # Only an upgrade to WebSocket replaces the protocol, and the gateway has none.
    missing = {name for name in called - {"set_protocol"} if not hasattr(BatchingTransport, name)}
    assert missing == set(), f"BatchingTransport has no {sorted(missing)}. {UPGRADE}"
    assert hasattr(flow_control.FlowControl, "resume_reading"), changed("FlowControl.resume_reading")


def test_the_server_has_what_is_used() -> None:
    assert parameters(Server.serve) == ["self", "sockets"], changed("Server.serve")
    assert parameters(Server.capture_signals) == ["self"], changed("Server.capture_signals")
    server = Server(Config(lambda: None, log_config=None))
    assert (server.should_exit, server.server_state.connections) == (False, set()), changed("Server")
    assert httptools_impl.STATUS_LINE[431].endswith(b"\r\n"), changed("STATUS_LINE")
