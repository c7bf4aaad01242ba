"""A call leaves nothing behind for the garbage collector, which was 5 % of what a turn costs."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from adapters.openai_chat import factory as chat
from adapters.openai_responses import factory as responses
from gateway.testing.adapter_calls import collect, request
from gateway.testing.chat_server import ChatServer
from gateway.testing.emulator import Emulator
from gateway.testing.responses_server import ResponsesServer
from gateway.testing.scripts import Say
from tests.adapters.openai_talk import KEY, Build, Start, plays


@contextmanager
def left_behind() -> Iterator[Callable[[], list[str]]]:
    """The objects of ours that nothing but the collector would have freed, by type."""

    def found() -> list[str]:
        gc.collect()
        return sorted({type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("adapters.")})

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(("factory", "server"), [(responses, ResponsesServer), (chat, ChatServer)])
async def test_a_call_leaves_no_ring_of_objects(
    factory: Any, server: Callable[..., Emulator], start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server(plays(Say("One "), Say("two")), api_key=KEY)))
    await collect(adapter, request("Hi"))
    with left_behind() as found:
        await collect(adapter, request("Again"))
        assert found() == []
