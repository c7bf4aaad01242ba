"""Settings of an agent of type `a2a`. Law: credentials go to the host of `url`, or to that of `endpoint`, and to no other."""

from collections.abc import Hashable, Iterator
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from adapters.http.credentials.settings import Auth
from adapters.http.credentials.signing import headers_of
from adapters.http.settings import ApiKey, Timeouts
from gateway.config.connections import ConnectionSettings, plain_headers
from gateway.config.settings import Text, TimeLimit, WebUrl

Version = Literal["1.0", "0.3"]


class Transport(StrEnum):
    """The bindings, as cards name them."""

    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"
    GRPC = "GRPC"


def _agent_url(value: str) -> str:
    if any(mark in value for mark in "#@"):
        raise ValueError("must have no fragment or credentials")
    return value.rstrip("/")


AgentUrl = Annotated[WebUrl, AfterValidator(_agent_url)]


class A2ASettings(ConnectionSettings):
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
    tenant: Text | None = Field(None, description="Tenant of every request; when not given, that of the card.")
    extensions: tuple[Text, ...] = Field((), description="URIs of extensions of A2A to ask for in every request.")
    verify_context: bool = Field(
        True,
        description="Ask for the latest task before the next message, so that an agent which has forgotten the "
        "conversation is found out. Turn it off for an agent that forgets its tasks, but no conversation.",
    )
    poll: TimeLimit = Field(1, description="Pause between two looks at a task that cannot be listened to.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the agent may be silent.")

    @property
    def key(self) -> str:
        return self.api_key.get_secret_value() if self.api_key else ""

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        if self.api_key is not None and self.auth is not None:
            raise ValueError("'api_key' and 'auth' exclude each other")
        return self

    @property
    def own_headers(self) -> dict[str, str]:
        """The credentials that are the same for every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else headers_of(self.auth)

    @property
    def account(self) -> Hashable:
        """What tells agents of one address apart: who asks, and how else they reach it."""
        return (
            self.api_key,
            self.auth,
            tuple(sorted(plain_headers(self.headers).items())),
            self.ca,
            self.proxy,
            self.tenant,
        )

    def secrets(self) -> Iterator[str]:
        """Texts that no error may quote."""
        yield self.key
        if self.auth is not None:
            yield from self.auth.secrets()
        yield from self.connection_secrets()
