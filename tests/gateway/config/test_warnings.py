"""What works, but hardly as it is meant."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.warnings import warnings

FILE = "version: 1\nagents: {my-agent: {type: python, ref: 'm:f'}}\n"


def warned(text: str = "", env: Mapping[str, str] | None = None) -> list[str]:
    plugins = Registry()
    config = load(FILE + text, source="gateway.yaml", env=env or {}, plugins=plugins, base_dir=Path("/srv"))
    return [str(problem) for problem in warnings(config, env or {}, plugins)]


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'", "'0:0:0:0:0:0:0:0'"])
def test_a_gateway_for_all_addresses_needs_an_address_for_its_cards(host: str) -> None:
    [warning] = warned(f"server: {{host: {host}}}")
    assert warning.startswith("server.public_url: is not given, so the cards send clients to http://")
    assert warned(f"server: {{host: {host}, public_url: 'https://agents.example'}}") == []


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.0.7", "gateway.example", "localhost"])
def test_an_address_that_clients_can_call_needs_no_other(host: str) -> None:
    assert warned(f"server: {{host: {host}}}") == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("A2A_GATEWAY_SERVER_PORT", "A2A_GATEWAY__SERVER__PORT"),
        ("A2A_GATEWAY_SERVER__PORT", "A2A_GATEWAY__SERVER__PORT"),
        ("a2a_gateway_server_public_url", "A2A_GATEWAY__SERVER__PUBLIC_URL"),
        ("A2A_GATEWAY_AUTH_API_KEYS_ENABLED", "A2A_GATEWAY__AUTH__API_KEYS__ENABLED"),
        ("A2A_GATEWAY_AGENTS_MY_AGENT_REF", "A2A_GATEWAY__AGENTS__MY_AGENT__REF"),
        ("A2A_GATEWAY_AGENTS__MY_AGENT__CARD__NAME", "A2A_GATEWAY__AGENTS__MY_AGENT__CARD__NAME"),
    ],
)
def test_a_variable_with_one_underscore_too_few_is_named_with_the_one_that_is_meant(variable: str, meant: str) -> None:
    assert warned(env={variable: "1"}) == [f"environment: {variable}: sets nothing; did you mean {meant}?"]


@pytest.mark.parametrize(
    "variable",
    [
        "A2A_GATEWAY_URL",
        "A2A_GATEWAY_KEY",
        "A2A_GATEWAY_VERSION",
        "A2A_GATEWAY_SERVICE_HOST",
        "A2A_GATEWAY_PORT_8080_TCP_ADDR",
        "A2A_GATEWAY_SERVER_SERVICE_PORT",
        "A2A_GATEWAY",
        "A2A_GATEWAY_",
        "SERVER_PORT",
    ],
)
def test_variables_of_commands_and_clusters_are_no_settings(variable: str) -> None:
    assert warned(env={variable: "1"}) == []
