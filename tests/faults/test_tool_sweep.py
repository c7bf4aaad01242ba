"""The process dies at every point that tools bring into a turn: before, behind and at the showing of each commit of a
service call's end, and of a tool's start and end. Then it starts again: nothing that a tool did is done twice, what may have
been done is told to the model as such, and the backend takes the next request.

As in the sweep without tools, the points are not listed: K = 1, 2, 3, ... until a run ends untouched.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from gateway.core.tools.tool_call import NOT_RUN, OUTCOME_UNKNOWN
from tests.a2a_client import A2A, Json, a2a_http, text_of, why
from tests.emulators.scripts import Call, Conversation, Say, Step
from tests.faults.effects import effects, misdeeds
from tests.faults.kinds import OF_THE_GATEWAY, services
from tests.faults.leftovers import all_ended, time_passes
from tests.invariants import violations
from tests.support.fork_server import ForkServer, fork_server

_BOUND_SECONDS = 300
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"})
_ROUNDS = (("a", "b"), ("c",))
"""What the model books in each round of the turn that books."""


def _script(conversation: Conversation) -> Iterator[Step]:
    """Whoever says "book" has it booked, round by round; every answer is all that the model was told."""
    done = len(conversation.tool_outputs)
    following = next((r for n, r in enumerate(_ROUNDS) if sum(map(len, _ROUNDS[:n])) == done), ())
    if conversation.text == "book" and following:
        for what in following:
            yield Call("book", {"what": what}, call_id=f"call-{what}")
    else:
        outputs = [str(item["output"]) for item in conversation.items if item.get("type") == "function_call_output"]
        outputs += [str(item["content"]) for item in conversation.items if item.get("role") == "tool"]
        yield Say(json.dumps([list(conversation.user_texts), outputs]))


def _configure(folder: Path, agent: str) -> Path:
    folder.mkdir()
    file = folder / "gateway.yaml"
    file.write_text(
        f"version: 1\nserver: {{port: 0}}\nstorage: {{url: 'sqlite:///gateway.db'}}\nagents:\n  agent: {{{agent}}}\n"
    )
    return file


@dataclass(slots=True)
class Story:
    """`booked` is the task that the client was told of, as it saw it last. `whole`: nothing broke."""

    booked: Json = field(default_factory=dict)
    whole: bool = False


async def _live_through(http: httpx2.AsyncClient, story: Story) -> None:
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


def _calls(database: Path) -> dict[str, str]:
    """The status of every tool call, in the order in which they were made."""
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT id, status FROM tool_call ORDER BY rowid").fetchall())


def _outputs_of(statuses: list[str], owner: str) -> list[str]:
    """What the model has to be told of calls that ended like this; one that never ran is left out of a history of ours."""
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
    assert misdeeds(folder, database) == []

    http.headers["Idempotency-Key"] = "k"
    repeated = await caller.send("book", "c")
    del http.headers["Idempotency-Key"]
    if story.booked:
        assert repeated["id"] == story.booked["id"]
    assert misdeeds(folder, database) == []
    before = _calls(database)
    assert set(before.values()) <= {"completed", "interrupted", "cancelled"}

    following = await caller.send("next", "c")
    assert why(following) == ("TASK_STATE_COMPLETED", "")
    users, outputs = json.loads(text_of(following))
    assert users == ["book", "next"]
    texts = [output.removeprefix("Error: ") for output in outputs]
    told = [text if text in (OUTCOME_UNKNOWN, NOT_RUN) else text.partition(" ")[0] for text in texts]
    after = _calls(database)
    assert told == _outputs_of(list(after.values()), owner)
    # What the backend had asked for when the process died is known now, and was never run.
    assert {call: status for call, status in after.items() if call in before} == before
    assert {status for call, status in after.items() if call not in before} <= {"cancelled"}
    assert misdeeds(folder, database) == []
    assert violations(database) == []


async def _sweep(folder: Path, agent: str, parent: ForkServer, owner: str, pattern: str) -> list[tuple[str, list[str]]]:
    """The points that killed, in order, and how the tool calls had ended behind each."""
    points: list[tuple[str, list[str]]] = []
    for number in count(1):
        file = _configure(folder, agent)
        story = Story()
        child = await parent.fork(file, f"{pattern}:{number}", tools=True)
        if await child.ready():
            async with a2a_http(child.url.result()) as http:
                await _live_through(http, story)
        if story.whole:
            assert story.booked["status"]["state"] == "TASK_STATE_COMPLETED"
            assert len(effects(folder)) == sum(map(len, _ROUNDS))
            await child.kill()
        else:
            await child.dead()
        time_passes(folder / "gateway.db")
        again = await parent.serving(file, tools=True)
        await all_ended(folder / "gateway.db")
        if not story.whole:
            points.append((child.point(), list(_calls(folder / "gateway.db").values())))
        async with a2a_http(again.url.result()) as http:
            await _check(http, folder, story, owner)
        await again.kill()
        shutil.rmtree(folder)
        if story.whole:
            break
    return points


@pytest.mark.parametrize("owner", ["backend", "gateway", "conversation", "chat"])
@pytest.mark.fault("K6", "K7", "K8")
async def test_a_process_that_dies_at_any_point_of_a_turn_with_tools_does_nothing_twice_and_tells_what_is_unknown(
    tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), services(_script) as made, fork_server() as parent:
        points = [
            point
            for pattern in ("*tool*", "*complete*")
            for point in await _sweep(tmp_path / "one", made.settings[owner], parent, owner, pattern)
        ]
    with capsys.disabled():
        print(f"\n{len(points)} points of a turn with tools were tried with the history at the {owner}")  # noqa: T201
    kinds = {kind for point, _ in points for kind in point.rpartition(".")[0].split("+")}
    assert kinds >= {"complete", "toolstarts", "toolends", "finish"}
    ended = {status for _, statuses in points for status in statuses}
    assert ended == {"completed", "interrupted", "cancelled"}
    assert {point.rpartition(".")[2] for point, _ in points} >= {"before", "stored", "shown"}
