"""The gateway in front of OGX, which keeps conversations, with aimock as its model."""

import asyncio

import httpx2
import pytest

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.interop.peer_processes import Aimock, Peer
from tests.interop.recording_proxy import RecordingProxy
from tests.interop.responses_bodies import assistant, response_id, response_ids, steps, user
from tests.running import Local, StartLocal
from tests.support.rows import query

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."


def _agents(url: str, more: str = "instructions: Be brief.") -> str:
    common = f"type: openai-responses, model: openai/gpt-4, base_url: '{url}', {more}"
    return f"chained: {{{common}}}\nunstored: {{{common}, history: {{owner: gateway}}}}"


def _handles(gateway: Local) -> list[str | None]:
    """The handle of each thread in the ledger."""
    return [handle for (handle,) in query(gateway.database, "SELECT handle FROM thread")]


async def test_each_request_goes_on_from_the_last_completed_response_with_the_new_input_alone(
    ogx_proxy: RecordingProxy, aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        async with chained.stream("two", first["contextId"]) as stream:
            frames = await stream.rest()
        third = await chained.send("three", first["contextId"])

    assert (text_of(first), streamed_text(frames), text_of(third)) == (_HELLO, _HELLO, _HELLO)
    ids = response_ids(ogx_proxy)
    assert len(set(ids)) == 3
    same = {"model": "openai/gpt-4", "store": True, "stream": True, "instructions": "Be brief."}
    assert [exchange.body for exchange in ogx_proxy.exchanges] == [
        {**same, "input": [user("one")]},
        {**same, "input": [user("two")], "previous_response_id": ids[0]},
        {**same, "input": [user("three")], "previous_response_id": ids[1]},
    ]
    assert _handles(gateway) == [ids[2]]
    model = aimock_peer.journal()[-1]["body"]["messages"]
    assert [message["role"] for message in model] == ["system", "user", "assistant", "user", "assistant", "user"]


async def test_two_contexts_have_two_chains(ogx_proxy: RecordingProxy, start_local: StartLocal) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        one, two = [await chained.send(text) for text in ("one", "two")]
        await chained.send("more of one", one["contextId"])
        await chained.send("more of two", two["contextId"])

    ids = response_ids(ogx_proxy)
    assert [handle for handle, _ in steps(ogx_proxy)] == [None, None, ids[0], ids[1]]


@pytest.mark.parametrize("events", [1, 2, 6], ids=["after created", "before any text", "in mid-text"])
async def test_a_dropped_stream_does_not_move_the_handle(
    ogx_proxy: RecordingProxy, start_local: StartLocal, events: int
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url, "repeat_unknown: false"))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        context = first["contextId"]
        ogx_proxy.cut_stream(after_events=events)
        dropped = await chained.send("slow", context)
        after_the_drop = _handles(gateway)
        third = await chained.send("three", context)
        fourth = await chained.send("four", context)

    assert why(dropped) == failed(ErrorClass.INTERRUPTED)
    assert "tick39" not in text_of(dropped)
    ids = response_ids(ogx_proxy)
    assert after_the_drop == [ids[0]]
    assert (why(third), why(fourth)) == (COMPLETED, COMPLETED)
    # The message whose answer was lost is not at the backend yet: it goes with the next one.
    assert steps(ogx_proxy) == [
        (None, [user("one")]),
        (ids[0], [user("slow")]),
        (ids[0], [user("slow"), user("three")]),
        (ids[2], [user("four")]),
    ]


async def test_a_dropped_stream_of_which_nothing_was_shown_is_asked_for_again(
    ogx_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        ogx_proxy.cut_stream(after_events=1)
        dropped = await chained.send("slow", first["contextId"])

    assert why(dropped) == COMPLETED
    first_id = response_id(ogx_proxy.exchanges[0])
    assert steps(ogx_proxy)[1:] == [(first_id, [user("slow")])] * 2


async def test_a_first_call_that_fails_leaves_its_message_to_the_next_one(
    ogx_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url, "repeat_unknown: false"))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        ogx_proxy.cut_stream(after_events=4)
        dropped = await chained.send("slow")
        second = await chained.send("two", dropped["contextId"])

    assert (why(dropped), why(second)) == (failed(ErrorClass.INTERRUPTED), COMPLETED)
    assert steps(ogx_proxy) == [(None, [user("slow")]), (None, [user("slow"), user("two")])]


