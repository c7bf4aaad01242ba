"""The process dies at every point that tools bring into a turn: before, after and at the showing of each commit of a service
call's end, and of a tool's start and end. In the process that follows, nothing that a tool did is done twice, what may have
been done is reported to the model as unknown, and the backend takes the next request.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.core.tools.tool_call import NOT_RUN, OUTCOME_UNKNOWN
from tests.a2a_client import A2A, Json, text_of, why
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.faults.agent_kinds import OF_THE_GATEWAY, services
from tests.faults.crash_sweep import Sweep
from tests.faults.effects import effect_errors, effects
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.support.fork_server import fork_server
from tests.support.rows import query

_BOUND_SECONDS = 300
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"})
_ROUNDS = (("a", "b"), ("c",))
"""What the model books in each round of the turn that books."""


def script(conversation: Conversation) -> Iterator[Step]:
    """The message "book" makes the model book, round by round; every answer repeats all that the model was sent."""
    done = len(conversation.tool_outputs)
    following = next((r for n, r in enumerate(_ROUNDS) if sum(map(len, _ROUNDS[:n])) == done), ())
    if conversation.text == "book" and following:
        for what in following:
            yield Call("book", {"what": what}, call_id=f"call-{what}")
    else:
        outputs = [str(item["output"]) for item in conversation.items if item.get("type") == "function_call_output"]
        outputs += [str(item["content"]) for item in conversation.items if item.get("role") == "tool"]
        yield Say(json.dumps([list(conversation.user_texts), outputs]))


@dataclass(slots=True)
class Story:
    """`booked` is the task as the client saw it last, if it saw one. `whole`: nothing broke."""

    booked: Json = field(default_factory=dict)
    whole: bool = False


async def live_through(http: httpx2.AsyncClient, story: Story) -> None:
    caller = A2A(http, "agent")
    try:
        http.headers["Idempotency-Key"] = "k"
        async with caller.stream("book", "c") as stream:
            seen = await stream.read(1)
            if not seen:
                return
            story.booked = seen[0].event["task"]
            await stream.rest()
            if stream.cut:
                return
        story.booked = await caller.get(story.booked["id"])
        story.whole = True
    except httpx2.TransportError:
        return
    finally:
        http.headers.pop("Idempotency-Key", None)


def calls(database: Path) -> dict[str, str]:
    """The status of every tool call, in the order in which they were made."""
    return dict(
        query(
            database,
            "SELECT tool_call.id, tool_call.status FROM tool_call JOIN service_call ON service_call.id = service_call"
            " JOIN turn ON turn.id = turn ORDER BY number, round, attempt, sequence",
        )
    )


def _outputs_of(statuses: list[str], owner: str) -> list[str]:
    """The outputs that the model has to get for calls that ended like this. A history of the gateway omits calls that never
    ran."""
    words = {"interrupted": OUTCOME_UNKNOWN, "cancelled": NOT_RUN}
    shown = [status for status in statuses if owner not in OF_THE_GATEWAY or status != "cancelled"]
    return [words.get(status, "booked") for status in shown]


async def _check(http: httpx2.AsyncClient, folder: Path, story: Story, owner: str) -> None:
    caller, database = A2A(http, "agent"), folder / "gateway.db"
    await all_ended(database)
    assert violations(database) == []
    if story.booked:
        now = await caller.get(story.booked["id"])
        assert now["status"]["state"] in _FINAL
        if story.booked["status"]["state"] in _FINAL:
            assert now == story.booked
    assert effect_errors(folder, database) == []

    http.headers["Idempotency-Key"] = "k"
    repeated = await caller.send("book", "c")
    del http.headers["Idempotency-Key"]
    if story.booked:
        assert repeated["id"] == story.booked["id"]
    assert effect_errors(folder, database) == []
    before = calls(database)
    assert set(before.values()) <= {"completed", "interrupted", "cancelled"}

    following = await caller.send("next", "c")
    assert why(following) == ("TASK_STATE_COMPLETED", "")
    users, outputs = json.loads(text_of(following))
    assert users == ["book", "next"]
    texts = [output.removeprefix("Error: ") for output in outputs]
    told = [text if text in (OUTCOME_UNKNOWN, NOT_RUN) else text.partition(" ")[0] for text in texts]
    after = calls(database)
    assert told == _outputs_of(list(after.values()), owner)
    # Calls that the backend had made and the dead process had not stored are known now, and never ran.
    assert {call: status for call, status in after.items() if call in before} == before
    assert {status for call, status in after.items() if call not in before} <= {"cancelled"}
    assert effect_errors(folder, database) == []
    assert violations(database) == []


async def _sweep(folder: Path, owner: str, pattern: str) -> list[tuple[str, list[str]]]:
    """The points that killed, in order, and how the tool calls had ended after each."""
    points: list[tuple[str, list[str]]] = []
    async with asyncio.timeout(_BOUND_SECONDS), services(script) as made, fork_server() as server:
        async for run in Sweep(server, folder, made.settings[owner], Story, live_through, tools=True).runs(pattern):
            if run.story.whole:
                assert run.story.booked["status"]["state"] == "TASK_STATE_COMPLETED"
                assert len(effects(folder)) == sum(map(len, _ROUNDS))
            async with run.next_process() as http:
                await all_ended(run.database)
                if not run.story.whole:
                    points.append((run.point, list(calls(run.database).values())))
                await _check(http, folder, run.story, owner)
    return points


@pytest.mark.parametrize("pattern", ["*tool*", "*complete*"])
@pytest.mark.parametrize("owner", ["backend", "gateway", "conversation", "chat"])
@pytest.mark.fault("K6", "K7", "K8")
async def test_a_process_that_dies_at_any_point_of_a_turn_with_tools_does_nothing_twice_and_tells_what_is_unknown(
    tmp_path: Path, owner: str, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = await _sweep(tmp_path / "run", owner, pattern)
    with capsys.disabled():
        print(f"\n{len(points)} points {pattern} of a turn with tools, with the history at the {owner}")  # noqa: T201
    kinds = {kind for point, _ in points for kind in point.rpartition(".")[0].split("+")}
    ended = {status for _, statuses in points for status in statuses}
    if pattern == "*tool*":
        assert kinds >= {"toolstarts", "toolends"}
        assert ended == {"completed", "interrupted", "cancelled"}
    else:
        assert kinds >= {"complete", "finish"}
        assert ended == {"completed", "cancelled"}
    assert {point.rpartition(".")[2] for point, _ in points} >= {"before", "stored", "shown"}
