"""What an agent card says of an agent, in either version. Law: pure; what cannot be read of a card is left out, since most of
it is for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, quote, urlsplit

from adapters.a2a.settings import A2ASettings, Transport, Version
from gateway.a2a.model import Json

_CARD = ".well-known/agent-card.json"
_EARLIER_CARD = ".well-known/agent.json"
_LANGGRAPH = "/a2a/"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104  # compared, and never listened on
_LANGCHAIN = "https://langchain.com/a2a/"


@dataclass(frozen=True, slots=True)
class Interface:
    """A way to speak to the agent that its card offers."""

    url: str
    transport: str
    version: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The interface that is used, and what else of the card a request depends on. `langgraph`: it is a server of LangGraph,
    where the text of a working status is the answer so far, and a stored task has its answer in its history only."""

    interface: Interface
    version: Version
    streaming: bool
    extensions: frozenset[str]
    langgraph: bool = False


class NoInterface(ValueError):
    """The card offers nothing that can be used; the text says what it offers, and what to set."""


def addresses(url: str) -> tuple[str, ...]:
    """Where the card of an agent may be, the likeliest first."""
    parts = urlsplit(url)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if path.endswith(".json"):
        return (url,)
    base = f"{origin}{path}"
    found = [f"{base}/{_CARD}"]
    before, mark, assistant = path.rpartition(_LANGGRAPH)
    if mark and assistant and "/" not in assistant:
        # LangGraph has one card address for all of its assistants.
        found.append(f"{origin}{before}/{_CARD}?assistant_id={quote(assistant, safe='')}")
    if "assistant_id" in parse_qs(parts.query):
        found = [f"{base}/{_CARD}?{parts.query}"]
    found.append(f"{base}/{_EARLIER_CARD}")
    return tuple(found)


def interfaces(card: dict[str, Json]) -> list[Interface]:
    """All of them, those of 1.0 first, otherwise in the order of the card."""
    found = [
        Interface(url, str(each.get("protocolBinding")), _minor(each.get("protocolVersion")), _text(each.get("tenant")))
        for each in objects(card.get("supportedInterfaces"))
        if (url := _address(each.get("url")))
    ]
    url, preferred = _address(card.get("url")), _text(card.get("preferredTransport")) or Transport.JSONRPC
    said = card.get("protocolVersion")
    if url and (said is not None or not found):
        version = _minor(said) if said is not None else "0.3"
        more = [
            Interface(where, str(each.get("transport")), version)
            for each in objects(card.get("additionalInterfaces"))
            if (where := _address(each.get("url")))
        ]
        found += [Interface(url, preferred, version), *more]
    known = list(dict.fromkeys(found))
    return [each for each in known if each.version == "1.0"] + [each for each in known if each.version != "1.0"]


def choose(card: dict[str, Json], settings: A2ASettings, transports: Iterable[Transport]) -> Endpoint:
    """The first interface that the settings allow and that is spoken here. Raises: NoInterface."""
    spoken = {("1.0", each) for each in transports} | {("0.3", Transport.JSONRPC)}
    offered = interfaces(card)
    fitting = [
        each
        for each in offered
        if (each.version, each.transport) in spoken
        and settings.version in (None, each.version)
        and settings.transport in (None, each.transport)
    ]
    if not fitting:
        names = ", ".join(f"{each.transport} {each.version}" for each in offered) or "nothing"
        wanted = " ".join(filter(None, (settings.transport, settings.version))) or "any that is spoken here"
        raise NoInterface(f"its card offers {names}, and not {wanted}{_hint(offered, transports)}")
    reached = [each for each in (_reached(each, settings) for each in fitting) if each is not None]
    if not reached:
        raise NoInterface(
            f"its card sends requests to {fitting[0].url}, which is on another host than `url`: set `endpoint` to that "
            "address if the agent is there, or to the one where it is"
        )
    chosen = reached[0]
    named = frozenset(extension_uris(card))
    return Endpoint(
        interface=chosen,
        version="1.0" if chosen.version == "1.0" else "0.3",
        streaming=_capabilities(card).get("streaming") is True,
        extensions=named,
        langgraph=any(uri.startswith(_LANGCHAIN) for uri in named),
    )


def extension_uris(card: dict[str, Json]) -> list[str]:
    return [uri for each in objects(_capabilities(card).get("extensions")) if (uri := _text(each.get("uri")))]


def objects(value: Json) -> list[dict[str, Json]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _capabilities(card: dict[str, Json]) -> dict[str, Json]:
    found = card.get("capabilities")
    return found if isinstance(found, dict) else {}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _address(value: Json) -> str | None:
    """An address without credentials, which may lack its scheme; None for anything else."""
    text = _text(value)
    try:
        parts = urlsplit(text if text and "://" in text else f"//{text or ''}")
        usable = bool(parts.hostname) and (parts.port or 0) >= 0 and "@" not in parts.netloc
    except ValueError:
        return None
    return text if usable else None


def _minor(version: Json) -> str:
    return ".".join(str(version).split(".")[:2])


def _hint(offered: Sequence[Interface], transports: Iterable[Transport]) -> str:
    lacks = Transport.GRPC not in set(transports) and any(each.transport == Transport.GRPC for each in offered)
    return "; gRPC needs the extra `grpc`: pip install 'a2a-gateway[grpc]'" if lacks else ""


def _reached(each: Interface, settings: A2ASettings) -> Interface | None:
    """The interface where requests may go, which is the host of `url` unless `endpoint` says otherwise; None elsewhere."""
    tenant = settings.tenant or each.tenant
    url = each.url if "://" in each.url else f"{_scheme(settings.url)}://{each.url}"
    if settings.endpoint is not None:
        return replace(each, url=settings.endpoint, tenant=tenant)
    there, here = urlsplit(url), urlsplit(settings.url)
    if here.scheme == "https" and there.scheme != "https":
        return None
    if there.hostname == here.hostname:
        return replace(each, url=url, tenant=tenant)
    if there.hostname in _LOCAL:
        # The agent names its machine as the machine itself does. Behind another name its port is another one, too.
        host = f"[{here.hostname}]" if ":" in (here.hostname or "") else here.hostname
        near = here.hostname in _LOCAL or each.transport == Transport.GRPC
        netloc = f"{host}:{there.port}" if near and there.port else here.netloc
        return replace(each, url=there._replace(netloc=netloc).geturl(), tenant=tenant)
    return None


def _scheme(url: str) -> str:
    return urlsplit(url).scheme