async def test_a_lost_chain_is_an_error_and_never_a_fresh_start(
    ogx_proxy: RecordingProxy, ogx_peer: Peer, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        lost = response_id(ogx_proxy.exchanges[0])
        async with httpx2.AsyncClient(trust_env=False) as client:
            (await client.delete(f"{ogx_peer.url}/responses/{lost}")).raise_for_status()
        second = await chained.send("two", first["contextId"])
        third = await chained.send("three", first["contextId"])
        elsewhere = await chained.send("four")

    assert why(second) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert why(third) == failed(ErrorClass.HANDLE_EXPIRED)
    assert "start a new context" in why(second)[1]
    assert [handle for handle, _ in steps(ogx_proxy)] == [None, lost, lost, None]
    assert lost in _handles(gateway)
    assert why(elsewhere) == COMPLETED
    assert lost.encode() not in chained.seen


async def test_a_lost_chain_is_told_again_where_that_is_allowed(
    ogx_proxy: RecordingProxy, ogx_peer: Peer, start_local: StartLocal
) -> None:
    agent = f"type: openai-responses, model: openai/gpt-4, base_url: '{ogx_proxy.url}', on_lost_handle: rebuild"
    gateway = await start_local(f"chained: {{{agent}}}")
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        lost = response_id(ogx_proxy.exchanges[0])
        async with httpx2.AsyncClient(trust_env=False) as client:
            (await client.delete(f"{ogx_peer.url}/responses/{lost}")).raise_for_status()
        second = await chained.send("two", first["contextId"])
        third = await chained.send("three", first["contextId"])

    assert [why(task) for task in (second, third)] == [COMPLETED, COMPLETED]
    told_again = (None, [user("one"), assistant(_HELLO), user("two")])
    assert steps(ogx_proxy)[-2:] == [told_again, (response_id(ogx_proxy.exchanges[-2]), [user("three")])]
    assert {handle for handle, _ in steps(ogx_proxy)[1:-2]} == {lost}


async def test_messages_that_come_together_run_one_after_another_in_their_order(
    ogx_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        context = (await chained.send("first"))["contextId"]
        tasks = await asyncio.gather(*(chained.send(text, context) for text in ("slow", "two", "three")))

    assert [why(task) for task in tasks] == [COMPLETED] * 3
    sent = steps(ogx_proxy)
    assert sorted(items[0]["content"][0]["text"] for _, items in sent[1:]) == ["slow", "three", "two"]
    # Each goes on from the response before it: no two from the same one.
    ids = response_ids(ogx_proxy)
    assert [handle for handle, _ in sent] == [None, *ids[:-1]]


async def test_a_rate_limit_that_ogx_hides_in_a_200_is_told_as_one(
    ogx_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        chained = A2A(http, "chained")
        first = await chained.send("one")
        limited = await chained.send("limit", first["contextId"])
        third = await chained.send("three", first["contextId"])

    assert (why(limited), why(third)) == (failed(ErrorClass.RATE_LIMITED), COMPLETED)
    first_id = response_id(ogx_proxy.exchanges[0])
    tries, then = [(first_id, [user("limit")])] * 3, (first_id, [user("limit"), user("three")])
    assert steps(ogx_proxy)[1:] == [*tries, then]
    assert b"Rate limited" not in chained.seen


async def test_with_a_history_of_its_own_the_gateway_sends_the_whole_conversation(
    ogx_proxy: RecordingProxy, aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agents(ogx_proxy.url))
    async with a2a_http(gateway.url) as http:
        unstored = A2A(http, "unstored")
        first = await unstored.send("one")
        ogx_proxy.cut_stream(after_events=6)
        dropped = await unstored.send("slow", first["contextId"])
        third = await unstored.send("three", first["contextId"])

    assert [why(task)[0] for task in (first, dropped, third)] == [
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_COMPLETED",
    ]
    same = {
        "model": "openai/gpt-4",
        "store": False,
        "stream": True,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
    }
    assert [exchange.body for exchange in ogx_proxy.exchanges] == [
        {**same, "input": [user("one")]},
        {**same, "input": [user("one"), assistant(_HELLO), user("slow")]},
        {**same, "input": [user("one"), assistant(_HELLO), user("slow"), user("three")]},
    ]
    assert _handles(gateway) == [None]
    model = aimock_peer.journal()[-1]["body"]["messages"]
    assert [message["role"] for message in model] == ["system", "user", "assistant", "user", "user"]
