"""Settings of an agent of type `a2a`. Law: credentials go to the host of `url`, or to that of `endpoint`, and to no other."""

from collections.abc import Hashable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from adapters.http.credentials.settings import Auth, CredentialSettings
from adapters.http.credentials.signing import headers_of
from adapters.http.settings import ApiKey, NameInPath, Timeouts
from gateway.config.settings import Text, TimeLimit, WebUrl

Version = Literal["1.0", "0.3"]


class Transport(StrEnum):
    """The bindings, as cards name them."""

    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"
    GRPC = "GRPC"


def _agent_url(value: str) -> str:
    if "#" in value:
        raise ValueError("must have no fragment")
    return value.rstrip("/")


AgentUrl = Annotated[WebUrl, AfterValidator(_agent_url)]


class A2ASettings(CredentialSettings):
    """An agent of type `a2a`."""

    url: AgentUrl = Field(description="Address of the agent or of its card, which says where and how it is spoken to.")
    api_key: ApiKey | None = Field(None, description="Sent as a bearer token; none is sent when it is not given.")
    auth: Auth | None = Field(None, description="Other credentials than a bearer token that stays the same.")
    transport: Transport | None = Field(
        None, description="Binding to use of those on the card; when not given, the first that can be used."
    )
    version: Version | None = Field(
        None, description="Version of A2A to speak; when not given, 1.0 where the card offers it."
    )
    endpoint: AgentUrl | None = Field(
        None, description="Where requests go instead of the address on the card, which may be on another host."
    )
    tenant: NameInPath | None = Field(None, description="Tenant of every request; when not given, that of the card.")
    extensions: tuple[Text, ...] = Field((), description="URIs of extensions of A2A to ask for in every request.")
    verify_context: bool = Field(
        True,
        description="Ask for the latest task before the next message, so that an agent which has forgotten the "
        "conversation is found out. Turn it off for an agent that forgets its tasks, but no conversation.",
    )
    direct_replies: bool = Field(
        False, description="Pass a bare message of the agent on as one; when false, it is the answer of a task."
    )
    poll: TimeLimit = Field(1, description="Pause between two looks at a task that cannot be listened to.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the agent may be silent.")

    @property
    def own_headers(self) -> dict[str, str]:
        """The credentials that are the same for every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else headers_of(self.auth)

    @property
    def account(self) -> Hashable:
        """As of any service; an agent has several tenants."""
        return super().account, self.tenant
