"""Adapters of this family, as the gateway makes them."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.ports.adapter import Adapter, AnyAdapterFactory
from tests.adapters.assistants.support import settings
from tests.adapters.emulator_support import Build


@pytest.fixture
async def build() -> AsyncGenerator[Build]:
    adapters: list[Adapter] = []

    def built(factory: AnyAdapterFactory, url: str, **values: Any) -> Adapter:
        adapters.append(factory.build(factory.settings.model_validate(settings(factory, url, **values))))
        return adapters[-1]

    yield built
    for adapter in adapters:
        await adapter.aclose()
