"""The conformance suite against an emulator: the hooks that are scripts of steps. A family adds those of its own wire."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest

from gateway.ports.adapter import Adapter, AnyAdapterFactory
from gateway.testing.adapter_suite import AdapterSuite
from gateway.testing.serving import serve
from tests.adapters.emulator_support import KEY, Build, calls_in, plays, trickling
from tests.emulators.scripts import Conversation, NoTerminal, Pause, Say, Status, Step
from tests.emulators.server import Emulator


class EmulatorSuite(AdapterSuite):
    factory: ClassVar[AnyAdapterFactory]
    emulator: ClassVar[Callable[..., Emulator]]
    values: ClassVar[Mapping[str, Any]] = {}
    """Settings of the adapter besides those of `build`."""

    secret = KEY
    server: Emulator
    stop: Callable[[], Awaitable[None]]
    released: asyncio.Event
    resumes: asyncio.Event
    rest: tuple[str, ...] = ()
    trickles = False

    @pytest.fixture
    async def adapter(self, build: Build) -> AsyncGenerator[Adapter]:
        self.server = type(self).emulator(plays(), api_key=KEY)
        self.released, self.resumes = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self.stop = stack.aclose
            app = trickling(self.server.app, lambda: self.trickles)
            adapter = self.built(build, await stack.enter_async_context(serve(app)))
            yield adapter
            await adapter.aclose()

    def built(self, build: Build, url: str) -> Adapter:
        return build(self.factory, f"{url}/v1", **self.values)

    async def backend_answers(self, *pieces: str) -> None:
        self.server.script = plays(*(Say(piece) for piece in pieces))

    async def backend_echoes(self) -> None:
        self.server.script = lambda conversation: [Say(conversation.text, chunks=3)]

    async def backend_trickles(self) -> None:
        self.trickles = True

    async def backend_fails(self) -> None:
        error = {"message": f"Incorrect API key provided: {KEY}.", "type": "invalid_request_error", "code": None}
        self.server.script = plays(Status(500, {"error": error}))

    async def backend_refuses(self) -> None:
        await self.backend_answers_status(422)

    async def backend_answers_status(self, status: int) -> None:
        error = {"message": f"No, not for {KEY}.", "type": "some_error", "code": None}
        self.server.script = plays(Status(status, {"error": error}))

    async def backend_disappears(self) -> None:
        await self.stop()

    async def backend_breaks_off(self, *pieces: str) -> None:
        self.server.script = plays(*(Say(piece) for piece in pieces), NoTerminal())

    async def backend_stalls(self, *pieces: str) -> None:
        async def script(_: Conversation) -> AsyncGenerator[Step]:
            try:
                for piece in pieces:
                    yield Say(piece)
                yield Pause(self.resumes)
                for piece in self.rest:
                    yield Say(piece)
            finally:
                self.released.set()

        self.server.script = script

    async def backend_goes_on(self, *pieces: str) -> None:
        self.rest = pieces
        self.resumes.set()
        await self.released.wait()

    async def backend_is_released(self) -> None:
        await self.released.wait()

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.server.script = calls_in(*rounds)
