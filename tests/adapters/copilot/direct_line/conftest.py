"""A served Direct Line with a bot of the test, and adapters in front of it."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

import pytest

from adapters.copilot.direct_line.adapter import DirectLineAdapter
from tests.adapters.copilot.copilot_support import QUICK, build
from tests.emulators.direct_line import DirectLine
from tests.emulators.direct_line_bots import scripted
from tests.emulators.scripts import Conversation, Say, Step

Adapt: TypeAlias = Callable[..., DirectLineAdapter]


def echo(conversation: Conversation) -> list[Step]:
    return [Say(f"you said {conversation.text}")]


@pytest.fixture
async def line() -> AsyncGenerator[DirectLine]:
    """Its bot repeats every message."""
    found = DirectLine(scripted(lambda: echo))
    async with found.serve():
        yield found


@pytest.fixture
async def adapt(line: DirectLine) -> AsyncGenerator[Adapt]:
    """Makes adapters, by the secret unless other credentials are given; `common` are settings of the agent."""
    made: list[DirectLineAdapter] = []

    def adapted(common: dict[str, Any] | None = None, **direct_line: Any) -> DirectLineAdapter:
        credentials = {} if {"token", "token_endpoint"} & direct_line.keys() else {"secret": line.secret}
        own = {"url": line.url, **QUICK, **credentials, **direct_line}
        adapter = build(direct_line={key: value for key, value in own.items() if value is not None}, **(common or {}))
        assert isinstance(adapter, DirectLineAdapter)
        made.append(adapter)
        return adapter

    yield adapted
    for adapter in made:
        await adapter.aclose()
