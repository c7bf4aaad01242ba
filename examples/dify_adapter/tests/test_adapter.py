import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway.a2a.model import Json, Message, Part, Role
from gateway.ports import adapter as port
from gateway.ports.capabilities import Ongoing, Tail
from gateway.ports.conversation import AssistantItem, UserItem
from gateway.ports.targets import EnvironmentValue, Target, TargetProblem
from gateway.testing.adapter_scripts import collect, completed, of_type, only, request, text
from gateway.testing.adapter_suite import AdapterSuite
from gateway.testing.serving import serve
from pydantic import SecretStr, ValidationError

from a2a_gateway_dify.adapter import DifyAdapter, DifySettings, build, factory, file_type
from a2a_gateway_dify.targets import from_target
from tests.emulator import FORM, THOUGHT, USAGE, Dify, Event

CALL = {**THOUGHT, "tool": "weather", "tool_input": '{"weather": {"city": "Oslo"}}'}
END: Event = {"event": "message_end", "metadata": {"usage": USAGE}}


class Served:
    """A Dify and an adapter before it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.dify = Dify()

    async def __aenter__(self) -> DifyAdapter:
        self.stack = contextlib.AsyncExitStack()
        url = await self.stack.enter_async_context(serve(self.dify.app))
        key = SecretStr(self.dify.key)
        self.adapter = build(DifySettings(**{"base_url": f"{url}/v1", "api_key": key, "user": "u1", **self.settings}))
        return self.adapter

    async def gone(self) -> None:
        await self.stack.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.adapter.aclose()
        await self.stack.aclose()


class TestDify(AdapterSuite):
    factory = factory
    secret = "canary-key"

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[port.Adapter]:
        self.served = Served()
        self.dify = self.served.dify
        async with self.served as adapter:
            yield adapter

    async def backend_answers(self, *pieces: str) -> None:
        self.dify.pieces, self.dify.stalls = pieces, False

    async def backend_echoes(self) -> None:
        self.dify.pieces = None

    async def backend_trickles(self) -> None:
        self.dify.trickles = True

    async def backend_fails(self) -> None:
        self.dify.last = ({"event": "error", "status": 500, "code": "x", "message": f"for {self.secret}"},)

    async def backend_refuses(self) -> None:
        self.dify.refusal = (400, "app_unavailable", f"App unavailable, {self.secret}")

    async def backend_answers_status(self, status: int) -> None:
        self.dify.status = status

    async def backend_disappears(self) -> None:
        await self.served.gone()

    async def backend_breaks_off(self, *pieces: str) -> None:
        self.dify.pieces, self.dify.last = pieces, ()

    async def backend_stalls(self, *pieces: str) -> None:
        self.dify.pieces, self.dify.stalls = pieces, True

    async def backend_is_released(self) -> None:
        await self.dify.released.wait()

    async def backend_runs_tool(self, name: str, arguments: dict[str, Json], output: str) -> None:
        self.dify.mode = "agent-chat"
        call = {**THOUGHT, "tool": name, "tool_input": json.dumps({name: arguments})}
        self.dify.script = [
            {**THOUGHT, "thought": "", "tool": ""},
            call,
            {**call, "observation": output},
            {"event": "agent_message", "answer": "done"},
            END,
        ]

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [[("user", body["query"])] for body in self.dify.requests]


class TestChatflow(TestDify):
    @pytest.fixture
    async def adapter(self) -> AsyncIterator[port.Adapter]:
        self.served = Served(chatflow=True)
        self.dify = self.served.dify
        self.dify.mode = "advanced-chat"
        async with self.served as adapter:
            yield adapter

    async def backend_goes_on(self, *pieces: str) -> None:
        self.dify.goes_on(*pieces)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    async with served:
        yield served


def parts(*given: Part, task: str = "task-1") -> UserItem:
    return UserItem(Message(message_id="m", role=Role.USER, parts=given))


async def says(served: Served, *script: Event, **changes: Any) -> list[port.AdapterEvent]:
    served.dify.script = [*script]
    return await collect(served.adapter, request("Hi", **changes))


async def fails(served: Served, *script: Event, **changes: Any) -> port.AdapterError:
    with pytest.raises(port.AdapterError) as caught:
        await says(served, *script, **changes)
    return caught.value


async def test_the_names_of_a_call_are_the_conversation_and_the_task(served: Served) -> None:
    events = await collect(served.adapter, request("Hi"))
    started = only(events, port.CallStarted)
    assert started.handle in served.dify.conversations
    assert started.run in served.dify.tasks
    assert completed(events).handle == started.handle
    assert completed(events).usage == USAGE


async def test_the_request_has_the_user_and_the_inputs() -> None:
    served = Served(inputs={"city": "Oslo"}, workflow_id="w1")
    async with served as adapter:
        first = completed(await collect(adapter, request("Hi")))
        await collect(adapter, request("More", handle=first.handle))
    assert [body["conversation_id"] for body in served.dify.requests] == ["", first.handle]
    assert served.dify.requests[0] == {
        "query": "Hi",
        "inputs": {"city": "Oslo"},
        "response_mode": "streaming",
        "conversation_id": "",
        "user": "u1",
        "workflow_id": "w1",
    }


def test_a_user_is_required() -> None:
    with pytest.raises(ValidationError, match="user"):
        DifySettings(api_key=SecretStr("k"))  # type: ignore[call-arg]


async def test_a_thought_with_a_tool_is_a_handled_call(served: Served) -> None:
    events = await says(served, CALL, {**CALL, "observation": '{"weather": "rain"}'}, END)
    ready = only(events, port.ToolCallReady)
    assert (ready.call_id, ready.name, ready.arguments, ready.handled) == ("t1", "weather", '{"city":"Oslo"}', True)
    assert only(events, port.ToolResultReady) == port.ToolResultReady("t1", "rain")


async def test_a_thought_with_two_tools_is_two_calls(served: Served) -> None:
    both = {**THOUGHT, "tool": "a;b", "tool_input": '{"a": {"x": 1}, "b": {}}', "observation": "mixed"}
    events = await says(served, both, END)
    assert [(call.call_id, call.arguments) for call in of_type(events, port.ToolCallReady)] == [
        ("t1:0", '{"x":1}'),
        ("t1:1", "{}"),
    ]
    assert [result.output for result in of_type(events, port.ToolResultReady)] == ["mixed", "mixed"]


async def test_a_thought_that_was_said_is_no_reasoning(served: Served) -> None:
    said = {"event": "agent_message", "answer": "I look."}
    events = await says(served, said, {**THOUGHT, "thought": "I look."}, {**THOUGHT, "id": "t2", "thought": "Hm"}, END)
    assert [one.text for one in of_type(events, port.ReasoningDelta)] == ["Hm"]


async def test_the_closing_message_of_a_new_agent_is_not_said_twice(served: Served) -> None:
    deltas = [{"event": "agent_message", "answer": piece} for piece in ("A", "B")]
    events = await says(served, *deltas, {"event": "message", "answer": "AB"}, END)
    assert [type(one).__name__ for one in events] == [
        "CallStarted",
        "TextDelta",
        "TextDelta",
        "CallCompleted",
    ]


async def test_a_replaced_answer_is_the_replacement(served: Served) -> None:
    said = {"event": "message", "answer": "bad"}
    events = await says(served, said, {"event": "message_replace", "answer": "good"}, END)
    assert only(events, port.MessageReady).text == "good"


async def test_a_replaced_answer_is_also_the_text_before_a_tool_call(served: Served) -> None:
    said = [{"event": "agent_message", "answer": answer} for answer in ("bad", "worse")]
    events = await says(served, said[0], CALL, said[1], {"event": "message_replace", "answer": "good"}, END)
    texts: dict[str, str] = {one.key: one.text for one in of_type(events, port.MessageReady)}
    assert texts == {"0": "", "1": "good"}


async def test_the_closing_message_after_a_tool_call_is_not_said_twice(served: Served) -> None:
    said = [{"event": "agent_message", "answer": answer} for answer in ("A", "B")]
    events = await says(served, said[0], CALL, said[1], {"event": "message", "answer": "AB"}, END)
    assert [one.text for one in of_type(events, port.MessageReady)] == ["A"]


async def test_a_file_of_the_assistant_is_a_part(served: Served) -> None:
    file = {"event": "message_file", "id": "f", "type": "image", "belongs_to": "assistant", "url": "/files/cat.png?s=1"}
    events = await says(served, file, {**file, "belongs_to": "user", "url": "/other"}, END)
    part = only(events, port.PartReady).part
    assert part.url is not None
    assert part.url.endswith("/files/cat.png?s=1")
    assert part.url.startswith("http://127.0.0.1")
    assert part.media_type == "image/png"


async def test_a_chatflow_ends_with_its_run(served: Served) -> None:
    run = {"workflow_run_id": "r"}
    events = await says(
        served,
        {**run, "event": "workflow_started", "data": {}},
        {**run, "event": "node_started", "data": {"title": "LLM"}},
        {"event": "reasoning_chunk", "data": {"reasoning": "Hm", "is_final": False}},
        {"event": "message", "answer": "Yes"},
        END,
        {**run, "event": "workflow_finished", "data": {"status": "succeeded", "files": [{"url": "http://f/a.pdf"}]}},
    )
    assert only(events, port.Progress).text == "LLM"
    assert only(events, port.ReasoningDelta).text == "Hm"
    assert only(events, port.PartReady).part.media_type == "application/pdf"
    assert completed(events).usage == USAGE


async def test_a_failed_workflow_has_failed(served: Served) -> None:
    run = {"workflow_run_id": "r"}
    finished = {**run, "event": "workflow_finished", "data": {"status": "failed", "error": "x"}}
    answer = {"event": "message", "answer": "Y"}
    last = {"event": "error", "status": 400, "code": "completion_request_error", "message": "x"}
    assert (await fails(served, answer, finished, last)).kind == port.ErrorClass.BACKEND_FAILED
    assert (await fails(served, answer, finished)).kind == port.ErrorClass.BACKEND_FAILED


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "app_unavailable", port.ErrorClass.NOT_SERVED),
        (400, "provider_quota_exceeded", port.ErrorClass.NOT_SERVED),
        (400, "invalid_param", port.ErrorClass.REJECTED),
        (400, "conversation_completed", port.ErrorClass.HANDLE_EXPIRED),
        (400, "completion_request_error", port.ErrorClass.BACKEND_FAILED),
        (404, "not_found", port.ErrorClass.NOT_SERVED),
        (429, "too_many_requests", port.ErrorClass.RATE_LIMITED),
        (429, "rate_limit_error", port.ErrorClass.NOT_SERVED),
        (500, "internal_server_error", port.ErrorClass.BACKEND_FAILED),
    ],
)
async def test_a_refusal_has_the_class_of_its_code(served: Served, status: int, code: str, kind: str) -> None:
    served.dify.refusal = (status, code, "no")
    assert (await fails(served)).kind == kind


async def test_an_unknown_conversation_is_a_lost_handle(served: Served) -> None:
    error = await fails(served, handle="45701982-8118-4bc5-8e9b-64562b4555f2")
    assert error.kind == port.ErrorClass.HANDLE_NOT_FOUND


async def test_an_error_event_before_any_output_has_the_class_of_its_code(served: Served) -> None:
    error = {"event": "error", "status": 400, "code": "provider_not_initialize", "message": "x"}
    assert (await fails(served, error)).kind == port.ErrorClass.NOT_SERVED
    shown = {"event": "message", "answer": "Y"}
    assert (await fails(served, shown, error)).kind == port.ErrorClass.BACKEND_FAILED


async def test_silence_is_a_timeout() -> None:
    served = Served(silence="100ms")
    async with served:
        served.dify.stalls = True
        with pytest.raises(port.AdapterError) as caught:
            await collect(served.adapter, request("Hi"))
    assert caught.value.kind == port.ErrorClass.TIMED_OUT


async def test_files_are_passed_on_or_uploaded(served: Served) -> None:
    raw = base64.b64encode(b"%PDF").decode()
    asked = request("Hi")
    item = parts(
        Part(text="See"),
        Part(url="https://e.com/a.png", media_type="image/png"),
        Part(raw=raw, filename="a.pdf", media_type="application/pdf"),
        Part(data={"a": 1}),
    )
    await collect(served.adapter, request("Hi", items=(item,), message=item.message))
    body = served.dify.requests[0]
    assert body["query"] == 'See\n\n{"a":1}'
    assert body["files"][0] == {"type": "image", "transfer_method": "remote_url", "url": "https://e.com/a.png"}
    assert body["files"][1]["type"] == "document"
    assert served.dify.uploads[body["files"][1]["upload_file_id"]] == ("a.pdf", b"%PDF")
    assert asked.items


async def test_a_file_that_is_too_large_is_rejected(served: Served) -> None:
    item = parts(Part(raw=base64.b64encode(b"x" * 2000).decode(), filename="a.bin"))
    error = await fails(served, items=(item,))
    assert error.kind == port.ErrorClass.REJECTED
    assert served.dify.requests == []


def test_types_of_files() -> None:
    assert file_type(Part(url="https://e.com/a.mp3")) == "audio"
    assert file_type(Part(raw="", filename="a.docx")) == "document"
    assert file_type(Part(raw="", filename="a.xyz", media_type="application/octet-stream")) == "custom"


async def test_a_conversation_that_is_told_again(served: Served) -> None:
    earlier = (parts(Part(text="One")), AssistantItem((Part(text="Two"),)))
    await collect(served.adapter, request("Three", earlier=earlier))
    assert served.dify.requests[0]["query"] == "User: One\n\nAssistant: Two\n\nThree"


async def test_the_tail_of_a_conversation(served: Served) -> None:
    adapter = served.adapter
    first = completed(await collect(adapter, request("One")))
    again = request("Two", handle=first.handle, state=first.state)
    assert await adapter.tail(again) == Tail(0)
    await collect(adapter, again)
    tail = await adapter.tail(again)
    assert tail is not None
    assert tail.held == 1
    assert text(tail.answer) == "Two"
    assert completed(tail.answer).state == {"message": served.dify.kept[first.handle or ""][0]["id"]}
    both = request("Three", earlier=again.items, handle=first.handle, state=first.state)
    assert (await adapter.tail(both) or Tail(9)).held == 1
    assert await adapter.tail(request("Two", handle=first.handle, state={"message": "other"})) is None


async def test_stop_goes_by_the_task(served: Served) -> None:
    served.dify.pieces, served.dify.stalls = ("A",), True
    events = served.adapter.call(request("Hi"))
    started = await anext(events)
    assert isinstance(started, port.CallStarted)
    assert await served.adapter.cancel(Ongoing(started.handle, started.run))
    assert served.dify.stopped == [started.run]
    await events.aclose()


async def test_forget_deletes_the_conversation_of_the_user(served: Served) -> None:
    handle = completed(await collect(served.adapter, request("Hi"))).handle
    assert handle is not None
    await served.adapter.forget(handle)
    assert served.dify.conversations == {}
    await served.adapter.forget(handle)


async def test_a_probe_looks_at_the_app(served: Served) -> None:
    served.dify.variables = [{"text-input": {"variable": "city", "required": True, "default": ""}}]
    report = await served.adapter.probe()
    assert report.verifies_chain is True
    assert report.notes == ("Chatbot Trips", "the app wants the input 'city': set it in `inputs`")
    served.dify.mode = "workflow"
    with pytest.raises(port.AdapterError) as caught:
        await served.adapter.probe()
    assert caught.value.kind == port.ErrorClass.NOT_SERVED


async def test_the_card_says_what_dify_says(served: Served) -> None:
    assert (await served.adapter.describe()).name == "Trips"


def test_handles_are_uuids() -> None:
    adapter = DifyAdapter(DifySettings(api_key=SecretStr("k"), user="u"))
    adapter.check_handle("45701982-8118-4bc5-8e9b-64562b4555f2")
    with pytest.raises(ValueError, match="UUID"):
        adapter.check_handle("resp_1")


async def paused(served: Served) -> port.CallCompleted:
    served.dify.form = FORM
    return completed(await collect(served.adapter, request("Write")))


async def answered(served: Served, first: port.CallCompleted, *said: Part, **changes: Any) -> list[port.AdapterEvent]:
    item = parts(*said)
    asked = request("x", handle=first.handle, items=(item,), message=item.message, secret=first.secret, **changes)
    return await collect(served.adapter, asked)


async def test_a_paused_workflow_is_a_question(served: Served) -> None:
    first = await paused(served)
    assert first.ending == port.Ending.INPUT_REQUIRED
    assert first.message is not None
    assert "approve (Approve)" in (first.message[0].text or "")
    assert "tok_secret" not in str(first.message)
    second = await answered(served, first, Part(text="Request changes: too long"))
    assert served.dify.submitted == [{"inputs": {"comment": "too long"}, "action": "reject", "user": "u1"}]
    assert text(second) == "It is sent."
    assert completed(second).handle == first.handle
    assert completed(second).secret == {"tasks": {}}


async def test_a_form_is_answered_with_data(served: Served) -> None:
    first = await paused(served)
    await answered(served, first, Part(data={"action": "approve", "inputs": {"comment": "fine"}}))
    assert served.dify.submitted[0]["inputs"] == {"comment": "fine"}


async def test_an_answer_that_is_no_choice_is_asked_again(served: Served) -> None:
    first = await paused(served)
    again = completed(await answered(served, first, Part(text="perhaps")))
    assert again.ending == port.Ending.INPUT_REQUIRED
    assert again.secret == first.secret
    served.dify.form_status = 400
    assert completed(await answered(served, first, Part(text="approve"))).ending == port.Ending.INPUT_REQUIRED


async def test_files_answer_a_form(served: Served) -> None:
    served.dify.form = {
        **FORM,
        "inputs": [
            {"type": "file", "output_variable_name": "one"},
            {"type": "file-list", "output_variable_name": "all"},
        ],
    }
    first = completed(await collect(served.adapter, request("Write")))
    await answered(served, first, Part(text="approve"), Part(url="https://e.com/a.png"))
    file = {"type": "image", "transfer_method": "remote_url", "url": "https://e.com/a.png"}
    assert served.dify.submitted[0]["inputs"]["one"] == file
    assert served.dify.submitted[0]["inputs"]["all"] == [file]


async def test_two_forms_are_asked_one_after_the_other(served: Served) -> None:
    second = {**FORM, "form_token": "tok_2", "form_content": "And this?"}
    run = {"workflow_run_id": "r"}
    asked = [{**run, "event": "human_input_required", "data": data} for data in (FORM, second)]
    first = completed(await says(served, *asked, {**run, "event": "workflow_paused", "data": {}}))
    served.dify.form = FORM
    after = completed(await answered(served, first, Part(text="approve")))
    assert after.ending == port.Ending.INPUT_REQUIRED
    assert "And this?" in str(after.message)


async def test_a_form_that_comes_by_mail_is_waited_for(served: Served) -> None:
    served.dify.form = {**FORM, "form_token": None}
    first = completed(await collect(served.adapter, request("Write")))
    assert "elsewhere" in str(first.message)
    assert completed(await answered(served, first, Part(text="?"))).ending == port.Ending.INPUT_REQUIRED
    served.dify.form = None
    assert text(await answered(served, first, Part(text="?"))) == "It is sent."


async def test_a_proxy_without_dify(served: Served) -> None:
    served.dify.status = 503
    assert (await fails(served)).backend_down


async def test_an_expired_form_is_followed_to_its_end(served: Served) -> None:
    first = await paused(served)
    served.dify.form_status = 412
    assert text(await answered(served, first, Part(text="approve"))) == "It is sent."


async def test_a_message_of_another_task_is_no_answer_to_the_form(served: Served) -> None:
    first = await paused(served)
    served.dify.form = None
    other = completed(await answered(served, first, Part(text="approve"), task_id="another"))
    assert served.dify.requests[-1]["query"] == "approve"
    assert other.secret is None  # the form still waits


async def test_a_form_that_is_gone_leaves_a_message(served: Served) -> None:
    first = await paused(served)
    served.dify.form = None
    assert text(await answered(served, first, Part(text="approve"))) == "approve"


def target(rest: str, **env: str) -> Target:
    from pathlib import Path

    return Target(f"dify:{rest}", "dify", rest, None, env, Path("."), Path("."))


def test_a_target_of_serve() -> None:
    agent = from_target(target("http://localhost/v1#me", DIFY_API_KEY="k"))
    assert agent.settings == {
        "api_key": EnvironmentValue("DIFY_API_KEY"),
        "user": "me",
        "base_url": "http://localhost/v1",
    }
    with pytest.raises(TargetProblem, match="DIFY_API_KEY"):
        from_target(target("http://localhost/v1"))
