"""Who sees what of tool calls: an agent's settings and what a client asks for, made into a rendering. Law: what is not shown
to a caller is never published for it, so that nothing later can show it either."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from gateway.model import AgentExtension
from gateway.redaction import JsonPath
from gateway.tool_calls import HIDDEN, URI, Channel, Exposure, Rendering

ARTIFACT_CLIENTS = frozenset(
    {
        "https://google.github.io/adk-docs/a2a/a2a-extension/",
        "https://kagent.dev/extensions/hitl/v1",
        "trpc-a2a-version",
    }
)
"""Named in A2A-Extensions by clients that read tool calls best as artifacts: Google ADK (`use_legacy=False`), kagent, trpc."""


@dataclass(frozen=True, slots=True)
class ShowingRule:
    """For callers whose principal fits one of the patterns; None leaves what the agent says."""

    principals: tuple[str, ...]
    exposure: Exposure | None = None
    redact: tuple[JsonPath, ...] | None = None


@dataclass(frozen=True, slots=True)
class Showing:
    """The settings of one agent. `max_result` is in bytes. The first rule that fits a caller holds for it."""

    when: Literal["always", "negotiated", "never"] = "always"
    channel: Literal["auto", "status", "artifact"] = "auto"
    exposure: Exposure = "full"
    redact: tuple[JsonPath, ...] = ()
    max_result: int = 64 * 1024
    rules: tuple[ShowingRule, ...] = ()


def rendering(showing: Showing, principal: str, named: frozenset[str]) -> Rendering:
    """What this caller sees; `named` are the extensions that its request asks for."""
    active = URI in named
    if showing.when == "never" or (showing.when == "negotiated" and not active):
        return HIDDEN
    exposure, redact = showing.exposure, showing.redact
    for rule in showing.rules:
        if any(fnmatchcase(principal, pattern) for pattern in rule.principals):
            exposure = exposure if rule.exposure is None else rule.exposure
            redact = redact if rule.redact is None else rule.redact
            break
    channel: Channel = "artifact" if named & ARTIFACT_CLIENTS else "status"
    if showing.channel != "auto":
        channel = showing.channel
    return Rendering(channel, exposure, redact, showing.max_result, active)


def announced(showing: Showing, *, approvals: bool = False, client_tools: bool = False) -> tuple[AgentExtension, ...]:
    """The extension as a card declares it: not at all where nobody is shown anything."""
    if showing.when == "never":
        return ()
    params = {"exposure": showing.exposure, "approvals": approvals, "clientTools": client_tools}
    words = "Tool calls and their results as updates of the task."
    return (AgentExtension(uri=URI, description=words, required=False, params=params),)
