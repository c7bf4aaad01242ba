"""Notes as clients see them, over HTTP: no metadata of another framework, unless the client or the agent asks for it."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.agent import Status
from gateway.client.client import Client
from gateway.client.discovery import discover
from gateway.client.transport import open_http
from tests.a2a_client import A2A, a2a_http
from tests.running import local_gateway

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"
SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
SNAKE = re.compile("[a-z]+(_[a-z]+)+")


async def reply(_: Any) -> AsyncIterator[Any]:
    yield Status("looking it up")
    yield "found"


def snake_case(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, member in value.items():
                if SNAKE.fullmatch(name):
                    yield name
                yield from snake_case(member)
        case list():
            for element in value:
                yield from snake_case(element)


async def names(folder: Path, settings: str, extension: str) -> tuple[set[str], set[str]]:
    """The names in snake_case in the stream, and in the task that another client reads."""
    agents = f"a: {{type: python, ref: '{__name__}:reply'{settings}}}"
    headers = {"A2A-Extensions": extension} if extension else {}
    async with local_gateway(agents, folder) as gateway, open_http(gateway.url, headers) as http:
        events = [event async for event in Client(http, await discover(http, gateway.url, "a")).stream(SEND)]
        async with a2a_http(gateway.url) as another:
            task = await A2A(another, "a").get(events[0]["task"]["id"])
    assert "looking it up" in str(task["history"])
    return set(snake_case(events)), set(snake_case(task))


@pytest.mark.parametrize(
    ("settings", "extension", "expected"),
    [
        ("", "", set()),
        ("", ADK, {"adk_thought"}),
        (", mark_thoughts: always", "", {"adk_thought"}),
        (", mark_thoughts: never", ADK, set()),
    ],
)
async def test_a_note_is_marked_for_google_adk_alone(
    tmp_path: Path, settings: str, extension: str, expected: set[str]
) -> None:
    assert await names(tmp_path, settings, extension) == (expected, expected)
