"""gateway.yaml as frozen values: the whole file, and the sections of the gateway itself. Law: every key has an effect; its
default and unit are declared with it."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import Url, ValidationError

from gateway.a2a.nesting import DEEPEST
from gateway.config.agents import AgentConfig
from gateway.config.card_signing import CardSigningConfig
from gateway.config.connections import ConnectionSettings, SecretHeaders
from gateway.config.problems import Problem
from gateway.config.settings import (
    MOST,
    Count,
    CountOrZero,
    Duration,
    LocalPath,
    LongKey,
    Network,
    Settings,
    Size,
    Text,
    TimeLimit,
    WebUrl,
    duration,
    expected,
    size,
)
from gateway.config.storage import StorageCommon, StorageConfig
from gateway.config.tools import ToolConfig
from gateway.config.tracing import TracingConfig
from gateway.foundation.addresses import http_url, is_loopback, local_url
from gateway.foundation.clock import ID_LENGTH
from gateway.foundation.tls import check_certificate

_TAKEN = ("/a2a", "/admin", "/livez", "/readyz", "/.well-known", "/openapi.json", "/ui")
"""Beginnings of the paths of the gateway."""

Port = Annotated[int, Field(ge=0, le=65535)]

_MOST_WORKERS = 256

_SMALLEST_DEPTH = 8
"""Levels of the deepest request that only has what A2A defines: credentials for push notifications, sent with a message."""


def _public_address(data: dict[str, Any]) -> str:
    host = data["host"]
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104  # no address that a client can call
        host = "localhost"
    return http_url(host, data["port"])


def _base_url(value: str) -> str:
    if "?" in value or "#" in value:
        raise ValueError("must not have a query or a fragment: paths are put behind it")
    return _in_ascii(value.rstrip("/"))


def _host_and_port(value: str) -> str:
    try:
        parts = urlsplit(f"//{value}")
        whole = parts.hostname and parts.port and parts.netloc == value and "@" not in value
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("must be a host and a port, as grpc.example.com:443")
    return value


def _in_ascii(url: str) -> str:
    """The URL with the host as requests name it: a client puts no other letters into Host."""
    parts = urlsplit(url)
    if parts.netloc.isascii():
        return url
    try:
        host = Url(f"http://{parts.hostname}").host
    except ValidationError as error:
        raise ValueError("must have a host that is a name: its ASCII form (IDNA) cannot be made") from error
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"{host}{port}").geturl()


def _workers(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_WORKERS):
        return value
    if isinstance(value, int) and value > _MOST_WORKERS:
        raise expected(f"must be at most {_MOST_WORKERS}")
    raise expected(f"must be a number of processes from 1 to {_MOST_WORKERS}, or auto")


Workers = Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=_MOST_WORKERS)], BeforeValidator(_workers)]


class TlsConfig(Settings):
    """The certificate of a server."""

    certificate: LocalPath = Field(description="File with the certificate and those in between (PEM).")
    key: LocalPath = Field(description="File with the private key of the certificate (PEM).")

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        check_certificate(self.certificate, self.key)
        return self


class GrpcConfig(Settings):
    """A port for A2A over gRPC, besides that of HTTP. It needs `a2a-gateway[grpc]`."""

    port: Port = Field(description="Port to listen on, on the host of the server; 0 lets the system choose one.")
    public_address: Annotated[Text, AfterValidator(_host_and_port)] | None = Field(
        None,
        description="Address that clients use, as the cards say it, such as grpc.example.com:443; the host of `public_url` and "
        "the port when not given.",
    )
    tls: TlsConfig | None = Field(None, description="Speak TLS on this port; plain text when not given.")


class ServerConfig(Settings):
    """Where the gateway listens, and under which address clients reach it."""

    host: Text = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on; 0 lets the system choose one.")
    public_url: Annotated[WebUrl, AfterValidator(_base_url)] = Field(
        default_factory=_public_address,
        description="Address that clients use, as the cards say it; derived from host and port when not given.",
    )
    shutdown_grace: Duration = Field(
        duration("30s"), description="How long running turns may take to end after SIGTERM."
    )
    workers: Workers = Field(
        1,
        description="Processes that serve the port: a number, or `auto` for one for each core that may be used. More than one "
        "needs a storage that does more with them, such as PostgreSQL; on another `auto` is one.",
    )
    grpc: GrpcConfig | None = Field(None, description="A port for A2A over gRPC; none when not given.")

    @property
    def grpc_address(self) -> str | None:
        """Address of the gRPC port as the cards say it; None where there is none."""
        if self.grpc is None:
            return None
        host = urlsplit(self.public_url).hostname or ""
        return self.grpc.public_address or f"{f'[{host}]' if ':' in host else host}:{self.grpc.port}"

    @property
    def local_url(self) -> str:
        """Address under which this machine reaches the gateway, whatever the cards say."""
        return local_url(self.host, self.port)

    def bound_to(self, port: int, grpc_port: int | None = None) -> "ServerConfig":
        """The same settings with the ports that the system chose; a given `public_url` stays."""
        update: dict[str, Any] = {"port": port}
        if self.grpc is not None:
            update["grpc"] = self.grpc.model_copy(update={"port": grpc_port})
        if "public_url" not in self.model_fields_set:
            update["public_url"] = _public_address({"host": self.host, "port": port})
        return self.model_copy(update=update)


class ApiKeysConfig(Settings):
    """Keys that `a2a-gateway keys create` makes."""

    enabled: bool = Field(False, description="An API key is a way to say who calls.")


class AuthConfig(Settings):
    """Who may call."""

    mode: Literal["none", "any_of"] = Field(
        "none",
        description="`none`: everybody who can reach the gateway may use it, as one and the same caller. `any_of`: only who "
        "says who they are, in one of the ways that are enabled here.",
    )
    api_keys: ApiKeysConfig = Field(ApiKeysConfig(), description="Keys that `a2a-gateway keys create` makes.")

    @model_validator(mode="after")
    def _says_what_it_does(self) -> Self:
        if self.mode == "none" and self.api_keys.enabled:
            raise ValueError("api_keys are enabled, but nobody is asked for one: set `mode: any_of`")
        if self.mode == "any_of" and not self.api_keys.enabled:
            raise ValueError("mode: any_of needs a way to say who calls: set `api_keys: {enabled: true}`")
        return self


class LimitsConfig(Settings):
    """What one caller may ask for. Over a limit is an error for the caller, never a crash."""

    request_body: Size = Field(size("8MiB"), ge=size("1KiB"), description="Largest request body, files included.")
    json_depth: int = Field(
        DEEPEST, ge=_SMALLEST_DEPTH, le=DEEPEST, description="Deepest nesting of JSON in a request."
    )
    parts: Count = Field(1000, description="Most parts in a message.")
    reference_ids: Count = Field(100, description="Most referenceTaskIds in a message.")
    extensions: Count = Field(50, description="Most extensions in a request.")
    metadata: Size = Field(size("64KiB"), gt=0, description="Largest metadata, as JSON.")
    id_length: int = Field(
        256, ge=ID_LENGTH, le=MOST, description="Longest id, in characters; the gateway's own have 36."
    )
    turn_timeout: TimeLimit = Field(duration("15m"), description="Longest time that a turn may take; then it fails.")
    queued_turns_per_context: CountOrZero = Field(
        8, description="Turns that may wait behind the running one of a context."
    )
    tool_rounds: Count = Field(20, description="Rounds of tools that a turn may have.")
    tool_arguments: Size = Field(
        size("256KiB"),
        ge=size("1KiB"),
        description="Largest arguments of the tool calls of one answer, together; a call over it is not run, and the model "
        "hears of it. A call that the backend runs itself has as much for itself.",
    )
    parallel_tools: Count = Field(8, description="Tools of one round that may run at once.")
    requests_per_minute: CountOrZero = Field(
        0,
        description="Requests that one principal may make in a minute; so many may come at once. 0: no limit. With "
        "`auth.mode: none` all callers are one principal. All gateways on a database count together, approximately.",
    )
    runs_per_principal: CountOrZero = Field(
        0,
        description="Messages of one principal that may be worked on or wait. 0: no limit. All gateways on a database count "
        "together, approximately.",
    )
    streams_per_principal: CountOrZero | None = Field(
        None,
        description="Open streams of one principal. 0: no limit. Not given: 100, or no limit with `auth.mode: none`. All "
        "gateways on a database count together, approximately.",
    )
    streams: Count = Field(2000, description="Open streams of the whole process.")
    stream_buffer_events: Count = Field(10_000, description="Events that may wait for a slow reader of a stream.")
    stream_buffer_bytes: Size = Field(
        size("1MiB"),
        gt=0,
        description="Bytes that may wait for a slow reader of a stream, and a page of the log for one that resumes.",
    )
    stream_blocked: TimeLimit = Field(
        duration("30s"),
        description="A connection whose reader takes nothing for so long is closed; its stream can be resumed.",
    )
    stream_keepalive: TimeLimit = Field(duration("15s"), description="Silence after which a stream gets a comment.")


class RetentionConfig(Settings):
    """How long things are kept. What is over its time goes within the hour."""

    events: Duration = Field(
        duration("7d"),
        gt=0,
        description="The event log of a task, from its end: so long can its stream be resumed from any event.",
    )
    tasks: Duration = Field(
        duration("30d"),
        ge=duration("1d"),
        description="A task as GetTask and ListTasks tell it, and its idempotency keys, from its end. "
        "The conversation that it belongs to remembers it all the same.",
    )
    contexts_idle: Duration = Field(
        duration("90d"),
        ge=duration("1d"),
        description="A conversation with all that was said in it, from its last message. Its id is never used again.",
    )


class PushConfig(ConnectionSettings):
    """Push notifications: what happens to a task is posted to where its caller wants it."""

    headers: SecretHeaders = Field({}, description="Headers of every post; whoever receives one reads them.")
    enabled: bool = Field(
        True, description="Offer them. Without them nothing is delivered, what was promised included."
    )
    allow_private_networks: tuple[Network, ...] = Field(
        (), description="Networks, as 10.1.0.0/16, that may be reached although they are not public."
    )
    allow_http: bool = Field(False, description="Also post to http:// addresses.")
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        (443, 8443), description="Ports that may be posted to; any when the list is empty."
    )
    timeout: TimeLimit = Field(duration("15s"), le=duration("5m"), description="Longest time of one post.")
    max_attempts: Count = Field(
        10, description="Attempts to deliver an event, over 75 hours; then its configuration is stopped."
    )
    encryption_key: LongKey | None = Field(
        None,
        description="Encrypts tokens and credentials in the database; a key in the database itself when not given.",
    )
    signing: bool = Field(False, description="Sign notifications; the key is at `/.well-known/jwks.json`.")


class ProtocolConfig(Settings):
    """What is spoken beside the final versions of A2A."""

    draft_1_1: bool = Field(
        False,
        description="Also speak the draft of A2A 1.1 (`A2A-Version: 1.1`): generations of tasks, GetTask that waits for the "
        "next one, messages for one generation. It changes with the draft.",
    )


class LogsConfig(Settings):
    """What the gateway says on standard error."""

    format: Literal["auto", "text", "json"] = Field(
        "auto", description="Text for people, or a JSON object per line; `auto`: text on a terminal, else JSON."
    )
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least that is said.")
    requests: bool = Field(True, description="A line for each request, with `level: info` or `debug`.")
    turns: bool = Field(True, description="A line for each turn, with `level: info` or `debug`.")


def _metrics_path(value: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", value):
        raise ValueError("must be a path, as /metrics")
    if value.startswith(_TAKEN):
        raise ValueError("stands for something else: take another path, as /metrics")
    return value


class MetricsConfig(Settings):
    """Metrics for Prometheus, of each process by itself."""

    path: Annotated[Text, AfterValidator(_metrics_path)] | None = Field(
        None,
        description="Path of the page on the port of the server, as /metrics. Where keys are asked for, an admin key reads it.",
    )
    listen: Annotated[Text, AfterValidator(_host_and_port)] | None = Field(
        None,
        description="Host and port for a page of its own, as 127.0.0.1:9464, which whoever reaches it may read. Of several "
        "workers, the first has this port, the next the port above, and so on.",
    )


class AuditConfig(Settings):
    """The audit log: who did what to which context, task, key and configuration, in lines of JSON of which none can be changed
    unseen."""

    path: LocalPath | None = Field(None, description="File that lines are appended to. Several gateways may share it.")
    stdout: bool = Field(False, description="Write the lines to standard output instead.")
    key: LongKey | None = Field(
        None,
        description="Only who has this key makes lines that fit; without one anybody could write a whole file anew.",
    )

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if self.path is not None and self.stdout:
            raise ValueError("has a path and stdout: true: choose one")
        if self.key is not None and not self.wanted:
            raise ValueError("has a key and no place: give `path`, or `stdout: true`")
        return self

    @property
    def wanted(self) -> bool:
        return self.path is not None or self.stdout


class UiConfig(Settings):
    """Pages for people at /ui: agents, conversations, tasks, deliveries, keys, a playground. They need `a2a-gateway[ui]`."""

    enabled: bool | None = Field(
        None,
        description="Serve them. Not given: where keys are asked for, or the gateway listens for its own machine alone. Where "
        "keys are asked for, an admin key opens them, and they show what belongs to all principals of its tenant.",
    )


class ProviderConfig(Settings):
    """Who offers the agents."""

    organization: Text = Field(description="Name of the organisation.")
    url: WebUrl = Field(description="Its web page.")


class CardsConfig(Settings):
    """What all cards say."""

    provider: ProviderConfig | None = Field(None, description="Who offers the agents.")
    documentation_url: WebUrl | None = Field(
        None,
        description="Documentation of agents that name none, neither in their `card` nor as their backend describes them. The "
        "page at the root of the gateway shows how to call each agent.",
    )
    signing: CardSigningConfig | None = Field(None, description="Sign the cards; they are not when not given.")
    refresh: Annotated[Duration, Field(ge=duration("10s"))] = Field(
        duration("5m"), description="How often backends that describe their agents are asked."
    )


class GatewaySections(Settings):
    """Everything that needs no plug-in: all but the agents, the tools, and what a kind of storage has for itself."""

    version: Literal[1] = Field(description="Version of this file's format: 1.")
    server: ServerConfig = Field(ServerConfig(), description="Where the gateway listens.")
    storage: StorageCommon = Field(StorageCommon(), description="Where state is kept.")
    auth: AuthConfig = Field(AuthConfig(), description="Who may call.")
    limits: LimitsConfig = Field(LimitsConfig(), description="What one caller may ask for.")
    retention: RetentionConfig = Field(RetentionConfig(), description="How long things are kept.")
    push: PushConfig = Field(PushConfig(), description="Push notifications.")
    cards: CardsConfig = Field(CardsConfig(), description="What all cards say.")
    protocol: ProtocolConfig = Field(ProtocolConfig(), description="Versions of A2A that are not final.")
    logs: LogsConfig = Field(LogsConfig(), description="What is said on standard error.")
    audit: AuditConfig = Field(AuditConfig(), description="The audit log; none when not given.")
    metrics: MetricsConfig = Field(MetricsConfig(), description="Metrics for Prometheus; none when not given.")
    tracing: TracingConfig = Field(TracingConfig(), description="Traces for OpenTelemetry; none when not given.")
    ui: UiConfig = Field(UiConfig(), description="Pages for people.")


class GatewayConfig(GatewaySections):
    """The configuration of a gateway: where it listens, where it keeps state, and its agents."""

    storage: StorageConfig = Field(description="Where state is kept.")
    tools: Mapping[str, ToolConfig] = Field({}, description="Sources of tools, by the name that agents use.")
    agents: Mapping[str, AgentConfig] = Field(
        min_length=1, description="The agents, by the name that their URLs carry."
    )


def open_listen_problem(config: GatewayConfig, insecure: bool) -> Problem | None:
    """The problem of a gateway that other machines could use without authentication, None where it may listen."""
    host = config.server.host
    if insecure or is_loopback(host) or config.auth.mode != "none":
        return None
    message = (
        f"{host!r} can be reached from other machines and auth.mode is none, so anyone could use the agents; "
        "ask for API keys (auth: {mode: any_of, api_keys: {enabled: true}}), listen on 127.0.0.1, or start with --insecure if "
        "that is what you want"
    )
    return Problem(file=None, line=None, column=None, path="server.host", message=message)
