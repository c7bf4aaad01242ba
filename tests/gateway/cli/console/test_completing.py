"""Names of agents for the shell: from a gateway, or none."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.cli.console.parameters import agent_names
from gateway.testing.serving import serve


async def names(answer: Response) -> list[str]:
    async def listing(_: Request) -> Response:
        return answer

    async with serve(Starlette(routes=[Route("/base/a2a", listing)])) as url:
        return await asyncio.to_thread(agent_names, f"{url}/base/")


async def test_the_names_are_those_of_the_listing() -> None:
    assert await names(JSONResponse({"agents": [{"agent": "notes"}, {"agent": "news"}]})) == ["notes", "news"]


@pytest.mark.parametrize(
    "answer",
    [PlainTextResponse("hello"), JSONResponse({"agents": 1}), JSONResponse([]), JSONResponse({"agents": [{}]})],
)
async def test_an_answer_of_another_shape_gives_none(answer: Response) -> None:
    assert await names(answer) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", "http://127.0.0.1:x"])
def test_an_address_where_nobody_answers_gives_none(url: str) -> None:
    assert agent_names(url) == []
