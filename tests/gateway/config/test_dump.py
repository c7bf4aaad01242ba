"""The dump of a configuration can be loaded, marks defaults, and has no secret."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.dump import dump, escape_references, inline
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.yaml import read

FILE = """\
version: 1
server: {port: 9000, shutdown_grace: 90s}
limits: {request_body: 10MB}
cards: {provider: {organization: "A: B", url: "https://example.com"}}
tools:
  github: {type: mcp, url: "https://mcp.example.com", headers: {Authorization: Bearer sk-secret}, allow: [a]}
  files: {type: mcp, command: [npx, server], env: {TOKEN: sk-secret}, timeout: 20s}
agents:
  support:
    type: openai-responses
    tools: [github]
    model: gpt-5.5
    api_key: sk-secret
    instructions: "Say $${NAME}.\\nBe brief."
    service_tools:
      - {type: web_search}
      - type: mcp
        server_label: github
        server_url: "https://me:sk-secret@mcp.example.com"
        require_approval: never
        headers: {X-Key: sk-secret, X-Other: sk-secret}
        authorization: sk-secret
    extra_body: {user: {tier: 1}, service_token: sk-secret, max_tokens: 5}
    card: {skills: [{id: a, name: A, description: B, tags: ["on", "1"]}], tenant: t}
  mine: {type: python, ref: "./mine.py:reply", default: true}
"""
NO_SECRET = """\
version: 1
tools: {t: {type: http, url: 'http://h', description: d, max_result: 1KiB}}
agents:
  a: {type: openai-chat, model: '4.10', card: {description: 'ja: $${X}'}}
"""


def loaded(text: str, env: Mapping[str, str] | None = None) -> GatewayConfig:
    return load(text, source="gateway.yaml", env=env or {}, plugins=Registry(), base_dir=Path("/srv/gateway"))


def test_a_dump_has_no_secret() -> None:
    text = dump(loaded(FILE))
    assert "sk-secret" not in text
    assert text.count("***") == 8


def test_a_dump_loads_to_the_same_configuration() -> None:
    config = loaded(NO_SECRET, {"A2A_GATEWAY__SERVER__PORT": "9001"})
    assert loaded(dump(config)) == config
    assert dump(loaded(dump(loaded(FILE)))).replace("  # default", "") == dump(loaded(FILE)).replace("  # default", "")


def test_defaults_are_marked_and_given_values_are_not() -> None:
    lines = dump(loaded(FILE)).splitlines()
    assert lines[:10] == [
        "version: 1",
        "server:",
        '  host: "127.0.0.1"  # default',
        "  port: 9000",
        "  public_url: http://127.0.0.1:9000  # default",
        "  shutdown_grace: 90s",
        "  workers: 1  # default",
        "  grpc: null  # default",
        "storage:",
        "  url: sqlite:////srv/gateway/data/gateway.db  # default",
    ]
    mine = lines[lines.index("  mine:") :]
    assert mine[1] == "    type: python"
    assert "    default: true" in mine
    assert "    busy_context: queue  # default" in mine
    assert mine[-4:] == [
        "    ref: ./mine.py:reply",
        "    run_in: thread  # default",
        "    blocked_after: 1s  # default",
        "    direct_replies: false  # default",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "gpt-5.5",
        "yes",
        "true",
        "null",
        "~",
        "1.0",
        "1e5",
        "0x1",
        "30s",
        "a: b",
        "a #b",
        "- a",
        "*a",
        "***",
        "",
        "a:",
        "ü",
        "${X}",
    ],
)
def test_text_is_read_again_as_the_same_text(text: str) -> None:
    assert read(f"key: {inline(escape_references(text))}", "x").data == {"key": escape_references(text)}
