"""What must be true when the kills of a crash loop are over, and its figures."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

from gateway.core.failures import TOOL_OUTCOME_UNKNOWN
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, Json, text_of, why
from tests.faults.crash_clients import Client, ClientLog, JoinedStream
from tests.faults.crash_world import SAID, World, runs, tool_calls
from tests.receiver import Letter, Receiver
from tests.support.rows import query

_AT_ONCE = 16


async def for_each(clients: Iterable[Client], look: Callable[[Client], Awaitable[None]]) -> None:
    """Some of them at a time."""
    left = iter(clients)

    async def some() -> None:
        for client in left:
            await look(client)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(some())


async def nothing_has_changed(client: Client) -> None:
    """Every task is what it was when its end was first seen, and its log what its streams have shown."""
    caller = A2A(await client.line.http(client.chance), client.agent)
    for task in client.tasks:
        assert await caller.get(task.id) == task.task
        async with caller.subscribe(task.id, after=0) as stream:
            log = (await stream.rest())[1:]
        assert [frame.number for frame in log] == list(range(1, len(log) + 1))
        assert log[task.first or 0 :] == task.frames


async def the_conversation_goes_on(client: Client) -> None:
    """The service's answer repeats its whole conversation: every accepted message, once, in order."""
    caller, text = A2A(await client.line.http(client.chance), client.agent), f"{client.name}.last plain"
    last = await caller.send(text, client.context, messageId=text)
    assert why(last) == COMPLETED, f"{client.agent}: {last}"
    told = text_of(last).partition(SAID)[2].split(" | ")
    assert told == [*client.said, text], f"{client.agent} was told {told}, {client.name} said {client.said}"
    listed = {task["id"] for task in await caller.tasks(client.context)} - {last["id"]}
    assert listed == {task.id for task in client.tasks}
    assert client.told.never.isdisjoint(client.said)


def decisions_not_heeded(world: World, told: ClientLog) -> list[str]:
    calls = {call.what: call for call in tool_calls(world)}
    wanted = {what: "approved" if yes else "rejected" for what, yes in told.allowed.items()}
    found = [f"{what} was {word} and is {calls[what]}" for what, word in wanted.items() if calls[what].decision != word]
    return [
        *found,
        *(
            f"{what} is {calls[what]}"
            for what, yes in told.allowed.items()
            if not yes and calls[what].status != "rejected"
        ),
    ]


def failure(task: JoinedStream) -> str | None:
    status = task.task["status"]
    return status["message"]["metadata"]["errorClass"] if status["state"] == "TASK_STATE_FAILED" else None


def odd_failures(tasks: Iterable[JoinedStream], told: ClientLog) -> list[Json]:
    """Turns fail with their process. One that its caller has cancelled may have been stopped at its backend when its process
    died or stood still: whoever takes it over finds a response that has failed. Nothing that a service was sent was refused."""
    return [
        task.task
        for task in tasks
        if failure(task) not in {None, RESTARTED, TOOL_OUTCOME_UNKNOWN}
        and not (task.agent == "background" and failure(task) == ErrorClass.BACKEND_FAILED and task.id in told.cancels)
    ]


def troubles(folder: Path, but: Collection[Path] = ()) -> list[Json]:
    """What the gateways' logs say of faults of their own, `but` for some of them."""
    logs = [log for log in folder.glob("gateway-*.log") if log not in but]
    lines = [line for log in logs for line in log.read_text().splitlines()]
    told = [json.loads(line) if line.startswith("{") else {"level": "error", "event": line} for line in lines]
    return [each for each in told if each["level"] in ("error", "critical")]


def posted(world: World) -> bool:
    """Whether every event that is to be posted was confirmed."""
    return not query(world.database, "SELECT 1 FROM push_config WHERE state <> 'done' LIMIT 1")


def first_posts(receiver: Receiver) -> dict[str, Letter]:
    """Each event that was confirmed, as it came for the first time, in order. A repeat has the same id."""
    first: dict[str, Letter] = {}
    for letter in receiver.accepted:
        first.setdefault(letter.headers["webhook-id"], letter)
    return first


def post_errors(world: World, receiver: Receiver, told: ClientLog) -> list[str]:
    """Tasks whose events were not all posted, or in another order, or posts that nobody has asked for."""
    came: dict[str, list[str]] = defaultdict(list)
    for letter in first_posts(receiver).values():
        came[letter.path].append(letter.body.decode())
    found = [f"posts to {path} that nobody wanted" for path in came.keys() - set(told.pushed.values())]
    for task, path in told.pushed.items():
        rows = query(world.database, "SELECT payload FROM event WHERE task = ? ORDER BY last", task)
        log = [line for (payload,) in rows for line in payload.split("\n")]
        if came[path] != log:
            found.append(f"of task {task} {len(came[path])} events were posted to {path}, and {len(log)} are its log")
    return found


def figures(world: World, told: ClientLog, tasks: list[JoinedStream]) -> list[str]:
    stitched = [task for task in tasks if task.resumes > 1]
    ended = Counter(task.task["status"]["state"].removeprefix("TASK_STATE_") for task in tasks)
    failed = dict(Counter(filter(None, map(failure, tasks))))
    tools = dict(Counter(call.status for call in tool_calls(world)))
    pieces, events = sum(task.resumes for task in tasks), sum(len(task.frames) for task in tasks)
    return [
        f"{len(told.acked)} messages acknowledged, {len(told.never)} never accepted",
        f"{told.cuts} requests cut, {told.repeats} of them repeated, {told.found} found to have arrived",
        f"{len(tasks)} tasks: {dict(ended)}, failures: {failed}, {told.canceled} cancels confirmed",
        f"{len(stitched)} streams stitched from {pieces} pieces, {events} events",
        f"{sum(runs(world).values())} runs of tools for {tools}, approvals: {dict(told.decided)}",
        f"{len(world.responses.requests) + len(world.chat.requests)} requests to the services",
    ]
