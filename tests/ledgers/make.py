"""Records the ledger of this version: `python -m tests.ledgers.make`, or `make fixture`.

The real gateway, in processes of their own, works for clients until it is killed, again and again; what it leaves is a
conversation of every kind on every wire. Law: a ledger of a version that is released is never written again.
"""

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2

from gateway.core.history import INTERRUPTED
from gateway.ledger.api_keys import MARK, ApiKey, IssueKey, RevokeKey, digest_of, shown
from storage.ledger import open_ledger
from storage.settings import SqliteSettings
from tests.a2a_client import A2A, Frame, Json, Stream
from tests.invariants import unsettled, violations
from tests.ledgers import process
from tests.ledgers.fixture import Recorded, store
from tests.ledgers.recording import DATABASE, START, Recording, decision, released, shot, version
from tests.ledgers.world import AGENTS, FILES, FUNCTION, SETTINGS, placed, world
from tests.support.polling import until

_BOUND_SECONDS = 20

COMPLETED, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"

# --- what happens -----------------------------------------------------------------------------------------------------

SERVICES = ("chained", "conversed", "background", "kept", "chat")
BOTH = ("chained", "kept")


async def _die_with_a_tool(recording: Recording, agent: str) -> None:
    """A tool call that ran without a stored outcome; not when another process fences it off."""
    async with recording.gateway("[!f]*toolends*.before:1") as (child, http):
        context = f"{agent}-unsure"
        await recording.say(http, agent, context, "one")
        message = recording.said(agent, context, "unsure: a room", "Error: The outcome of this call is unknown.")
        at_once = {"returnImmediately": True}
        result = await A2A(http, agent).call("SendMessage", message=message, configuration=at_once)
        recording.saw(agent, message, result["task"])
        await child.ended()


async def _live(recording: Recording) -> None:
    async with recording.gateway() as (_, http):
        await until(lambda: not unsettled(recording.database))
        for agent in SERVICES:
            await _talk(recording, http, agent)
        for agent in ("conversed", "chat"):
            await _ask_once(recording, http, agent)
        for agent in BOTH:
            await _ask(recording, http, agent)
            await _go_wrong(recording, http, agent)
            await _delete(recording, http, agent)
        await _special(recording, http)
        await _function(recording, http)
        await _notify(recording, http)
        await _look(recording, http)


async def _talk(recording: Recording, http: httpx2.AsyncClient, agent: str) -> None:
    context = f"{agent}-plain"
    await recording.say(http, agent, context, "hello \u2028 wörld")
    if agent != "background":
        await recording.say(http, agent, context, "tools: a room", *ROOM)


ROOM = ("booked a room", "Error: The tool failed.")


async def _ask_once(recording: Recording, http: httpx2.AsyncClient, agent: str) -> None:
    await recording.say(http, agent, f"{agent}-asked", "pays: a bill")
    recording.talks[f"{agent}-asked"].brings += ["paid a bill"]


async def _ask(recording: Recording, http: httpx2.AsyncClient, agent: str) -> None:
    """An answered and an unanswered question, and the same for a tool of the caller's."""
    task = await recording.say(http, agent, f"{agent}-gated", "gated: a car")
    await recording.answer(http, task, decision(task, True, False))
    recording.talks[f"{agent}-gated"].outputs += ["paid a car", "Error: The user rejected this call."]
    task = await recording.say(http, agent, f"{agent}-asks", "mixed: a boat")
    recording.talks[f"{agent}-asks"].brings += ["paid a boat", "booked a boat"]
    task = await recording.say(http, agent, f"{agent}-camera", "camera: a cat")
    await recording.answer(http, task, shot(task, {"result": "a cat"}))
    recording.talks[f"{agent}-camera"].outputs += ["a cat"]
    await recording.say(http, agent, f"{agent}-shoots", "camera: a dog")
    recording.talks[f"{agent}-shoots"].brings += ["a dog"]


async def _go_wrong(recording: Recording, http: httpx2.AsyncClient, agent: str) -> None:
    await recording.say(http, agent, f"{agent}-failed", "one")
    await recording.say(http, agent, f"{agent}-failed", "fails: at once")
    await recording.say(http, agent, f"{agent}-cut", "one")
    await recording.say(http, agent, f"{agent}-cut", "cut: in the middle")
    await recording.say(http, agent, f"{agent}-canceled", "one")
    text = "waits: for ever and " + agent
    message = recording.said(agent, f"{agent}-canceled", text)
    async with A2A(http, agent).stream(text, message["contextId"], messageId=text) as stream:
        [first, *_] = await stream.read(2)
        recording.later()
        canceled = await A2A(http, agent).call("CancelTask", id=first.event["task"]["id"])
        recording.saw(agent, message, canceled)
        await stream.rest()
    if agent == "chained":
        recording.talks["chained-canceled"].said.append(f"{INTERRUPTED}wait ")
    await recording.say(http, agent, f"{agent}-refused", "one")
    await recording.say(http, agent, f"{agent}-refused", "refused: for its words")
    recording.talks[f"{agent}-refused"].said.pop()


