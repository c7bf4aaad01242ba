"""Adapters of the family in front of its emulators."""

from typing import Any

from adapters.copilot.adapter import factory
from adapters.copilot.direct_line.adapter import DirectLineAdapter
from gateway.ports.adapter import Adapter
from tests.emulators.direct_line import DirectLine

SECRET = "line-secret-0123456789abcdef"
QUICK: dict[str, Any] = {"quiet": "150ms", "typing": "300ms", "poll": "100ms"}
"""Silences that no test has to wait for."""


def build(**settings: Any) -> Adapter:
    return factory.build(factory.settings.model_validate(settings))


def by_secret(line: DirectLine, **more: Any) -> DirectLineAdapter:
    adapter = build(direct_line={"secret": line.secret, "url": line.url, **QUICK, **more})
    assert isinstance(adapter, DirectLineAdapter)
    return adapter
