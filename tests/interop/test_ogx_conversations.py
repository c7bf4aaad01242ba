"""The gateway in front of OGX, in conversations that OGX keeps; its model is aimock.

What differs from OpenAI: OGX takes the conversation as a string only, says nothing of it in its answers, and has no lock:
two requests at once both land, in the order in which they end.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from adapters.openai.responses.adapter import factory
from adapters.openai.responses.conversation import ConversationAdapter
from gateway.ports.adapter import CallCompleted, ErrorClass
from gateway.ports.capabilities import Tail
from gateway.testing.adapter_scripts import collect, completed, first_text, request, text
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.interop.peer_processes import Aimock, Peer
from tests.interop.recording_proxy import RecordingProxy
from tests.interop.responses_bodies import user
from tests.running import Local, StartLocal
from tests.support.rows import query

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."


def _agents(url: str) -> str:
    settings = "conversation: true, instructions: Be brief."
    return f"talking: {{type: openai-responses, model: openai/gpt-4, base_url: '{url}', {settings}}}"


def _rows(gateway: Local, sql: str) -> list[Any]:
    return [value for (value,) in query(gateway.database, sql)]


def _said(proxy: RecordingProxy) -> list[tuple[str, list[Any]]]:
    """Of each request for a response: the conversation, and what it brings."""
    return [(body["conversation"], body["input"]) for body in proxy.sent("POST", "/v1/responses")]


@pytest.fixture
async def adapter(ogx_peer: Peer) -> AsyncIterator[ConversationAdapter]:
    settings = {"model": "openai/gpt-4", "base_url": ogx_peer.url, "conversation": True}
    built = factory.build(factory.settings.model_validate(settings))
    assert isinstance(built, ConversationAdapter)
    yield built
    await built.aclose()


async def test_each_turn_goes_on_in_the_conversation_with_the_new_input_alone(
    ogx_proxy: RecordingProxy, ogx_peer: Peer, aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        talking = A2A(http, "talking")
        first = await talking.send("one")
        second = await talking.send("two", first["contextId"])
        elsewhere = await talking.send("three")

    assert [text_of(task) for task in (first, second, elsewhere)] == [_HELLO] * 3
    assert ogx_proxy.sent("POST", "/v1/conversations") == [{}, {}]
    one, other = _rows(gateway, "SELECT handle FROM thread ORDER BY rowid")
    assert one != other
    same = {"model": "openai/gpt-4", "store": True, "stream": True, "instructions": "Be brief."}
    assert ogx_proxy.sent("POST", "/v1/responses") == [
        {**same, "conversation": one, "input": [user("one")]},
        {**same, "conversation": one, "input": [user("two")]},
        {**same, "conversation": other, "input": [user("three")]},
    ]
    assert [message["role"] for message in aimock_peer.journal()[-2]["body"]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    async with httpx2.AsyncClient(trust_env=False) as client:
        items = (await client.get(f"{ogx_peer.url}/conversations/{one}/items?order=asc")).json()["data"]
    assert [item["role"] for item in items] == ["user", "assistant"] * 2
    assert b"conv_" not in talking.seen


async def test_a_first_turn_that_is_cut_leaves_its_message_to_the_next_in_the_same_conversation(
    ogx_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        talking = A2A(http, "talking")
        ogx_proxy.cut_stream(after_events=4)
        dropped = await talking.send("slow")
        second = await talking.send("two", dropped["contextId"])

    assert (why(dropped), why(second)) == (failed(ErrorClass.INTERRUPTED), COMPLETED)
    [kept] = _rows(gateway, "SELECT handle FROM thread")
    assert _rows(gateway, "SELECT pending_handle FROM service_call ORDER BY rowid")[0] == kept
    assert _said(ogx_proxy) == [(kept, [user("slow")]), (kept, [user("slow"), user("two")])]
    assert len(ogx_proxy.sent("POST", "/v1/conversations")) == 1


async def test_a_deleted_conversation_is_an_error_and_never_a_fresh_start(
    ogx_proxy: RecordingProxy, ogx_peer: Peer, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        talking = A2A(http, "talking")
        first = await talking.send("one")
        [lost] = _rows(gateway, "SELECT handle FROM thread")
        async with httpx2.AsyncClient(trust_env=False) as client:
            (await client.delete(f"{ogx_peer.url}/conversations/{lost}")).raise_for_status()
        second = await talking.send("two", first["contextId"])

    assert why(second) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert _rows(gateway, "SELECT handle FROM thread") == [lost]
    assert len(ogx_proxy.sent("POST", "/v1/conversations")) == 1


async def test_a_call_whose_end_nobody_heard_is_found_in_the_conversation(adapter: ConversationAdapter) -> None:
    first = completed(await collect(adapter, request("one")))
    again = request("one", handle=first.handle, state=first.state)
    assert await adapter.tail(again) == Tail(0)
    unheard = completed(await collect(adapter, again))
    found = await adapter.tail(again)
    assert found is not None
    assert (found.held, text(found.answer)) == (1, _HELLO)
    assert found.answer[-1] == CallCompleted(first.handle, state=unheard.state)
    assert await adapter.tail(request("one", handle=first.handle, state=unheard.state)) == Tail(0)


async def test_ogx_locks_nothing_so_that_two_at_once_both_land_as_they_end(
    adapter: ConversationAdapter, ogx_peer: Peer
) -> None:
    """Why the gateway runs one turn of a thread at a time."""
    handle = completed(await collect(adapter, request("one"))).handle
    slow = adapter.call(request("slow", handle=handle))
    await first_text(slow)
    during = await collect(adapter, request("two", handle=handle))
    assert completed(during).handle == handle
    assert completed([event async for event in slow]).handle == handle
    async with httpx2.AsyncClient(trust_env=False) as client:
        items = (await client.get(f"{ogx_peer.url}/conversations/{handle}/items?order=asc")).json()["data"]
    said = [item["content"][0]["text"] for item in items if item["role"] == "user"]
    assert said == ["one", "two", "slow"]


async def test_a_conversation_and_a_response_are_deleted_once_and_again(
    adapter: ConversationAdapter, ogx_peer: Peer
) -> None:
    handle = completed(await collect(adapter, request("one"))).handle
    assert handle is not None
    async with httpx2.AsyncClient(trust_env=False) as client:
        made = await client.post(f"{ogx_peer.url}/responses", json={"model": "openai/gpt-4", "input": "one"})
        for kind, name in (("conversations", handle), ("responses", made.json()["id"])):
            url = f"{ogx_peer.url}/{kind}/{name}"
            assert (await client.get(url)).status_code == 200
            await adapter.forget(name)
            await adapter.forget(name)
            assert (await client.get(url)).status_code == 404


async def test_a_probe_finds_that_ogx_keeps_conversations_and_refuses_unknown_ones(
    adapter: ConversationAdapter,
) -> None:
    report = await adapter.probe()
    assert report.notes == ("it keeps conversations", "it refuses one that it does not know")
