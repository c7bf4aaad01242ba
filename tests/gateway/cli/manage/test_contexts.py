"""`contexts`: list, show, export, import, adopt, delete."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.a2a_client import A2A, a2a_http
from tests.gateway.cli.conftest import CommandLine
from tests.gateway.cli.scripted_agent import COMPLETED, Plain, Result, ScriptedAgent, task
from tests.running import Local, local_gateway

AGENTS = """
mine: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
other: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def mine(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "mine")


async def test_contexts_are_listed_with_the_latest_first(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    await mine.send("one", "c-1")
    two = await mine.send("two", "c-2")
    three = await mine.send("three", "c-1")
    ended = await command_line("contexts", "list", "-u", gateway.url)
    assert [line.split("\t") for line in ended.out.splitlines()] == [
        ["c-1", "2", "completed", three["status"]["timestamp"], "one"],
        ["c-2", "1", "completed", two["status"]["timestamp"], "two"],
    ]
    only = await command_line("contexts", "list", "-u", gateway.url, "--limit", "1", "-o", "json")
    assert json.loads(only.out) == {
        "contexts": [
            {
                "contextId": "c-1",
                "tasks": 2,
                "lastTask": three["id"],
                "lastState": COMPLETED,
                "lastTimestamp": three["status"]["timestamp"],
                "beganWith": "one",
            }
        ]
    }


async def test_without_contexts_a_message_says_so(gateway: Local, command_line: CommandLine) -> None:
    ended = await command_line("contexts", "list", "-u", gateway.url)
    assert (ended.code, ended.out, ended.err) == (0, "", "there are no contexts\n")


async def test_a_context_is_shown_from_its_beginning(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    one = await mine.send("one", "c-1")
    two = await mine.send("two", "c-1")
    ended = await command_line("contexts", "show", "c-1", "-u", gateway.url)
    lines = ended.out.splitlines()
    assert lines[:3] == ["context c-1: 2 tasks", "", f"task {one['id']}  completed  {one['status']['timestamp']}"]
    assert [line for line in lines if line.startswith("you: ")] == ["you: one", "you: two"]
    assert any(line.startswith("agent: ") for line in lines)
    as_json = await command_line("contexts", "show", "c-1", "-u", gateway.url, "-o", "json")
    assert json.loads(as_json.out) == {"contextId": "c-1", "tasks": [one, two]}


async def test_a_missing_context_is_reported_with_the_command_that_lists_contexts(
    gateway: Local, command_line: CommandLine
) -> None:
    ended = await command_line("contexts", "show", "c-9", "-u", gateway.url, "-a", "mine")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"there is no task of a context 'c-9' at {gateway.url}, agent 'mine'\n"
        f"Those that are there: a2a-gateway contexts list -u {gateway.url} -a mine\n"
    )


@pytest.mark.parametrize(
    "below", ["", "/a2a/mine", "/a2a/mine/.well-known/agent-card.json", "/.well-known/agent-card.json"]
)
async def test_a_deleted_context_is_gone(gateway: Local, mine: A2A, command_line: CommandLine, below: str) -> None:
    await mine.send("one", "c/1")
    deleted = await command_line("contexts", "delete", "c/1", "-u", f"{gateway.url}{below}")
    assert (deleted.code, deleted.out, deleted.err) == (0, "context c/1 is deleted\n", "")
    assert (await command_line("contexts", "show", "c/1", "-u", gateway.url)).code == 1
    refused = await command_line("send", "more", "--context", "c/1", "-u", gateway.url)
    assert (refused.code, refused.err) == (1, "the agent refused: The context 'c/1' is deleted.\n")


async def test_a_refused_deletion_is_reported(gateway: Local, mine: A2A, command_line: CommandLine) -> None:
    await mine.send("one", "c-1")
    wrong = await command_line("contexts", "delete", "c-1", "-u", gateway.url, "-a", "other")
    assert (wrong.code, wrong.err) == (
        1,
        (
            f"{gateway.url}: there is no context 'c-1' of yours with the agent 'other'\n"
            f"Those that are there: a2a-gateway contexts list -u {gateway.url} -a other\n"
        ),
    )


async def test_an_agent_that_is_no_gateway_can_list_but_not_delete(command_line: CommandLine) -> None:
    answers = (Result({"tasks": [task(COMPLETED)], "nextPageToken": ""}), Plain({"detail": "Not Found"}, 404))
    async with ScriptedAgent(*answers).running() as agent:
        listed = await command_line("contexts", "list", "-u", agent.url)
        deleted = await command_line("contexts", "delete", "c-1", "-u", agent.url)
        assert listed.out.split("\t")[:3] == ["c-1", "1", "completed"]
        assert (deleted.code, deleted.out) == (69, "")
        assert deleted.err == (
            f"{agent.url} is not this gateway (it answered HTTP 405), and deleting a context is no operation of A2A: "
            "only whoever runs that agent can do it\n"
        )


async def test_a_context_is_taken_to_another_gateway_and_goes_on_there(
    gateway: Local, mine: A2A, command_line: CommandLine, tmp_path: Path
) -> None:
    one = await mine.send("one", "c/1")
    document = tmp_path / "talk.json"
    exported = await command_line("contexts", "export", "c/1", "-f", str(document), "-u", gateway.url)
    assert (exported.code, exported.out, exported.err) == (0, "", f"context c/1 is in {document}\n")
    (tmp_path / "other").mkdir()
    async with local_gateway(AGENTS, tmp_path / "other") as other:
        imported = await command_line("contexts", "import", str(document), "-u", other.url)
        assert (imported.code, imported.out, imported.err) == (0, "context c/1 is imported\n", "")
        again = await command_line("contexts", "import", str(document), "-u", other.url)
        assert (again.code, again.out) == (1, "")
        assert "contextId: 'c/1' exists here already" in again.err
        async with a2a_http(other.url) as http:
            assert await A2A(http, "mine").get(one["id"]) == one
            await A2A(http, "mine").send("two", "c/1")
    assert document.stat().st_mode & 0o777 == 0o600
    unwritable = await command_line("contexts", "export", "c/1", "-f", str(tmp_path), "-u", gateway.url)
    assert (unwritable.code, unwritable.err) == (2, f"{tmp_path} cannot be written: is a directory\n")
    printed = await command_line("contexts", "export", "c/1", "-u", gateway.url)
    assert json.loads(printed.out) == json.loads(document.read_text())


async def test_a_refused_export_import_or_adoption_is_reported(
    gateway: Local, command_line: CommandLine, tmp_path: Path
) -> None:
    missing = await command_line("contexts", "export", "c-9", "-u", gateway.url)
    assert (missing.code, missing.err.splitlines()[0]) == (1, f"{gateway.url}: there is no context 'c-9' of yours")
    no_file = await command_line("contexts", "import", str(tmp_path / "none.json"), "-u", gateway.url)
    assert (no_file.code, no_file.err) == (2, f"{tmp_path / 'none.json'} cannot be read: no such file or directory\n")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    no_document = await command_line("contexts", "import", str(wrong), "-u", gateway.url)
    assert (no_document.code, "this is no exported context" in no_document.err) == (1, True)
    kept_here = await command_line("contexts", "adopt", "mine", "resp_1", "-u", gateway.url)
    assert (kept_here.code, "keeps no conversation" in kept_here.err) == (1, True)


async def test_an_adoption_by_an_agent_that_is_not_there_leads_to_those_that_are(
    gateway: Local, command_line: CommandLine
) -> None:
    ended = await command_line("contexts", "adopt", "nope", "resp_1", "-u", gateway.url)
    assert (ended.code, ended.err.splitlines()) == (
        1,
        [
            f"{gateway.url}: no agent is called 'nope'",
            f"Those that are there: a2a-gateway agents list -u {gateway.url}",
        ],
    )


@pytest.mark.parametrize(
    ("agent", "handle", "expected"),
    [
        ("chain", "conv_1", "handle: 'conv_1' is a conversation, and this agent goes on from responses (resp_...)"),
        ("stays", "resp_1", "handle: 'resp_1' is a response, and this agent goes on in conversations (conv_...)"),
        ("chain", "my last talk", "handle: 'my last talk' is not the id of a response (resp_...)"),
        ("stays", "hello", "handle: 'hello' is not the id of a conversation (conv_...)"),
        ("here", "resp_1", "keeps no conversation to go on with. Its settings say so: `history.owner: gateway`."),
    ],
)
async def test_a_handle_of_the_wrong_kind_is_refused_with_what_the_agent_needs(
    tmp_path: Path, command_line: CommandLine, agent: str, handle: str, expected: str
) -> None:
    common = "type: openai-responses, model: m, base_url: 'http://127.0.0.1:1/v1'"
    agents = (
        f"chain: {{{common}}}\nstays: {{{common}, conversation: true}}\nhere: {{{common}, history: {{owner: gateway}}}}"
    )
    async with local_gateway(agents, tmp_path) as gateway:
        refused = await command_line("contexts", "adopt", agent, handle, "-u", gateway.url)
        fitting = {"chain": "resp_1", "stays": "conv_1"}.get(agent)
        if fitting is not None:
            assert (await command_line("contexts", "adopt", agent, fitting, "-u", gateway.url)).code == 0
    assert (refused.code, refused.out) == (1, "")
    assert expected in refused.err
