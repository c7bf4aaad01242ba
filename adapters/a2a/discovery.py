"""Finds an agent by its card, and opens the binding that the card and the settings choose. Law: a card is kept until the agent
refuses what it says."""

from collections.abc import Mapping

import msgspec

from adapters.a2a import card
from adapters.a2a.agent import Agent
from adapters.a2a.binding import Binding
from adapters.a2a.card import Endpoint, NoInterface
from adapters.a2a.failures import A2AFailures
from adapters.a2a.json_rpc import JsonRpc
from adapters.a2a.rest import Rest
from adapters.a2a.settings import A2ASettings, Transport
from adapters.http.client import HttpClient
from adapters.http.half_characters import with_whole_characters
from adapters.http.signing import Signing
from gateway.a2a import nesting, tool_calls
from gateway.a2a.model import Json
from gateway.config.connections import plain_headers
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass

try:
    from adapters.a2a.grpc import GrpcBinding
except ImportError:  # pragma: no cover  # the extra `grpc` is not installed
    TRANSPORTS: tuple[Transport, ...] = (Transport.JSONRPC, Transport.REST)
else:
    TRANSPORTS = (Transport.JSONRPC, Transport.REST, Transport.GRPC)


class Discovery:
    """The agent of these settings: its card, and the way to it."""

    def __init__(self, settings: A2ASettings, http: HttpClient, failures: A2AFailures, signing: Signing | None) -> None:
        self._settings = settings
        self._http = http
        self._failures = failures
        self._signing = signing
        self._found: Agent | None = None
        # A tap hears HTTP, and no gRPC.
        self._transports = tuple(each for each in TRANSPORTS if each != Transport.GRPC) if http.tapped else TRANSPORTS

    async def agent(self) -> Agent:
        """Raises: AdapterError."""
        if self._found is None:
            self._found = self._at(self._choose(await self.card()))
        return self._found

    async def card(self) -> dict[str, Json]:
        """The card as the agent gives it now. Raises: AdapterError."""
        missing: AdapterError | None = None
        for address in card.addresses(self._settings.url):
            try:
                reply = await self._http.request("GET", address, headers={"Accept": "application/json"})
                return self._read(with_whole_characters(reply.body))
            except AdapterError as error:
                if error.kind is not ErrorClass.NOT_SERVED:
                    raise
                missing = missing or error
        where = self._settings.url
        raise self._failures.error(ErrorClass.NOT_SERVED, f"there is no agent card at {where}") from missing

    async def moved(self, refused: Agent) -> Agent | None:
        """The agent to which the card leads now, if that is another than the one that has just refused. None too where the card
        cannot be read."""
        try:
            self.renew(await self.card())
        except AdapterError as error:
            drop_tracebacks(error)
            return None
        return self._found if self._found is not None and self._found.endpoint != refused.endpoint else None

    def renew(self, found: dict[str, Json]) -> None:
        """This is the card now: another way to the agent is taken from the next request on. Calls that run keep their binding.
        Raises: AdapterError."""
        endpoint = self._choose(found)
        if self._found is not None and endpoint != self._found.endpoint:
            self._found = self._at(endpoint)

    async def aclose(self) -> None:
        if self._found is not None:
            await self._found.binding.aclose()

    def extensions(self, endpoint: Endpoint) -> tuple[str, ...]:
        known = (tool_calls.URI,) if tool_calls.URI in endpoint.extensions else ()
        return tuple(dict.fromkeys((*known, *self._settings.extensions)))

    def _read(self, body: bytes) -> dict[str, Json]:
        try:
            found = nesting.decode(body.decode())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._failures.error(ErrorClass.NOT_SERVED, "the agent card is no JSON that can be read") from error
        if not isinstance(found, dict) or "name" not in found:
            raise self._failures.error(ErrorClass.NOT_SERVED, f"what is at {self._settings.url} is no agent card")
        return found

    def _choose(self, found: dict[str, Json]) -> Endpoint:
        try:
            return card.choose(found, self._settings, self._transports)
        except NoInterface as error:
            unheard = "; gRPC is neither recorded nor replayed" if self._http.tapped else ""
            raise self._failures.error(ErrorClass.NOT_SERVED, f"{error}{unheard}") from error

    def _at(self, endpoint: Endpoint) -> Agent:
        return Agent(endpoint, self._open(endpoint), self._failures, self._settings.poll)

    def _open(self, endpoint: Endpoint) -> Binding:
        extensions = self.extensions(endpoint)
        if endpoint.interface.transport == Transport.GRPC:
            timeouts, ca = self._settings.timeouts, self._settings.ca
            return GrpcBinding(endpoint, self._failures, extensions, timeouts, self._metadata, ca)
        kind = Rest if endpoint.interface.transport == Transport.REST else JsonRpc
        return kind(self._http, endpoint, self._failures, extensions)

    async def _metadata(self, url: str) -> Mapping[str, str]:
        """The headers of a call by gRPC, which are those of a request."""
        signed = {} if self._signing is None else await self._signing("POST", url, b"")
        return {**self._settings.own_headers, **signed, **plain_headers(self._settings.headers)}
