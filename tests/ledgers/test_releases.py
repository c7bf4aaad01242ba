"""The ledger of every release, opened by this version: clients see again what they had seen, unfinished work continues or ends,
and the next message of every conversation knows all that was said.

Without the ledger of a release nobody would notice that an upgrade loses something: there has to be one for this version.
"""

import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from alembic import command
from sqlalchemy import NullPool, create_engine

from gateway.foundation.clock import Clock
from gateway.push.secrets import SecretBox
from storage.compiled import VERSION
from storage.schema.upgrade import configuration
from tests.a2a_client import A2A, COMPLETED, Json, Refused, a2a_http, streamed_text, text_of, why
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.ledgers.fixture import Recorded, Seen, lay, load, sql_file, versions
from tests.ledgers.recording import DATABASE, decision, released, shot, version
from tests.ledgers.world import ENCRYPTION_KEY, FUNCTION, World, answer_to, placed, world
from tests.running import Local, local_gateway

pytestmark = pytest.mark.fault("R2")

_ADVICE = "run `make fixture` (CONTRIBUTING.md, Releases)"
_WAITS = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")
_LATER = 60_000
"""Milliseconds between the death of the old process and the start of this one: no lease lasts as long."""

of_every_release = pytest.mark.parametrize(
    "recorded", [load(each) for each in versions()], ids=lambda each: each.version
)


# --- there is one -----------------------------------------------------------------------------------------------------


def test_this_version_has_recorded_a_ledger_of_its_schema() -> None:
    assert version() in versions(), f"{version()} has no ledger in tests/fixtures: {_ADVICE}"
    assert load(version()).schema == VERSION, (
        f"the ledger of {version()} has another schema than this code, {VERSION}: "
        + ("begin a version in CHANGELOG.md, then " if version() in released() else "")
        + _ADVICE
    )


def test_every_version_that_was_released_has_its_ledger() -> None:
    assert released() <= set(versions())


def test_a_version_is_released_when_the_changelog_gives_it_a_day() -> None:
    assert released("## [2.0.0] - Unreleased\n\n## [1.1.0] - 2027-01-31\n\n## [1.0.0] - 2026-12-01\n") == {
        "1.0.0",
        "1.1.0",
    }


@of_every_release
def test_the_migrations_make_the_schema_that_the_release_had(recorded: Recorded, tmp_path: Path) -> None:
    """A changed migration would not change databases on which it has run."""
    lay(recorded.version, tmp_path / "laid.db")
    with create_engine(f"sqlite:///{tmp_path / 'made.db'}", poolclass=NullPool).begin() as connection:
        command.upgrade(configuration(connection), recorded.schema)
    changed = _tables(tmp_path / "made.db").symmetric_difference(_tables(tmp_path / "laid.db"))
    assert not changed, f"what migration {recorded.schema} makes is not what {recorded.version} has recorded. " + (
        "It is released: write another migration" if recorded.version in released() else _ADVICE
    )


def _tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {" ".join(sql.split()) for (sql,) in rows}


@pytest.mark.parametrize("suffix", ["sql", "json"])
def test_a_recorded_ledger_is_small_enough_to_be_read(suffix: str) -> None:
    assert sql_file(version()).with_suffix(f".{suffix}").stat().st_size < 400_000


# --- what becomes of it -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Upgraded:
    """A gateway of this version on the ledger of another."""

    recorded: Recorded
    world: World
    local: Local
    http: httpx2.AsyncClient

    @property
    def database(self) -> Path:
        return self.local.database

    def caller(self, agent: str) -> A2A:
        return A2A(self.http, agent)

    def task(self, context: str, said: str = "") -> Seen:
        """The latest one of the context, or that of a message."""
        seen = [each for each in self.recorded.tasks.values() if each.context == context]
        return next(each for each in reversed(seen) if said in each.said["parts"][0]["text"])


@asynccontextmanager
async def upgraded(recorded: Recorded, folder: Path) -> AsyncIterator[Upgraded]:
    for name, text in recorded.files.items():
        (folder / name).write_text(text)
    database = folder / DATABASE
    lay(recorded.version, database)
    async with world() as made:
        made.restore(recorded.backend)
        made.go.set()
        _move_receiver(database, recorded.receiver, made.receiver.url)
        agents, clock = placed(recorded.agents, made.urls), _since(recorded.at + _LATER)
        async with (
            local_gateway(agents, folder, settings=recorded.settings, clock=clock) as local,
            a2a_http(local.url) as http,
        ):
            http.headers["X-API-Key"] = recorded.keys["good"]
            await all_ended(database)
            yield Upgraded(recorded, made, local, http)
        assert violations(database) == []


