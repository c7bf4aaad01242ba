"""`kill -9` in the middle of many answers at once, and a new process on the same database.

One kill serves all rows of the table: a story is what the client of one task saw before and after it.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, Frame, Json, a2a_http, failed, streamed_text, text_of, user_message, why
from tests.faults.paused_agents import AGENTS, POINTS, PausedAgents, paused_agents
from tests.interop.responses_bodies import user
from tests.running import Child, child_gateways

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.fault("K3", "K5")]

_BOUND_SECONDS = 120
_ROWS = [f"{point} {agent}" for agent in AGENTS for point in POINTS] + [f"talking {agent} at first" for agent in AGENTS]
_BURST = 40
# The readers of a flood share one busy process with all the others: here none of them is dropped for being late.
_NEVER_TOO_SLOW = "limits: {stream_buffer_events: 1000000, stream_buffer_bytes: 1GiB}"


@dataclass(slots=True)
class Story:
    """One task that was at work when the process died, as its client saw it. `row` is also the message's text."""

    row: str
    before: list[Frame] = field(default_factory=list)
    cut: bool = False
    after: list[Frame] = field(default_factory=list)
    replay: list[Frame] = field(default_factory=list)
    task: Json = field(default_factory=dict)
    listed: list[Json] = field(default_factory=list)
    next: Json = field(default_factory=dict)

    @property
    def agent(self) -> str:
        return self.row.split()[1]

    @property
    def has_earlier_turn(self) -> bool:
        return not self.row.endswith("at first")


@dataclass(slots=True)
class Ended:
    """A task that had ended before the process died."""

    seen: list[Frame]
    task: Json
    resumed: list[Frame]
    after: Json


@dataclass(slots=True)
class CrashRun:
    """All that happened around one kill. `burst` are the tasks that were acknowledged while it struck."""

    stories: dict[str, Story]
    ended: Ended
    burst: list[Json]
    requests: list[Json]
    handles: dict[str, str]
    """First message of a context -> id of the response that answered it."""


@pytest.fixture(scope="module")
def crash_run(tmp_path_factory: pytest.TempPathFactory) -> CrashRun:
    return asyncio.run(_live_through(tmp_path_factory.mktemp("kill")))


async def _live_through(directory: Path) -> CrashRun:
    stories = {row: Story(row) for row in _ROWS}
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        paused_agents(directory) as held,
        child_gateways(held.agents, directory, settings=_NEVER_TOO_SLOW) as start,
    ):
        child = await start()
        async with a2a_http(child.url) as http:
            ended = await _end_a_task(A2A(http, "chained"))
            everyone = asyncio.Barrier(len(stories) + 1)
            async with asyncio.TaskGroup() as group:
                for story in stories.values():
                    group.create_task(_listen(story, held, A2A(http, story.agent), everyone))
                await everyone.wait()
                acked = await _burst(child, A2A(http, "function"))
        child = await start()
        async with a2a_http(child.url) as http:
            await asyncio.gather(*(_come_back(story, A2A(http, story.agent)) for story in stories.values()))
            chained = A2A(http, "chained")
            async with chained.subscribe(ended.task["id"], after=1) as stream:
                ended.resumed = await stream.rest()
            ended.after = await chained.get(ended.task["id"])
            burst = [await _settled(A2A(http, "function"), task) for task in acked]
    handles = {stored.input[0]["content"][0]["text"]: name for name, stored in held.backend.stored.items()}
    return CrashRun(stories, ended, burst, held.backend.requests, handles)


async def _end_a_task(caller: A2A) -> Ended:
    async with caller.stream("hello") as stream:
        seen = await stream.rest()
    task = await caller.get(seen[0].event["task"]["id"])
    return Ended(seen, task, [], {})


async def _listen(story: Story, held: PausedAgents, caller: A2A, everyone: asyncio.Barrier) -> None:
    """Until the stream breaks, having met all others once the agent was where the row wants it."""
    context = None
    if story.has_earlier_turn:
        context = (await caller.send(f"first {story.row}"))["contextId"]
    async with caller.stream(story.row, context) as stream:
        await stream.read_until(lambda frames: _is_at(story.row, frames))
        if not story.row.startswith("flooding"):
            await held.arrived[story.row].wait()
        await everyone.wait()
        story.before = await stream.rest()
        story.cut = stream.cut


def _is_at(row: str, frames: list[Frame]) -> bool:
    text = streamed_text(frames)
    match row.split(maxsplit=1)[0]:
        case "silent":
            return bool(frames)
        case "talking":
            return text == "one two "
        case "calling":
            return text == "wait " and "requested" in str(frames[-1].event) + str(frames[-2].event)
        case "called":
            return text == "so "
        case _:
            return len(text) > 500


async def _burst(child: Child, caller: A2A) -> list[Json]:
    """Kills the gateway while messages keep coming in; the tasks of those that it had acknowledged."""
    acked: list[Json] = []
    enough = asyncio.Event()

    async def keep_sending() -> None:
        while True:
            message = user_message(f"silent burst {len(acked)}")
            try:
                result = await caller.call("SendMessage", message=message, configuration={"returnImmediately": True})
            except httpx2.TransportError:
                return
            acked.append(result["task"])
            if len(acked) >= _BURST:
                enough.set()

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(keep_sending())
        await enough.wait()
        await child.kill()
    return acked


