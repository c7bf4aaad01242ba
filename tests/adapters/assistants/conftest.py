"""Adapters of this family, as the gateway makes them."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from adapters.assistants.adapter import ThreadsAdapter
from gateway.ports.adapter import Adapter, AnyAdapterFactory
from tests.adapters.assistants.support import KINDS, Service, server, settings
from tests.adapters.emulator_support import Build, Start


@pytest.fixture
async def build() -> AsyncGenerator[Build]:
    adapters: list[Adapter] = []

    def built(factory: AnyAdapterFactory, url: str, **values: Any) -> Adapter:
        adapters.append(factory.build(factory.settings.model_validate(settings(factory, url, **values))))
        return adapters[-1]

    yield built
    for adapter in adapters:
        await adapter.aclose()


@pytest.fixture(params=KINDS)
async def service(request: pytest.FixtureRequest, start: Start, build: Build) -> Service:
    """Either service, and an adapter of its type."""
    factory, version = KINDS[request.param]
    emulator = server(version=version)
    adapter = build(factory, await start(emulator))
    assert isinstance(adapter, ThreadsAdapter)
    return Service(emulator, adapter)