def _since(moment: int) -> Clock:
    began = time.monotonic()
    return Clock(now=lambda: moment + int((time.monotonic() - began) * 1000))


def _move_receiver(database: Path, old: str, new: str) -> None:
    """The port of the receiver differs in this run, and credentials are bound to the address."""
    box = SecretBox(ENCRYPTION_KEY)
    with closing(sqlite3.connect(database)) as connection, connection:
        for task, url, sealed in connection.execute("SELECT task, url, sealed FROM push_config").fetchall():
            moved = url.replace(old, new)
            closed = box.seal(box.open(sealed, url), moved)
            connection.execute("UPDATE push_config SET url = ?, sealed = ? WHERE task = ?", (moved, closed, task))


def lost(now: Any, seen: Any, where: str = "") -> list[str]:
    """The values that are missing or differ now. Added fields are no difference."""
    if isinstance(seen, dict) and isinstance(now, dict):
        gone = [f"{where}.{key}" for key in seen if key not in now]
        return gone + [each for key in seen if key in now for each in lost(now[key], seen[key], f"{where}.{key}")]
    if isinstance(seen, list) and isinstance(now, list) and len(seen) == len(now):
        return [
            each for index, pair in enumerate(zip(now, seen, strict=True)) for each in lost(*pair, f"{where}[{index}]")
        ]
    return [] if now == seen else [f"{where}: {seen!r} is now {now!r}"]


_LATE = {"0.1.0.dev1"}
"""Versions that gave a task which is shown from its beginning the time of its latest status."""


def shown(recorded: Recorded, seen: Seen) -> list[list[Any]]:
    """The events that are to be seen again."""
    if recorded.version not in _LATE:
        return seen.events
    first, *others = json.loads(json.dumps(seen.events))
    del first[1]["task"]["status"]["timestamp"]
    return [first, *others]


