"""A call leaves no cycles to the garbage collector, which cost 5 % of a turn."""

from collections.abc import Callable
from typing import Any

import pytest

from adapters.anthropic.adapter import factory as anthropic
from adapters.openai.chat.adapter import factory as chat
from adapters.openai.responses.adapter import factory as responses
from gateway.testing.adapter_scripts import collect, request
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.emulators.server import Emulator
from tests.garbage import left_behind


def _ours(left: list[object]) -> list[str]:
    """The objects of our types."""
    return sorted({type(one).__qualname__ for one in left if type(one).__module__.startswith("adapters.")})


@pytest.mark.parametrize(
    ("factory", "server"), [(responses, ResponsesServer), (chat, ChatServer), (anthropic, MessagesServer)]
)
async def test_a_call_leaves_no_ring_of_objects(
    factory: Any, server: Callable[..., Emulator], start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server(plays(Say("One "), Say("two")), api_key=KEY)))
    await collect(adapter, request("Hi"))
    with left_behind() as found:
        await collect(adapter, request("Again"))
        assert _ours(found()) == []
