"""The traces of a configuration."""

import sys
from pathlib import Path

import pytest

from gateway.app.tracing import traced, tracing_problem
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid

AGENT = 'echo: {type: python, ref: "gateway.cli.demo.agent:reply"}'


def config(tracing: str) -> GatewayConfig:
    text = f"version: 1\ntracing: {tracing}\nagents:\n  {AGENT}\n"
    return load(text, source="test.yaml", env={}, plugins=Registry(), base_dir=Path())


async def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.telemetry.otel.traces", None)

    with pytest.raises(ConfigInvalid) as refused:
        async with traced(config("{enabled: true}")):
            raise AssertionError("it cannot start")

    [problem] = refused.value.problems
    assert problem.path == "tracing.enabled"
    assert problem.message.endswith("install them with: pip install 'a2a-gateway[otel]'")


async def test_a_variable_that_cannot_be_used_is_a_problem_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "0")

    with pytest.raises(ConfigInvalid) as refused:
        async with traced(config("{enabled: true}")):
            raise AssertionError("it cannot start")

    [problem] = refused.value.problems
    assert problem.message == "an environment variable OTEL_... cannot be used: schedule_delay_millis must be positive."


async def test_nothing_is_missing_where_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.telemetry.otel.traces", None)
    assert tracing_problem(config("{}")) is None
    async with traced(config("{}")) as traces:
        assert traces is None
