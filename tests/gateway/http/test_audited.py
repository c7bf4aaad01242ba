"""What callers do has a line in the audit log, without what they say."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.a2a.errors import InvalidRequest
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.http.audited import audited
from gateway.http.held import ClientGone
from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of, new_key, shown
from gateway.ledger.errors import LedgerUnavailable
from gateway.ports.observer import Actor, AuditEntry, Observer
from gateway.telemetry.audit_chain import verify
from tests.a2a_client import A2A, a2a_http, user_message
from tests.interop.echo_agent import gate
from tests.receiver import LOOPBACK
from tests.running import Local, StartLocal, start_local
from tests.support.polling import until

__all__ = ["start_local"]

AGENT = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"


def settings(tmp_path: Path, more: str = "") -> str:
    return f"audit: {{path: '{tmp_path}/audit.jsonl'}}\n{more}"


def entries(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines(keepends=True)
    assert list(verify(lines)) == []
    return [msgspec.json.decode(line) for line in lines]


def told(tmp_path: Path) -> list[tuple[str, str]]:
    return [(entry["action"], entry["outcome"]) for entry in entries(tmp_path)]


async def admin_key(gateway: Local, *, admin: bool = True) -> str:
    key = new_key()
    record = ApiKey(digest_of(key), "ops", shown(key), "ada", "acme", admin, 0)
    await gateway.gateway.runner.runtime.ledger.commit(IssueKey(record))
    return key


async def test_a_message_has_a_line_with_its_sender_and_what_it_is_about(
    start_local: StartLocal, tmp_path: Path
) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, KEYS))
    key = await admin_key(gateway)
    async with httpx2.AsyncClient(
        base_url=gateway.url, headers={"x-api-key": key, "A2A-Version": "1.0"}, trust_env=False
    ) as http:
        task = await A2A(http, "echo").send("a secret")
    entry = entries(tmp_path)[-1]
    assert (entry["action"], entry["outcome"]) == ("message.accepted", "done")
    assert entry["actor"] == {"principal": "ada", "tenant": "acme", "key": shown(key), "peer": "127.0.0.1"}
    assert entry["target"]["agent"] == "echo"
    assert (entry["target"]["task"], entry["target"]["context"]) == (task["id"], task["contextId"])
    assert b"secret" not in (tmp_path / "audit.jsonl").read_bytes()


async def test_a_stream_has_a_line_with_its_task_and_context(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http, A2A(http, "echo").stream("hello") as stream:
        [first] = (await stream.read(1))[:1]
    entry = entries(tmp_path)[-1]
    assert entry["action"] == "message.accepted"
    task = first.event["task"]
    assert (entry["target"]["task"], entry["target"]["context"]) == (task["id"], task["contextId"])


async def test_a_repeated_stream_has_a_line_with_the_task_of_the_first(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        http.headers["idempotency-key"] = "once"
        for _ in range(2):
            async with A2A(http, "echo").stream("hello") as stream:
                await stream.rest()
    first, again = [entry["target"] for entry in entries(tmp_path)[1:]]
    assert first == again
    assert first.keys() == {"agent", "context", "task", "message"}


async def test_a_message_has_its_line_when_it_is_taken(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http, asyncio.TaskGroup() as group:
        asked = group.create_task(A2A(http, "echo").send("hold until told"))
        await until(lambda: len(entries(tmp_path)) > 1)
        gate("hold until told").set()
        task = await asked
    assert told(tmp_path)[1:] == [("message.accepted", "done")]
    assert entries(tmp_path)[-1]["target"]["task"] == task["id"]


async def test_what_is_refused_has_a_line_with_the_reason(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "nothing"}}
        await http.post("/a2a/echo", json=body, headers={"A2A-Version": "1.0"})
    entry = entries(tmp_path)[-1]
    assert (entry["action"], entry["outcome"], entry["target"]["task"]) == (
        "task.cancelled",
        "task_not_found",
        "nothing",
    )


@pytest.mark.sqlite("another process holds the server's tables")
async def test_what_the_storage_does_not_take_has_a_line_which_says_so(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        context = (await A2A(http, "echo").send("hello"))["contextId"]
        with closing(sqlite3.connect(gateway.database)) as other:
            other.execute("ALTER TABLE input RENAME TO elsewhere")
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": user_message("again", context)},
        }
        await http.post("/a2a/echo", json=body)
        await http.delete(f"/admin/api/v1/contexts/{context}")
    assert told(tmp_path)[2:] == [("message.accepted", "busy"), ("context.deleted", "busy")]


class Told(Observer):
    audits = True

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def audited(self, entry: AuditEntry) -> None:
        self.outcomes.append(entry.outcome)


@pytest.mark.parametrize(
    ("error", "outcomes"),
    [
        (InvalidRequest("a secret"), ["invalid_request"]),
        (LedgerUnavailable("a secret"), ["busy"]),
        (KeyError("a secret"), ["internal_error"]),
        (ClientGone(), []),
    ],
)
def test_an_action_that_fails_has_a_line_with_what_its_caller_is_told_and_none_where_that_has_left(
    error: Exception, outcomes: list[str]
) -> None:
    observer = Told()
    with pytest.raises(type(error)), audited(observer, "context.deleted", Actor()):
        raise error
    assert observer.outcomes == outcomes


async def test_a_decision_on_a_tool_call_is_told_as_such(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        decided = user_message("") | {"parts": [{"data": {"approvals": [{"id": "q", "approved": True}]}}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": decided}}
        await http.post("/a2a/echo", json=body, headers={"A2A-Version": "1.0"})
    assert told(tmp_path)[-1][0] == "approval.decided"


PUSH = f"push: {{{LOOPBACK}}}"
NOWHERE = "http://127.0.0.1:9/hook"


async def test_a_push_configuration_that_comes_with_a_message_has_a_line(
    start_local: StartLocal, tmp_path: Path
) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, PUSH))
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "echo")
        config = {"url": f"{NOWHERE}?token=canary"}
        answer = await caller.call(
            "SendMessage", message=user_message("hi"), configuration={"taskPushNotificationConfig": config}
        )
        task = answer["task"]
        [made] = (await caller.call("ListTaskPushNotificationConfigs", taskId=task["id"]))["configs"]
    accepted, created = entries(tmp_path)[1:]
    assert (accepted["action"], created["action"], created["outcome"]) == ("message.accepted", "push.created", "done")
    assert created["actor"] == accepted["actor"]
    assert created["target"] == {"agent": "echo", "context": task["contextId"], "task": task["id"], "push": made["id"]}
    assert b"canary" not in (tmp_path / "audit.jsonl").read_bytes()


async def test_a_message_that_is_repeated_makes_no_push_configuration(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, PUSH))
    async with a2a_http(gateway.url) as http:
        http.headers["idempotency-key"] = "once"
        message = user_message("hi")
        for _ in range(2):
            configuration = {"taskPushNotificationConfig": {"id": "p", "url": NOWHERE}}
            await A2A(http, "echo").call("SendMessage", message=message, configuration=configuration)
    assert [action for action, _ in told(tmp_path)].count("push.created") == 1


async def test_a_push_configuration_has_a_line_with_the_id_that_the_gateway_gave_it(
    start_local: StartLocal, tmp_path: Path
) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, PUSH))
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "echo")
        task = (await caller.send("hi"))["id"]
        made = await caller.call("CreateTaskPushNotificationConfig", taskId=task, url=NOWHERE)
    assert entries(tmp_path)[-1]["target"] == {"agent": "echo", "task": task, "push": made["id"]}


async def test_reads_have_no_line(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "echo")
        task = await caller.send("hello")
        await caller.get(task["id"])
        await caller.tasks(task["contextId"])
    assert told(tmp_path) == [("process.started", "done"), ("message.accepted", "done")]


async def test_a_key_that_is_refused_has_a_line(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, KEYS))
    async with a2a_http(gateway.url) as http:
        await http.get("/admin/api/v1/push", headers={"x-api-key": new_key()})
    assert told(tmp_path)[-1] == ("auth.refused", "unknown")


async def test_guesses_that_are_slowed_down_have_no_line(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, KEYS))
    async with a2a_http(gateway.url) as http:
        answers = [await http.get("/admin/api/v1/push", headers={"x-api-key": new_key()}) for _ in range(40)]
    refused = [answer.status_code for answer in answers].count(401)
    assert 0 < refused < len(answers)
    assert [action for action, _ in told(tmp_path)].count("auth.refused") == refused


async def test_what_is_done_to_a_context_has_a_line(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        context = (await A2A(http, "echo").send("hello"))["contextId"]
        document = (await http.get(f"/admin/api/v1/contexts/{context}")).content
        await http.delete(f"/admin/api/v1/contexts/{context}")
        await http.post("/admin/api/v1/contexts:import", content=document, headers={"content-type": "application/json"})
    found = [(entry["action"], entry["target"]["context"], entry["outcome"]) for entry in entries(tmp_path)[2:]]
    assert found == [
        ("context.exported", context, "done"),
        ("context.deleted", context, "done"),
        ("context.imported", context, "invalid_params"),
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "line"),
    [
        ("GET", "contexts/none", None, ("context.exported", "not_found", {"context": "none"})),
        ("DELETE", "contexts/none", None, ("context.deleted", "not_found", {"context": "none"})),
        (
            "DELETE",
            "contexts/none?agent=nobody",
            None,
            ("context.deleted", "not_found", {"context": "none", "agent": "nobody"}),
        ),
        (
            "POST",
            "contexts:import",
            {"contextId": "c", "format": 0},
            ("context.imported", "invalid_params", {"context": "c"}),
        ),
        ("POST", "contexts:import", [], ("context.imported", "invalid_params", {})),
        (
            "POST",
            "contexts:adopt",
            {"agent": "echo", "handle": "h", "contextId": "c"},
            ("context.adopted", "unsupported_operation", {"agent": "echo", "context": "c"}),
        ),
        ("POST", "push:replay", {"taskId": "t"}, ("push.replayed", "not_found", {"task": "t"})),
    ],
)
async def test_what_the_admin_api_refuses_has_a_line_with_the_reason(
    start_local: StartLocal, tmp_path: Path, method: str, path: str, body: object, line: tuple[str, str, dict[str, str]]
) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, KEYS))
    key = await admin_key(gateway)
    async with a2a_http(gateway.url) as http:
        http.headers["x-api-key"] = key
        await http.request(method, f"/admin/api/v1/{path}", json=body)
    entry = entries(tmp_path)[-1]
    action, outcome, target = line
    assert (entry["action"], entry["outcome"]) == (action, outcome)
    assert entry["actor"]["principal"] == "ada"
    assert entry["target"] == {**target, "principal": "ada"}


async def test_a_key_that_is_no_admins_has_a_line_for_what_it_tried(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, KEYS))
    key = await admin_key(gateway, admin=False)
    async with a2a_http(gateway.url) as http:
        http.headers["x-api-key"] = key
        answer = await http.delete("/admin/api/v1/contexts/c-1")
        await http.get("/admin/api/v1/push")
    assert answer.status_code == 403
    entry = entries(tmp_path)[-1]
    assert (entry["action"], entry["outcome"]) == ("context.deleted", "permission_denied")
    assert (entry["actor"]["principal"], entry["target"]) == ("ada", {"context": "c-1"})


async def test_the_line_of_what_is_refused_is_short(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    async with a2a_http(gateway.url) as http:
        await http.post("/admin/api/v1/push:replay", json={"taskId": "t" * 100_000})
    assert entries(tmp_path)[-1]["target"]["task"] == f"{'t' * 1024}…"


async def test_a_push_configuration_that_is_not_there_is_not_told_as_deleted(
    start_local: StartLocal, tmp_path: Path
) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path, PUSH))
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "echo")
        task = (await caller.send("hi"))["id"]
        await caller.call("CreateTaskPushNotificationConfig", taskId=task, id="p", url=NOWHERE)
        for _ in range(2):
            await caller.call("DeleteTaskPushNotificationConfig", taskId=task, id="p")
    assert told(tmp_path)[-2:] == [("push.deleted", "done"), ("push.deleted", "not_found")]


async def test_a_reload_has_a_line_in_the_file_that_has_the_name_now(start_local: StartLocal, tmp_path: Path) -> None:
    gateway = await start_local(AGENT, settings=settings(tmp_path))
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
    text = f"version: 1\nagents:\n  {AGENT}\n"
    await gateway.gateway.reload(load(text, source="-", env={}, plugins=Registry(), base_dir=tmp_path))
    entry = msgspec.json.decode((tmp_path / "audit.jsonl").read_bytes())
    assert entry["action"] == "config.reloaded"
    assert len(entry["target"]["config"]) == 64
    both = [(tmp_path / name).read_bytes().splitlines(keepends=True) for name in ("audit.jsonl.1", "audit.jsonl")]
    assert list(verify([line for lines in both for line in lines])) == []
