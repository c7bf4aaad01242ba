"""The client against a scripted agent: its requests on each binding, and how it resumes a cut stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.client.client import Client, Retry
from gateway.client.discovery import Binding, Endpoint
from gateway.client.transport import ClientError, NotA2A, Refused, StreamLost, Unreachable, open_http
from tests.gateway.cli.scripted_agent import (
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    Events,
    Plain,
    Result,
    ScriptedAgent,
    rpc_error,
    says,
    status,
    task,
)

Json = Any

REQUEST: dict[str, Json] = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}}
STARTED = (0, {"task": task()})


class Naps:
    """Sleeps that take no time."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)


@asynccontextmanager
async def client_of(
    agent: ScriptedAgent,
    *,
    binding: Binding = Binding.JSONRPC,
    tenant: str | None = None,
    streaming: bool = True,
    naps: Naps | None = None,
) -> AsyncIterator[Client]:
    async with agent.running(), open_http(agent.url) as http:
        endpoint = Endpoint(f"{agent.url}/rpc", binding, tenant, streaming)
        yield Client(http, endpoint, Retry(tries=2), naps or Naps())


async def streamed(agent: ScriptedAgent, naps: Naps | None = None) -> list[Json]:
    async with client_of(agent, naps=naps) as client:
        return [event async for event in client.stream(REQUEST)]


async def test_send_posts_one_call_of_json_rpc_and_gives_its_result() -> None:
    agent = ScriptedAgent(Result({"task": task(COMPLETED, "Hello")}))
    async with client_of(agent) as client:
        assert await client.send(REQUEST, "key-1") == {"task": task(COMPLETED, "Hello")}
    asked = agent.asked[0]
    assert (asked.operation, asked.body) == ("SendMessage", REQUEST)
    assert {name: asked.headers.get(name) for name in ("a2a-version", "idempotency-key", "content-type")} == {
        "a2a-version": "1.0",
        "idempotency-key": "key-1",
        "content-type": "application/json",
    }


async def test_the_tenant_of_a_card_goes_into_the_params_of_json_rpc_and_the_path_of_rest() -> None:
    agent = ScriptedAgent(Result({"task": task(COMPLETED)}))
    async with client_of(agent, tenant="blue") as client:
        await client.send(REQUEST)
    assert agent.asked[0].body == {"tenant": "blue", **REQUEST}
    agent = ScriptedAgent(Result({"task": task(COMPLETED)}), binding="HTTP+JSON")
    async with client_of(agent, binding=Binding.REST, tenant="blue") as client:
        await client.send(REQUEST)
    assert (agent.operations, agent.asked[0].body) == (["POST /rpc/blue/message:send"], REQUEST)


async def test_rest_has_an_address_for_every_operation() -> None:
    agent = ScriptedAgent(
        Result({"task": task()}),
        Events([STARTED], cut=True),
        Events([(None, {"task": task()}), (1, says("Hi")), (2, status(COMPLETED))]),
        Result(task(COMPLETED)),
        binding="HTTP+JSON",
    )
    async with client_of(agent, binding=Binding.REST) as client:
        await client.send(REQUEST)
        assert [event async for event in client.stream(REQUEST)][-1] == status(COMPLETED)
        await client.get_task("t/1")
    assert agent.operations == [
        "POST /rpc/message:send",
        "POST /rpc/message:stream",
        "GET /rpc/tasks/t-1:subscribe",
        "GET /rpc/tasks/t/1",
    ]


async def test_a_stream_ends_with_the_task() -> None:
    events = [STARTED, (1, says("Hel")), (2, says("lo")), (3, status(COMPLETED))]
    assert await streamed(ScriptedAgent(Events(events))) == [event for _, event in events]


async def test_a_stream_ends_with_a_bare_message() -> None:
    reply = {"message": {"messageId": "m-2", "role": "ROLE_AGENT", "parts": [{"text": "Hello"}]}}
    assert await streamed(ScriptedAgent(Events([(None, reply)]))) == [reply]


async def test_a_stream_ends_when_the_task_waits_for_the_user_even_if_the_connection_stays() -> None:
    agent = ScriptedAgent(Events([STARTED, (1, status(INPUT_REQUIRED, "Which city?")), (2, says("never read"))]))
    assert (await streamed(agent))[-1] == status(INPUT_REQUIRED, "Which city?")