async def _delete(recording: Recording, http: httpx2.AsyncClient, agent: str) -> None:
    context = f"{agent}-gone"
    task = await recording.say(http, agent, context, "one")
    assert (await http.delete(f"/admin/api/v1/contexts/{context}")).status_code == 204
    recording.talks[context].deleted = True
    del recording.tasks[task["id"]]


async def _special(recording: Recording, http: httpx2.AsyncClient) -> None:
    """Contexts that only one kind of storage owner can have."""
    await recording.say(http, "kept", "kept-compacted", "one")
    await recording.say(http, "kept", "kept-compacted", "compacts: what was said")
    recording.talks["kept-compacted"].said.clear()

    await recording.say(http, "rebuilding", "rebuilding-lost", "one")
    recording.world.responses.stored.popitem()
    await recording.say(http, "rebuilding", "rebuilding-lost", "two")

    await recording.say(http, "atomic", "atomic-failed", "one")
    await recording.say(http, "atomic", "atomic-failed", "fails: as a whole")
    recording.talks["atomic-failed"].said.pop()

    task = await recording.say(http, "kept", "kept-standing", "pays: a hat")
    await recording.answer(http, task, decision(task, True, always=True))
    await recording.say(http, "kept", "kept-standing", "pays: a coat")
    recording.talks["kept-standing"].outputs += ["paid a hat", "paid a coat"]

    http.headers["Idempotency-Key"] = "once"
    await recording.say(http, "kept", "kept-repeated", "one")
    del http.headers["Idempotency-Key"]

    picture = {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"}
    message = recording.said("kept", "kept-picture", "look")
    message["parts"].append(picture)
    recording.saw("kept", message, (await A2A(http, "kept").call("SendMessage", message=message))["task"])


async def _function(recording: Recording, http: httpx2.AsyncClient) -> None:
    context = f"{FUNCTION}-plain"
    await recording.say(http, FUNCTION, context, "one")
    await recording.say(http, FUNCTION, context, "files: two")
    await recording.say(http, FUNCTION, f"{FUNCTION}-rejected", "reject: it")
    await recording.say(http, FUNCTION, f"{FUNCTION}-asks", "ask: me")


async def _notify(recording: Recording, http: httpx2.AsyncClient) -> None:
    """Push configurations of waiting tasks, and of one whose events are all delivered."""
    for context in ("chained-asks", "kept-asks"):
        [task] = [seen.task["id"] for seen in recording.tasks.values() if seen.context == context]
        await _configure(recording, http, context.partition("-")[0], task)
    message = recording.said("kept", "kept-pushed", "one")
    configuration = {"taskPushNotificationConfig": _receiver(recording)}
    result = await A2A(http, "kept").call("SendMessage", message=message, configuration=configuration)
    recording.saw("kept", message, result["task"])
    await recording.world.receiver.ended()


def _receiver(recording: Recording) -> Json:
    authentication = {"scheme": "Bearer", "credentials": "a-credential"}
    return {
        "id": "mine",
        "url": f"{recording.world.receiver.url}/hook",
        "token": "a-token",
        "authentication": authentication,
    }


async def _configure(recording: Recording, http: httpx2.AsyncClient, agent: str, task: str) -> None:
    recording.later()
    await A2A(http, agent).call("CreateTaskPushNotificationConfig", taskId=task, **_receiver(recording))


async def _look(recording: Recording, http: httpx2.AsyncClient) -> None:
    """Reads all tasks again that have ended or wait."""
    with closing(sqlite3.connect(recording.database)) as connection:
        last = dict(connection.execute("SELECT task, max(last) FROM event GROUP BY task").fetchall())
    for name, seen in recording.tasks.items():
        caller = A2A(http, seen.agent)
        seen.task = await caller.get(name)
        async with caller.subscribe(name, after=0) as stream:
            await stream.read_until(lambda frames, end=last[name]: bool(frames) and frames[-1].number == end)  # type: ignore[misc]
        seen.events = _shown(stream.frames)
    for context, talk in recording.talks.items():
        if not talk.deleted:
            talk.listed = [task["id"] for task in await A2A(http, talk.agent).tasks(context)]


def _shown(frames: list[Frame]) -> list[list[Any]]:
    return [[frame.number, frame.event] for frame in frames]


async def _die(recording: Recording) -> None:
    """In the middle of everything. What the services were about to say, they have then said: to nobody, but for one."""
    async with recording.gateway("call.completed:1") as (child, http), asyncio.TaskGroup() as group:
        for agent in SERVICES:
            context = f"{agent}-dead"
            goes_on = agent == "background"
            await _begin(recording, http, group, agent, context, f"waits: {agent}", COMPLETED if goes_on else FAILED)
            await _wait_in_line(recording, http, agent, context)
        await _begin(recording, http, group, "kept", "kept-silent", "silent: kept", COMPLETED)
        message = recording.said("chained", "chained-unheard", "one")
        streaming = A2A(http, "chained").stream("one", message["contextId"], messageId="one")
        async with streaming as stream:
            [first, *_] = await stream.rest()
        await child.ended()
        unheard = first.event["task"]
        # The id of the response may have been stored or not.
        becomes = FAILED if _is_pending(recording, unheard["id"]) else COMPLETED
        recording.saw("chained", message, unheard, becomes=becomes)
        recording.tasks[unheard["id"]].events = _shown(stream.frames)
    recording.world.go.set()
    stored = recording.world.responses.stored.values()
    await until(lambda: all(kept.body["status"] != "in_progress" for kept in stored if kept.body["background"]))


def _is_pending(recording: Recording, task: str) -> bool:
    with closing(sqlite3.connect(recording.database)) as connection:
        found = connection.execute(
            "SELECT pending_handle FROM service_call JOIN turn ON turn.id = service_call.turn WHERE task = ?", (task,)
        ).fetchall()
    return found != [(None,)]


async def _begin(
    recording: Recording,
    http: httpx2.AsyncClient,
    group: asyncio.TaskGroup,
    agent: str,
    context: str,
    text: str,
    becomes: str,
) -> None:
    """Continues after this until the gateway is dead."""
    message = recording.said(agent, context, text)
    begun = asyncio.Event()

    async def watch() -> None:
        async with A2A(http, agent).stream(text, context, messageId=text) as stream:
            await _follow(stream)

    async def _follow(stream: Stream) -> None:
        await stream.read(1 if text.startswith("silent") else 2)
        task = stream.frames[0].event["task"]
        recording.saw(agent, message, await A2A(http, agent).get(task["id"]), becomes=becomes)
        if agent == "kept":
            await _configure(recording, http, agent, task["id"])
        begun.set()
        await stream.rest()
        recording.tasks[task["id"]].events = _shown(stream.frames)

    group.create_task(watch())
    await recording.world.at(text).wait()
    await begun.wait()


async def _wait_in_line(recording: Recording, http: httpx2.AsyncClient, agent: str, context: str) -> None:
    message = recording.said(agent, context, "next in line")
    at_once = {"returnImmediately": True}
    result = await A2A(http, agent).call("SendMessage", message=message, configuration=at_once)
    recording.saw(agent, message, result["task"], becomes=COMPLETED)


async def _keys(recording: Recording) -> None:
    """A key in force, a revoked one and an expired one."""
    async with open_ledger(SqliteSettings(url=f"sqlite:///{recording.database}"), True) as ledger:
        for name, expires in (("good", None), ("revoked", None), ("expired", START + 1)):
            secret = (MARK + f"a-key-that-only-tests-have-{name}").ljust(len(MARK) + 43, "0")
            key = ApiKey(digest_of(secret), name, shown(secret), "ada", "", name == "good", START, expires)
            await ledger.commit(IssueKey(key))
            recording.keys[name] = secret
        await ledger.commit(RevokeKey("revoked", START + 1))


async def record(folder: Path) -> Recorded:
    async with world() as made:
        recording = Recording(folder, made)
        recording.later()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / process.AGENTS).write_text(placed(AGENTS, made.urls))
        (folder / process.SETTINGS).write_text(SETTINGS)
        await _keys(recording)
        for agent in BOTH:
            await _die_with_a_tool(recording, agent)
        await _live(recording)
        await _die(recording)
        wrong = violations(recording.database, settled=False)
        assert wrong == [], wrong
        with closing(sqlite3.connect(recording.database)) as connection:
            [(schema,)] = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return Recorded(
            version=version(),
            schema=schema,
            at=recording.now,
            agents=AGENTS,
            settings=SETTINGS,
            files=dict(FILES),
            keys=recording.keys,
            receiver=made.receiver.url,
            backend=made.state(),
            talks=recording.talks,
            tasks=recording.tasks,
        )


def main() -> None:
    if version() in released():
        sys.exit(f"{version()} is released: its ledger stays as it is. Begin a version in CHANGELOG.md first.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorded = asyncio.run(record(folder))
        store(recorded, folder / DATABASE)


if __name__ == "__main__":
    main()
