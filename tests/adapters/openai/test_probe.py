"""The probe of the OpenAI adapters: its requests, its findings on odd servers, and that it reads no more than it must."""

import asyncio
import json
import re

import pytest

from adapters.openai.chat import adapter as openai_chat
from adapters.openai.responses import adapter as openai_responses
from adapters.openai.service import PROMPT
from adapters.python import function
from gateway.ports.adapter import Adapter, AdapterError, ErrorClass
from gateway.ports.capabilities import CanProbe, ProbeReport
from tests.adapters.emulator_support import KEY, Build, Start
from tests.adapters.openai.openai_support import judge
from tests.adapters.raw_server import Answer, Exchange, StartRaw, plain
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import NoTerminal, Pause, Say


async def probe(adapter: Adapter) -> ProbeReport:
    assert isinstance(adapter, CanProbe)
    return await adapter.probe()


async def fault(adapter: Adapter) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await probe(adapter)
    return caught.value


async def test_a_chat_server_is_asked_one_question_with_the_settings_of_the_agent(start: Start, build: Build) -> None:
    server = ChatServer(models=("m",), validator=judge())
    adapter = build(openai_chat.factory, await start(server), instructions="Be brief.", temperature=0.5)
    assert await probe(adapter) == ProbeReport(model=True, streams=True)
    [asked] = server.requests
    assert asked["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    assert (asked["model"], asked["temperature"], asked["stream"]) == ("m", 0.5, True)


async def test_the_probe_of_a_responses_server_stores_nothing_and_continues_an_unknown_response(
    start: Start, build: Build
) -> None:
    server = ResponsesServer(validator=judge())
    adapter = build(openai_responses.factory, await start(server))
    assert await probe(adapter) == ProbeReport(streams=True, verifies_chain=True)
    assert [request["store"] for request in server.requests] == [False, False]
    assert ["previous_response_id" in request for request in server.requests] == [False, True]
    assert server.stored == {}


async def test_the_rest_of_an_answer_is_not_waited_for(start: Start, build: Build) -> None:
    never = asyncio.Event()
    server = ChatServer(lambda _: [Say("a"), Pause(never)])
    async with asyncio.timeout(30):
        assert await probe(build(openai_chat.factory, await start(server))) == ProbeReport(streams=True)


async def test_an_answer_without_output_is_an_error(start: Start, build: Build) -> None:
    server = ChatServer(lambda _: [NoTerminal()])
    error = await fault(build(openai_chat.factory, await start(server)))
    assert (error.kind, error.detail) == (ErrorClass.INTERRUPTED, "the stream ended before it began")


JSON = "application/json"
DELTA = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'


async def test_an_answer_that_is_no_stream_is_an_error(raw: StartRaw, build: Build) -> None:
    server = await raw(lambda exchange: exchange.send(plain("200 OK", b"{}", Content_Type=JSON)))
    error = await fault(build(openai_chat.factory, f"{server.url}/v1"))
    assert error.kind is ErrorClass.CONTRACT_BROKEN
    assert "instead of an event stream" in error.detail


LISTS = {
    "the model": (plain("200 OK", b'{"data": [{"id": "a"}, {"id": "m"}]}'), True),
    "the model with the tag that Ollama adds": (plain("200 OK", b'{"data": [{"id": "m:latest"}]}'), True),
    "others": (plain("200 OK", b'{"data": [{"id": "a"}, null, 5]}'), False),
    "nothing": (plain("200 OK", b'{"data": []}'), None),
    "no list": (plain("200 OK", b"[1]"), None),
    "no JSON": (plain("200 OK", b"\xff<html>"), None),
    "no such page": (plain("404 Not Found", b'{"data": [{"id": "m"}]}'), None),
    "a fault": (plain("500 Internal Server Error"), None),
}


@pytest.mark.parametrize(("listed", "found"), LISTS.values(), ids=LISTS.keys())
async def test_the_model_is_looked_for_where_there_is_a_list(
    listed: bytes, found: bool | None, raw: StartRaw, build: Build
) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.request.head.startswith("GET /v1/models "):
            assert exchange.request.header("accept") == JSON
            await exchange.send(listed)
        else:
            await exchange.stream(DELTA)

    server = await raw(answer)
    report = await probe(build(openai_chat.factory, f"{server.url}/v1"))
    assert report == ProbeReport(model=found, streams=True)
    assert {request.header("authorization") for request in server.requests} == {f"Bearer {KEY}"}


async def test_a_list_that_wants_another_key_ends_it(raw: StartRaw, build: Build) -> None:
    server = await raw(lambda exchange: exchange.send(plain("403 Forbidden", b"no")))
    error = await fault(build(openai_responses.factory, f"{server.url}/v1"))
    assert (error.kind, error.detail) == (ErrorClass.UNAUTHORISED, "HTTP 403: no")


STARTED = (
    b'data: {"type": "response.created", "response": {"id": "resp_0123456789abcdef", "previous_response_id": null}}\n\n'
    b'data: {"type": "response.output_text.delta", "delta": "a"}\n\n'
)


def refusing(body: bytes) -> Answer:
    """A Responses server that continues nothing, and echoes this predecessor."""

    async def answer(exchange: Exchange) -> None:
        if b"previous_response_id" in exchange.request.body:
            await exchange.send(plain("400 Bad Request", body))
        else:
            await exchange.stream(STARTED)

    return answer


async def test_an_id_is_made_up_in_the_form_of_a_real_one(raw: StartRaw, build: Build) -> None:
    server = await raw(refusing(b'{"error": {"message": "no", "code": "previous_response_not_found"}}'))
    report = await probe(build(openai_responses.factory, f"{server.url}/v1"))
    assert report == ProbeReport(streams=True, verifies_chain=True)
    used = json.loads(server.requests[-1].body)["previous_response_id"]
    assert re.fullmatch("resp_01234567[0-9a-f]{8}", used)
    assert used != "resp_0123456789abcdef"


async def test_another_refusal_is_not_about_the_chain(raw: StartRaw, build: Build) -> None:
    server = await raw(refusing(b'{"error": {"message": "Malformed identifier."}}'))
    report = await probe(build(openai_responses.factory, f"{server.url}/v1"))
    assert report == ProbeReport(streams=True, verifies_chain=None)


async def test_a_service_that_may_keep_nothing_for_this_account_is_no_backend_that_keeps(
    raw: StartRaw, build: Build
) -> None:
    """As organisations with Zero Data Retention get it."""
    refusal = b'{"error": {"message": "no", "code": "unsupported_parameter", "param": "previous_response_id"}}'
    server = await raw(refusing(refusal))
    assert (await fault(build(openai_responses.factory, f"{server.url}/v1"))).kind is ErrorClass.STORAGE_DISABLED


async def test_a_python_function_is_loaded(build: Build) -> None:
    settings = function.PythonSettings(ref="gateway.cli.demo.agent:reply")
    assert await probe(function.PythonFunction(settings)) == ProbeReport(
        notes=("gateway.cli.demo.agent:reply is loaded",)
    )
