"""The forms of `auth:`. Law: a form that cannot work is refused when it is read, as far as that needs neither a library nor the
network.
"""

import re
from collections.abc import Hashable, Iterator
from typing import Annotated, Literal, Self
from urllib.parse import quote_plus

from pydantic import AfterValidator, Field, SecretStr, model_validator

from adapters.http.settings import ApiKey
from gateway.config.connections import ConnectionSettings, HeaderName
from gateway.config.settings import LocalPath, Settings, Text, WebUrl

_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_AUTHORIZATION = "Authorization"
_BEARER = "Bearer"


def _usable_scheme(value: str) -> str:
    if _SCHEME.fullmatch(value) is None:
        raise ValueError("must be one word such as Bearer, or empty")
    return value


Scheme = Annotated[str, AfterValidator(_usable_scheme)]


class ApiKeyAuth(Settings):
    """A key that does not expire, in a header."""

    type: Literal["api_key"] = Field(description="Form of the credentials.")
    key: ApiKey = Field(description="The key.")
    header: HeaderName = Field(_AUTHORIZATION, description="Header that carries the key.")
    scheme: Scheme | None = Field(
        None, description="Word before the key; by default `Bearer` in the header Authorization, and none in another."
    )

    @property
    def headers(self) -> dict[str, str]:
        scheme = self.scheme
        if scheme is None:
            scheme = _BEARER if self.header.lower() == _AUTHORIZATION.lower() else ""
        key = self.key.get_secret_value()
        return {self.header: f"{scheme} {key}" if scheme else key}

    def secrets(self) -> Iterator[str]:
        yield self.key.get_secret_value()


class OAuth2Auth(Settings):
    """Tokens of an authorization server, for the credentials of a client. Source: RFC 6749, section 4.4."""

    type: Literal["oauth2"] = Field(description="Form of the credentials.")
    token_url: WebUrl = Field(description="Token endpoint of the authorization server.")
    client_id: Text = Field(description="Name of the client there.")
    client_secret: SecretStr = Field(min_length=1, description="Secret of the client.")
    scope: Text | None = Field(None, description="What the token shall be good for, separated by spaces.")
    parameters: dict[str, str] = Field({}, description="More parameters of the request, such as `audience`.")
    client_authentication: Literal["basic", "body"] = Field(
        "basic",
        description="Where the request has the client's name and secret: the header Authorization, or the body.",
    )

    def __hash__(self) -> int:
        return hash((self.token_url, self.client_id, self.scope))

    @property
    def pair(self) -> str:
        """The client's name and secret, as the header Authorization has them."""
        return f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret.get_secret_value())}"

    def secrets(self) -> Iterator[str]:
        yield self.client_secret.get_secret_value()
        yield self.pair


class EntraAuth(Settings):
    """Tokens of Microsoft Entra ID, by the library azure-identity."""

    type: Literal["entra"] = Field(description="Form of the credentials.")
    scope: Text = Field(description="What the token shall be good for, such as https://ai.azure.com/.default.")
    identity: Literal["client_secret", "workload", "managed"] = Field(
        description="Who asks: an application with a secret, the workload identity of a pod, the managed identity of a host."
    )
    tenant_id: Text | None = Field(None, description="Tenant; of a workload identity by default AZURE_TENANT_ID.")
    client_id: Text | None = Field(
        None, description="Application, or a user-assigned identity; of a workload identity by default AZURE_CLIENT_ID."
    )
    client_secret: SecretStr | None = Field(None, min_length=1, description="Secret of the application.")
    token_file: LocalPath | None = Field(
        None, description="File with the token of a workload identity; by default AZURE_FEDERATED_TOKEN_FILE."
    )
    authority: WebUrl | None = Field(
        None, description="Entra itself; by default AZURE_AUTHORITY_HOST, or https://login.microsoftonline.com."
    )

    @model_validator(mode="after")
    def _fields_of_the_identity(self) -> Self:
        needed, possible = _FIELDS[self.identity]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"identity {self.identity!r} needs {_listed(missing)}")
        others = [name for name in _OPTIONAL if name not in (*needed, *possible) and getattr(self, name) is not None]
        if others:
            raise ValueError(f"identity {self.identity!r} cannot be used with {_listed(others)}")
        return self

    def secrets(self) -> Iterator[str]:
        if self.client_secret is not None:
            yield self.client_secret.get_secret_value()


_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "client_secret": (("tenant_id", "client_id", "client_secret"), ("authority",)),
    "workload": ((), ("tenant_id", "client_id", "token_file", "authority")),
    "managed": ((), ("client_id",)),
}
"""The fields that an identity needs, and those that it may have."""

_OPTIONAL = ("tenant_id", "client_id", "client_secret", "token_file", "authority")


class AwsAuth(Settings):
    """Signatures of Amazon Web Services (SigV4), by the library botocore, which finds the keys."""

    type: Literal["aws"] = Field(description="Form of the credentials.")
    service: Text = Field(description="Name of the service in signatures, such as bedrock or bedrock-agentcore.")
    region: Text | None = Field(None, description="Region; by default that of AWS_DEFAULT_REGION or of the profile.")
    profile: Text | None = Field(None, description="Profile of the AWS configuration; by default that of AWS_PROFILE.")

    def secrets(self) -> Iterator[str]:
        """None: the keys come at run time."""
        return iter(())


Auth = Annotated[ApiKeyAuth | OAuth2Auth | EntraAuth | AwsAuth, Field(discriminator="type")]
"""Any form of `auth:`."""


class CredentialSettings(ConnectionSettings):
    """How a service is reached, and by whom: a key, or another form of credentials."""

    api_key: ApiKey | None = Field(None, description="Sent as a bearer token; none is sent when it is not given.")
    auth: Auth | None = Field(
        None, description="Other credentials than a bearer token: `api_key`, `oauth2`, `entra` or `aws`."
    )

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        if self.api_key is not None and self.auth is not None:
            raise ValueError("'api_key' and 'auth' exclude each other: a request has one credential")
        return self

    @property
    def key(self) -> str:
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def account(self) -> Hashable:
        """What tells agents of one address apart: the credentials, and how else they reach the service."""
        return self.api_key if self.auth is None else self.auth, self.way

    def secrets(self) -> Iterator[str]:
        """Texts that no error may quote."""
        yield self.key
        if self.auth is not None:
            yield from self.auth.secrets()
        yield from self.connection_secrets()


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
