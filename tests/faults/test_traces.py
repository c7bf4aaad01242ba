"""`kill -9` in the second tool of a turn, and another process that goes on with it: one trace, whole, whether the first process
had sent its spans or not."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, why
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.running import child_gateways
from tests.support.otlp import Received, orphans, receiver
from tests.support.polling import until
from tests.support.spans import CALLER

_BOUND_SECONDS = 120


@dataclass(slots=True)
class Tools:
    """A service with a tool. The first run of `second` does not end."""

    url: str = ""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    runs: list[tuple[str, str]] = field(default_factory=list)

    async def run(self, request: Request) -> JSONResponse:
        what = request.path_params["what"]
        first = what not in [name for name, _ in self.runs]
        self.runs.append((what, request.headers["traceparent"]))
        if what == "second" and first:
            self.reached.set()
            await asyncio.Event().wait()
        return JSONResponse({"did": what})


@asynccontextmanager
async def tools() -> AsyncIterator[Tools]:
    made = Tools()
    async with serve(Starlette(routes=[Route("/do/{what}", made.run)])) as made.url:
        yield made


def script(conversation: Conversation) -> Iterator[Step]:
    done = len(conversation.tool_outputs)
    if done < 2:
        yield Call("do", {"what": ("first", "second")[done]}, call_id=f"call-{done}")
    else:
        yield Say("done")


def settings(url: str) -> str:
    tool = {"type": "http", "name": "do", "description": "Does it.", "url": f"{url}/do/{{what}}"}
    return f"tracing: {{enabled: true}}\ntools:\n  do: {json.dumps(tool)}"


@pytest.mark.fault("K7")
@pytest.mark.parametrize("delay", ["1", "600000"], ids=["sent", "not-sent"])
async def test_a_turn_that_another_process_goes_on_with_is_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: str
) -> None:
    model = ChatServer(script)
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        receiver() as received,
        tools() as served,
        model.serve() as backend,
    ):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        agent = f"agent: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [do]}}"
        async with child_gateways(agent, tmp_path, settings=settings(served.url)) as start:
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", delay)
            first = await start()
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
            other = await start()
            async with a2a_http(first.url) as http, a2a_http(other.url) as next_http:
                http.headers["traceparent"] = CALLER.traceparent
                async with A2A(http, "agent").stream("go", "c") as stream:
                    [frame] = await stream.read(1)
                    await served.reached.wait()
                    if delay == "1":
                        await received.until(lambda spans: len(named(spans, "execute_tool do")) == 1)
                    await first.kill()
                    await stream.rest()
                caller, task = A2A(next_http, "agent"), frame.event["task"]["id"]

                async def over() -> bool:
                    return why(await caller.get(task)) == COMPLETED

                await until(over)
                spans = await received.until(lambda spans: named(spans, "invoke_agent agent"))
    _check(spans, served, model)


def _check(spans: list[Received], served: Tools, model: ChatServer) -> None:
    turns = [span for span in spans if span.trace_id == CALLER.trace_id]
    assert orphans(turns, CALLER.span_id) == []
    by_id = {span.span_id: span for span in turns}
    assert sorted(span.name for span in by_id.values()) == [
        "chat m", "chat m", "chat m", "execute_tool do", "execute_tool do", "invoke_agent agent",
    ]  # fmt: skip
    [turn] = named(turns, "invoke_agent agent")
    assert (turn.parent, turn.failed, turn.attributes["a2a_gateway.taken_over"]) == (CALLER.span_id, False, True)
    assert all(span.parent == turn.span_id for span in turns if span is not turn)
    assert all(turn.began <= span.began <= span.ended <= turn.ended for span in turns)
    # What was told to the tools and the model are the spans that came; the second tool ran twice in the same one.
    sent = [header.split("-")[2] for _, header in served.runs]
    assert [name for name, _ in served.runs] == ["first", "second", "second"]
    assert sent[1] == sent[2]
    assert {by_id[span_id].name for span_id in sent} == {"execute_tool do"}
    asked = [headers["traceparent"].split("-")[2] for headers in model.headers]
    assert [by_id[span_id].attributes["a2a_gateway.round"] for span_id in asked] == [0, 1, 2]


def named(spans: list[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]