async def test_a_task_that_waited_before_this_message_does_not_end_the_stream() -> None:
    events = [(0, {"task": task(INPUT_REQUIRED)}), (1, status(WORKING)), (2, status(COMPLETED))]
    assert len(await streamed(ScriptedAgent(Events(events)))) == 3


async def test_a_cut_stream_continues_after_the_last_event_without_gap_or_repeat() -> None:
    naps = Naps()
    agent = ScriptedAgent(
        Events([STARTED, (1, says("one ")), (2, says("two "))], cut=True),
        Plain("busy", 503, {"Retry-After": "1"}),
        Events([(None, {"task": task(WORKING, "one two ")}), (2, says("two ")), (3, says("three"))]),
        Events([(4, status(COMPLETED))]),
    )
    events = await streamed(agent, naps)
    assert [event for event in events if "task" not in event] == [
        says("one "),
        says("two "),
        says("three"),
        status(COMPLETED),
    ]
    assert agent.operations == ["SendStreamingMessage", *["SubscribeToTask"] * 3]
    assert [asked.headers.get("last-event-id") for asked in agent.asked] == [None, "2", "2", "3"]
    assert agent.asked[1].body == {"id": "t-1"}
    assert naps.lengths == [0.25, 1.0, 0.25]


async def test_a_stream_without_numbers_continues_with_the_present_task() -> None:
    agent = ScriptedAgent(
        Events([(None, {"task": task()}), (None, says("one "))], cut=True),
        Events([(None, {"task": task(WORKING, "one two ")}), (None, status(COMPLETED))]),
    )
    assert (await streamed(agent))[2:] == [{"task": task(WORKING, "one two ")}, status(COMPLETED)]
    assert "last-event-id" not in agent.asked[1].headers


async def test_a_task_that_ended_meanwhile_is_read_where_it_is_not_streamed_again() -> None:
    agent = ScriptedAgent(
        Events([STARTED, (1, says("one "))], cut=True),
        Plain(rpc_error(-32004, "it has ended", "UNSUPPORTED_OPERATION")),
        Result(task(COMPLETED, "one two")),
    )
    assert (await streamed(agent))[-1] == {"task": task(COMPLETED, "one two")}


async def test_a_task_that_runs_but_is_not_streamed_again_is_the_error_it_is() -> None:
    agent = ScriptedAgent(
        Events([STARTED], cut=True), Plain(rpc_error(-32601, "no such method")), Result(task(WORKING))
    )
    with pytest.raises(Refused, match="no such method"):
        await streamed(agent)


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_stream_without_new_events_is_given_up(numbered: bool) -> None:
    same = Events([(1 if numbered else None, says("one"))], cut=True)
    naps = Naps()
    agent = ScriptedAgent(Events([STARTED, (1, says("one"))]), same, same)
    with pytest.raises((Unreachable, StreamLost)):
        await streamed(agent, naps)
    assert agent.operations == ["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"]
    assert naps.lengths == [0.25, 0.5]


async def test_a_stream_that_is_cut_before_it_names_a_task_is_not_sent_again() -> None:
    agent = ScriptedAgent(Events([], cut=True))
    with pytest.raises(Unreachable, match="closed the connection before its answer was complete"):
        await streamed(agent)
    assert agent.operations == ["SendStreamingMessage"]


async def test_an_error_inside_a_stream_ends_it() -> None:
    agent = ScriptedAgent(Plain('data: {"error": {"code": -32603, "message": "oh"}}\n\n', 200, SSE))
    with pytest.raises(Refused, match="oh") as caught:
        await streamed(agent)
    assert caught.value.code == -32603


SSE = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Plain("<html>", 200, {"Content-Type": "text/html"}), NotA2A, "does not answer as A2A 1.0 does: text/html"),
        (Plain({"result": []}), NotA2A, "does not answer as A2A 1.0 does"),
        (Plain("data: nonsense\n\n", 200, SSE), NotA2A, "sent an event that is no A2A 1.0: 'nonsense'"),
        (Result({"task": task(COMPLETED)}), NotA2A, "answered SendStreamingMessage with no stream"),
        (Plain(rpc_error(-32001, "Task not found")), Refused, "Task not found"),
        (Plain("", 500), Refused, "answered HTTP 500 Internal Server Error"),
        (Plain("", 307, {"Location": "/there"}), Refused, "points to /there; use that address"),
    ],
)
async def test_an_answer_that_is_no_stream_is_reported(answer: Any, kind: type[ClientError], words: str) -> None:
    with pytest.raises(kind, match=words):
        await streamed(ScriptedAgent(answer))


