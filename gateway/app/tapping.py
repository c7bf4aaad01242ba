"""Agents and sources of tools whose exchanges are recorded, or answered from a recording.

Law: what is recorded and replayed is decided here; the HTTP client of the adapters takes its tap itself, and any other
adapter, and each source, is wrapped at its port.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, SecretBytes, SecretStr

from gateway.a2a.redaction import JsonPath, json_path
from gateway.config.agents import AgentConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.tools import ToolCallsConfig, ToolConfig
from gateway.ports.adapter import Adapter
from gateway.ports.tools import ToolSource
from gateway.ports.wire import Tap, offered
from gateway.recording.agents import tapped_agent
from gateway.recording.tools import tapped_source

if TYPE_CHECKING:
    from gateway.recording.masks import Secrets


class Taps(Protocol):
    """A recording, or a replay."""

    folder: Path
    secrets: "Secrets"

    def tap(self, agent: str, redact: Iterable[JsonPath] = ()) -> Tap: ...


class TappedRegistry(Registry):
    """The installed plug-ins, with a tap for each agent and each source. `references` gives the values that the text of the
    configuration refers to; it is asked whenever something is built, as the text may have changed."""

    def __init__(self, taps: Taps, references: Callable[[], Iterable[str]], config: GatewayConfig) -> None:
        self.recordings = taps.folder
        self._taps = taps
        self._references = references
        self._agents = tuple(config.agents.values())
        taps.secrets.add(secrets_of(config))

    def adapter(self, agent: AgentConfig) -> Adapter:
        """Raises: as of Registry."""
        tap = self._tap(agent.name, agent.settings, (agent, *sharing(self._agents, agent.tools)))
        with offered(tap) as offer:
            adapter = super().adapter(agent)
        return adapter if offer.taken else tapped_agent(adapter, agent.name, tap)

    def source(self, tool: ToolConfig) -> ToolSource:
        """Raises: as of Registry."""
        tap = self._tap(f"tools.{tool.name}", tool.settings, sharing(self._agents, [tool.name]))
        return tapped_source(super().source(tool), tool.name, tap)

    def _tap(self, name: str, settings: BaseModel, agents: Iterable[AgentConfig]) -> Tap:
        self._taps.secrets.add((*secrets_of(settings), *self._references()))
        return self._taps.tap(name, [path for agent in agents for path in redact_paths(agent.tool_calls)])


def sharing(agents: Sequence[AgentConfig], tools: Iterable[str]) -> tuple[AgentConfig, ...]:
    """The agents with one of these sources of tools, those with a source of theirs, and so on: what one of them has masked
    must be masked in the requests of all, or their replay has no answer to the masked result."""
    known = set(tools)
    while True:
        found = tuple(agent for agent in agents if not known.isdisjoint(agent.tools))
        more = known.union(*(agent.tools for agent in found))
        if more == known:
            return found
        known = more


def redact_paths(config: ToolCallsConfig) -> Iterator[JsonPath]:
    """What is masked for any caller."""
    texts = [*config.redact, *(path for rule in config.rules for path in rule.redact or ())]
    yield from map(json_path, dict.fromkeys(texts))


def secrets_of(value: object) -> Iterator[str]:
    """Every value that the settings declare as secret."""
    match value:
        case SecretStr():
            secret = value.get_secret_value().strip()
            # As a header: the name of a scheme, and the secret.
            yield from {secret, secret.rpartition(" ")[2]}
        case SecretBytes():
            yield value.get_secret_value().decode("utf-8", "replace")
        case BaseModel():
            for _, member in value:
                yield from secrets_of(member)
        case dict():
            for member in value.values():
                yield from secrets_of(member)
        case list() | tuple() | set() | frozenset():
            for member in value:
                yield from secrets_of(member)
