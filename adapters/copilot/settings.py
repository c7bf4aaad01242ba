"""Settings of an agent of type `copilot-studio`. Law: one connection, named by its own mapping."""

import re
from collections.abc import Hashable, Iterator
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from adapters.http.address import path_segment
from adapters.http.credentials.settings import Auth
from adapters.http.settings import ApiKey, BaseUrl, NameInPath, Timeouts
from gateway.config.connections import ConnectionSettings
from gateway.config.settings import Settings, TimeLimit, WebUrl

API_VERSION = "2022-03-01-preview"

_CLOUDS = {
    "public": ("api.powerplatform.com", 2),
    "gov": ("api.gov.powerplatform.microsoft.us", 1),
    "high": ("api.high.powerplatform.microsoft.us", 1),
    "dod": ("api.appsplatform.us", 1),
    "china": ("api.powerplatform.partner.microsoftonline.cn", 1),
}
"""By cloud: the domain of its Power Platform API, and how many characters of an environment's id are a part of their own.
Source: microsoft-agents-copilotstudio-client 1.9.0."""

_ENVIRONMENT = re.compile(r"[0-9A-Za-z-]{8,80}")
_LOCALE = re.compile(r"[A-Za-z0-9]{1,8}(-[A-Za-z0-9]{1,8})*")


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise ValueError(f"must be {what}")
        return value

    return AfterValidator(check)


class DirectLineSettings(Settings):
    """Direct Line 3.0: any bot, and any agent of Copilot Studio that is published to a web or mobile channel."""

    secret: ApiKey | None = Field(None, description="Secret of the Direct Line channel. It outlives every token.")
    token_endpoint: WebUrl | None = Field(
        None,
        description="Address that gives a token for a new conversation, as Copilot Studio shows it for mobile apps.",
    )
    token: ApiKey | None = Field(None, description="A token for one conversation: the agent can have one context only.")
    url: BaseUrl | None = Field(
        None,
        description="Where the service is. When not given: https://directline.botframework.com/v3/directline, or what the "
        "environment of the token endpoint names.",
    )
    quiet: TimeLimit = Field(
        2, description="A turn is over when the bot has said nothing for so long behind its last message."
    )
    typing: TimeLimit = Field(
        10, description="The same while the bot types, or says that more follows, behind a message."
    )
    poll: TimeLimit = Field(1, description="Between two looks for messages where no WebSocket can be had.")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if sum(each is not None for each in (self.secret, self.token_endpoint, self.token)) != 1:
            raise ValueError("needs one of `secret`, `token_endpoint` and `token`")
        return self

    @property
    def credential(self) -> Hashable:
        return self.secret, self.token_endpoint, self.token

    def secrets(self) -> Iterator[str]:
        yield from (key.get_secret_value() for key in (self.secret, self.token) if key is not None)


class EngineSettings(Settings):
    """Direct to engine: the agent itself, without a channel between."""

    url: WebUrl | None = Field(
        None, description="The agent's connection string, as Copilot Studio shows it for native apps."
    )
    environment_id: Annotated[str, _matching(_ENVIRONMENT, "the id of an environment")] | None = Field(
        None, description="Instead of `url`: the environment, with `schema_name`."
    )
    schema_name: NameInPath | None = Field(None, description="The agent's schema name, from its advanced settings.")
    cloud: Literal["public", "gov", "high", "dod", "china"] = Field(
        "public", description="The cloud of the environment."
    )
    token: ApiKey | None = Field(None, description="A bearer token of a user, for the Power Platform API.")
    auth: Auth | None = Field(
        None,
        description="Credentials other than `token`: `entra`, with the scope https://api.powerplatform.com/.default, where the "
        "agent takes an application.",
    )
    start_event: bool = Field(
        False,
        description="Let the agent run its topic for the start of a conversation, whose words begin the first answer.",
    )

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        named = (self.environment_id is not None, self.schema_name is not None)
        if (self.url is None) != all(named) or any(named) != all(named):
            raise ValueError("needs either `url`, or `environment_id` and `schema_name`")
        if self.token is not None and self.auth is not None:
            raise ValueError("'token' and 'auth' exclude each other: a request has one credential")
        return self

    @property
    def credential(self) -> Hashable:
        return self.token if self.auth is None else self.auth

    def secrets(self) -> Iterator[str]:
        if self.token is not None:
            yield self.token.get_secret_value()
        if self.auth is not None:
            yield from self.auth.secrets()

    @property
    def conversations(self) -> str:
        """The address of the agent's conversations, without a query."""
        if self.url is not None:
            parts = urlsplit(self.url)
            path = parts.path.partition("/conversations")[0].rstrip("/")
            return f"{parts.scheme}://{parts.netloc}{path}/conversations"
        domain, length = _CLOUDS[self.cloud]
        name = (self.environment_id or "").lower().replace("-", "")
        host = f"{name[:-length]}.{name[-length:]}.environment.{domain}"
        schema = path_segment(self.schema_name or "")
        return f"https://{host}/copilotstudio/dataverse-backed/authenticated/bots/{schema}/conversations"


class CopilotSettings(ConnectionSettings):
    """An agent of type `copilot-studio`."""

    direct_line: DirectLineSettings | None = Field(None, description="Reach it by Direct Line.")
    direct_to_engine: EngineSettings | None = Field(None, description="Reach the agent itself.")
    locale: Annotated[str, _matching(_LOCALE, "a locale such as en-US")] | None = Field(
        None, description="Language of the conversation, as en-US."
    )
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")

    @model_validator(mode="after")
    def _check_connection(self) -> Self:
        self.connection()
        return self

    def connection(self) -> DirectLineSettings | EngineSettings:
        """The one that is given. Raises: ValueError, before the settings are read to their end."""
        match self.direct_line, self.direct_to_engine:
            case DirectLineSettings() as line, None:
                return line
            case None, EngineSettings() as engine:
                return engine
        raise ValueError("needs either `direct_line` or `direct_to_engine`")

    @property
    def account(self) -> Hashable:
        """What tells agents of one address apart: the credentials, and how else they reach the service."""
        return self.connection().credential, self.way

    def secrets(self) -> Iterator[str]:
        """Texts that no error may quote."""
        yield from self.connection().secrets()
        yield from self.connection_secrets()
