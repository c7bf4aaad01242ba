"""Two principals on one gateway: data of one does not exist for the other, in every operation, to the byte, and down to the
statements of the database."""

import json
import re
import sqlite3
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from storage.postgres.session import Session
from storage.postgres.text import Call
from storage.read import pool
from storage.write import file_store
from tests.a2a_client import A2A, a2a_http, text_of, user_message
from tests.interaction.harness import Binding, Gateway, Rest
from tests.interaction.test_keys import ASKED, issue
from tests.running import local_gateway

AGENTS = """
echo: {type: python, ref: "./two.py:reply"}
strict: {type: python, ref: "./two.py:reply", client_context_ids: refuse}
"""
TWO = """
import asyncio
from gateway.agent import InputRequired
async def reply(text):
    if text == "wait":
        yield "waiting"
        await asyncio.Event().wait()
    if text == "ask":
        raise InputRequired("Which city?")
    yield "done"
"""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z")


@dataclass
class Two:
    """Ada owns the named data; Bob calls. `statements` are those of the database."""

    ada: httpx2.AsyncClient
    bob: httpx2.AsyncClient
    database: Path
    statements: list[str]
    tasks: dict[str, str] = field(default_factory=dict)
    token: str = ""
    context: str = "context-of-ada"


@contextmanager
def seen_statements() -> Iterator[list[str]]:
    """All statements of connections opened in the block, with their values."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((pool, "_connect"), (file_store, "connect")):
            patch.setattr(module, name, _tracing(getattr(module, name), seen))
        patch.setattr(Session, "run", _noting(Session.run, seen))
        yield seen


def _tracing(connect: Callable[..., sqlite3.Connection], seen: list[str]) -> Callable[..., sqlite3.Connection]:
    def connect_and_trace(*args: Any) -> sqlite3.Connection:
        connection = connect(*args)
        connection.set_trace_callback(seen.append)
        return connection

    return connect_and_trace


def _noting(run: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    def note_and_run(session: Session, calls: Sequence[Call], **how: Any) -> Any:
        seen.extend(f"{call.text.sql.decode()} {call.parameters}" for call in calls)
        return run(session, calls, **how)

    return note_and_run


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    (tmp_path / "two.py").write_text(TWO)
    async with AsyncExitStack() as stack:
        statements = stack.enter_context(seen_statements())
        gateway = await stack.enter_async_context(local_gateway(AGENTS, tmp_path, settings=ASKED))
        ada = await stack.enter_async_context(a2a_http(gateway.url))
        bob = await stack.enter_async_context(a2a_http(gateway.url))
        # The same principal of another tenant is another one, too.
        ada.headers["X-API-Key"] = await issue(gateway, "ada", admin=True)
        bob.headers["X-API-Key"] = await issue(gateway, "ada", name="bob", tenant="other", admin=True)
        two = Two(ada, bob, gateway.database, statements)
        agent = A2A(ada, "echo")
        two.tasks["completed"] = (await agent.send("Hello", two.context))["id"]
        two.tasks["input-required"] = (await agent.send("ask"))["id"]
        send = {"message": user_message("wait"), "configuration": {"returnImmediately": True}}
        two.tasks["working"] = (await agent.call("SendMessage", **send))["task"]["id"]
        # Background writes would be taken for those of the request.
        while text_of(await agent.get(two.tasks["working"])) != "waiting":
            pass
        two.token = (await agent.call("ListTasks", pageSize=1))["nextPageToken"]
        yield two


async def ask(
    http: httpx2.AsyncClient,
    binding: Binding,
    operation: str,
    params: dict[str, Any],
    agent: str = "echo",
    **headers: str,
) -> tuple[int, list[tuple[str, str]], str]:
    exchange = binding.ask(operation, params)
    target = exchange.target.replace("/a2a/echo", f"/a2a/{agent}")
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if exchange.body:
        sent["content-type"] = "application/json"
    answer = await http.request(exchange.method, target, content=exchange.body, headers=sent)
    told = [(name, value) for name, value in answer.headers.items() if name != "date"]
    return answer.status_code, told, answer.text


def general(answer: tuple[int, list[tuple[str, str]], str], *ids: str) -> tuple[int, list[tuple[str, str]], str]:
    """Without the parts that change every time: ids, times, and their lengths."""
    status, headers, text = answer
    for given in ids:
        text = text.replace(given, "ID")
    return status, headers, _TIME.sub("TIME", _ID.sub("ID", text))


ABOUT_A_TASK: tuple[tuple[str, Callable[[str], dict[str, Any]], dict[str, str]], ...] = (
    ("GetTask", lambda task: {"id": task}, {}),
    ("GetTask", lambda task: {"id": task, "historyLength": 0}, {}),
    ("CancelTask", lambda task: {"id": task}, {}),
    ("SubscribeToTask", lambda task: {"id": task}, {}),
    ("SubscribeToTask", lambda task: {"id": task}, {"last_event_id": "1"}),
    ("SubscribeToTask", lambda task: {"id": task}, {"last_event_id": "999"}),
    ("CreateTaskPushNotificationConfig", lambda task: {"taskId": task, "url": "https://hook.example/"}, {}),
    ("GetTaskPushNotificationConfig", lambda task: {"taskId": task, "id": "c"}, {}),
    ("ListTaskPushNotificationConfigs", lambda task: {"taskId": task}, {}),
    ("DeleteTaskPushNotificationConfig", lambda task: {"taskId": task, "id": "c"}, {}),
    ("SendMessage", lambda task: {"message": user_message("Hi", taskId=task)}, {}),
    ("SendMessage", lambda task: {"message": user_message("Hi", "context-of-ada", taskId=task)}, {}),
    ("SendMessage", lambda task: {"message": user_message("Hi", referenceTaskIds=[task])}, {}),
    ("SendStreamingMessage", lambda task: {"message": user_message("Hi", taskId=task)}, {}),
)


@pytest.mark.parametrize("state", ["completed", "input-required", "working"])
@pytest.mark.parametrize(("operation", "params", "headers"), ABOUT_A_TASK)
async def test_a_foreign_task_is_one_that_does_not_exist(
    two: Two,
    binding: Binding,
    state: str,
    operation: str,
    params: Callable[[str], dict[str, Any]],
    headers: dict[str, str],
) -> None:
    foreign, unknown = two.tasks[state], str(uuid.uuid4())
    before = await ask(two.ada, binding, "GetTask", {"id": foreign})

    told = await ask(two.bob, binding, operation, params(foreign), **headers)

    assert general(told, foreign) == general(
        await ask(two.bob, binding, operation, params(unknown), **headers), unknown
    )
    if "referenceTaskIds" not in str(params("")):
        assert (
            told[2].replace(foreign, unknown) == (await ask(two.bob, binding, operation, params(unknown), **headers))[2]
        )
    assert "done" not in told[2] or "referenceTaskIds" in str(params(""))
    assert await ask(two.ada, binding, "GetTask", {"id": foreign}) == before


async def test_every_operation_that_names_a_task_is_in_the_table(binding: Binding) -> None:
    without = {"ListTasks", "GetExtendedAgentCard"}
    assert {operation for operation, _, _ in ABOUT_A_TASK} | without == set(Rest.addresses)


async def test_a_foreign_context_has_no_tasks(two: Two, binding: Binding) -> None:
    foreign = await ask(two.bob, binding, "ListTasks", {"contextId": two.context})
    assert foreign == await ask(two.bob, binding, "ListTasks", {"contextId": "context-of-eve"})
    assert two.tasks["completed"] in (await ask(two.ada, binding, "ListTasks", {"contextId": two.context}))[2]


async def test_a_list_holds_only_ones_own_tasks(two: Two, binding: Binding) -> None:
    answer = (await ask(two.bob, binding, "ListTasks", {"includeArtifacts": "true"} if binding.name == "rest" else {}))[
        2
    ]
    body = json.loads(answer)
    assert (body.get("result") or body)["tasks"] == []


async def test_a_foreign_page_token_is_refused_as_one_that_was_made_up(two: Two, binding: Binding) -> None:
    assert two.token
    foreign = await ask(two.bob, binding, "ListTasks", {"pageToken": two.token, "pageSize": 1})
    made_up = await ask(two.bob, binding, "ListTasks", {"pageToken": "x" * len(two.token), "pageSize": 1})
    assert foreign == made_up
    assert "is not a token of this list" in foreign[2]


@pytest.mark.parametrize("text", ["Hello", "something else"])
async def test_a_foreign_idempotency_key_counts_as_unused(two: Two, binding: Binding, text: str) -> None:
    mine = await ask(two.ada, binding, "SendMessage", {"message": user_message("Hello")}, idempotency_key="once")
    foreign = await ask(two.bob, binding, "SendMessage", {"message": user_message(text)}, idempotency_key="once")
    unused = await ask(two.bob, binding, "SendMessage", {"message": user_message(text)}, idempotency_key="new")
    assert general(foreign) == general(unused)
    assert not set(_ID.findall(mine[2])) & set(_ID.findall(foreign[2]))


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_to_a_foreign_context_begins_one_of_ones_own(
    two: Two, binding: Binding, operation: str
) -> None:
    before = await ask(two.ada, binding, "ListTasks", {})
    foreign = await ask(two.bob, binding, operation, {"message": user_message("Hello", two.context)})
    unknown = await ask(two.bob, binding, operation, {"message": user_message("Hello", "context-of-eve")})
    assert general(foreign, two.context) == general(unknown, "context-of-eve")
    assert await ask(two.ada, binding, "ListTasks", {}) == before


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_where_contexts_cannot_be_named_a_foreign_one_is_refused_as_an_unknown_one(
    two: Two, binding: Binding, operation: str
) -> None:
    foreign = await ask(two.bob, binding, operation, {"message": user_message("Hi", two.context)}, "strict")
    unknown = await ask(two.bob, binding, operation, {"message": user_message("Hi", "context-of-eve")}, "strict")
    assert foreign[2].replace(two.context, "context-of-eve") == unknown[2]
    assert (foreign[0], foreign[1]) == (unknown[0], unknown[1])


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_foreign_context_is_unknown_to_the_admin_api(two: Two, method: str) -> None:
    foreign = await two.bob.request(method, f"/admin/api/v1/contexts/{two.context}")
    unknown = await two.bob.request(method, "/admin/api/v1/contexts/context-of-eve")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text.replace(two.context, "context-of-eve") == unknown.text
    assert (await two.ada.request("GET", f"/admin/api/v1/contexts/{two.context}")).status_code == 200


_BESIDE = ("BEGIN", "COMMIT", "PRAGMA data_version")
_UPKEEP = re.compile(
    "api_key|FROM process|INTO process|lease_until|cancel_asked|'accepted'"
    "|^(BEGIN|COMMIT|ROLLBACK) |pg_current_snapshot|ledger_writer|FOR NO KEY UPDATE"
)
"""Background statements: leases, turns of other processes, and the check of the key; on PostgreSQL what a group of statements
has around it, too."""


async def statements_of(two: Two, ask_once: Callable[[], Awaitable[object]], given: str) -> list[str]:
    """The statements of one refused request without ids and times: the shortest of three, because background work only
    adds statements."""
    seen = []
    for _ in range(3):
        two.statements.clear()
        await ask_once()
        seen.append([line for line in two.statements if line not in _BESIDE and not _UPKEEP.search(line)])
    return [_ID.sub("ID", line.replace(given, "ID")) for line in min(seen, key=len)]


@pytest.mark.parametrize("state", ["completed", "input-required", "working"])
@pytest.mark.parametrize(
    ("operation", "params", "headers"), [row for row in ABOUT_A_TASK if "referenceTaskIds" not in str(row[1](""))]
)
async def test_foreign_and_unknown_take_the_same_way_through_the_database(
    two: Two,
    jsonrpc: Gateway,
    state: str,
    operation: str,
    params: Callable[[str], dict[str, Any]],
    headers: dict[str, str],
) -> None:
    binding, foreign, unknown = jsonrpc.binding, two.tasks[state], str(uuid.uuid4())
    ways = []
    for task in (foreign, unknown):
        asking = partial(ask, two.bob, binding, operation, params(task), **headers)
        ways.append(await statements_of(two, asking, task))
    assert ways[0] == ways[1]
    assert ways[0] or "Push" in operation
