"""What a card says of an agent is what the agent does."""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.app.build import build_agents, build_sources
from gateway.config.loader import load
from gateway.config.plugins import Registry

SERVICE_TOOL = "{type: mcp, server_label: s, server_url: 'https://s.example'"
TOOLS = "tools: [clock], approvals: [{tool: 'clock.*'"


def params(agent: str, folder: Path) -> dict[str, Any]:
    """The parameters of tool-calls/v1 in the agent's card."""
    (folder / "mine.py").write_text(
        "def now() -> str:\n    return ''\n\n\ndef reply(text: str) -> str:\n    return text\n"
    )
    text = f"version: 1\ntools: {{clock: {{type: python, ref: './mine.py:now'}}}}\nagents: {{a: {agent}}}"
    registry = Registry()
    config = load(text, source="test.yaml", env={}, plugins=registry, base_dir=folder)
    [built] = build_agents(config, registry, build_sources(config, registry))
    [extension] = [each for each in built.card.capabilities.extensions or () if each.uri == URI]
    assert extension.params is not None
    return extension.params


@pytest.mark.parametrize(
    ("agent", "tools", "approvals"),
    [
        ("{type: python, ref: './mine.py:reply'}", False, False),
        ("{type: openai-chat, model: m}", True, False),
        ("{type: openai-responses, model: m}", True, False),
        (f"{{type: openai-chat, model: m, {TOOLS}}}]}}", True, True),
        (f"{{type: openai-chat, model: m, {TOOLS}, ask: false}}]}}", True, False),
        (f"{{type: openai-responses, model: m, service_tools: [{SERVICE_TOOL}}}]}}", True, True),
        (
            f"{{type: openai-responses, model: m, service_tools: [{SERVICE_TOOL}, require_approval: never}}]}}",
            True,
            False,
        ),
        ("{type: openai-responses, model: m, service_tools: [{type: web_search}]}", True, False),
    ],
)
def test_a_card_says_whether_callers_bring_tools_and_are_asked(
    tmp_path: Path, agent: str, tools: bool, approvals: bool
) -> None:
    assert params(agent, tmp_path) == {"exposure": "full", "approvals": approvals, "clientTools": tools}
