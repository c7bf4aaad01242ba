"""What pages can change, each behind a question."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, Refused, a2a_http
from tests.gateway.ui.visitor import Visitor, make_key, states_in_headings, visiting
from tests.running import Local, StartLocal, local_gateway

AGENTS = """
echo: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
slow: {type: python, ref: "tests.gateway.ui.agents:waits"}
backend: {type: openai-responses, model: m, base_url: "http://127.0.0.1:9/v1", api_key: k}
"""
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"


@pytest.fixture
async def gateway(start_local: StartLocal, tmp_path: Path) -> Local:
    return await start_local(AGENTS, settings=f"{KEYS}\naudit: {{path: {tmp_path}/audit.jsonl}}")


@pytest.fixture
async def ada(gateway: Local) -> AsyncIterator[httpx2.AsyncClient]:
    async with a2a_http(gateway.url) as http:
        http.headers["authorization"] = f"Bearer {await make_key(gateway, 'ada', admin=False)}"
        yield http


@pytest.fixture
async def visitor(gateway: Local) -> AsyncIterator[Visitor]:
    async with visiting(gateway) as visitor:
        await visitor.log_in(await make_key(gateway))
        await visitor.open("/ui/")
        yield visitor


async def context_of(visitor: Visitor) -> str:
    """The page of the only context."""
    await visitor.open("/ui/contexts")
    found: set[str] = set(re.findall(r'href="(/ui/contexts/[^"?]+)"', visitor.html))
    [only] = found
    return only


def audited(gateway: Local) -> list[str]:
    text = (gateway.database.parent / "audit.jsonl").read_text(encoding="utf-8")
    return [f"{who}: {action}" for action, who in re.findall(r'"action":"([^"]+)".*?"principal":"([^"]+)"', text)]


async def test_a_context_is_deleted_once_its_sign_was_typed(
    gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    task = await A2A(ada, "echo").send("hi", "c-1")
    context = await context_of(visitor)

    page = await visitor.open(f"{context}/delete")
    assert "1 turn with 1 agent" in page
    assert "Contexts › c-1" in page
    assert "Type c-1 to go on: its id" in page
    assert (await visitor.send(f"{context}/delete", typed="wrong")).status_code == 400
    assert await A2A(ada, "echo").get(task["id"])
    answer = await visitor.send(f"{context}/delete", typed="c-1")

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/contexts")
    with pytest.raises(Refused):
        await A2A(ada, "echo").get(task["id"])
    assert "ops: context.deleted" in audited(gateway)
    await visitor.open(f"{context}/delete", 404)


async def test_what_is_left_of_a_deleted_context_says_that_it_was_deleted(
    visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    task = await A2A(ada, "echo").send("hi", "c-1")
    context = await context_of(visitor)
    await visitor.open(f"{context}/delete")
    await visitor.send(f"{context}/delete", typed="c-1")
    assert "it was deleted, and what was said is gone" in await visitor.open("/ui/contexts?standing=ended")
    page = await visitor.open(context)
    assert states_in_headings(visitor.html) == ["deleted", "deleted"]
    assert "It was deleted, and what was said is gone." in page
    assert "Nothing was said yet" not in page
    assert "What would be sent next" not in page
    assert "A task goes with its context" in await visitor.open(f"/ui/tasks/{task['id']}", 404)


async def test_a_context_in_which_more_runs_than_the_page_said_is_not_deleted_before_it_is_asked_again(
    visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    await A2A(ada, "echo").send("hi", "c-1")
    context = await context_of(visitor)
    await visitor.open(f"{context}/delete")
    async with A2A(ada, "slow").stream("hi", "c-1"):
        refused = await visitor.send(f"{context}/delete", typed="c-1")
        assert (refused.status_code, "More turns run or wait now" in refused.text) == (400, True)
        assert 'name="at_stake" value="1"' in refused.text
        answer = await visitor.send(f"{context}/delete", typed="c-1", at_stake="1")
        assert answer.status_code == 303


async def test_an_export_has_the_name_of_its_context(visitor: Visitor, ada: httpx2.AsyncClient) -> None:
    await A2A(ada, "echo").send("hi", 'c/1 "é"')
    context = await context_of(visitor)
    await visitor.open(f"{context}/export")
    exported = await visitor.send(f"{context}/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="context-c-1.json"'


async def test_a_conversation_of_an_agent_that_keeps_none_is_not_adopted_for_another_one(visitor: Visitor) -> None:
    page = await visitor.open("/ui/adopt?agent=echo")
    assert "echo: cannot be chosen" in page
    assert '<option value="" selected>' in visitor.html
    await visitor.open("/ui/adopt?agent=backend")
    assert "<option selected>backend</option>" in visitor.html


@pytest.mark.parametrize(
    ("context", "typed", "words"),
    [
        ("conversation-7", "conversa", "the first 8 characters of its id"),
        ("two words and more", "two word", "the first 8 characters of its id"),
        ("seven   more", "seven", "the first 8 characters of its id"),
        ("\u202e\u0e01", "", "the first 8 characters of its id in the address of this page"),
    ],
)
async def test_what_is_typed_is_the_beginning_of_an_id_that_can_be(
    visitor: Visitor, ada: httpx2.AsyncClient, context: str, typed: str, words: str
) -> None:
    await A2A(ada, "echo").send("hi", context)
    page = await context_of(visitor)
    sign = typed or page.rpartition("/")[2][:8]
    assert f"Type {sign} to go on: {words}" in await visitor.open(f"{page}/delete")
    assert (await visitor.send(f"{page}/delete", typed=f" {sign} ")).status_code == 303


async def test_what_was_exported_is_imported_elsewhere_for_somebody_else(
    gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient, tmp_path: Path
) -> None:
    await A2A(ada, "echo").send("a word of ada's", "c-1")
    context = await context_of(visitor)
    await visitor.open(f"{context}/export")
    exported = await visitor.send(f"{context}/export")
    assert exported.headers["content-disposition"].startswith("attachment")
    assert exported.headers["content-security-policy"] == "sandbox"
    assert "ops: context.exported" in audited(gateway)

    await visitor.open("/ui/import")
    again = await visitor.send("/ui/import", document=exported.text, principal="ada")
    assert (again.status_code, "exists here already" in again.text) == (400, True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with local_gateway(AGENTS, elsewhere) as other, visiting(other) as there:
        await there.open("/ui/import")
        answer = await there.send("/ui/import", document=exported.text, principal="bob")
        page = await there.open(answer.headers["location"])
        assert "bob" in page
        assert "a word of ada's" in page


@pytest.mark.parametrize("document", ["", "{", "[]", '{"format": 1}', "[" * 500], ids=range(5))
async def test_what_is_no_export_is_not_imported(visitor: Visitor, document: str) -> None:
    await visitor.open("/ui/import")
    answer = await visitor.send("/ui/import", document=document)
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)


async def test_a_conversation_of_a_backend_is_adopted(gateway: Local, visitor: Visitor) -> None:
    await visitor.open("/ui/adopt?agent=backend")
    refused = await visitor.send("/ui/adopt", agent="backend", handle="conv_1")
    assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)
    assert (await visitor.send("/ui/adopt", agent="nobody", handle="resp_1")).status_code == 400
    answer = await visitor.send("/ui/adopt", agent="backend", handle="resp_1", context="c-9", principal="ada")
    page = await visitor.open(answer.headers["location"])
    assert "resp_1" in page
    assert "adopted" in page
    assert "ops: context.adopted" in audited(gateway)


async def test_a_task_is_cancelled_for_its_owner(gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient) -> None:
    slow = A2A(ada, "slow")
    async with slow.stream("hi", "c-1") as stream:
        [first, *_] = await stream.read(2)
        task = first.event["task"]["id"]
        await visitor.open(f"/ui/tasks/{task}/cancel")
        answer = await visitor.send(f"/ui/tasks/{task}/cancel")
        assert answer.headers["location"] == f"/ui/tasks/{task}"
        await stream.rest()
    assert "cancelled" in await visitor.open(f"/ui/tasks/{task}")
    assert "ops: task.cancelled" in audited(gateway)
    again = await visitor.send(f"/ui/tasks/{task}/cancel", token=visitor.token)
    assert again.status_code == 400


async def test_what_was_never_stopped_is_not_replayed(visitor: Visitor, ada: httpx2.AsyncClient) -> None:
    task = await A2A(ada, "echo").send("hi", "c-1")
    await visitor.open(f"/ui/replay?task={task['id']}&id=x")
    answer = await visitor.send(f"/ui/replay?task={task['id']}&id=x")
    assert answer.status_code == 404
    await visitor.open("/ui/replay?task=nobody", 404)


async def test_a_key_is_made_shown_once_and_revoked(gateway: Local, visitor: Visitor) -> None:
    await visitor.open("/ui/keys/new")
    made = await visitor.send("/ui/keys/new", name="bot/1 <b>", principal="bot", expires="90d")
    [key] = set(re.findall(r"a2agw_[A-Za-z0-9_-]{43}", made.text))
    page = await visitor.open("/ui/keys")
    assert key not in page
    assert "bot/1 <b>" in page
    async with a2a_http(gateway.url) as http:
        http.headers["authorization"] = f"Bearer {key}"
        assert await A2A(http, "echo").send("hi")

    [revoke] = [link for link in re.findall(r'href="([^"]+)"', visitor.html) if "bot" in link]
    assert "bot/1 <b>" in await visitor.open(revoke)
    assert (await visitor.send(revoke)).headers["location"] == "/ui/keys"
    assert "revoked" in await visitor.open("/ui/keys")
    assert (await visitor.send(revoke)).status_code == 404
    assert audited(gateway)[-2:] == ["ops: key.created", "ops: key.revoked"] or "ops: key.revoked" in audited(gateway)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"name": ""}, "name: must be 1 to 256 characters"),
        ({"name": "a\tb"}, "name: must be 1 to 256 characters"),
        ({"name": "x", "expires": "soon"}, "expires: must be a duration"),
        ({"name": "x", "expires": "0s"}, "expires: must be longer than nothing"),
        ({"name": "ops"}, "name: is that of a key in force"),
    ],
)
async def test_a_key_that_cannot_be_is_not_made(visitor: Visitor, form: dict[str, str], words: str) -> None:
    await visitor.open("/ui/keys/new")
    answer = await visitor.send("/ui/keys/new", **form)
    assert (answer.status_code, words in visitor.text(answer.text)) == (400, True)


def lines(gateway: Local) -> list[tuple[str, str, dict[str, str]]]:
    text = (gateway.database.parent / "audit.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return [(line["action"], line["outcome"], line["target"]) for line in found]


async def test_lines_name_the_principal_of_what_is_changed(
    gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    await A2A(ada, "echo").send("hi", "c-1")
    context = await context_of(visitor)
    await visitor.open(f"{context}/export")
    await visitor.send(f"{context}/export")
    await visitor.open(f"{context}/delete")
    await visitor.send(f"{context}/delete", typed="wrong")
    await visitor.send(f"{context}/delete", typed="c-1")
    target = {"context": "c-1", "principal": "ada"}
    assert lines(gateway)[-5:] == [
        ("context.seen", "done", target),
        ("context.exported", "done", target),
        ("context.seen", "done", target),
        ("context.deleted", "invalid_params", target),
        ("context.deleted", "done", target),
    ]


async def test_the_question_before_a_cancellation_is_a_look_at_the_task(
    gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    task = await A2A(ada, "echo").send("hi", "c-1")
    await visitor.open(f"/ui/tasks/{task['id']}/cancel")
    target = {"agent": "echo", "context": "c-1", "task": task["id"], "principal": "ada"}
    assert lines(gateway)[-1] == ("context.seen", "done", target)
    await visitor.send(f"/ui/tasks/{task['id']}/cancel")
    assert lines(gateway)[-1] == ("task.cancelled", "task_not_cancelable", target)


@pytest.mark.parametrize(
    ("path", "form", "line"),
    [
        ("/ui/import", {"document": "{"}, ("context.imported", "parse_error", {"principal": "ops"})),
        (
            "/ui/import",
            {"document": '{"contextId": "c"}', "principal": "bob"},
            ("context.imported", "invalid_params", {"context": "c", "principal": "bob"}),
        ),
        (
            "/ui/adopt",
            {"agent": "nobody", "handle": "h"},
            ("context.adopted", "invalid_params", {"agent": "nobody", "principal": "ops"}),
        ),
        ("/ui/keys/new", {"name": "ada"}, ("key.created", "invalid_params", {"key": "ada"})),
        ("/ui/keys/revoke?name=none", {}, ("key.revoked", "not_found", {"key": "none"})),
        ("/ui/replay?task=none&id=p", {}, ("push.replayed", "not_found", {"task": "none", "push": "p"})),
        ("/ui/tasks/none/cancel", {}, ("task.cancelled", "not_found", {"task": "none"})),
        ("/ui/contexts/none/delete", {}, ("context.deleted", "not_found", {})),
        ("/ui/contexts/none/export", {"token": "forged"}, ("context.exported", "permission_denied", {})),
    ],
)
async def test_a_form_that_is_refused_has_a_line_with_the_reason(
    gateway: Local,
    visitor: Visitor,
    ada: httpx2.AsyncClient,
    path: str,
    form: dict[str, str],
    line: tuple[str, str, dict[str, str]],
) -> None:
    assert (await visitor.send(path, **form)).status_code >= 400
    assert lines(gateway)[-1] == line


async def test_failed_turns_of_others_on_the_page_of_an_agent_are_a_list_of_contexts(
    gateway: Local, visitor: Visitor, ada: httpx2.AsyncClient
) -> None:
    before = len(lines(gateway))
    await visitor.open("/ui/agents/backend")
    assert len(lines(gateway)) == before
    await A2A(ada, "backend").send("hi")
    await visitor.open("/ui/agents/backend")
    assert lines(gateway)[-1] == ("context.listed", "done", {"agent": "backend"})
