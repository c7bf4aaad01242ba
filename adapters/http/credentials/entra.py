"""Tokens of Microsoft Entra ID, by azure-identity. Law: the library makes the requests, and the client of the adapters sends
them: its route, its timeouts, no attempt of the library's own.
"""

import logging
import os
import time
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlencode

from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError
from azure.core.pipeline.transport import AsyncHttpResponse, AsyncHttpTransport
from azure.core.rest import HttpRequest
from azure.identity.aio import ClientSecretCredential, ManagedIdentityCredential, WorkloadIdentityCredential
from multidict import CIMultiDict

from adapters.http.client import HttpClient, Reply
from adapters.http.credentials.settings import EntraAuth
from adapters.http.credentials.tokens import Fetch, Token
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.foundation.route import Route
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass

_ANY_STATUS = range(100, 600)
_ANSWER_LIMIT = 256 * 1024

# The libraries tell of each request, of its failure, and at `debug` of what is in their caches; an error says what is needed.
for _name, _level in (("azure", logging.WARNING), ("azure.identity", logging.CRITICAL), ("msal", logging.WARNING)):
    logging.getLogger(_name).setLevel(_level)


class _Credential(Protocol):
    async def get_token(self, *scopes: str) -> AccessToken: ...


def entra_token(auth: EntraAuth, failures: Failures, timeouts: Timeouts, route: Route) -> Fetch:
    """Raises: ValueError that names what is missing in the settings and in the environment."""
    # A managed identity is asked for at the host itself, which no proxy reaches.
    way = Route(route.ca) if auth.identity == "managed" else route
    _credential(auth, _Transport(timeouts, failures, way))

    async def fetch() -> Token:
        transport = _Transport(timeouts, failures, way)
        try:
            async with transport:
                token = await _credential(auth, transport).get_token(auth.scope)
        except (AzureError, AdapterError, ValueError, OSError, LookupError, TypeError, AttributeError) as error:
            failed = transport.failure or failures.error(ErrorClass.UNAUTHORISED, f"Entra: {error}")
            # What led to it holds the request, and so the secret.
            drop_tracebacks(error)
        else:
            failures.hide(token.token)
            return Token(token.token, max(0.0, token.expires_on - time.time()))
        raise failed

    return fetch


def _credential(auth: EntraAuth, transport: "_Transport") -> _Credential:
    """A new credential has no token yet. Raises: ValueError."""
    options: dict[str, Any] = {"transport": transport, "retry_total": 0}
    if auth.authority is not None:
        options["authority"] = auth.authority
    match auth.identity:
        case "managed":
            return ManagedIdentityCredential(client_id=auth.client_id, **options)
        case "workload":
            return WorkloadIdentityCredential(**_workload(auth), **options)
        case "client_secret":
            secret = "" if auth.client_secret is None else auth.client_secret.get_secret_value()
            return ClientSecretCredential(auth.tenant_id or "", auth.client_id or "", secret, **options)


def _workload(auth: EntraAuth) -> dict[str, str]:
    """The workload identity of the settings and of the environment, as the webhook of AKS sets it."""
    file = None if auth.token_file is None else str(auth.token_file)
    wanted = (
        ("tenant_id", "tenant_id", auth.tenant_id, "AZURE_TENANT_ID"),
        ("client_id", "client_id", auth.client_id, "AZURE_CLIENT_ID"),
        ("token_file", "token_file_path", file, "AZURE_FEDERATED_TOKEN_FILE"),
    )
    found = {argument: given or os.environ.get(variable) for _, argument, given, variable in wanted}
    missing = [f"`{name}` or {variable}" for name, argument, _, variable in wanted if not found[argument]]
    if missing:
        raise ValueError(f"credentials of type entra: a workload identity needs {', '.join(missing)}")
    return {argument: value for argument, value in found.items() if value}


class _Response(AsyncHttpResponse):
    """A whole answer, as azure-core reads it."""

    def __init__(self, request: Any, reply: Reply) -> None:
        super().__init__(request, None)
        self.status_code = reply.status
        self.headers = CIMultiDict(reply.headers)
        self.content_type = reply.headers.get("Content-Type", "")
        self._body = reply.body

    def body(self) -> bytes:
        return self._body


class _Transport(AsyncHttpTransport[HttpRequest, _Response]):
    """Sends the requests of azure-core by a client of this gateway."""

    def __init__(self, timeouts: Timeouts, failures: Failures, route: Route) -> None:
        self.failure: AdapterError | None = None
        """What the server or the way to it is to blame for."""
        self._failures = failures
        self._http = HttpClient(timeouts, failures, {}, route)

    async def send(self, request: HttpRequest, **kwargs: Any) -> _Response:
        content = request.content
        body = urlencode(content).encode() if isinstance(content, dict) else content
        try:
            reply = await self._http.request(
                request.method,
                request.url,
                body if isinstance(body, bytes) else None,
                headers=request.headers,
                expected=_ANY_STATUS,
                limit=_ANSWER_LIMIT,
            )
        except AdapterError as error:
            self.failure = error
            raise
        answered = self._failures.from_response(reply.status, reply.headers, reply.body, instead_of="a token")
        self.failure = answered if answered.kind.meaning.transient else None
        return _Response(request, reply)

    async def open(self) -> None:
        """The client opens with its first request."""

    async def close(self) -> None:
        await self._http.aclose()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()
