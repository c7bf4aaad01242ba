"""The eleven operations, as a binding calls them."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.a2a.errors import (
    Busy,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    Unanswered,
    UnsupportedOperation,
)
from gateway.a2a.model import (
    Artifact,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.wire import v1_0_proto
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.engine.fanout import StreamLimits
from gateway.ledger.calls import Complete
from gateway.ledger.errors import Conflict
from gateway.ledger.threads import Caller
from gateway.ports.adapter import (
    CallCompleted,
    DirectReply,
    Ending,
    PartReady,
    Progress,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
)
from tests.support.core import (
    Core,
    answer,
    events,
    frames,
    message,
    numbers,
    running_core,
    said,
    soon,
    states,
    streamed,
    until,
)
from tests.support.scripted import G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

NOW = "2026-11-20T10:00:00.000Z"
ASKS = [CallCompleted("r", Ending.INPUT_REQUIRED, (Part(text="which?"),))]


def echo(request: ServiceRequest) -> Script:
    return says(f"re {request.message.parts[0].text}")


# --- SendMessage ---


async def test_a_message_is_answered_with_the_task_when_it_is_done(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("Hel"), TextDelta("lo"), PartReady(Part(data=None)), CallCompleted()]))
    task = await core.send("hi", context="c")
    [made] = task.artifacts or ()
    assert task == Task(
        id="id-0001",
        context_id="c",
        status=TaskStatus(state=TaskState.COMPLETED, timestamp=NOW),
        artifacts=(Artifact(artifact_id=made.artifact_id, parts=(Part(text="Hello"), Part(data=None))),),
        history=(Message(message_id="m", context_id="c", task_id="id-0001", role=Role.USER, parts=(Part(text="hi"),)),),
    )
    assert await core.get(task.id) == task


async def test_a_caller_that_does_not_wait_gets_the_task_as_it_begins(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("done")]))
    task = await core.send("hi", at_once=True)
    assert task.status.state is TaskState.WORKING
    assert task.artifacts is None
    assert said(task) == ["U hi"]
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.get(task.id)) == "done"


async def test_a_message_that_was_accepted_is_not_refused_when_its_task_cannot_be_read(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("done")))
    core.ledger.refuse(Complete, Conflict("another process has the thread"))
    core.ledger.fail_reads("whole_task")
    with pytest.raises(Unanswered, match="The message was accepted"):
        await core.send("hi")
    core.ledger.fail_reads()


async def test_an_agent_that_asks_is_answered_on_the_same_task(core: Core) -> None:
    adapter = core.agent(ScriptedAdapter(G, [TextDelta("hm"), *ASKS], says("blue it is"))).adapter
    asked = await core.send("paint", context="c")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    assert asked.status.message is not None
    assert asked.status.message.parts == (Part(text="which?"),)
    assert said(asked) == ["U paint"]
    done = await core.send("blue", task=asked.id)
    assert (done.id, done.context_id, done.status.state) == (asked.id, "c", TaskState.COMPLETED)
    assert said(done) == ["U paint", "A which?", "U blue"]
    assert answer(done) == "hmblue it is"
    assert await core.get(asked.id) == done
    assert isinstance(adapter, ScriptedAdapter)
    assert [request.first_message.parts[0].text for request in adapter.requests] == ["paint", "paint"]


@pytest.mark.parametrize(
    ("length", "kept"), [(None, ["U hi", "A a", "A b"]), (0, []), (1, ["A b"]), (9, ["U hi", "A a", "A b"])]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_as_much_history_is_given_as_is_asked_for(
    core: Core, at_once: bool, length: int | None, kept: list[str]
) -> None:
    core.agent(ScriptedAdapter(G, [Progress("a"), Progress("b"), CallCompleted()]))
    configuration = SendMessageConfiguration(history_length=length, return_immediately=at_once)
    request = SendMessageRequest(message=message("hi"), configuration=configuration)
    sent = (await core.operations.send_message(core.call(), request)).task
    assert sent is not None
    await soon(core.runner.idle())
    assert said(await core.get(sent.id, history=length)) == kept
    if not at_once:
        assert said(sent) == kept


async def test_the_agent_gets_the_output_modes_that_the_caller_accepts(core: Core) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter)
    configuration = SendMessageConfiguration(accepted_output_modes=("text/plain",))
    await core.operations.send_message(
        core.call(), SendMessageRequest(message=message("hi"), configuration=configuration)
    )
    assert adapter.requests[0].accepted_output_modes == ("text/plain",)


async def test_a_gateway_that_is_about_to_stop_takes_no_message_and_still_reads(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("hi")
    core.drain.set()
    with pytest.raises(Busy, match="shutting down") as caught:
        await core.send("more")
    assert caught.value.retry_after == 1
    with pytest.raises(Busy):
        await core.stream("more")
    assert await core.get(task.id) == task


async def test_callers_of_turns_that_outlast_the_drain_hear_that_their_messages_were_accepted(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], says("b")))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_unanswered(core))
        await soon(pause.reached.wait())
        queued = group.create_task(_unanswered(core))
        await until(lambda: len(core.drain.over.callbacks) == 2)
        core.drain.set()
        core.drain.over.set()
        named = [await soon(running), await soon(queued)]
    assert named == [task.id for task in reversed((await core.list()).tasks)]
    pause.go.set()
    await soon(core.runner.idle())


async def _unanswered(core: Core) -> str:
    """The task that is named."""
    with pytest.raises(Unanswered, match="The message was accepted") as caught:
        await core.send("hi", context="c")
    return caught.value.metadata["taskId"]


@pytest.mark.parametrize(
    ("key", "policies", "then"),
    [
        (None, {}, "GetTask has the answer, in the task TASK."),
        ("k", {}, "Sent again with the same Idempotency-Key, it gets the answer."),
        ("k", {"idempotency": "off"}, "GetTask has the answer, in the task TASK."),
        (None, {"idempotency": "message_id"}, "Sent again with the same messageId, it gets the answer."),
    ],
)
async def test_a_message_whose_answer_is_not_waited_for_is_told_how_to_get_it(
    core: Core, key: str | None, policies: dict[str, Any], then: str
) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]), **policies)

    async def told() -> str:
        with pytest.raises(Unanswered) as caught:
            await core.send("hi", core.call(key=key))
        return caught.value.message

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(told())
        await soon(pause.reached.wait())
        core.drain.set()
        core.drain.over.set()
        words = await soon(sending)
        pause.go.set()
    [task] = (await core.list()).tasks
    assert words.endswith(f"is not waited for here any more. {then.replace('TASK', task.id)}")


async def test_a_caller_that_disconnects_stops_nothing_and_disturbs_no_other(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    call = core.call(key="k")
    async with asyncio.TaskGroup() as group:
        leaves = group.create_task(core.send("hi", call))
        await soon(pause.reached.wait())
        stays = group.create_task(core.send("hi", call))
        watching = await core.stream("hi", call)
        leaves.cancel()
        await soon(asyncio.wait([leaves]))
        pause.go.set()
        assert answer(await soon(stays)) == "ab"
    assert streamed(await frames(watching)) == "ab"
    await soon(core.runner.idle())


# --- SendStreamingMessage ---


async def test_a_stream_is_the_task_then_every_event_with_its_number(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("Hel"), pause, TextDelta("lo"), CallCompleted()]))
    stream = await core.stream("hi", context="c")
    pause.go.set()
    read = await frames(stream)
    opening = message("hi", context="c", task="id-0001")
    status = TaskStatus(state=TaskState.WORKING, timestamp=NOW)
    assert numbers(read) == [0, 1, 2, 3]
    [made] = (await core.get("id-0001")).artifacts or ()
    assert events(read) == [
        StreamResponse(task=Task(id="id-0001", context_id="c", status=status, history=(opening,))),
        *(
            StreamResponse(
                artifact_update=TaskArtifactUpdateEvent(
                    task_id="id-0001",
                    context_id="c",
                    artifact=Artifact(artifact_id=made.artifact_id, parts=(Part(text=text),)),
                    append=append,
                )
            )
            for text, append in (("Hel", False), ("lo", True))
        ),
        StreamResponse(
            status_update=TaskStatusUpdateEvent(
                task_id="id-0001", context_id="c", status=TaskStatus(state=TaskState.COMPLETED, timestamp=NOW)
            )
        ),
    ]


async def test_a_task_that_has_to_wait_for_its_turn_is_submitted_and_then_works(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], says("b")))
    await core.send("1", context="c", at_once=True)
    stream = await core.stream("2", context="c")
    pause.go.set()
    read = await frames(stream)
    assert numbers(read) == [0, 1, 2, 3]
    assert states(read) == ["SUBMITTED", "WORKING", "COMPLETED"]


async def test_a_stream_ends_when_the_agent_asks_and_the_next_one_continues_its_numbers(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, says("blue it is")))
    asked = await frames(await core.stream("paint"))
    task = events(asked)[0].task
    assert task is not None
    assert numbers(asked) == [0, 1]
    assert states(asked) == ["WORKING", "INPUT_REQUIRED"]
    done = await frames(await core.stream("blue", task=task.id))
    assert numbers(done) == [2, 3, 4]
    assert states(done) == ["WORKING", "COMPLETED"]


async def test_an_abandoned_stream_changes_nothing(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    stream = await core.stream("hi")
    first = await soon(anext(aiter(stream)))
    await stream.aclose()
    pause.go.set()
    task = events(first)[0].task
    assert task is not None
    await soon(core.runner.idle())
    assert answer(await core.get(task.id)) == "ab"


async def test_one_stream_too_many_is_refused_before_anything_is_stored(core: Core, tmp_path: Any) -> None:
    async with running_core(tmp_path / "small.db", limits=StreamLimits(streams=1)) as small:
        pause = Pause()
        small.agent(ScriptedAdapter(G, [pause, *says("a")]))
        stream = await small.stream("hi", context="c")
        units = len(small.ledger.units)
        with pytest.raises(Busy, match="Too many streams"):
            await small.stream("more")
        with pytest.raises(Busy, match="Too many streams"):
            await small.subscribe("id-0001")
        assert len(small.ledger.units) == units
        pause.go.set()
        await frames(stream)
        with pytest.raises(UnsupportedOperation):
            await small.subscribe("id-0001")


# --- GetTask ---


@pytest.mark.parametrize("task", ["", "nobody's", "../../etc/passwd", "'; DROP TABLE task; --", "\x00", "x" * 10_000])
async def test_no_operation_finds_an_unknown_task(core: Core, task: str) -> None:
    core.agent(ScriptedAdapter(G))
    for operation in (core.get, core.cancel, core.subscribe):
        with pytest.raises(TaskNotFound) as caught:
            await operation(task)
        assert caught.value.metadata == {"taskId": task[:100], "field": "id"}


async def test_the_task_of_another_caller_is_not_found(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    task = await core.send("hi", at_once=True)
    bob = core.call("bob")
    for _ in range(2):
        for operation in (core.get, core.cancel, core.subscribe):
            with pytest.raises(TaskNotFound) as caught:
                await operation(task.id, bob)
            assert caught.value.message == "Task not found"
        with pytest.raises(TaskNotFound):
            await core.send("more", bob, task=task.id)
        with pytest.raises(TaskNotFound):
            await core.send("more", bob, references=(task.id,))
        assert (await core.list(bob)).total_size == 0
        pause.go.set()
        await soon(core.runner.idle())


async def test_the_task_of_another_agent_is_not_found(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("hi", context="c")
    core.agent(ScriptedAdapter(G, says("b")), "other")
    with pytest.raises(TaskNotFound):
        await core.get(task.id)
    assert (await core.list()).total_size == 0
    assert answer(await core.send("hi", context="c")) == "b"


async def test_a_running_task_shows_what_it_has_said_so_far(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [Progress("look"), TextDelta("a"), pause, *says("b")]))
    sent = await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    task = await core.get(sent.id)
    assert (task.status.state, answer(task), said(task)) == (TaskState.WORKING, "a", ["U hi", "A look"])
    pause.go.set()
    await soon(core.runner.idle())


# --- ListTasks ---


async def listed(core: Core, **filters: Any) -> list[str]:
    return [said(task)[0].removeprefix("U ") for task in (await core.list(**filters)).tasks]


async def three_tasks(core: Core) -> list[Task]:
    """In the contexts c, c and d, one second apart; the second one asks a question."""
    core.agent(ScriptedAdapter(G, says("a"), ASKS, says("b")))
    tasks = []
    for text, context in (("1", "c"), ("2", "c"), ("3", "d")):
        tasks.append(await core.send(text, context=context))
        core.time.now += 1000
    return tasks


async def test_tasks_are_listed_from_the_latest_to_the_oldest(core: Core) -> None:
    tasks = await three_tasks(core)
    found = await core.list(include_artifacts=True)
    assert found.tasks == tuple(reversed(tasks))
    assert (found.next_page_token, found.page_size, found.total_size) == ("", 50, 3)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"context_id": "c"}, ["2", "1"]),
        ({"context_id": "x"}, []),
        ({"context_id": ""}, ["3", "2", "1"]),
        ({"status": TaskState.INPUT_REQUIRED}, ["2"]),
        ({"status": TaskState.COMPLETED, "context_id": "c"}, ["1"]),
        ({"status_timestamp_after": "2026-11-20T10:00:01Z"}, ["3", "2"]),
        ({"status_timestamp_after": "2026-11-20T12:00:01.001+02:00"}, ["3"]),
        ({"page_size": 2}, ["3", "2"]),
    ],
)
async def test_tasks_are_found_by_what_is_asked(core: Core, filters: dict[str, Any], found: list[str]) -> None:
    await three_tasks(core)
    assert await listed(core, **filters) == found


async def test_artifacts_and_history_are_listed_as_asked(core: Core) -> None:
    await three_tasks(core)
    assert [task.artifacts for task in (await core.list()).tasks] == [None, None, None]
    assert [answer(task) for task in (await core.list(include_artifacts=True)).tasks] == ["b", "", "a"]
    assert [said(task) for task in (await core.list(history_length=0)).tasks] == [[], [], []]


async def test_a_running_task_is_listed(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    [task] = (await core.list()).tasks
    assert (task.status.state, said(task)) == (TaskState.WORKING, ["U hi"])
    pause.go.set()


async def test_pages_miss_nothing_and_repeat_nothing_while_tasks_come_in(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    for number in range(7):
        await core.send(str(number))
        core.time.now += number % 2
    seen: list[str] = []
    token, sizes = "", []
    while True:
        page = await core.list(page_size=2, page_token=token, include_artifacts=True)
        seen += [said(task)[0] for task in page.tasks]
        sizes.append(page.total_size)
        if not (token := page.next_page_token):
            break
        core.time.now += 1
        await core.send("late")
    assert sorted(seen) == [f"U {number}" for number in range(7)]
    assert sizes == [7, 8, 9, 10]


@pytest.mark.parametrize("text", ["x", "é"], ids=["ascii", "other"])
async def test_a_page_ends_early_where_its_tasks_are_large_and_the_next_one_goes_on(core: Core, text: str) -> None:
    """Each page has a task, and no more of them than fit."""
    core.agent(ScriptedAdapter(G, otherwise=lambda _: says("a")))
    sizes = [5_000_000, 10, 2_700_000, 1_500_000, 10, 5_000_000, 10]
    sent = [await core.send(text * (size // len(text.encode()))) for size in sizes]
    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        page = await core.list(page_token=token)
        assert (page.page_size, page.total_size) == (50, 7)
        pages.append([task.id for task in page.tasks])
        assert all(task == replace(each, artifacts=None) for task in page.tasks for each in sent if each.id == task.id)
        token = page.next_page_token
    assert [task for page_ in pages for task in page_] == [task.id for task in reversed(sent)]
    assert [len(page_) for page_ in pages] == [1, 1, 2, 2, 1]
    assert len((await core.list(history_length=0)).tasks) == 7


async def test_a_page_ends_by_the_size_that_the_binding_writes(core: Core) -> None:
    """A number of 2 bytes in JSON has 11 in protobuf."""
    core.agent(ScriptedAdapter(G, otherwise=lambda _: says("a")))
    numbers = Part(data=[1] * 100_000)
    request = SendMessageRequest(message=replace(message("hi"), parts=(numbers,)))
    for index in range(8):
        sent = replace(request, message=replace(request.message, message_id=f"m{index}"))
        await core.operations.send_message(core.call(), sent)
    call = replace(core.call(), in_list=v1_0_proto.in_list)
    pages = [await core.list(call)]
    while token := pages[-1].next_page_token:
        pages.append(await core.list(call, page_token=token))
    assert [len(page.tasks) for page in pages] == [3, 3, 2]
    assert all(len(v1_0_proto.encode(page)) < 4 * 1024 * 1024 for page in pages)
    assert len((await core.list()).tasks) == 8


async def test_a_page_ends_early_where_a_paused_task_has_a_large_log(core: Core) -> None:
    """What a turn that waits for its caller has shown stands in the log of its task alone."""
    long = "x" * 3_000_000
    asks: Script = [TextDelta(long), ToolCallReady("c1", "pay", "{}"), CallCompleted("r")]
    core.agent(
        ScriptedAdapter(G, otherwise=lambda _: asks),
        toolset=ScriptedTools({"pay": "paid"}),
        approvals=(ApprovalRule("*"),),
    )
    tasks = [await core.send(context) for context in "abc"]
    assert {task.status.state for task in tasks} == {TaskState.INPUT_REQUIRED}
    page = await core.list(include_artifacts=True)
    pages = [page]
    while pages[-1].next_page_token:
        pages.append(await core.list(include_artifacts=True, page_token=pages[-1].next_page_token))
    assert [[answer(task) for task in page.tasks] for page in pages] == [[long], [long], [long]]
    assert [page.tasks[0].id for page in pages] == [task.id for task in reversed(tasks)]


async def test_a_page_ends_behind_a_paused_task_that_is_larger_than_it(core: Core) -> None:
    long = "x" * 5_000_000
    asks: Script = [TextDelta(long), ToolCallReady("c1", "pay", "{}"), CallCompleted("r")]
    core.agent(
        ScriptedAdapter(G, says("a"), says("b"), asks),
        toolset=ScriptedTools({"pay": "paid"}),
        approvals=(ApprovalRule("*"),),
    )
    tasks = [await core.send(text) for text in "123"]
    page = await core.list(include_artifacts=True)
    assert [task.id for task in page.tasks] == [tasks[2].id]
    rest = await core.list(include_artifacts=True, page_token=page.next_page_token)
    assert ([task.id for task in rest.tasks], rest.next_page_token) == ([tasks[1].id, tasks[0].id], "")


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, None])
async def test_history_of_several_turns_is_cut_alike_in_the_task_and_in_the_list(
    core: Core, length: int | None
) -> None:
    asks: Script = [Progress("p"), TextDelta("a"), CallCompleted(ending=Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(G, asks, asks, says("done")))
    task = await core.send("1")
    for text in "23":
        await core.send(text, task=task.id)
    whole = ["U 1", "A p", "U 2", "A p", "U 3"]
    kept = whole if length is None else whole[len(whole) - length :] if length else []
    found = await core.get(task.id, history=length)
    assert (said(found), answer(found)) == (kept, "aadone")
    for artifacts in (False, True):
        [listed_] = (await core.list(history_length=length, include_artifacts=artifacts)).tasks
        assert said(listed_) == kept
        assert answer(listed_) == ("aadone" if artifacts else "")


async def test_a_page_token_of_another_list_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    for text in "123":
        await core.send(text)
    token = (await core.list(page_size=1)).next_page_token
    assert len((await core.list(page_size=2, page_token=token)).tasks) == 2
    for call, filters in ((core.call("bob"), {}), (core.call(), {"context_id": "c"})):
        with pytest.raises(InvalidParams, match="pageToken"):
            await core.list(call, page_token=token, **filters)


# --- CancelTask ---


async def test_a_running_task_is_canceled_and_keeps_what_it_has_said(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [TextDelta("a"), pause])
    core.agent(adapter)
    stream = await core.stream("hi", context="c")
    await soon(pause.reached.wait())
    task = await core.cancel("id-0001")
    assert (task.status.state, answer(task)) == (TaskState.CANCELED, "a")
    assert adapter.broken_off == 1
    assert states(await frames(stream)) == ["WORKING", "CANCELED"]
    assert await core.get(task.id) == task


async def test_a_task_that_waits_for_its_turn_is_canceled_without_a_byte_to_the_backend(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause, *says("a")], says("c"))
    core.agent(adapter)
    first = await core.send("1", context="c", at_once=True)
    stream = await core.stream("2", context="c")
    waiting = events([(await soon(anext(aiter(stream))))[0]])[0].task
    assert waiting is not None
    third = await core.send("3", context="c", at_once=True)
    task = await core.cancel(waiting.id)
    assert task.status.state is TaskState.CANCELED
    pause.go.set()
    await soon(core.runner.idle())
    assert [answer(await core.get(task.id)) for task in (first, third)] == ["a", "c"]
    assert len(adapter.requests) == 2
    assert states(await frames(stream))[-1] == "CANCELED"


async def test_a_task_that_waits_for_its_caller_is_canceled_and_its_watchers_see_it(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    asked = await core.send("paint")
    watching = await core.subscribe(asked.id)
    canceled = await core.cancel(asked.id)
    assert canceled.status.state is TaskState.CANCELED
    assert said(canceled) == ["U paint", "A which?"]
    read = await frames(watching)
    assert (numbers(read), states(read)) == ([1, 2], ["INPUT_REQUIRED", "CANCELED"])


@pytest.mark.parametrize("script", [says("a"), [TextDelta("a")]], ids=["completed", "failed"])
async def test_a_task_that_has_ended_cannot_be_canceled(core: Core, script: Script) -> None:
    core.agent(ScriptedAdapter(G, script))
    task = await core.send("hi")
    with pytest.raises(TaskNotCancelable, match="has ended") as caught:
        await core.cancel(task.id)
    assert caught.value.metadata == {"taskId": task.id}
    assert await core.get(task.id) == task


async def test_a_canceled_task_cannot_be_canceled_again(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    asked = await core.send("paint")
    await core.cancel(asked.id)
    with pytest.raises(TaskNotCancelable):
        await core.cancel(asked.id)


# --- SubscribeToTask ---


async def test_a_subscriber_gets_the_task_as_it_stands_and_then_what_follows(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, TextDelta("b"), CallCompleted()]))
    task = await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    stream = await core.subscribe(task.id)
    pause.go.set()
    read = await frames(stream)
    assert numbers(read) == [1, 2, 3]
    assert streamed(read) == "ab"


async def test_a_subscription_outlives_the_question_and_ends_with_the_task(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, says("blue it is")))
    asked = await core.send("paint")
    stream = await core.subscribe(asked.id)
    await core.send("blue", task=asked.id)
    read = await frames(stream)
    assert numbers(read) == [1, 2, 3, 4]
    assert states(read) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]


async def test_a_subscription_of_a2a_0_3_ends_with_the_question(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *ASKS], says("blue it is")))
    asked = await core.send("paint", at_once=True)
    old = replace(core.call(), version="0.3")
    live = await core.subscribe(asked.id, old)
    pause.go.set()
    assert states(await frames(live))[-1] == "INPUT_REQUIRED"
    assert [event.task is not None for event in events(await frames(await core.subscribe(asked.id, old)))] == [True]
    await core.send("blue", task=asked.id)
    again = await frames(await core.subscribe(asked.id, replace(old, last_event_id=0)))
    assert states(again) == ["WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]


async def test_a_task_that_has_ended_cannot_be_subscribed_to(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("hi")
    with pytest.raises(UnsupportedOperation, match="has ended"):
        await core.subscribe(task.id)


async def test_a_task_that_is_resumed_from_its_beginning_has_the_time_of_its_beginning(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), TextDelta("b"), CallCompleted()]))
    core.time.step = 1000
    first, *_ = events(await frames(await core.stream("hi")))
    assert first.task is not None
    again, *_ = events(await frames(await core.subscribe(first.task.id, core.call(last=0))))
    assert again.task is not None
    assert again.task.status == first.task.status


@pytest.mark.parametrize("ended", [True, False])
async def test_a_subscriber_that_comes_back_misses_nothing_and_gets_nothing_twice(core: Core, ended: bool) -> None:
    pause = Pause()
    script: Script = [Progress("p"), TextDelta("a"), TextDelta("b"), pause, TextDelta("c"), CallCompleted()]
    core.agent(ScriptedAdapter(G, ASKS, script))
    asked = await core.send("paint")
    first = await core.stream("blue", task=asked.id)
    await soon(pause.reached.wait())
    await core.get(asked.id)  # now every event is stored
    if ended:
        pause.go.set()
        await soon(core.runner.idle())
    streams = {last: await core.subscribe(asked.id, core.call(last=last)) for last in range(6)}
    pause.go.set()
    assert numbers(await frames(first)) == [2, 3, 4, 5, 6, 7]
    whole = await core.get(asked.id)
    for last, stream in streams.items():
        read = await frames(stream)
        assert numbers(read) == [None, *range(last + 1, 8)]
        assert streamed(read) == answer(whole) == "abc"
        task = events(read)[0].task
        assert task is not None
        assert len(task.history or ()) == [1, 1, 3, 4, 4, 4][last]


@pytest.mark.parametrize("last", [2, 10**6])
async def test_an_event_that_has_not_happened_cannot_be_resumed_from(core: Core, last: int) -> None:
    core.agent(ScriptedAdapter(G, [CallCompleted()]))
    task = await core.send("hi")
    with pytest.raises(InvalidParams, match=f"Last-Event-ID: {last} is beyond the task's last event, 1"):
        await core.subscribe(task.id, core.call(last=last))


# --- idempotency ---


async def test_a_repeat_gets_the_task_of_the_first_time_and_nothing_is_done_twice(core: Core) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter)
    first = await core.send("hi", core.call(key="k"))
    units = len(core.ledger.units)
    assert await core.send("hi", core.call(key="k"), message_id="other") == first
    read = await frames(await core.stream("hi", core.call(key="k")))
    assert [event.task for event in events(read)] == [first]
    assert len(core.ledger.units) == units
    assert len(adapter.requests) == 1


async def test_a_repeat_of_a_running_message_attaches_to_it(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")])
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(core.send("hi", core.call(key="k")))
        await soon(pause.reached.wait())
        again = group.create_task(core.send("hi", core.call(key="k")))
        stream = await core.stream("hi", core.call(key="k"))
        at_once = await core.send("hi", core.call(key="k"), at_once=True)
        assert answer(at_once) == "a"
        pause.go.set()
    assert again.result() == first.result()
    read = await frames(stream)
    assert (numbers(read), streamed(read), states(read)) == ([1, 2, 3], "ab", ["WORKING", "COMPLETED"])
    assert len(adapter.requests) == 1


async def test_a_repeated_stream_ends_where_the_first_one_ends(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *ASKS]))
    first = await core.stream("hi", core.call(key="k"))
    again = await core.stream("hi", core.call(key="k"))
    pause.go.set()
    assert await frames(again) == await frames(first)
    later = await frames(await core.stream("hi", core.call(key="k")))
    assert states(later) == ["INPUT_REQUIRED"]


async def test_a_repeated_stream_may_resume(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), TextDelta("b"), CallCompleted()]))
    await frames(await core.stream("hi", core.call(key="k")))
    read = await frames(await core.stream("hi", core.call(key="k", last=1)))
    assert (numbers(read), streamed(read)) == ([None, 2, 3], "ab")


async def test_a_key_of_another_message_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    await core.send("hi", core.call(key="k"))
    units = len(core.ledger.units)
    with pytest.raises(InvalidParams, match="Idempotency-Key: 'k' was used for another message"):
        await core.send("ho", core.call(key="k"))
    assert len(core.ledger.units) == units


async def test_the_message_id_is_a_key_where_the_agent_says_so(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), idempotency="message_id")
    first = await core.send("hi", message_id="m-1")
    assert await core.send("hi", message_id="m-1") == first
    assert (await core.send("hi", message_id="m-2")).id != first.id
    with pytest.raises(InvalidParams, match=r"message.messageId: 'm-1' was used for another message"):
        await core.send("ho", message_id="m-1")


async def test_a_message_id_alone_is_no_key(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    tasks = [await core.send("hi", context="c", message_id="same") for _ in range(3)]
    assert len({task.id for task in tasks}) == 3


async def test_a_key_belongs_to_its_caller(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    mine = await core.send("hi", core.call("ada", key="k"))
    theirs = await core.send("ho", core.call("bob", key="k"))
    assert mine.id != theirs.id


async def test_a_message_that_was_refused_leaves_its_key_unused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    with pytest.raises(TaskNotFound):
        await core.send("hi", core.call(key="k"), task="nobody's")
    assert answer(await core.send("ho", core.call(key="k"))) == "re ho"


# --- bare messages ---

PONG = [DirectReply((Part(text="pong"),), {"pings": 1})]


async def sent(core: Core, *, at_once: bool = False, key: str | None = None) -> Any:
    configuration = SendMessageConfiguration(return_immediately=at_once)
    request = SendMessageRequest(message=message("ping", context="c"), configuration=configuration)
    return await core.operations.send_message(core.call(key=key), request)


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_bare_message_is_the_whole_answer_and_its_task_stays_hidden(core: Core, at_once: bool) -> None:
    adapter = ScriptedAdapter(G, PONG, PONG)
    core.agent(adapter, direct_replies=True)
    answered = await sent(core, at_once=at_once)
    assert answered.task is None
    assert answered.message == Message(
        message_id="id-0002", context_id="c", role=Role.AGENT, parts=(Part(text="pong"),)
    )
    await soon(core.runner.idle())
    hidden = adapter.requests[0].task_id
    for operation in (core.get, core.cancel, core.subscribe):
        with pytest.raises(TaskNotFound):
            await operation(hidden)
    with pytest.raises(TaskNotFound):
        await core.send("more", task=hidden)
    with pytest.raises(TaskNotFound):
        await core.send("more", references=(hidden,))
    assert (await core.list()).total_size == 0
    await sent(core)
    assert adapter.sent[1] == (None, ["U ping", "A pong", "U ping"])
    assert adapter.requests[1].state == {"pings": 1}


async def test_a_bare_message_is_the_whole_stream(core: Core) -> None:
    core.agent(ScriptedAdapter(G, PONG), direct_replies=True)
    read = await frames(await core.stream("ping"))
    assert numbers(read) == [None]
    reply = events(read)[0].message
    assert reply is not None
    assert reply.parts == (Part(text="pong"),)


async def test_a_repeat_of_a_message_that_got_a_bare_answer_gets_the_same(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *PONG]), direct_replies=True)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(sent(core, key="k"))
        await soon(pause.reached.wait())
        again = group.create_task(sent(core, key="k"))
        at_once = group.create_task(sent(core, key="k", at_once=True))
        stream = group.create_task(core.stream("ping", core.call(key="k"), context="c"))
        await soon(asyncio.wait([first, again, at_once, stream], timeout=0))
        pause.go.set()
    assert first.result() == again.result() == at_once.result() == await sent(core, key="k")
    [event] = events(await frames(stream.result()))
    assert event.message == first.result().message
    [later] = events(await frames(await core.stream("ping", core.call(key="k"), context="c")))
    assert later == event


async def test_an_agent_that_may_answer_directly_may_make_a_task_as_well(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]), direct_replies=True)
    stream = await core.stream("hi")
    task = events(await soon(anext(aiter(stream))))[0].task
    assert task is not None
    assert answer(await core.get(task.id)) == "a"
    resumed = await core.subscribe(task.id, core.call(last=0))
    pause.go.set()
    assert streamed(await frames(resumed)) == "ab"
    assert (await core.list()).total_size == 1
    await stream.aclose()


async def test_a_running_task_of_an_agent_that_may_answer_directly_is_no_unknown_one_to_messages(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")], says("c")), direct_replies=True)
    task = await core.send("hi", at_once=True)
    with pytest.raises(UnsupportedOperation, match="is still at work"):
        await core.send("more", task=task.id)
    assert answer(await core.send("another", context="d", references=(task.id,))) == "c"
    pause.go.set()


async def test_a_task_is_unknown_until_the_agent_has_decided_that_there_is_one(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause, *says("a")])
    core.agent(adapter, direct_replies=True)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("hi"))
        await soon(pause.reached.wait())
        for operation in (core.get, core.cancel, core.subscribe):
            with pytest.raises(TaskNotFound):
                await operation(adapter.requests[0].task_id)
        pause.go.set()
    assert answer(sending.result()) == "a"


async def test_a_known_task_is_not_replaced_by_a_bare_message(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, PONG), direct_replies=True)
    asked = await core.send("hi")
    done = await core.send("more", task=asked.id)
    assert done.status.state is TaskState.FAILED
    assert await core.get(asked.id) == done


async def test_a_caller_that_disconnects_while_the_agent_decides_has_its_stream_closed(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause, *PONG])
    core.agent(adapter, direct_replies=True)
    async with asyncio.TaskGroup() as group:
        stream = group.create_task(core.stream("hi"))
        await soon(pause.reached.wait())
        stream.cancel()
    assert not core.fanout.open(adapter.requests[0].task_id).watched
    pause.go.set()
    await soon(core.runner.idle())


# --- what the card does not declare ---


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("create_push_config", TaskPushNotificationConfig(url="https://x", task_id="t")),
        ("get_push_config", GetTaskPushNotificationConfigRequest(task_id="t", id="p")),
        ("list_push_configs", ListTaskPushNotificationConfigsRequest(task_id="t")),
        ("delete_push_config", DeleteTaskPushNotificationConfigRequest(task_id="t", id="p")),
    ],
)
async def test_push_notifications_are_not_supported(core: Core, operation: str, request_: Any) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(PushNotificationNotSupported, match="Push notifications are not supported by the agent 'echo'"):
        await getattr(core.operations, operation)(core.call(), request_)


async def test_there_is_no_extended_card(core: Core) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(UnsupportedOperation, match="'echo' has no extended card"):
        await core.operations.get_extended_card(core.call(), GetExtendedAgentCardRequest())


async def test_the_tenant_of_a_caller_counts(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("hi")
    call = core.call()
    other = msgspec.structs.replace(call, caller=Caller(call.caller.principal, "acme"))
    with pytest.raises(TaskNotFound):
        await core.get(task.id, other)
