"""An agent as a caller sees it: a card, a backend and policies; and the agent that a path or tenant means."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from gateway.a2a.errors import NotFound, echo, invalid
from gateway.a2a.model import AgentCard
from gateway.a2a.tool_calls import Visibility
from gateway.core.described_card import DescribedCard
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import Toolset
from gateway.ports.adapter import Adapter
from gateway.ports.capabilities import Backend, Model
from gateway.ports.tools import ToolDeclaration

_RESERVED = {"tasks": "the list of tasks", "v1": "HTTP+JSON of A2A 0.3"}
"""What stands in the place of an agent below /a2a."""


@dataclass(frozen=True, slots=True)
class AgentPolicies:
    """The operator's decisions for one agent. `turn_timeout` is in seconds, `tool_arguments` in bytes.

    `history_messages` and `history_tokens` limit the part that is sent of a history that the gateway keeps. None sends
    the whole history.
    """

    client_context_ids_allowed: bool = True
    busy_context: Literal["queue", "reject", "interrupt", "rollback"] = "queue"
    idempotency: Literal["negotiated", "message_id", "off"] = "negotiated"
    direct_replies: bool = False
    on_missing_handle: Literal["fail", "tolerate"] = "fail"
    on_lost_handle: Literal["fail", "rebuild"] = "fail"
    on_owner_conflict: Literal["fail", "warn", "adopt"] = "fail"
    shadow_history: Literal["items", "text", "none"] = "items"
    persistence: Literal["per_service_call", "per_turn"] = "per_service_call"
    interrupted_answers: Literal["note", "omit"] = "note"
    queued_turns: int = 8
    turn_timeout: float = 900.0
    history_messages: int | None = None
    history_tokens: int | None = None
    uncited_sources: Literal["keep", "drop"] = "keep"
    tool_rounds: int = 20
    tool_arguments: int = 256 * 1024
    parallel_tools: int = 8
    unknown_tool: Literal["error_result", "fail"] = "error_result"
    round_limit_action: Literal["final_call_without_tools", "fail"] = "final_call_without_tools"
    mixed_batch: Literal["eager", "hold"] = "eager"
    new_task_while_waiting: Literal["reject", "supersede"] = "reject"
    approval_timeout: float = 86400.0
    standing_approvals: Literal["refuse", "allow"] = "refuse"
    approvals: tuple[ApprovalRule, ...] = ()
    client_tools: tuple[ToolDeclaration, ...] = ()
    tool_calls: Visibility = field(default_factory=Visibility)
    repeat_answer: Literal["auto", "always", "never"] = "auto"
    mark_thoughts: Literal["auto", "always", "never"] = "auto"


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent of the gateway. `name` is its part of the URL. In `tenant` fields, both `tenant` and `name` identify
    the agent. `backend` and `model` are those of the adapter, if the adapter names them. `extended` makes the extended card for
    a principal; without it there is none. `card` and the modes are those of the configuration; with `described`, they are what
    is said before the backend has described the agent."""

    name: str
    card: AgentCard
    adapter: Adapter
    tenant: str | None = None
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    policies: AgentPolicies = field(default_factory=AgentPolicies)
    toolset: Toolset | None = None
    backend: Backend | None = None
    model: Model | None = None
    extended: Callable[[str], AgentCard] | None = None
    described: DescribedCard | None = None

    @property
    def public_card(self) -> AgentCard:
        """The card as it is now."""
        return self.card if self.described is None else self.described.cards.public

    @property
    def takes(self) -> tuple[str, ...]:
        """The media types that its card says it takes."""
        return self.input_modes if self.described is None else self.public_card.default_input_modes

    @property
    def makes(self) -> tuple[str, ...]:
        """The media types that its card says it gives."""
        return self.output_modes if self.described is None else self.public_card.default_output_modes


class Agents:
    """The agents of one gateway, in the order of the configuration."""

    def __init__(self, agents: tuple[Agent, ...], default: str | None = None) -> None:
        """`default` names the agent of a request without a name; a single agent needs no default.

        Raises: ValueError for a name or tenant of two agents, for a reserved name, and for a `default` that no agent has.
        """
        by_name = {agent.name: agent for agent in agents}
        by_tenant = dict(by_name)
        if len(by_name) != len(agents):
            raise ValueError("two agents have the same name")
        for agent in agents:
            if agent.tenant and by_tenant.setdefault(agent.tenant, agent) is not agent:
                raise ValueError(f"tenant {agent.tenant!r} means two agents")
        for name, what in _RESERVED.items():
            if name in by_tenant:
                raise ValueError(f"an agent cannot be called {name!r}: /a2a/{name} is {what}")
        if default is not None and default not in by_name:
            raise ValueError(f"no agent is called {default!r}")
        self.by_name: Mapping[str, Agent] = MappingProxyType(by_name)
        self._by_tenant = by_tenant
        only = agents[0] if len(agents) == 1 else None
        self.default = by_name[default] if default is not None else only
        """The agent of a request without a name. When it is None, such a request is an error."""

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.by_name.values())

    def resolve(self, path_name: str | None, tenant: str | None) -> Agent:
        """A tenant may stand in a path for the agent's name; an empty tenant counts as none.

        Raises: NotFound without such a path, InvalidParams (field `tenant`) for a tenant that does not fit the path.
        """
        if path_name is not None:
            agent = self._by_tenant.get(path_name)
            if agent is None:
                raise NotFound(f"no agent is called {echo(path_name)}")
            if tenant and tenant not in (agent.name, agent.tenant):
                raise invalid("tenant", f"{echo(tenant)} is not a tenant of the agent {agent.name!r}")
            return agent
        if tenant:
            agent = self._by_tenant.get(tenant)
            if agent is None:
                raise invalid("tenant", f"no agent is called {echo(tenant)}; there are {self._listing()}")
            return agent
        if self.default is None:
            raise invalid("tenant", f"this address needs the name of an agent; there are {self._listing()}")
        return self.default

    def _listing(self) -> str:
        return ", ".join(sorted(self.by_name)) or "none"
