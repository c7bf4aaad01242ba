"""The official client, a2a-sdk, over both bindings and in front of every kind of agent."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, Parse  # type: ignore[import-untyped]

from gateway.core.history import INTERRUPTED
from tests.interop.echo_agent import gate, knows
from tests.interop.sdk import (
    OVER_HTTP,
    TOOL_CALLS,
    UNFINISHED,
    Sdk,
    everywhere,
    held_text,
    kinds,
    request_of,
    sdk,
    streamed_text,
    text_of,
)
from tests.receiver import receiving

__all__ = ["sdk"]

# --- card and messages ------------------------------------------------------------------------------------------------


@everywhere()
async def test_the_card_names_all_bindings_and_their_addresses(sdk: Sdk) -> None:
    interfaces = [(each.protocol_binding, each.url, each.protocol_version) for each in sdk.card.supported_interfaces]

    over_grpc = [] if sdk.grpc is None else [("GRPC", f"127.0.0.1:{sdk.grpc}", "1.0")]
    assert sorted(interfaces) == [*over_grpc, ("HTTP+JSON", sdk.base, "1.0"), ("JSONRPC", sdk.base, "1.0")]
    assert sdk.card.capabilities.streaming
    assert sdk.card.capabilities.push_notifications


@everywhere()
async def test_a_blocking_message_returns_the_ended_task(sdk: Sdk) -> None:
    task = await sdk.send("one")

    assert TaskState.Name(task.status.state) == "TASK_STATE_COMPLETED"
    assert text_of(task) == knows("one")
    assert [part.text for message in task.history for part in message.parts] == ["one"]
    assert task == await sdk.blocking.get_task(GetTaskRequest(id=task.id))


@everywhere()
async def test_a_message_that_does_not_wait_returns_a_task_that_can_be_polled(sdk: Sdk) -> None:
    text = held_text()
    (only,) = [response async for response in sdk.polling.send_message(request_of(text))]
    polled = only.task
    assert polled.status.state in UNFINISHED

    gate(text).set()
    async with asyncio.timeout(20):
        while polled.status.state in UNFINISHED:
            polled = await sdk.polling.get_task(GetTaskRequest(id=polled.id))

    assert TaskState.Name(polled.status.state) == "TASK_STATE_COMPLETED"
    assert text_of(polled) == "before after"


@everywhere()
async def test_a_stream_begins_with_the_task_and_brings_the_answer_in_pieces(sdk: Sdk) -> None:
    responses = await sdk.stream("one two three")
    task = responses[0].task

    assert kinds(responses) == ["task", "artifact_update", "TASK_STATE_COMPLETED"]
    assert TaskState.Name(task.status.state) == "TASK_STATE_WORKING"
    updates = [response.artifact_update for response in responses if response.HasField("artifact_update")]
    assert [update.append for update in updates] == [False, True, True, True, True]
    assert {update.artifact.artifact_id for update in updates} == {updates[0].artifact.artifact_id}
    assert streamed_text(responses) == knows("one two three")
    stored = await sdk.blocking.get_task(GetTaskRequest(id=task.id))
    assert text_of(stored) == knows("one two three")
    assert stored.status == responses[-1].status_update.status


@everywhere(("function", "chained", "unstored"))
async def test_a_tool_that_the_agent_runs_is_shown_with_arguments_and_result(sdk: Sdk) -> None:
    responses = await sdk.stream("tool")
    messages = [
        part
        for response in responses
        if response.HasField("status_update")
        for part in response.status_update.status.message.parts
        if part.HasField("data")
    ]

    requested, answered = (MessageToDict(part.data) for part in messages)
    assert (requested["name"], requested["args"]) == ("lookup", {"city": "Oslo"})
    assert answered == {"id": requested["id"], "name": "lookup", "response": {"result": "3C"}}
    assert [MessageToDict(part.metadata)[TOOL_CALLS]["phase"] for part in messages] == ["requested", "succeeded"]
    assert streamed_text(responses) == knows("tool")


# --- several turns ----------------------------------------------------------------------------------------------------


@everywhere()
async def test_later_messages_of_a_context_know_the_earlier_ones(sdk: Sdk) -> None:
    first = await sdk.send("one")
    second = await sdk.stream("two", context_id=first.context_id)
    third = await sdk.send("three", context_id=first.context_id, reference_task_ids=[first.id])
    elsewhere = await sdk.send("four")

    assert streamed_text(second) == knows("one", "two")
    assert text_of(third) == knows("one", "two", "three")
    assert len({first.id, second[0].task.id, third.id}) == 3
    assert {first.context_id, second[0].task.context_id, third.context_id} == {first.context_id}
    assert text_of(elsewhere) == knows("four")


@everywhere()
async def test_a_context_may_be_named_by_the_client(sdk: Sdk) -> None:
    mine = str(uuid4())
    first = await sdk.send("one", context_id=mine)
    second = await sdk.send("two", context_id=mine)

    assert (first.context_id, second.context_id) == (mine, mine)
    assert text_of(second) == knows("one", "two")


@everywhere()
async def test_an_ended_task_takes_no_message(sdk: Sdk) -> None:
    ended = await sdk.send("one")

    with pytest.raises(UnsupportedOperationError):
        await sdk.send("two", task_id=ended.id)
    with pytest.raises(UnsupportedOperationError):
        await sdk.stream("two", task_id=ended.id, context_id=ended.context_id)
    with pytest.raises(InvalidParamsError, match="contextId"):
        await sdk.send("two", task_id=ended.id, context_id=str(uuid4()))
    with pytest.raises(TaskNotFoundError):
        await sdk.send("two", task_id=str(uuid4()))
    assert text_of(await sdk.send("three", context_id=ended.context_id)) == knows("one", "three")


@everywhere(("function",))
@pytest.mark.parametrize("way", ["send", "stream"])
async def test_a_question_is_answered_by_the_task_alone(sdk: Sdk, way: str) -> None:
    asked = await sdk.send("ask")
    assert TaskState.Name(asked.status.state) == "TASK_STATE_INPUT_REQUIRED"
    assert asked.status.message.parts[0].text == "Which city?"

    if way == "send":
        answered = await sdk.send("Oslo", task_id=asked.id)
    else:
        responses = await sdk.stream("Oslo", task_id=asked.id)
        assert kinds(responses)[-2:] == ["artifact_update", "TASK_STATE_COMPLETED"]
        answered = await sdk.blocking.get_task(GetTaskRequest(id=asked.id))

    assert (answered.id, answered.context_id) == (asked.id, asked.context_id)
    assert TaskState.Name(answered.status.state) == "TASK_STATE_COMPLETED"
    assert text_of(answered) == knows("ask", "Oslo")
    assert [part.text for message in answered.history for part in message.parts] == ["ask", "Which city?", "Oslo"]


# --- get, list, cancel ------------------------------------------------------------------------------------------------


@everywhere()
async def test_a_task_is_read_with_as_much_history_as_is_asked_for(sdk: Sdk) -> None:
    task = await sdk.send("one")

    for length, expected in ((0, []), (1, ["one"]), (5, ["one"])):
        read = await sdk.blocking.get_task(GetTaskRequest(id=task.id, history_length=length))
        assert [message.parts[0].text for message in read.history] == expected
    none = await sdk.send("two", configuration=SendMessageConfiguration(history_length=0))
    assert not none.history
    with pytest.raises(TaskNotFoundError):
        await sdk.blocking.get_task(GetTaskRequest(id=str(uuid4())))


@everywhere()
async def test_tasks_are_listed_by_context_state_and_time(sdk: Sdk) -> None:
    one = await sdk.send("one")
    two = await sdk.send("two", context_id=one.context_id)
    text = held_text()
    async with sdk.held(text) as (running, rest):

        async def listed(**filters: Any) -> list[str]:
            response = await sdk.blocking.list_tasks(ListTasksRequest(**filters))
            assert response.total_size == len(response.tasks)
            assert response.next_page_token == ""
            return [task.id for task in response.tasks]

        assert await listed() == [running.id, two.id, one.id]
        assert await listed(context_id=one.context_id) == [two.id, one.id]
        assert await listed(status=TaskState.TASK_STATE_WORKING) == [running.id]
        assert await listed(status=TaskState.TASK_STATE_COMPLETED) == [two.id, one.id]
        assert await listed(context_id=one.context_id, status=TaskState.TASK_STATE_WORKING) == []
        later = two.status.timestamp.ToDatetime() + timedelta(milliseconds=1)
        assert await listed(status_timestamp_after=later, context_id=one.context_id) == []
        assert await listed(status_timestamp_after=two.status.timestamp, context_id=two.context_id) in (
            [two.id],
            [two.id, one.id],
        )
        assert await listed(context_id=str(uuid4())) == []
        gate(text).set()
        async for _ in rest:
            pass

    bare = await sdk.blocking.list_tasks(ListTasksRequest(context_id=one.context_id, history_length=0))
    assert [(len(task.artifacts), len(task.history)) for task in bare.tasks] == [(0, 0), (0, 0)]
    whole = await sdk.blocking.list_tasks(ListTasksRequest(context_id=one.context_id, include_artifacts=True))
    assert list(whole.tasks) == [two, one]


@everywhere()
async def test_pages_stay_in_step_while_tasks_come_in(sdk: Sdk) -> None:
    tasks = [await sdk.send(f"message {number}") for number in range(5)]
    context = tasks[0].context_id

    first = await sdk.blocking.list_tasks(ListTasksRequest(page_size=2))
    await sdk.send("late", context_id=context)
    second = await sdk.blocking.list_tasks(ListTasksRequest(page_size=2, page_token=first.next_page_token))
    third = await sdk.blocking.list_tasks(ListTasksRequest(page_size=2, page_token=second.next_page_token))

    pages = [[task.id for task in page.tasks] for page in (first, second, third)]
    ids = [task.id for task in reversed(tasks)]
    assert pages == [ids[:2], ids[2:4], ids[4:]]
    assert [page.total_size for page in (first, second, third)] == [5, 6, 6]
    assert (first.page_size, third.next_page_token) == (2, "")
    with pytest.raises(InvalidParamsError):
        await sdk.blocking.list_tasks(ListTasksRequest(page_token="made up"))
    with pytest.raises(InvalidParamsError):
        await sdk.blocking.list_tasks(ListTasksRequest(page_size=1000))


@everywhere()
async def test_a_cancelled_task_ends_its_stream_and_stays_in_the_conversation(sdk: Sdk) -> None:
    text = held_text()
    async with sdk.held(text) as (task, rest):
        cancelled = await sdk.blocking.cancel_task(CancelTaskRequest(id=task.id))
        seen = [response async for response in rest]

    assert TaskState.Name(cancelled.status.state) == "TASK_STATE_CANCELED"
    assert text_of(cancelled) == "before "
    assert kinds(seen) == ["TASK_STATE_CANCELED"]
    assert await sdk.blocking.get_task(GetTaskRequest(id=task.id)) == cancelled
    with pytest.raises(TaskNotCancelableError):
        await sdk.blocking.cancel_task(CancelTaskRequest(id=task.id))
    with pytest.raises(TaskNotFoundError):
        await sdk.blocking.cancel_task(CancelTaskRequest(id=str(uuid4())))
    # A backend that keeps the conversation is told what the user has seen of the answer.
    note = [f"{INTERRUPTED}before "] if sdk.card.name == "chained" else []
    assert text_of(await sdk.send("next", context_id=task.context_id)) == knows(text, *note, "next")


# --- subscribing ------------------------------------------------------------------------------------------------------


@everywhere()
async def test_a_subscriber_of_a_running_task_gets_what_there_is_and_then_the_rest(sdk: Sdk) -> None:
    text = held_text()
    async with sdk.held(text) as (task, rest):
        subscription = sdk.subscribe(task)
        snapshot = await anext(subscription)
        gate(text).set()
        late = [response async for response in subscription]
        seen = [response async for response in rest]

    assert snapshot.task.id == task.id
    assert text_of(snapshot.task) == "before "
    assert late == seen
    assert kinds(late) == ["artifact_update", "TASK_STATE_COMPLETED"]
    assert streamed_text(late) == "after"


@everywhere()
async def test_an_ended_or_unknown_task_cannot_be_subscribed_to(sdk: Sdk) -> None:
    ended = await sdk.send("one")

    with pytest.raises(UnsupportedOperationError):
        [response async for response in sdk.subscribe(ended)]
    with pytest.raises(TaskNotFoundError):
        [response async for response in sdk.subscribe(Task(id=str(uuid4())))]


@everywhere()
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_subscriber_that_comes_back_gets_exactly_the_events_it_missed(sdk: Sdk, after: int) -> None:
    text = held_text()
    async with sdk.held(text) as (task, rest):
        if after > 1:  # the agent holds behind the first event
            gate(text).set()
            [_ async for _ in rest]
        resumed = sdk.subscribe(task, after)
        snapshot = await anext(resumed)
        gate(text).set()
        later = [response async for response in resumed]

    everything = [response async for response in sdk.subscribe(task, 0)]
    assert everything[0].HasField("task")
    assert later == everything[1 + after :]
    assert text_of(snapshot.task) + streamed_text(later) == "before after"
    assert later[-1].status_update.status == (await sdk.blocking.get_task(GetTaskRequest(id=task.id))).status


@everywhere(bindings=OVER_HTTP)
async def test_replayed_events_carry_the_numbers_they_had(sdk: Sdk) -> None:
    task = await sdk.send("one two")
    headers = {"A2A-Version": "1.0", "Last-Event-ID": "1"}
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task.id}}
    if sdk.binding == "JSONRPC":
        replay = await sdk.http.post(sdk.base, json=envelope, headers=headers)
    else:
        replay = await sdk.http.get(f"{sdk.base}/tasks/{task.id}:subscribe", headers=headers)

    assert replay.headers["content-type"] == "text/event-stream"
    numbers = [int(line.removeprefix("id: ")) for line in replay.text.splitlines() if line.startswith("id: ")]
    # The Task was 0, each of the words was one, and the end.
    assert numbers == list(range(2, len(knows("one two").split(" ")) + 2))


# --- push notifications -------------------------------------------------------------------------------------------------


@everywhere(("function", "chained"))
async def test_a_configuration_is_made_read_listed_and_deleted(sdk: Sdk) -> None:
    task = await sdk.send("one")
    client = sdk.blocking
    wanted = TaskPushNotificationConfig(
        task_id=task.id,
        id="c",
        url="https://hook.invalid/a",
        token="t",
        authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
    )
    made = await client.create_task_push_notification_config(wanted)
    assert (made.id, made.task_id, made.url, made.authentication.scheme) == ("c", task.id, wanted.url, "Bearer")
    assert (made.token, made.authentication.credentials) == ("", "")
    one = GetTaskPushNotificationConfigRequest(task_id=task.id, id="c")
    assert await client.get_task_push_notification_config(one) == made
    all_of_it = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    assert list((await client.list_task_push_notification_configs(all_of_it)).configs) == [made]

    for _ in range(2):
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="c")
        )
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(one)
    assert not (await client.list_task_push_notification_configs(all_of_it)).configs


@everywhere(("function",))
async def test_configurations_of_unknown_tasks_and_forbidden_addresses_are_refused(sdk: Sdk) -> None:
    client = sdk.blocking
    with pytest.raises(TaskNotFoundError):
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id="unknown", url="https://hook.invalid/")
        )
    task = await sdk.send("one")
    for url in ("https://192.168.0.1/", "gopher://hook.invalid/", "https://u:p@hook.invalid/"):
        with pytest.raises(InvalidParamsError):
            await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task.id, url=url))


@everywhere()
async def test_what_a_message_asks_for_is_posted_as_the_sdk_reads_it(sdk: Sdk) -> None:
    async with receiving() as receiver:
        config = TaskPushNotificationConfig(
            url=f"{receiver.url}/hook",
            token="tok",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
        )
        task = await sdk.send("one", configuration=SendMessageConfiguration(task_push_notification_config=config))
        letters = await receiver.ended()
    responses = [Parse(letter.body, StreamResponse()) for letter in letters]
    assert kinds(responses)[-1] == "TASK_STATE_COMPLETED"
    assert streamed_text(responses) == text_of(task)
    assert responses[-1].status_update.status == task.status
    assert {
        (each.headers["authorization"], each.headers["x-a2a-notification-token"], each.headers["content-type"])
        for each in letters
    } == {("Bearer secret", "tok", "application/a2a+json")}


@everywhere(("function",))
async def test_a_held_task_gets_a_configuration_and_its_end_is_posted(sdk: Sdk) -> None:
    text = held_text()
    async with receiving() as receiver:
        async with sdk.held(text) as (task, rest):
            await sdk.blocking.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=task.id, url=receiver.url)
            )
            gate(text).set()
            live = [response async for response in rest]
        letters = await receiver.ended()
    assert [Parse(letter.body, StreamResponse()) for letter in letters] == live


# --- what the card does not declare -----------------------------------------------------------------------------------


@everywhere(("function",))
async def test_the_extended_card_is_refused_as_undeclared(sdk: Sdk) -> None:
    # The SDK asks only an agent that declares the card.
    declaring = AgentCard()
    declaring.CopyFrom(sdk.card)
    declaring.capabilities.extended_agent_card = True
    config = ClientConfig(
        httpx_client=sdk.http,
        grpc_channel_factory=grpc.aio.insecure_channel,
        supported_protocol_bindings=[sdk.binding],
    )
    factory = ClientFactory(config)
    with pytest.raises(UnsupportedOperationError):
        await factory.create(declaring).get_extended_agent_card(GetExtendedAgentCardRequest())