async def test_waiting_follows_the_stream_and_then_reads_the_task() -> None:
    agent = ScriptedAgent(Events([STARTED, (1, status(COMPLETED))]), Result(task(COMPLETED, "Hi")))
    async with client_of(agent) as client:
        assert await client.wait("t-1") == task(COMPLETED, "Hi")
    assert agent.operations == ["SubscribeToTask", "GetTask"]


async def test_following_a_task_that_waits_for_the_user_ends_at_once() -> None:
    agent = ScriptedAgent(Events([(4, {"task": task(INPUT_REQUIRED)}), (5, says("never read"))]))
    async with client_of(agent) as client:
        assert [event async for event in client.follow("t-1")] == [{"task": task(INPUT_REQUIRED)}]


async def test_waiting_for_an_agent_that_does_not_stream_asks_again_and_again() -> None:
    naps = Naps()
    agent = ScriptedAgent(Result(task()), Result(task()), Result(task(COMPLETED)))
    async with client_of(agent, streaming=False, naps=naps) as client:
        assert await client.wait("t-1", poll=3) == task(COMPLETED)
    assert naps.lengths == [3, 3]


# --- tasks ------------------------------------------------------------------------------------------------------------


async def listed(agent: ScriptedAgent, limit: int | None, binding: Binding = Binding.JSONRPC) -> list[Json]:
    async with client_of(agent, binding=binding) as client:
        return [found async for found in client.tasks({"contextId": "c 1", "includeArtifacts": True}, limit)]


async def test_tasks_are_read_page_by_page_as_far_as_they_are_wanted() -> None:
    one, two, three = ({**task(), "id": name} for name in ("1", "2", "3"))
    pages = (Result({"tasks": [one, two], "nextPageToken": "p2"}), Result({"tasks": [three], "nextPageToken": ""}))
    agent = ScriptedAgent(*pages)
    assert await listed(agent, None) == [one, two, three]
    where = {"contextId": "c 1", "includeArtifacts": True}
    assert [asked.body for asked in agent.asked] == [
        {**where, "pageSize": 100},
        {**where, "pageSize": 100, "pageToken": "p2"},
    ]
    agent = ScriptedAgent(pages[0])
    assert await listed(agent, 1) == [one]
    assert agent.asked[0].body["pageSize"] == 1


async def test_an_agent_that_repeats_a_page_is_not_asked_for_ever() -> None:
    agent = ScriptedAgent(*[Result({"tasks": [], "nextPageToken": "again"})] * 3)
    assert await listed(agent, None) == []
    assert len(agent.asked) == 2


async def test_filters_are_parameters_of_the_address_with_rest() -> None:
    agent = ScriptedAgent(Result({"tasks": [task()]}), binding="HTTP+JSON")
    assert await listed(agent, 5, Binding.REST) == [task()]
    assert agent.operations == ["GET /rpc/tasks"]


async def test_a_task_is_canceled_with_its_id_in_one_place() -> None:
    agent = ScriptedAgent(Result(task(COMPLETED)))
    async with client_of(agent) as client:
        assert await client.cancel_task("t 1") == task(COMPLETED)
    assert (agent.asked[0].operation, agent.asked[0].body) == ("CancelTask", {"id": "t 1"})
    agent = ScriptedAgent(Result(task(COMPLETED)), binding="HTTP+JSON")
    async with client_of(agent, binding=Binding.REST) as client:
        await client.cancel_task("t 1")
    assert (agent.asked[0].operation, agent.asked[0].body) == ("POST /rpc/tasks/t 1:cancel", {})


async def test_a_task_is_followed_from_a_number_and_past_what_it_waited_for_before() -> None:
    def waited(moment: str) -> Json:
        event = status(INPUT_REQUIRED, "Which?")
        event["statusUpdate"]["status"]["timestamp"] = moment
        return event

    story = [
        (None, {"task": task()}),
        (8, waited("2026-11-20T10:00:00Z")),
        (9, says("So")),
        (10, waited("2026-11-20T11:00:00Z")),
    ]
    agent = ScriptedAgent(Events([*story, (11, says("never read"))]))
    async with client_of(agent) as client:
        events = [event async for event in client.follow("t-1", 7, "2026-11-20T11:00:00Z")]
    assert events == [event for _, event in story]
    assert agent.asked[0].headers["last-event-id"] == "7"
