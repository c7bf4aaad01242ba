"""Odd answers of a service of threads, byte for byte."""

import json

import pytest

from adapters.assistants.adapter import ThreadsAdapter, assistants
from gateway.a2a.model import Part
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import Ongoing
from gateway.testing.adapter_scripts import collect, request
from tests.adapters.assistants.support import parts
from tests.adapters.emulator_support import Build
from tests.adapters.raw_server import Answer, Exchange, StartRaw, plain

JSON = "application/json"
THREAD = {"id": "thread_1"}


def answering(answers: dict[str, tuple[str, object]]) -> Answer:
    """Answers each path that ends so with a status and a body; any other with 404."""

    async def answer(exchange: Exchange) -> None:
        path = exchange.request.head.split()[1].partition("?")[0]
        known = next((found for end, found in answers.items() if path.endswith(end)), ("404 Not Found", {}))
        await exchange.send(plain(known[0], json.dumps(known[1]).encode(), Content_Type=JSON))

    return answer


OK = "200 OK"
ODD: dict[str, tuple[dict[str, tuple[str, object]], ErrorClass, str]] = {
    "no threads at all": ({}, ErrorClass.NOT_SERVED, "the service has no threads (HTTP 404)"),
    "a thread without an id": (
        {"/threads": (OK, {"object": "thread"})},
        ErrorClass.NOT_SERVED,
        "a thread was made without an id",
    ),
    "a run that is no stream": (
        {"/threads": (OK, THREAD), "/runs": (OK, {"id": "run_1"})},
        ErrorClass.CONTRACT_BROKEN,
        """HTTP 200: {"id":"run_1"} ('application/json' instead of an event stream)""",
    ),
    "a file without an id": (
        {"/threads": (OK, THREAD), "/files": (OK, {"object": "file"})},
        ErrorClass.CONTRACT_BROKEN,
        "a file was stored without an id: Object missing required field `id`",
    ),
    "a file that is not stored": (
        {"/threads": (OK, THREAD), "/files": ("413 Too Large", {"error": {"message": "too large"}})},
        ErrorClass.OVERFLOW,
        "HTTP 413: too large",
    ),
}


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_answer_is_told_as_what_it_is(raw: StartRaw, build: Build, case: str) -> None:
    answers, kind, detail = ODD[case]
    server = await raw(answering(answers))
    adapter = build(assistants, f"{server.url}/v1")
    items = (parts(Part(raw="cG5n", media_type="image/png")),) if "/files" in answers else request("Hi").items
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("Hi", items=items))
    assert (caught.value.kind, caught.value.detail) == (kind, detail)


async def test_a_run_that_is_no_object_is_no_fate(raw: StartRaw, build: Build) -> None:
    server = await raw(answering({"/run_1": (OK, ["run_1"])}))
    adapter = build(assistants, f"{server.url}/v1")
    assert isinstance(adapter, ThreadsAdapter)
    with pytest.raises(AdapterError) as caught:
        await adapter.fetch(Ongoing("thread_1", "run_1"))
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


async def test_an_assistant_that_is_no_object_cannot_be_probed(raw: StartRaw, build: Build) -> None:
    server = await raw(answering({"/asst_1": (OK, [])}))
    adapter = build(assistants, f"{server.url}/v1")
    assert isinstance(adapter, ThreadsAdapter)
    with pytest.raises(AdapterError, match="an assistant is no object"):
        await adapter.probe()


async def test_a_cancellation_that_nobody_answers_is_an_error(raw: StartRaw, build: Build) -> None:
    server = await raw(answering({"/cancel": ("500 Oops", {"error": {"message": "sorry"}})}))
    adapter = build(assistants, f"{server.url}/v1")
    assert isinstance(adapter, ThreadsAdapter)
    with pytest.raises(AdapterError) as caught:
        await adapter.cancel(Ongoing("thread_1", "run_1"))
    assert caught.value.kind is ErrorClass.BACKEND_FAILED
