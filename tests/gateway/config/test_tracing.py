"""What can be said about traces."""

import pytest
from pydantic import ValidationError

from gateway.config.tracing import TracingConfig


def test_nothing_is_traced_unless_it_is_asked_for() -> None:
    config = TracingConfig()
    assert (config.enabled, config.parent, config.content) == (False, "continue", False)


def test_content_without_spans_is_refused() -> None:
    with pytest.raises(ValidationError, match="set `enabled: true`"):
        TracingConfig(content=True)
    assert TracingConfig(enabled=True, content=True).content
