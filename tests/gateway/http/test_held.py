"""Answers that wait: they end with their client."""

import asyncio

import pytest
from starlette.types import Message

from gateway.a2a.errors import TaskNotFound
from gateway.http.held import ClientGone, while_connected
from tests.support.core import soon


class Client:
    """A client that sends a body of its own accord, and may leave."""

    def __init__(self) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
        self._left = asyncio.Event()

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()


async def test_the_result_of_the_work_is_the_answer() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await soon(while_connected(work(), Client().receive)) == "done"


async def test_an_error_of_the_work_comes_as_it_is() -> None:
    async def work() -> None:
        raise TaskNotFound("Task not found")

    with pytest.raises(TaskNotFound, match="Task not found"):
        await soon(while_connected(work(), Client().receive))


async def test_a_client_that_leaves_ends_the_work() -> None:
    client, ended = Client(), asyncio.Event()

    async def work() -> None:
        try:
            client.leave()
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ClientGone):
        await soon(while_connected(work(), client.receive))
    assert ended.is_set()


async def test_the_end_of_the_request_ends_the_work() -> None:
    client, began, ended = Client(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.TaskGroup() as group:
        request = group.create_task(while_connected(work(), client.receive))
        await soon(began.wait())
        request.cancel()
    assert request.cancelled()
    assert ended.is_set()
