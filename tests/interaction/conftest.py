"""Every test that takes `gateway` runs once on each binding."""

import pytest

from tests.interaction.harness import Binding, Gateway, JsonRpc, Rest

BINDINGS: tuple[Binding, ...] = (JsonRpc(), Rest())


@pytest.fixture(params=BINDINGS, ids=lambda binding: binding.name)
def binding(request: pytest.FixtureRequest) -> Binding:
    chosen: Binding = request.param
    return chosen


@pytest.fixture
def gateway(binding: Binding) -> Gateway:
    return Gateway(binding)


@pytest.fixture
def jsonrpc() -> Gateway:
    return Gateway(JsonRpc())


@pytest.fixture
def rest() -> Gateway:
    return Gateway(Rest())
