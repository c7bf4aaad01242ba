"""SIGTERM with fifty open streams: some answers end within the grace, others do not; a turn is queued after each kind, a task
waits for its caller, and a webhook is configured. Callers of the next process have missed nothing."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.a2a.tool_calls import URI
from gateway.ledger.calls import RESTARTED
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, Json, a2a_http, failed, streamed_text, text_of, user_message, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.faults.paused_agents import PausedAgents, paused_agents
from tests.invariants import violations
from tests.receiver import LOOPBACK, Letter, Receiver, receiving
from tests.running import Child, StartChild, child_gateways

pytestmark = [pytest.mark.xdist_group("drain"), pytest.mark.fault("K13")]

_STREAMS = 50
_GRACE = "10s"
"""Long enough for the turns that end in it, also on a machine that stalls for a while."""
_BOUND_SECONDS = 120
"""Also of the second signal: the grace of its gateway is longer."""

_TOOL = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''


def _script(conversation: Conversation) -> Iterator[Step]:
    if conversation.tool_outputs:
        yield Say(" ".join(conversation.tool_outputs.values()))
    else:
        yield Call("book", {"hotel": "Ritz"})


@dataclass(slots=True)
class Listener:
    """One who follows an answer. `after` and `replay` are from the next process."""

    agent: str
    text: str
    seen: list[Frame] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    cut: bool = False
    after: list[Frame] = field(default_factory=list)
    replay: list[Frame] = field(default_factory=list)
    task: Json = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.seen[0].event["task"]["id"])


@dataclass(frozen=True, slots=True)
class Place:
    held: PausedAgents
    start: StartChild
    receiver: Receiver
    database: Path


@asynccontextmanager
async def _place(folder: Path, grace: str) -> AsyncIterator[Place]:
    (folder / "desk.py").write_text(_TOOL)
    settings = (
        f"server: {{port: 0, shutdown_grace: {grace}}}\n"
        f"push: {{{LOOPBACK}}}\n"
        "tools: {desk: {type: python, ref: './desk.py:book'}}"
    )
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        paused_agents(folder) as held,
        serve(ResponsesServer(_script).app) as backend,
        receiving() as receiver,
    ):
        asking = (
            f"asking: {{type: openai-responses, model: m, base_url: '{backend}/v1', tools: [desk],"
            " approvals: [{tool: 'desk.*'}]}"
        )
        async with child_gateways(f"{held.agents}\n{asking}", folder, settings=settings) as start:
            yield Place(held, start, receiver, folder / "gateway.db")


def _listeners() -> list[Listener]:
    return [Listener(agent, f"talking {agent} {n}") for n in range(_STREAMS // 2) for agent in ("function", "chained")]


async def _listen(listener: Listener, place: Place, http: httpx2.AsyncClient, all_talk: asyncio.Barrier) -> None:
    """Until the gateway ends the stream."""
    async with A2A(http, listener.agent).stream(listener.text) as stream:
        await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
        await place.held.arrived[listener.text].wait()
        await all_talk.wait()
        listener.seen = list(await stream.rest())
        listener.cut, listener.comments = stream.cut, stream.comments


async def _come_back(listener: Listener, http: httpx2.AsyncClient) -> None:
    caller = A2A(http, listener.agent)
    async with caller.subscribe(listener.id, after=listener.seen[-1].number) as stream:
        listener.after = await stream.rest()
    async with caller.subscribe(listener.id, after=0) as stream:
        listener.replay = await stream.rest()
    listener.task = await caller.get(listener.id)


async def _drain(child: Child, place: Place, listeners: list[Listener], http: httpx2.AsyncClient) -> None:
    """All listen, until the drain ends their streams."""
    all_talk = asyncio.Barrier(len(listeners) + 1)
    async with asyncio.TaskGroup() as group:
        for each in listeners:
            group.create_task(_listen(each, place, http, all_talk))
        await all_talk.wait()
        child.signal(signal.SIGTERM)


def _nothing_is_missing_or_repeated(listener: Listener) -> None:
    assert not listener.cut
    assert listener.comments == [": draining"]
    whole = [frame for frame in (*listener.seen[1:], *listener.after) if frame.number is not None]
    assert [frame.number for frame in whole] == list(range(1, len(whole) + 1))
    assert listener.replay[1:] == whole
    assert text_of(listener.task) == streamed_text(whole)


async def _begin(http: httpx2.AsyncClient, place: Place, name: str) -> tuple[Json, Json]:
    """A running task in context `name`, with a webhook, and the task of a message queued after it."""
    caller, text, at_once = A2A(http, "chained"), f"talking {name}", {"returnImmediately": True}
    config = {"url": f"{place.receiver.url}/{name}"}
    running = await caller.call(
        "SendMessage",
        message=user_message(text, name),
        configuration=at_once | {"taskPushNotificationConfig": config},
    )
    await place.held.arrived[text].wait()
    queued = await caller.call("SendMessage", message=user_message("queued", name), configuration=at_once)
    return running["task"], queued["task"]


async def _ended(caller: A2A, task: Json) -> Json:
    async with caller.subscribe(task["id"], after=0) as stream:
        await stream.rest()
    return await caller.get(task["id"])


async def _allow(caller: A2A, task: Json) -> Json:
    [tool] = task["status"]["message"]["metadata"][URI]["approval"]["tools"]
    decision = {"approvals": [{"id": tool["id"], "approved": True}]}
    message = {"messageId": "d", "role": "ROLE_USER", "taskId": task["id"], "parts": [{"data": decision}]}
    answered: Json = (await caller.call("SendMessage", message=message))["task"]
    return answered


async def _log(caller: A2A, task: Json) -> list[Json]:
    async with caller.subscribe(task["id"], after=0) as stream:
        return [frame.event for frame in (await stream.rest())[1:]]


def _told(letters: list[Letter], name: str) -> list[Json]:
    """What has arrived, each event once: one whose arrival was not written down comes twice."""
    bodies = dict.fromkeys(letter.body for letter in letters if letter.accepted and letter.path == f"/{name}")
    return [json.loads(body) for body in bodies]


async def test_fifty_streams_are_handed_over_to_the_next_process_without_gap_or_repeat(tmp_path: Path) -> None:
    async with _place(tmp_path, _GRACE) as place:
        child, listeners = await place.start(), _listeners()
        ending, staying = listeners[: _STREAMS // 2], listeners[_STREAMS // 2 :]
        async with a2a_http(child.url) as http:
            asked = await A2A(http, "asking").send("Book the Ritz.")
            short, behind_short = await _begin(http, place, "short")
            long, behind_long = await _begin(http, place, "long")
            await _drain(child, place, listeners, http)
            ready = await http.get("/readyz")
            refused = await http.post("/a2a/function/message:send", json={"message": user_message("hi")})
            still = [await A2A(http, each.agent).get(each.id) for each in (ending[0], staying[0])]
            for text in ("talking short", *(each.text for each in ending)):
                place.held.go_on[text].set()
            code = await child.ended()
        again = await place.start()
        async with a2a_http(again.url) as http:
            caller = A2A(http, "chained")
            await asyncio.gather(*(_come_back(each, http) for each in listeners))
            ended = [await _ended(caller, task) for task in (short, behind_short, long, behind_long)]
            answered = await _allow(A2A(http, "asking"), asked)
            logs = {"short": await _log(caller, short), "long": await _log(caller, long)}
            await place.receiver.until(lambda letters: all(_told(letters, name) == logs[name] for name in logs))
        broken = violations(place.database)

    assert (ready.status_code, refused.status_code, "retry-after" in refused.headers) == (503, 503, True)
    assert [why(task)[0] for task in still] == ["TASK_STATE_WORKING"] * 2
    assert code == 0
    for each in listeners:
        _nothing_is_missing_or_repeated(each)
    assert {(why(each.task), text_of(each.task)) for each in ending} == {(COMPLETED, "one two three")}
    assert {(why(each.task), text_of(each.task)) for each in staying} == {(failed(RESTARTED), "one two ")}
    # What waited behind a turn that could not end had not begun: the next process runs it.
    assert [why(task) for task in ended] == [COMPLETED, COMPLETED, failed(RESTARTED), COMPLETED]
    assert text_of(ended[1]) == "talking short | queued"
    assert text_of(ended[3]) == "talking long | queued"
    assert (why(answered), text_of(answered)) == (COMPLETED, "booked Ritz")
    assert broken == []


async def test_a_second_signal_hands_all_of_them_over_now(tmp_path: Path) -> None:
    async with _place(tmp_path, "10m") as place:
        child, listeners = await place.start(), _listeners()
        async with a2a_http(child.url) as http:
            await _drain(child, place, listeners, http)
            child.signal(signal.SIGTERM)
            code = await child.ended()
        again = await place.start()
        async with a2a_http(again.url) as http:
            await asyncio.gather(*(_come_back(each, http) for each in listeners))
        broken = violations(place.database)

    assert code == 0
    for each in listeners:
        _nothing_is_missing_or_repeated(each)
    assert {(why(each.task), text_of(each.task)) for each in listeners} == {(failed(RESTARTED), "one two ")}
    assert broken == []
