"""The emulator of threads and runs, judged by the vendor's client and API description."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types.beta.threads import Message, Run

from tests.emulators.assistants import ASSISTANT, AssistantsServer
from tests.emulators.conftest import Connect
from tests.emulators.scripts import (
    Ask,
    Call,
    Cite,
    Fail,
    ImageOut,
    Incomplete,
    Item,
    Pause,
    Refuse,
    Say,
    ServerTool,
    Step,
    in_rounds,
)
from tests.openapi import openai_validator

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")


async def begun(client: openai.AsyncOpenAI, text: str = "hi", **options: Any) -> tuple[str, list[Any]]:
    """A thread with one run, and the events of the run."""
    thread = await client.beta.threads.create()
    return thread.id, await run(client, thread.id, text, **options)


async def run(client: openai.AsyncOpenAI, thread: str, text: str = "hi", **options: Any) -> list[Any]:
    messages: Any = [{"role": "user", "content": text}]
    stream = await client.beta.threads.runs.create(
        thread, assistant_id=ASSISTANT, additional_messages=messages, stream=True, **options
    )
    return [event async for event in stream]


def kinds(events: list[Any]) -> list[str]:
    return [event.event for event in events]


async def texts(client: openai.AsyncOpenAI, thread: str) -> list[tuple[str, str]]:
    listed = [message async for message in client.beta.threads.messages.list(thread, order="asc")]
    return [(m.role, "".join(p.text.value for p in m.content if p.type == "text")) for m in listed]


async def test_a_run_tells_its_steps_and_its_message_in_order(connect: Connect) -> None:
    server = AssistantsServer(lambda _: [Say("Hello world", chunks=2)], validator=openai_validator())
    client = await connect(server)
    thread, events = await begun(client)
    assert kinds(events) == [
        *("thread.run.created", "thread.run.queued", "thread.run.in_progress"),
        *("thread.run.step.created", "thread.run.step.in_progress"),
        *("thread.message.created", "thread.message.in_progress"),
        *("thread.message.delta", "thread.message.delta"),
        *("thread.message.completed", "thread.run.step.completed", "thread.run.completed"),
    ]
    assert isinstance(events[-1].data, Run)
    assert events[-1].data.usage is not None
    assert await texts(client, thread) == [("user", "hi"), ("assistant", "Hello world")]
    assert server.violations == []


async def test_the_helper_of_the_client_follows_a_run_to_its_text(connect: Connect) -> None:
    client = await connect(AssistantsServer(lambda _: [Say("Hello world", chunks=3)]))
    thread = await client.beta.threads.create(messages=[{"role": "user", "content": "hi"}])
    async with client.beta.threads.runs.stream(thread_id=thread.id, assistant_id=ASSISTANT) as stream:
        pieces = [piece async for piece in stream.text_deltas]
        [message] = await stream.get_final_messages()
    assert isinstance(message, Message)
    assert "".join(pieces) == message.content[0].text.value == "Hello world"  # type: ignore[union-attr]


async def test_a_run_waits_for_all_outputs_and_goes_on_with_them(connect: Connect) -> None:
    calls = [Call("weather", {"city": "Oslo"}, "call_1"), Call("height", {}, "call_2")]
    server = AssistantsServer(in_rounds(calls, [Say("3 C")]), validator=openai_validator())
    client = await connect(server)
    thread, events = await begun(client)
    waiting = events[-1]
    assert waiting.event == "thread.run.requires_action"
    asked = waiting.data.required_action.submit_tool_outputs.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in asked] == [
        ("call_1", "weather", '{"city": "Oslo"}'),
        ("call_2", "height", "{}"),
    ]
    submit = client.beta.threads.runs.submit_tool_outputs
    with pytest.raises(openai.BadRequestError, match="Expected tool outputs for call_ids"):
        await submit(waiting.data.id, thread_id=thread, tool_outputs=[{"tool_call_id": "call_1", "output": "3"}])
    outputs: Any = [{"tool_call_id": name, "output": "3"} for name in ("call_1", "call_2")]
    stream = await submit(waiting.data.id, thread_id=thread, tool_outputs=outputs, stream=True)
    after: list[Any] = [event async for event in stream]
    assert kinds(after)[:3] == ["thread.run.step.completed", "thread.run.queued", "thread.run.in_progress"]
    assert [call.function.output for call in after[0].data.step_details.tool_calls] == ["3", "3"]
    assert kinds(after)[-1] == "thread.run.completed"
    with pytest.raises(openai.BadRequestError, match='Runs in status "completed" do not accept tool outputs'):
        await submit(waiting.data.id, thread_id=thread, tool_outputs=outputs)
    assert server.violations == []


async def test_a_thread_takes_neither_messages_nor_runs_while_a_run_is_active(connect: Connect) -> None:
    client = await connect(AssistantsServer(lambda _: [Call("f", "{}")]))
    thread, events = await begun(client)
    name = events[-1].data.id
    with pytest.raises(openai.BadRequestError, match=f"Thread {thread} already has an active run {name}"):
        await run(client, thread)
    with pytest.raises(openai.BadRequestError, match=f"Can't add messages to {thread} while a run {name} is active"):
        await client.beta.threads.messages.create(thread, role="user", content="x")
    cancelled = await client.beta.threads.runs.cancel(name, thread_id=thread)
    assert cancelled.status == "cancelling"
    assert (await client.beta.threads.runs.retrieve(name, thread_id=thread)).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="Cannot cancel run with status 'cancelled'"):
        await client.beta.threads.runs.cancel(name, thread_id=thread)
    await client.beta.threads.messages.create(thread, role="user", content="x")


async def test_a_run_goes_on_when_its_client_leaves(connect: Connect) -> None:
    rest = asyncio.Event()
    server = AssistantsServer(lambda _: [Say("one "), Pause(rest), Say("two")])
    client = await connect(server)
    thread = await client.beta.threads.create()
    stream = await client.beta.threads.runs.create(thread.id, assistant_id=ASSISTANT, stream=True)
    async for event in stream:
        if event.event == "thread.message.delta":
            break
    await stream.close()
    async with asyncio.timeout(30):
        await server.left.wait()
        [listed] = [found async for found in client.beta.threads.runs.list(thread.id)]
        assert listed.status == "in_progress"
        rest.set()
        ended = await client.beta.threads.runs.poll(listed.id, thread_id=thread.id, poll_interval_ms=10)
    assert ended.status == "completed"
    assert await texts(client, thread.id) == [("assistant", "one two")]


async def test_tools_of_the_service_are_steps_of_the_run(connect: Connect) -> None:
    code = {
        "type": "code_interpreter",
        "code_interpreter": {"input": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
    }
    client = await connect(AssistantsServer(lambda _: [Item(code), Say("2")]))
    thread, events = await begun(client)
    steps: Any = [
        step async for step in client.beta.threads.runs.steps.list(events[-1].data.id, thread_id=thread, order="asc")
    ]
    assert [step.type for step in steps] == ["tool_calls", "message_creation"]
    [call] = steps[0].step_details.tool_calls
    assert (call.code_interpreter.input, call.code_interpreter.outputs[0].logs) == ("1+1", "2")


async def test_a_message_has_marks_and_files_of_the_answer(connect: Connect) -> None:
    citation = {"type": "file_citation", "text": "[0]", "start_index": 0, "end_index": 3}
    script: list[Step] = [Say("[0] said"), Cite(citation | {"file_citation": {"file_id": "file-1"}}), ImageOut(b"png")]
    client = await connect(AssistantsServer(lambda _: script))
    thread, _ = await begun(client)
    newest: Any = (await client.beta.threads.messages.list(thread, limit=1)).data[0]
    assert newest.content[0].text.annotations[0].file_citation.file_id == "file-1"
    name = newest.content[1].image_file.file_id
    assert (await client.files.retrieve(name)).filename == "/mnt/data/plot.png"
    assert (await client.files.content(name)).content == b"png"
    assert (await client.files.delete(name)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(name)


ENDS: dict[str, list[Step]] = {
    "failed": [Say("par"), Fail("rate_limit_exceeded", "Slow down")],
    "incomplete": [Say("par"), Incomplete()],
    "completed": [Refuse("No.")],
}


@pytest.mark.parametrize("status", ENDS)
async def test_the_last_event_says_how_a_run_ended(connect: Connect, status: str) -> None:
    client = await connect(AssistantsServer(lambda _: ENDS[status]))
    _, events = await begun(client)
    assert kinds(events)[-1] == f"thread.run.{status}"
    assert events[-1].data.status == status


async def test_a_run_that_waits_for_too_long_expires(connect: Connect) -> None:
    server = AssistantsServer(lambda _: [Call("f", "{}")])
    client = await connect(server)
    thread, events = await begun(client)
    server.expire()
    assert (await client.beta.threads.runs.retrieve(events[-1].data.id, thread_id=thread)).status == "expired"


async def test_a_decision_lets_an_approved_call_run(connect: Connect) -> None:
    """In the words of azure-ai-agents 1.2.0b5, which OpenAI's client passes on as they are."""
    rounds = in_rounds(
        [Ask("lookup", {"q": 1}, "call_1")], [ServerTool("mcp", "lookup", {}, "found", question="call_1"), Say("!")]
    )
    client = await connect(AssistantsServer(rounds))
    thread, events = await begun(client)
    action = events[-1].data.required_action.to_dict()
    assert action["type"] == "submit_tool_approval"
    assert action["submit_tool_approval"]["tool_calls"] == [
        {"id": "call_1", "type": "mcp", "name": "lookup", "arguments": '{"q": 1}', "server_label": "wx"}
    ]
    stream = await client.beta.threads.runs.submit_tool_outputs(
        events[-1].data.id,
        thread_id=thread,
        tool_outputs=[],
        stream=True,
        extra_body={"tool_approvals": [{"tool_call_id": "call_1", "approve": True}]},
    )
    after: Any = [event async for event in stream]
    assert kinds(after)[-1] == "thread.run.completed"
    done = next(event.data for event in after if event.event == "thread.run.step.completed")
    assert done.step_details.tool_calls[0].output == "found"


async def test_what_is_not_there_is_told_by_its_name(connect: Connect) -> None:
    server = AssistantsServer(version="v1")
    client = await connect(server)
    with pytest.raises(openai.BadRequestError, match="api-version"):
        await client.beta.threads.create()
    known = client.with_options(default_query={"api-version": "v1"})
    thread = await known.beta.threads.create()
    assert (await known.beta.threads.delete(thread.id)).deleted
    with pytest.raises(openai.NotFoundError, match=f"No thread found with id '{thread.id}'"):
        await run(known, thread.id)
    other = await known.beta.threads.create()
    with pytest.raises(openai.NotFoundError, match="No assistant found with id 'asst_2'"):
        await known.beta.threads.runs.create(other.id, assistant_id="asst_2")
    with pytest.raises(openai.NotFoundError, match="No run found with id 'run_2'"):
        await known.beta.threads.runs.retrieve("run_2", thread_id=other.id)
