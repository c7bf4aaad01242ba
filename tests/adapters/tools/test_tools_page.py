"""The examples of docs/tools.md work."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.app.build import build_sources
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.engine.tool_sources import SourceToolset
from gateway.ports.tools import ToolOutput
from gateway.testing.serving import serve
from tests.adapters.tools.served_mcp import run

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
ENV = {"GITHUB_TOKEN": "t", "ORDERS_KEY": "k"}


def block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found[number]


def loaded(text: str, folder: Path) -> GatewayConfig:
    return load(text, source="gateway.yaml", env=ENV, plugins=Registry(), base_dir=folder)


async def test_the_file_loads_and_every_source_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(block("python"))
    sources = build_sources(loaded(block("yaml"), tmp_path), Registry())
    assert list(sources) == ["github", "files", "clock", "order"]
    await asyncio.gather(*(each.source.aclose() for each in sources.values()))


async def test_the_function_returns_the_time(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(block("python"))
    clock = build_sources(loaded(block("yaml"), tmp_path), Registry())["clock"]
    (now,) = (await SourceToolset([clock]).offered()).values()
    assert now.declaration.description == "The current time or date."
    assert now.complaint({"form": "year"}) == "form: 'year' is not one of ['time', 'date']"
    answer = (await now.run(run("now", zone="Europe/Oslo"))).output
    assert isinstance(answer, str)
    assert re.fullmatch(r"\d\d:\d\d", answer)


async def test_the_requests_are_made_as_described(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def answer(request: Request) -> JSONResponse:
        body = await request.body()
        seen.append((request.method, request.url.path, request.url.query, msgspec.json.decode(body) if body else None))
        return JSONResponse({"done": True})

    api = Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST"])])
    (tmp_path / "my_tools.py").write_text(block("python"))
    async with serve(api) as url:
        first = block("yaml").replace("https://api.example.com", url)
        order = build_sources(loaded(first, tmp_path), Registry())["order"].source
        second = block("yaml", 1).replace("http://localhost:9000", url)
        note = build_sources(loaded(second, tmp_path), Registry())["make-note"].source
        assert await order.run(run("order", id="A/7")) == ToolOutput({"done": True})
        assert await note.run(run("make-note", person="ada", text="hello")) == ToolOutput({"done": True})
        await asyncio.gather(order.aclose(), note.aclose())
    assert seen == [
        ("GET", "/v1/orders/A/7", "", None),
        ("POST", "/people/ada/notes", "", {"text": "hello"}),
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_agents_use_only_what_is_there(number: int, tmp_path: Path) -> None:
    config = loaded(block("yaml", number), tmp_path)
    assert [set(agent.tools) <= set(config.tools) for agent in config.agents.values()] == [True]
