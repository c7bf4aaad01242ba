"""Faults of the bytes between a backend and the gateway, end to end over both wires: lost connections, answers that are cut,
reordered or repeated, requested waits, other hosts."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.engine.runtime import Pace
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.adapters.raw_server import EVENT_STREAM, Exchange, plain
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Say, Step
from tests.faults.broken_backends import KEY, WIRES
from tests.faults.raw_backends import ANSWER, agent, raw_backend, recorded
from tests.running import AT_ONCE, StartLocal
from tests.support.forward_proxy import forward_proxy

BOTH = pytest.mark.parametrize("wire", WIRES)

# --- B2: connections that are gone ------------------------------------------------------------------------------------

_SEARCHES = "service_tools: [{type: web_search}]"


@pytest.mark.fault("B2")
@pytest.mark.parametrize(
    ("wire", "more", "repeated"),
    [
        ("openai-chat", "", True),
        ("openai-responses", "history: {owner: gateway}", True),
        ("openai-responses", "", True),
        ("openai-responses", "background: true", True),
        ("openai-responses", f"repeat_unknown: true, {_SEARCHES}", True),
        # Nobody knows whether it was done: it is told, and not done again.
        ("openai-responses", _SEARCHES, False),
        ("openai-responses", f"history: {{owner: gateway}}, {_SEARCHES}", False),
        ("openai-responses", "extra_body: {prompt: {id: pmpt_1}}", False),
        ("openai-responses", "repeat_unknown: false", False),
        ("openai-chat", "extra_body: {tools: [{type: web_search}]}", False),
    ],
)
@pytest.mark.parametrize("kept", [False, True], ids=["on a new connection", "on a kept connection"])
async def test_a_reset_before_the_answer_is_not_seen_where_the_request_may_be_sent_again(
    start_local: StartLocal, wire: str, more: str, repeated: bool, kept: bool
) -> None:
    stream = await recorded(wire)
    if "gateway" in more:
        stream = stream.replace(b'"store":true', b'"store":false')

    async def answer(exchange: Exchange) -> None:
        if len(server.requests) == 1 + kept:
            exchange.reset()
        else:
            await exchange.stream(stream)

    async with raw_backend(answer) as server:
        gateway = await start_local(agent(wire, server, more), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "raw")
            if kept:
                assert why(await caller.send("before")) == COMPLETED
            task = await caller.send("hello")

    # A kept connection may have ended before the request came: that is repeated once, whatever runs at the service.
    twice = repeated or kept
    broken, *again = server.requests[kept:]
    assert why(task) == (COMPLETED if twice else failed(ErrorClass.INTERRUPTED))
    assert [request.body for request in again] == [broken.body] * twice
    assert server.connections == 1 + twice


@pytest.mark.fault("B2")
@BOTH
async def test_a_kept_connection_that_the_backend_has_closed_is_not_seen(start_local: StartLocal, wire: str) -> None:
    stream = await recorded(wire)

    async def answer(exchange: Exchange) -> None:
        await exchange.stream(stream)
        exchange.writer.close()

    async with raw_backend(answer) as server:
        gateway = await start_local(agent(wire, server), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            tasks = [await A2A(http, "raw").send("hello") for _ in range(3)]

    assert [why(task) for task in tasks] == [COMPLETED] * 3
    assert (len(server.requests), server.connections) == (3, 3)


_FAILED = (
    b'data: {"type":"response.failed","response":{"id":"resp_9","status":"failed","error":{"code":"server_error"}}}\n\n'
)


@pytest.mark.fault("B6")
@BOTH
@pytest.mark.parametrize("status", ["408", "500", "502", "503", "504", "520", "failed", "empty", "cut"])
async def test_a_failure_before_any_output_is_not_seen_where_the_backend_runs_no_tools(
    start_local: StartLocal, wire: str, status: str
) -> None:
    stream = await recorded(wire)

    async def answer(exchange: Exchange) -> None:
        if len(server.requests) > 2:
            await exchange.stream(stream)
        elif status == "failed":
            await exchange.stream(_FAILED if wire == "openai-responses" else b'data: {"error":{"message":"no"}}\n\n')
        elif status == "empty":
            await exchange.stream()
        elif status == "cut":
            await exchange.send(EVENT_STREAM)
            exchange.writer.close()
        else:
            await exchange.send(plain(f"{status} No", b"<html>no</html>", Content_Type="text/html"))

    async with raw_backend(answer) as server:
        gateway = await start_local(agent(wire, server), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            task = await A2A(http, "raw").send("hello")

    assert (why(task), text_of(task)) == (COMPLETED, ANSWER)
    first, *again = server.requests
    assert [request.body for request in again] == [first.body] * 2


# --- B5: waits that were asked for ------------------------------------------------------------------------------------

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_AT = {"Date": format_datetime(_NOW, usegmt=True)}
_LIMITED = json.dumps({"error": {"message": "slow", "type": "requests", "code": "rate_limit_exceeded"}}).encode()
_EMPTY = json.dumps(
    {"error": {"message": "no money", "type": "insufficient_quota", "code": "insufficient_quota"}}
).encode()


def _until(seconds: int) -> str:
    return format_datetime(_NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.fault("B5")
@BOTH
@pytest.mark.parametrize(
    ("body", "headers", "waited", "asked"),
    [
        pytest.param(_LIMITED, {"Retry-After": "7"}, (7.0, 8.0), None, id="seconds"),
        # By the backend's own clock, which is not ours.
        pytest.param(_LIMITED, _AT | {"Retry-After": _until(7)}, (7.0, 8.0), None, id="a date"),
        pytest.param(_LIMITED, _AT | {"Retry-After": _until(-7)}, (0.0, 1.0), None, id="a date that is over"),
        pytest.param(_LIMITED, {"Retry-After": "soon"}, (0.0, 1.0), None, id="nonsense"),
        pytest.param(_LIMITED, {"Retry-After": "61"}, None, 61, id="too long"),
        pytest.param(_LIMITED, _AT | {"Retry-After": _until(3600)}, None, 3600, id="a date too far away"),
        pytest.param(_EMPTY, {"Retry-After": "1"}, None, None, id="quota"),
    ],
)
async def test_a_wait_that_the_backend_asks_for_is_kept_where_it_is_worth_it(
    start_local: StartLocal,
    wire: str,
    body: bytes,
    headers: dict[str, str],
    waited: tuple[float, float] | None,
    asked: int | None,
) -> None:
    stream = await recorded(wire)
    waits: list[float] = []

    async def pass_by(seconds: float) -> None:
        waits.append(seconds)

    async def answer(exchange: Exchange) -> None:
        if len(server.requests) == 1:
            names = {name.replace("-", "_"): value for name, value in headers.items()}
            await exchange.send(plain("429 Too Many Requests", body, Content_Type="application/json", **names))
        else:
            await exchange.stream(stream)

    async with raw_backend(answer) as server:
        gateway = await start_local(agent(wire, server), pace=Pace(pass_by))
        async with a2a_http(gateway.url) as http:
            task = await A2A(http, "raw").send("hello")

    if waited is None:
        refused = ErrorClass.NOT_SERVED if body is _EMPTY else ErrorClass.RATE_LIMITED
        assert (why(task), waits, len(server.requests)) == (failed(refused, asked), [], 1)
    else:
        assert (why(task), text_of(task), len(server.requests)) == (COMPLETED, ANSWER, 2)
        [wait] = waits
        assert waited[0] <= wait <= waited[1]


# --- B6: another host -------------------------------------------------------------------------------------------------


@pytest.mark.fault("B6")
@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_nowhere_and_the_other_host_gets_no_key(
    start_local: StartLocal, wire: str, status: int
) -> None:
    stream = await recorded(wire)

    async def elsewhere(exchange: Exchange) -> None:
        await exchange.stream(stream)

    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain(f"{status} Elsewhere", Location=f"{other.url}/v1/responses"))

    async with raw_backend(elsewhere) as other, raw_backend(answer) as server:
        gateway = await start_local(agent(wire, server), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "raw")
            task = await caller.send("hello")

    assert why(task) == failed(ErrorClass.NOT_SERVED)
    assert (other.connections, len(server.requests)) == (0, 1)
    assert KEY.encode() not in caller.seen
    assert other.url.encode() not in caller.seen


# --- B8: the same answer in other words -------------------------------------------------------------------------------


def _bytewise(wire: bytes) -> list[bytes]:
    return [wire[at : at + 1] for at in range(len(wire))]


def _inside_characters(wire: bytes) -> list[bytes]:
    return [piece for piece in re.split(rb"(?<=[\x80-\xff])", wire) if piece]


VARIANTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "one byte at a time": _bytewise,
    "cut inside of characters": _inside_characters,
    "CRLF": lambda wire: [wire.replace(b"\n", b"\r\n")],
    "CR": lambda wire: [wire.replace(b"\n", b"\r")],
    "CRLF, one byte at a time": lambda wire: _bytewise(wire.replace(b"\n", b"\r\n")),
    "no names of events": lambda wire: [re.sub(rb"(?m)^event: .*\n", b"", wire)],
    "pings": lambda wire: [wire.replace(b"\n\n", b"\n\n: ping\n\nevent: ping\n\n")],
    "a byte order mark": lambda wire: [b"\xef\xbb\xbf" + wire],
    "a last word": lambda wire: [wire.replace(b"data: [DONE]\n\n", b"") + b"data: [DONE]\n\n"],
    "no last word": lambda wire: [wire.replace(b"data: [DONE]\n\n", b"")],
    "no space behind the colon": lambda wire: [wire.replace(b"data: ", b"data:")],
}


@pytest.mark.fault("B8")
@BOTH
@pytest.mark.parametrize("variant", VARIANTS)
async def test_an_answer_is_the_same_however_it_is_written_and_cut(
    start_local: StartLocal, wire: str, variant: str
) -> None:
    pieces = VARIANTS[variant](await recorded(wire))

    async with raw_backend(lambda exchange: exchange.stream(*pieces)) as server:
        gateway = await start_local(agent(wire, server), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "raw")
            async with caller.stream("hello") as stream:
                frames = await stream.rest()
            task = await caller.get(frames[0].event["task"]["id"])

    assert (why(task), text_of(task), streamed_text(frames)) == (COMPLETED, ANSWER, ANSWER)
    assert len(server.requests) == 1


# --- B9: events that are not as they should be ------------------------------------------------------------------------


def _events(wire: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in wire.split(b"\n\n") if event]


def _twice(events: list[bytes]) -> Iterator[bytes]:
    for event in events:
        yield from (event, event)


def _first_again(events: list[bytes]) -> Iterator[bytes]:
    """Each is followed by all that came before it."""
    for index, event in enumerate(events):
        yield event
        yield from events[: index + 1]


def _among_unknown(events: list[bytes]) -> Iterator[bytes]:
    for event in events:
        yield event
        yield b'data: {"type":"response.made_up","delta":"no"}\n\n'


def _behind_the_end(events: list[bytes]) -> Iterator[bytes]:
    yield from events
    late = {"type": "response.output_text.delta", "sequence_number": 900, "item_id": "msg", "output_index": 0}
    yield b"data: %s\n\n" % json.dumps(late | {"content_index": 0, "delta": "too late"}).encode()
    yield b'data: {"type":"response.failed","sequence_number":901,"response":{"id":"resp_other","status":"failed"}}\n\n'


@pytest.mark.fault("B9")
@pytest.mark.parametrize("variant", [_twice, _first_again, _among_unknown, _behind_the_end])
async def test_events_that_come_again_or_too_late_or_are_unknown_change_nothing(
    start_local: StartLocal, variant: Callable[[list[bytes]], Iterator[bytes]]
) -> None:
    events = _events(await recorded("openai-responses"))
    [handle] = re.findall(rb'"id":"(resp_\w+)"', events[0])

    async with raw_backend(lambda exchange: exchange.stream(*variant(events))) as server:
        gateway = await start_local(agent("openai-responses", server, "verify_chain: false"), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "raw")
            async with caller.stream("hello", "c") as stream:
                frames = await stream.rest()
            task = await caller.get(frames[0].event["task"]["id"])
            await caller.send("next", "c")

    assert (why(task), text_of(task), streamed_text(frames)) == (COMPLETED, ANSWER, ANSWER)
    handles = [json.loads(request.body).get("previous_response_id") for request in server.requests]
    assert handles == [None, handle.decode()]


# --- B15: done, and answered with 500 ---------------------------------------------------------------------------------


class _DoneAnd500:
    """The service answers the message `two` completely, and its client gets an error."""

    def __init__(self, server: ResponsesServer) -> None:
        self.server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        brought = len(self.server.requests)
        told: list[Message] = []

        async def keep(message: Message) -> None:
            told.append(message)

        await self.server.app(scope, receive, keep)
        asked = self.server.requests[brought:]
        if any("input" in body and "two" in json.dumps(body["input"][-1]) for body in asked):
            told = [
                {"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]},
                {"type": "http.response.body", "body": b""},
            ]
        for message in told:
            await send(message)


@pytest.mark.fault("B15")
@pytest.mark.parametrize("more", ["conversation: true", "conversation: false", "history: {owner: gateway}"])
async def test_what_was_done_and_answered_with_500_is_in_the_conversation_once(
    start_local: StartLocal, more: str
) -> None:
    def repeats(conversation: Conversation) -> list[Step]:
        return [Say(" ".join(conversation.user_texts))]

    server = ResponsesServer(repeats)
    async with serve(_DoneAnd500(server)) as url:
        gateway = await start_local(
            f"talking: {{type: openai-responses, model: m, base_url: '{url}/v1', {more}}}", pace=AT_ONCE
        )
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "talking")
            tasks = [await caller.send(text, "c") for text in ("one", "two", "three", "four")]

    assert [why(task)[0] for task in tasks[::2]] == ["TASK_STATE_COMPLETED"] * 2
    assert text_of(tasks[-1]) == "one two three four"
    assert (more == "conversation: true") == bool(server.conversations)
    for conversation in server.conversations.values():
        said = [item["content"][0]["text"] for item in conversation.items if item.get("role") == "user"]
        assert said == ["one", "two", "three", "four"]


# --- the way to the service -------------------------------------------------------------------------------------------


@pytest.mark.fault("B1")
@BOTH
async def test_headers_and_the_proxy_of_an_agent_are_used_and_its_secrets_are_in_no_error(
    start_local: StartLocal, wire: str
) -> None:
    stream = await recorded(wire)

    async def answer(exchange: Exchange) -> None:
        if len(server.requests) == 1:
            await exchange.stream(stream)
        else:
            told = json.dumps({"error": {"message": f"bad team {exchange.request.header('X-Team')}"}}).encode()
            await exchange.send(plain("400 Bad Request", told, Content_Type="application/json"))

    async with raw_backend(answer) as server, forward_proxy() as proxy:
        more = f"headers: {{X-Team: canary-of-the-team}}, proxy: '{proxy.url}'"
        gateway = await start_local(agent(wire, server, more), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "raw")
            tasks = [await caller.send(text) for text in ("one", "two")]

    assert [why(task) for task in tasks] == [COMPLETED, failed(ErrorClass.REJECTED)]
    assert [request.header("X-Team") for request in server.requests] == ["canary-of-the-team"] * 2
    assert len(proxy.heads) >= 1
    assert b"canary-of-the-team" not in caller.seen
