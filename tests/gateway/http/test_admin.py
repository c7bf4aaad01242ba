"""The admin API of a running gateway."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, Refused, a2a_http
from tests.running import local_gateway

AGENTS = """
echo: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
other: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""
ALL = "/admin/api/v1/contexts"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with local_gateway(AGENTS, tmp_path) as gateway, a2a_http(gateway.url) as http:
        yield http


@pytest.mark.parametrize("query", ["", "?agent=echo", "?agent="])
async def test_a_deleted_context_is_gone(http: httpx2.AsyncClient, query: str) -> None:
    echo = A2A(http, "echo")
    task = await echo.send("hi", "a/b c")

    answer = await http.delete(f"{ALL}/a%2Fb%20c{query}")

    assert (answer.status_code, answer.content) == (204, b"")
    with pytest.raises(Refused, match="Task not found"):
        await echo.get(task["id"])
    with pytest.raises(Refused, match="is deleted"):
        await echo.send("again", "a/b c")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere", "there is no context 'nowhere' of yours"),
        ("c?agent=other", "there is no context 'c' of yours with the agent 'other'"),
        ("c?agent=nobody", "no agent is called 'nobody'"),
    ],
)
async def test_an_unknown_context_is_reported(http: httpx2.AsyncClient, address: str, words: str) -> None:
    await A2A(http, "echo").send("hi", "c")
    answer = await http.delete(f"{ALL}/{address}")
    error = answer.json()["error"]
    assert (answer.status_code, error["status"], error["message"]) == (404, "NOT_FOUND", words)
    assert error["details"][0]["domain"] == "a2a-protocol.org"


@pytest.mark.parametrize(
    ("address", "allowed"), [(f"{ALL}/c", "DELETE, GET"), (f"{ALL}:import", "POST"), (f"{ALL}:adopt", "POST")]
)
async def test_each_address_says_which_methods_it_has(http: httpx2.AsyncClient, address: str, allowed: str) -> None:
    answer = await http.put(address)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_an_exported_context_is_refused_where_its_id_exists(http: httpx2.AsyncClient) -> None:
    await A2A(http, "echo").send("hi", "c")
    exported = await http.get(f"{ALL}/c")
    again = await http.post(f"{ALL}:import", content=exported.content, headers={"content-type": "application/json"})
    assert (exported.status_code, exported.json()["contextId"]) == (200, "c")
    assert (again.status_code, again.json()["error"]["message"]) == (
        400,
        "Invalid parameters: contextId: 'c' exists here already",
    )


@pytest.mark.parametrize(
    ("address", "body", "status", "words"),
    [
        (":import", b"{", 400, "Invalid JSON payload"),
        (":import", b"[]", 400, "format: must be 'a2a-gateway/context': this is no exported context"),
        (":import", b'{"format": "a2a-gateway/context", "version": 2}', 400, "version: 2 is newer than 1"),
        (
            ":import",
            b'{"format": "a2a-gateway/context", "version": 1, "id": "\\u0000"}',
            400,
            "id: must not contain NUL",
        ),
        (":adopt", b"{}", 400, "agent: must be given as text"),
        (":adopt", b'{"agent": "echo", "handle": 7}', 400, "handle: must be given as text"),
        (":adopt", b'{"agent": "nobody", "handle": "resp_1"}', 404, "no agent is called 'nobody'"),
        (
            ":adopt",
            b'{"agent": "echo", "handle": "resp_1"}',
            400,
            "The backend of the agent 'echo' keeps no conversation",
        ),
        (":adopt", b'{"agent": "echo", "handle": "r", "contextId": 7}', 400, "contextId: must be text"),
    ],
)
async def test_a_handle_that_cannot_be_adopted_is_reported(
    http: httpx2.AsyncClient, address: str, body: bytes, status: int, words: str
) -> None:
    answer = await http.post(f"{ALL}{address}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