async def _come_back(story: Story, caller: A2A) -> None:
    task = story.before[0].event["task"]
    async with caller.subscribe(task["id"], after=story.before[-1].number) as stream:
        story.after = await stream.rest()
    async with caller.subscribe(task["id"], after=0) as stream:
        story.replay = await stream.rest()
    story.task = await caller.get(task["id"])
    story.listed = await caller.tasks(task["contextId"])
    story.next = await caller.send(f"next {story.row}", task["contextId"])


async def _settled(caller: A2A, task: Json) -> Json:
    async with caller.subscribe(task["id"], after=0) as stream:
        await stream.rest()
    return await caller.get(task["id"])


@pytest.fixture(params=_ROWS)
def story(crash_run: CrashRun, request: pytest.FixtureRequest) -> Story:
    return crash_run.stories[request.param]


def test_event_numbers_go_on_without_gap_or_repeat(story: Story) -> None:
    before, after = ([frame.number for frame in frames] for frames in (story.before, story.after))

    assert story.cut
    assert before[0] is not None
    assert before == list(range(before[0], before[0] + len(before)))
    # The Task that opens the new stream is no event.
    assert after[0] is None
    assert after[1:] == list(range(before[0] + len(before), before[0] + len(before) + len(after) - 1))
    assert len(after) > 1


def test_the_log_is_what_was_seen_before_and_after(story: Story) -> None:
    assert [frame for frame in story.replay if frame.number is not None] == [
        frame for frame in (*story.before, *story.after) if frame.number
    ]


def test_the_answer_is_what_was_streamed(story: Story) -> None:
    whole = streamed_text([*story.before, *story.after])

    assert text_of(story.after[0].event["task"]) == streamed_text(story.before)
    assert text_of(story.task) == whole
    assert text_of(story.listed[0]) == whole


def test_the_task_ends_and_says_why(story: Story) -> None:
    last = story.after[-1].event["statusUpdate"]

    assert why(last) == failed(RESTARTED)
    assert story.task["status"] == last["status"]
    assert story.listed[0] == story.task
    assert [why(task)[0] for task in story.listed[1:]] == ["TASK_STATE_COMPLETED"] * story.has_earlier_turn


def test_the_next_message_of_the_context_knows_all_that_was_said(story: Story) -> None:
    first = [f"first {story.row}"] if story.has_earlier_turn else []

    assert why(story.next) == COMPLETED
    assert text_of(story.next) == " | ".join([*first, story.row, f"next {story.row}"])


@pytest.mark.parametrize("row", [row for row in _ROWS if "chained" in row])
def test_the_chain_goes_on_from_the_last_completed_response(crash_run: CrashRun, row: str) -> None:
    requests = {request["input"][-1]["content"][0]["text"]: request for request in crash_run.requests}
    handle = crash_run.handles[f"first {row}"] if crash_run.stories[row].has_earlier_turn else None

    assert requests[row].get("previous_response_id") == handle
    assert requests[f"next {row}"].get("previous_response_id") == handle
    assert requests[f"next {row}"]["input"] == [user(row), user(f"next {row}")]


@pytest.mark.fault("K10")
def test_a_task_that_had_ended_is_replayed_and_read_as_before(crash_run: CrashRun) -> None:
    ended = crash_run.ended

    assert ended.resumed[1:] == [frame for frame in ended.seen if frame.number is not None and frame.number > 1]
    assert len(ended.resumed) > 1
    assert ended.after == ended.task
    assert why(ended.after) == COMPLETED


@pytest.mark.fault("K2")
def test_no_acknowledged_message_is_lost(crash_run: CrashRun) -> None:
    assert len(crash_run.burst) >= _BURST
    assert {why(task) for task in crash_run.burst} == {failed(RESTARTED)}
    assert all(task["history"][0]["parts"][0]["text"].startswith("silent burst") for task in crash_run.burst)


@pytest.mark.fault("K12")
async def test_a_process_that_dies_again_before_it_has_cleaned_up_changes_nothing(tmp_path: Path) -> None:
    async with paused_agents(tmp_path) as held, child_gateways(held.agents, tmp_path) as start:
        child = await start()
        async with a2a_http(child.url) as http, A2A(http, "function").stream("talking function") as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
            await child.kill()
            seen = await stream.rest()
        for _ in range(2):
            await (await start()).kill()
        child = await start()
        async with a2a_http(child.url) as http:
            caller = A2A(http, "function")
            task = seen[0].event["task"]
            async with caller.subscribe(task["id"], after=seen[-1].number) as stream:
                after: list[Any] = await stream.rest()
            stored = await caller.get(task["id"])

    assert [frame.number for frame in after] == [None, len(seen)]
    assert why(after[-1].event["statusUpdate"]) == why(stored) == failed(RESTARTED)
    assert text_of(stored) == "one two "