@of_every_release
async def test_every_task_is_returned_and_streamed_as_by_the_release(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        for name, seen in recorded.tasks.items():
            if seen.becomes is not None:
                continue
            caller = gateway.caller(seen.agent)
            assert lost(await caller.get(name), seen.task) == []
            async with caller.subscribe(name, after=0) as stream:
                frames = await stream.read(len(seen.events))
            assert lost([[frame.number, frame.event] for frame in frames], shown(recorded, seen)) == []
            middle = seen.events[len(seen.events) // 2][0]
            if middle:
                async with caller.subscribe(name, after=middle) as stream:
                    frames = await stream.read(1 + len([event for event in seen.events if (event[0] or 0) > middle]))
                expected = [event for event in seen.events if (event[0] or 0) > middle]
                assert lost([[frame.number, frame.event] for frame in frames[1:]], expected) == []


@of_every_release
async def test_every_conversation_is_listed_as_the_release_did(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        for context, talk in recorded.talks.items():
            found = await gateway.caller(talk.agent).tasks(context)
            if talk.deleted:
                assert found == []
            elif talk.listed:
                assert [task["id"] for task in found] == talk.listed


@of_every_release
async def test_turns_of_a_dead_process_continue_or_end_and_no_shown_output_is_lost(
    recorded: Recorded, tmp_path: Path
) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        left = {name: seen for name, seen in recorded.tasks.items() if seen.becomes is not None}
        assert len(left) > 10
        for name, seen in left.items():
            task = await gateway.caller(seen.agent).get(name)
            assert (seen.said["parts"], task["status"]["state"]) == (task["history"][0]["parts"], seen.becomes)
            async with gateway.caller(seen.agent).subscribe(name, after=0) as stream:
                frames = {frame.number: frame.event for frame in await stream.rest()}
            assert not stream.cut
            for number, event in seen.events[1:]:
                assert lost(frames[number], event) == []
            assert list(frames.values())[-1]["statusUpdate"]["status"]["state"] == seen.becomes


@of_every_release
async def test_the_next_message_of_every_conversation_carries_its_whole_history(
    recorded: Recorded, tmp_path: Path
) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        for context, talk in recorded.talks.items():
            if talk.deleted or talk.brings or talk.agent == FUNCTION:
                continue
            following = await gateway.caller(talk.agent).send("next", context)
            assert why(following) == COMPLETED, context
            assert (context, text_of(following)) == (context, answer_to([*talk.said, "next"], talk.outputs))
        following = await gateway.caller(FUNCTION).send("next", f"{FUNCTION}-plain")
        assert text_of(following) == "one | files: two | next (3)"


@of_every_release
async def test_what_waits_for_its_caller_can_be_decided_and_goes_on(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        waiting = {context: talk for context, talk in recorded.talks.items() if talk.brings}
        assert len(waiting) > 3
        for context, talk in waiting.items():
            seen = gateway.task(context)
            shoots = context.endswith("-shoots")
            data = shot(seen.task, {"result": talk.brings[0]}) if shoots else decision(seen.task, True)
            message = {"messageId": "d", "role": "ROLE_USER", "taskId": seen.task["id"], "parts": [{"data": data}]}
            async with gateway.caller(talk.agent).subscribe(seen.task["id"], after=seen.events[-1][0]) as stream:
                await stream.read(1)
                [task] = (await gateway.caller(talk.agent).call("SendMessage", message=message)).values()
                shown = streamed_text(await stream.rest())
            assert why(task) == COMPLETED, context
            assert (context, shown) == (context, answer_to(talk.said, talk.brings))
            following = await gateway.caller(talk.agent).send("next", context)
            assert text_of(following) == answer_to([*talk.said, "next"], talk.brings)
        asks = gateway.task(f"{FUNCTION}-asks")
        assert asks.task["status"]["state"] in _WAITS
        answered = await gateway.caller(FUNCTION).send("this one", taskId=asks.task["id"])
        assert (answered["id"], text_of(answered)) == (asks.task["id"], "ask: me | this one (2)")


@of_every_release
async def test_what_a_caller_has_allowed_for_good_is_still_allowed(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        paid = await gateway.caller("kept").send("pays: a scarf", "kept-standing")
        assert why(paid) == COMPLETED
        assert "[paid a scarf]" in text_of(paid)


@of_every_release
async def test_a_repeated_message_is_still_the_same_one(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        seen = gateway.task("kept-repeated")
        gateway.http.headers["Idempotency-Key"] = "once"
        [task] = (await gateway.caller("kept").call("SendMessage", message=seen.said)).values()
        assert lost(task, seen.task) == []
        with pytest.raises(Refused):
            await gateway.caller("kept").send("another", "kept-repeated")


@of_every_release
async def test_what_was_deleted_stays_deleted(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        deleted = [(context, talk.agent) for context, talk in recorded.talks.items() if talk.deleted]
        assert deleted
        for context, agent in deleted:
            with pytest.raises(Refused):
                await gateway.caller(agent).send("more", context)


@of_every_release
async def test_keys_open_or_not_as_they_did(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        for name, secret in recorded.keys.items():
            gateway.http.headers["X-API-Key"] = secret
            answer = await gateway.http.post("/a2a/kept", json=_list_tasks())
            assert (name, answer.status_code) == (name, 200 if name == "good" else 401)


def _list_tasks() -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}


@of_every_release
async def test_notifications_that_were_asked_for_arrive_with_their_credentials(
    recorded: Recorded, tmp_path: Path
) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        dead, waiting = gateway.task("kept-dead", "waits").task["id"], gateway.task("kept-asks")
        letters = await gateway.world.receiver.until(lambda all_: any(dead in str(each.event) for each in all_))
        assert {letter.headers["authorization"] for letter in letters} == {"Bearer a-credential"}
        assert {letter.headers["x-a2a-notification-token"] for letter in letters} == {"a-token"}
        await gateway.caller("kept").call("CancelTask", id=waiting.task["id"])
        await gateway.world.receiver.until(lambda all_: any(_ends(each.event, waiting.task["id"]) for each in all_))
        told = await gateway.caller("kept").call("ListTaskPushNotificationConfigs", taskId=waiting.task["id"])
        assert "a-credential" not in str(told)
        assert [config["id"] for config in told["configs"]] == ["mine"]


def _ends(told: Json, task: str) -> bool:
    update = told.get("statusUpdate", {})
    return (update.get("taskId"), update.get("status", {}).get("state")) == (task, "TASK_STATE_CANCELED")


@of_every_release
async def test_every_conversation_can_be_written_out(recorded: Recorded, tmp_path: Path) -> None:
    async with upgraded(recorded, tmp_path) as gateway:
        for context, talk in recorded.talks.items():
            answer = await gateway.http.get(f"/admin/api/v1/contexts/{context}")
            expected = 404 if talk.deleted else 503 if talk.brings else 200
            assert (context, answer.status_code) == (context, expected)


def test_a_difference_names_its_place_and_added_fields_are_none() -> None:
    seen = {"a": [{"b": 1}], "c": 2}
    assert lost({"a": [{"b": 1, "new": 0}], "c": 2, "new": 1}, seen) == []
    assert lost({"a": [{"b": 3}]}, seen) == [".c", ".a[0].b: 1 is now 3"]
    assert lost({"a": [], "c": 2}, seen) == [".a: [{'b': 1}] is now []"]
