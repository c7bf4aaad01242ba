"""Traces of a whole gateway: from its callers, over its ports, to backends, tools and receivers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
import structlog
from a2a.types import a2a_pb2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http
from tests.adapters.tools.served_mcp import SMALL
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Conversation, Say
from tests.gateway.grpc.calling import VERSION, path
from tests.running import local_gateway
from tests.support.otlp import Received, Receiver, orphans, receiver
from tests.support.spans import CALLER

ON = "tracing: {enabled: true}"
ECHO = 'agent: {type: python, ref: "gateway.cli.demo.agent:reply"}'
TRACED = '''
from opentelemetry.trace import get_current_span

def where():
    context = get_current_span().get_span_context()
    return f"{context.trace_id:032x} {context.span_id:016x}"

async def agent(message: str):
    return where()

def tool(question: str) -> str:
    """Tells where it is."""
    return where()
'''


@pytest.fixture
async def received(monkeypatch: pytest.MonkeyPatch) -> Any:
    async with receiver() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        yield made


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


async def spans_of(received: Receiver, *names: str) -> list[Received]:
    """The spans with these names, once all have come."""
    found = await received.until(lambda spans: set(names) <= {span.name for span in spans})
    return [next(span for span in found if span.name == name) for name in names]


def in_headers(headers: dict[str, str]) -> tuple[str, str]:
    """Trace and span."""
    _, trace_id, span_id, _ = headers["traceparent"].split("-")
    return trace_id, span_id


async def test_a_request_and_its_turn_are_in_the_trace_of_the_caller(tmp_path: Path, received: Receiver) -> None:
    async with local_gateway(ECHO, tmp_path, settings=ON) as local, a2a_http(local.url) as http:
        http.headers["traceparent"], http.headers["tracestate"] = CALLER.traceparent, "vendor=1"
        task = await A2A(http, "agent").send("hi", "c")
        request, turn, call = await spans_of(received, "SendMessage", "invoke_agent agent", "chat")
    assert {span.trace_id for span in received.spans} == {CALLER.trace_id}
    assert (request.parent, turn.parent, call.parent) == (CALLER.span_id, CALLER.span_id, turn.span_id)
    assert request.links == ((turn.trace_id, turn.span_id),)
    assert request.attributes["a2a.task.id"] == turn.attributes["a2a.task.id"] == task["id"]
    assert request.attributes["gen_ai.conversation.id"] == turn.attributes["gen_ai.conversation.id"] == "c"
    assert request.attributes["a2a.message.id"]
    assert not any(name.endswith("messages") for span in received.spans for name in span.attributes)


async def test_a_stream_is_one_request_until_its_end(tmp_path: Path, received: Receiver) -> None:
    async with local_gateway(ECHO, tmp_path, settings=ON) as local, a2a_http(local.url) as http:
        async with A2A(http, "agent").stream("hi", "c") as stream:
            await stream.rest()
        request, turn = await spans_of(received, "SendStreamingMessage", "invoke_agent agent")
    assert (request.parent, turn.parent) == ("", "")
    assert request.links == ((turn.trace_id, turn.span_id),)
    assert request.trace_id != turn.trace_id
    assert orphans(received.spans) == []


async def test_the_trace_of_a_caller_goes_on_over_grpc(tmp_path: Path, received: Receiver) -> None:
    asked = a2a_pb2.SendMessageRequest(
        message=a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hi")])
    )
    async with local_gateway(ECHO, tmp_path, settings=ON, grpc=True) as local:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{local.grpc}") as channel:
            send = channel.unary_unary(
                path("SendMessage"),
                request_serializer=a2a_pb2.SendMessageRequest.SerializeToString,
                response_deserializer=a2a_pb2.SendMessageResponse.FromString,
            )
            await send(asked, metadata=(*VERSION, ("traceparent", CALLER.traceparent)))
        request, turn = await spans_of(received, "SendMessage", "invoke_agent agent")
    assert (request.parent, turn.parent, turn.trace_id) == (CALLER.span_id, CALLER.span_id, CALLER.trace_id)


async def test_a_backend_and_a_tool_over_http_get_their_own_place_in_the_trace(
    tmp_path: Path, received: Receiver
) -> None:
    seen: list[dict[str, str]] = []

    async def answer(request: Request) -> JSONResponse:
        seen.append(dict(request.headers))
        return JSONResponse({"sum": 3})

    def script(conversation: Conversation) -> Any:
        yield Say("3") if conversation.tool_outputs else Call("add", {"to": "x"}, call_id="c1")

    model = ChatServer(script)
    async with model.serve() as backend, serve(Starlette(routes=[Route("/add/{to}", answer)])) as service:
        tool = {"type": "http", "name": "add", "description": "Adds.", "url": f"{service}/add/{{to}}"}
        agent = f"agent: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [add]}}"
        settings = f"{ON}\ntools: {{add: {json.dumps(tool)}}}"
        async with local_gateway(agent, tmp_path, settings=settings) as local, a2a_http(local.url) as http:
            http.headers["traceparent"], http.headers["tracestate"] = CALLER.traceparent, "vendor=1"
            await A2A(http, "agent").send("hi", "c")
            await spans_of(received, "invoke_agent agent")
    calls = sorted(received.named("chat m"), key=lambda span: span.began)
    [ran] = received.named("execute_tool add")
    assert [in_headers(headers) for headers in model.headers] == [(CALLER.trace_id, call.span_id) for call in calls]
    assert [in_headers(headers) for headers in seen] == [(CALLER.trace_id, ran.span_id)]
    assert {headers["tracestate"] for headers in (*seen, *model.headers)} == {"vendor=1"}
    assert calls[0].attributes["gen_ai.provider.name"] == "openai"
    assert calls[0].attributes["server.address"] == "127.0.0.1"
    assert calls[0].attributes["gen_ai.usage.input_tokens"] > 0


async def test_a_tool_of_an_mcp_server_finds_its_place_in_what_is_said_beside_its_arguments(
    tmp_path: Path, received: Receiver
) -> None:
    def script(conversation: Conversation) -> Any:
        outputs = list(conversation.tool_outputs.values())
        yield Say(str(outputs[0])) if outputs else Call("meta", {}, call_id="c1")

    model = ChatServer(script)
    async with model.serve() as backend:
        server = {"type": "mcp", "command": SMALL, "cwd": str(Path(__file__).parents[2]), "allow": ["meta"]}
        agent = f"agent: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [box]}}"
        settings = f"{ON}\ntools: {{box: {json.dumps(server)}}}"
        async with local_gateway(agent, tmp_path, settings=settings) as local, a2a_http(local.url) as http:
            http.headers["traceparent"] = CALLER.traceparent
            task = await A2A(http, "agent").send("hi", "c")
            [ran] = await spans_of(received, "execute_tool meta")
    assert f"00-{CALLER.trace_id}-{ran.span_id}-01" in text_of(task)


@pytest.mark.parametrize("place", ["thread", "process"])
async def test_an_agent_in_python_is_a_part_of_the_call(tmp_path: Path, received: Receiver, place: str) -> None:
    (tmp_path / "traced.py").write_text(TRACED)
    agent = f'agent: {{type: python, ref: "traced:agent", run_in: {place}}}'
    async with local_gateway(agent, tmp_path, settings=ON) as local, a2a_http(local.url) as http:
        task = await A2A(http, "agent").send("hi", "c")
        [call] = await spans_of(received, "chat")
    assert text_of(task) == f"{call.trace_id} {call.span_id}"


async def test_a_tool_in_python_is_a_part_of_its_call(tmp_path: Path, received: Receiver) -> None:
    def script(conversation: Conversation) -> Any:
        outputs = list(conversation.tool_outputs.values())
        yield Say(str(outputs[0])) if outputs else Call("tool", {"question": "where"}, call_id="c1")

    (tmp_path / "traced.py").write_text(TRACED)
    model = ChatServer(script)
    async with model.serve() as backend:
        agent = f"agent: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [tool]}}"
        settings = f'{ON}\ntools: {{tool: {{type: python, ref: "traced:tool"}}}}'
        async with local_gateway(agent, tmp_path, settings=settings) as local, a2a_http(local.url) as http:
            task = await A2A(http, "agent").send("hi", "c")
            [ran] = await spans_of(received, "execute_tool tool")
    assert f"{ran.trace_id} {ran.span_id}" in text_of(task)


async def test_a_receiver_of_notifications_gets_a_place_in_the_trace_of_the_turn(
    tmp_path: Path, received: Receiver
) -> None:
    seen: list[dict[str, str]] = []

    async def take(request: Request) -> JSONResponse:
        seen.append(dict(request.headers))
        return JSONResponse({})

    push = "push: {allow_http: true, allow_private_networks: [127.0.0.0/8], ports: []}"
    async with (
        serve(Starlette(routes=[Route("/hook", take, methods=["POST"])])) as hook,
        local_gateway(ECHO, tmp_path, settings=f"{ON}\n{push}") as local,
        httpx2.AsyncClient(base_url=local.url, headers={"A2A-Version": "1.0"}) as http,
    ):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        configuration = {"taskPushNotificationConfig": {"url": f"{hook}/hook"}}
        sent = await http.post(
            "/a2a/agent/message:send",
            json={"message": message, "configuration": configuration},
            headers={"traceparent": CALLER.traceparent},
        )
        assert sent.status_code == 200
        [turn] = await spans_of(received, "invoke_agent agent")
        pushes = await received.until(lambda _: len(received.named("push")) == len(seen) > 0)
    posted = received.named("push")
    assert pushes
    assert {span.parent for span in posted} == {turn.span_id}
    assert sorted(map(in_headers, seen)) == sorted((CALLER.trace_id, span.span_id) for span in posted)
    assert {span.attributes["http.response.status_code"] for span in posted} == {200}


async def test_content_is_on_spans_where_it_is_asked_for(tmp_path: Path, received: Receiver) -> None:
    settings = "tracing: {enabled: true, content: true}"
    async with local_gateway(ECHO, tmp_path, settings=settings) as local, a2a_http(local.url) as http:
        await A2A(http, "agent").send("the word", "c")
        [turn] = await spans_of(received, "invoke_agent agent")
    assert "the word" in turn.attributes["gen_ai.input.messages"]


async def test_lines_of_the_log_say_where_they_belong(tmp_path: Path, received: Receiver) -> None:
    (tmp_path / "failing.py").write_text("async def agent(message: str):\n    raise RuntimeError('no')\n")
    agent = 'agent: {type: python, ref: "failing:agent"}'
    lines: list[dict[str, Any]] = []

    def keep(_: Any, __: str, facts: Any) -> Any:
        lines.append(dict(facts))
        raise structlog.DropEvent

    from gateway.foundation.logs import add_trace

    async with local_gateway(agent, tmp_path, settings=ON) as local, a2a_http(local.url) as http:
        with structlog.testing.capture_logs(processors=[add_trace, keep]):
            await A2A(http, "agent").send("hi", "c")
            [turn] = await spans_of(received, "invoke_agent agent")
    [failed] = [line for line in lines if line["event"] == "turn.failed"]
    assert (failed["trace_id"], failed["span_id"]) == (turn.trace_id, turn.span_id)


def test_nothing_of_it_is_loaded_where_it_is_off(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from gateway.app.application import running
from gateway.config.loader import load
from gateway.config.plugins import Registry
from pathlib import Path

async def start():
    text = '''version: 1
agents:
  {ECHO}
'''
    config = load(text, source="test.yaml", env={{}}, plugins=Registry(), base_dir=Path({str(tmp_path)!r}))
    async with running(config, Registry()):
        print(sorted(name for name in sys.modules if name.startswith(("opentelemetry", "gateway.telemetry.otel"))))

asyncio.run(start())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
