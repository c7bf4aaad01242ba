"""Ids of a backend that are steps in a path, as `..` is: no request goes to the address that they would make."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from adapters.a2a.card import Endpoint, Interface
from adapters.a2a.failures import A2AFailures
from adapters.a2a.rest import Rest
from adapters.anthropic.files import Files
from adapters.assistants.adapter import assistants
from adapters.copilot.adapter import factory as copilot
from adapters.http.address import id_segment, path_segment
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.langgraph.adapter import factory as langgraph
from adapters.langgraph.service import run_of
from adapters.openai.foundry.adapter import factory as foundry
from adapters.openai.responses.adapter import factory as responses
from gateway.a2a.model import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest
from gateway.ports.adapter import AdapterError, AnyAdapterFactory, ErrorClass, Progress
from gateway.ports.capabilities import Ongoing
from gateway.testing.adapter_scripts import collect, request
from tests.adapters.raw_server import Exchange, RawServer, StartRaw, plain

THREAD = "1b3b2a1c-0000-4000-8000-000000000000"


async def nothing_there(exchange: Exchange) -> None:
    await exchange.send(plain("404 Not Found", b"{}", Content_Type="application/json"))


@pytest.fixture
async def server(raw: StartRaw) -> RawServer:
    return await raw(nothing_there)


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    client = HttpClient(Timeouts(), Failures(()))
    yield client
    await client.aclose()


def _built(factory: AnyAdapterFactory, **settings: Any) -> Any:
    return factory.build(factory.settings.model_validate(settings))


def _threads(url: str) -> Any:
    return _built(assistants, base_url=url, assistant_id="asst_1", api_key="k")


def _responses(url: str) -> Any:
    return _built(responses, base_url=url, model="m", api_key="k")


def _foundry(url: str) -> Any:
    return _built(foundry, endpoint=url, agent="a", api_key="k")


def _graph(url: str) -> Any:
    return _built(langgraph, url=url, assistant="g")


def _engine(url: str) -> Any:
    return _built(copilot, direct_to_engine={"url": f"{url}/conversations", "token": "t"})


def _line(url: str) -> Any:
    return _built(copilot, direct_line={"url": url, "secret": "s"})


ASKED: dict[str, tuple[Callable[[str], Any], Callable[[Any, str], Awaitable[object]]]] = {
    "a thread of assistants is deleted": (_threads, lambda adapter, name: adapter.forget(name)),
    "a run of assistants is cancelled": (_threads, lambda adapter, name: adapter.cancel(Ongoing("thread_1", name))),
    "a response is deleted": (_responses, lambda adapter, name: adapter.forget(name)),
    "a response of Foundry is deleted": (_foundry, lambda adapter, name: adapter.forget(name)),
    "a run of a graph is cancelled": (_graph, lambda adapter, name: adapter.cancel(Ongoing(THREAD, name))),
    "a conversation with an engine goes on": (
        _engine,
        lambda adapter, name: collect(adapter, request("Hi", handle=name)),
    ),
    "a conversation of Direct Line goes on": (
        _line,
        lambda adapter, name: collect(adapter, request("Hi", handle=name)),
    ),
}


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("case", ASKED)
async def test_an_id_that_is_a_step_in_a_path_is_refused_before_any_request(
    server: RawServer, case: str, name: str
) -> None:
    make, ask = ASKED[case]
    adapter = make(server.url)
    with pytest.raises(AdapterError) as caught:
        await ask(adapter, name)
    await adapter.aclose()
    assert server.requests == []
    assert caught.value.detail == f"an id that cannot stand in an address: {name!r}"
    # Nothing of a message was sent to the conversation of Direct Line.
    assert caught.value.kind is (ErrorClass.NOT_SERVED if make is _line else ErrorClass.CONTRACT_BROKEN)


@pytest.mark.parametrize(
    ("address", "run"), [("/threads/t/runs/r", "r"), ("/threads/t/runs/..", ""), ("/runs/./x", "")]
)
def test_a_header_names_a_run_only_by_what_can_be_its_id(address: str, run: str) -> None:
    assert run_of({"Content-Location": f"http://h{address}"}) == run


def _rest(http: HttpClient, url: str, tenant: str | None = None) -> Rest:
    return Rest(
        http, Endpoint(Interface(url, "HTTP+JSON", "1.0", tenant), "1.0", True, frozenset()), A2AFailures(()), ()
    )


@pytest.mark.parametrize(
    "asked", [GetTaskRequest(id=".."), CancelTaskRequest(id=".."), GetTaskRequest(id="t", tenant="..")]
)
async def test_a_task_and_a_tenant_of_an_agent_are_no_steps_in_a_path(
    server: RawServer, http: HttpClient, asked: GetTaskRequest | CancelTaskRequest
) -> None:
    with pytest.raises(AdapterError, match="cannot stand in an address"):
        await _rest(http, server.url).task(asked)
    assert server.requests == []


async def test_a_task_that_is_listened_to_is_no_step_in_a_path(server: RawServer, http: HttpClient) -> None:
    with pytest.raises(AdapterError, match="cannot stand in an address"):
        await anext(_rest(http, server.url).stream(SubscribeToTaskRequest(id="..")))
    assert server.requests == []


async def test_a_file_whose_id_is_a_step_in_a_path_fails_no_answer(server: RawServer, http: HttpClient) -> None:
    told = await Files(http, Failures(()), server.url).fetch("..")
    assert told == Progress("A file that the agent has written could not be fetched.")
    assert server.requests == []


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        (foundry, {"endpoint": "https://h", "agent": "..", "api_key": "k"}),
        (assistants, {"base_url": "https://h", "assistant_id": "..", "api_key": "k"}),
        (copilot, {"direct_to_engine": {"environment_id": "0" * 32, "schema_name": "..", "token": "t"}}),
    ],
)
def test_a_name_in_the_settings_that_is_a_step_in_a_path_is_refused(
    factory: AnyAdapterFactory, settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="cannot stand in an address"):
        factory.settings.model_validate(settings)


@pytest.mark.parametrize(
    ("name", "segment"),
    [("a/b?c", "a%2Fb%3Fc"), ("...", "..."), ("%2e%2e", "%252e%252e"), ("a..", "a.."), ("é", "%C3%A9")],
)
def test_any_other_name_fills_one_segment(name: str, segment: str) -> None:
    assert path_segment(name) == segment


@pytest.mark.parametrize("name", ["", "\udc80"])
def test_what_no_address_can_show_is_refused(name: str) -> None:
    with pytest.raises(AdapterError, match="cannot stand in an address"):
        id_segment(name, Failures(()))
