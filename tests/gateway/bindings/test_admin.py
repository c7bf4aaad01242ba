"""The admin API of a running gateway."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, Refused, a2a_http
from tests.running import local_gateway

AGENTS = """
echo: {type: python, ref: "gateway.demo_agent:reply", default: true}
other: {type: python, ref: "gateway.demo_agent:reply"}
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
async def test_what_is_not_there_is_told(http: httpx2.AsyncClient, address: str, words: str) -> None:
    await A2A(http, "echo").send("hi", "c")
    answer = await http.delete(f"{ALL}/{address}")
    error = answer.json()["error"]
    assert (answer.status_code, error["status"], error["message"]) == (404, "NOT_FOUND", words)
    assert error["details"][0]["domain"] == "a2a-protocol.org"


async def test_a_context_can_only_be_deleted_here(http: httpx2.AsyncClient) -> None:
    answer = await http.get(f"{ALL}/c")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE")
