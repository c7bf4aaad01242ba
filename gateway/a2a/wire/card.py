"""The JSON of an agent card, which serves clients of A2A 1.0 and 0.3: each version ignores the members of the other.

Law: a card holds no empty string, array or object, because signature checkers drop them; the scopes of security requirements
are the exception. Source: A2A 1.0, sections 4.4 and 8.4; A2A 0.3.0, section 5.5.
"""

from collections.abc import Iterable

import msgspec

from gateway.a2a.model import AgentCard, Json

_VERSION = "0.3.0"
_TRANSPORTS = ("JSONRPC", "HTTP+JSON")
"""Bindings in which A2A 0.3 is spoken, the preferred one first."""


def card_json(card: AgentCard) -> dict[str, Json]:
    """The card with the members of both versions."""
    found: dict[str, Json] = {**compact(card), **_for_v0_3(card)}
    required = card.security_requirements
    if required is not None:
        # An empty list means a scheme without scopes; without the lists nothing would be required.
        found["securityRequirements"] = required
        found["security"] = [
            {name: scopes["list"] for name, scopes in requirement["schemes"].items()} for requirement in required
        ]
    if card.security_schemes is not None:
        found["securitySchemes"] = {name: each | openapi_scheme(each) for name, each in card.security_schemes.items()}
    return found


def compact(card: AgentCard) -> dict[str, Json]:
    """The members of A2A 1.0 that are not empty: what is left of a card in Protocol Buffers, of which a2a-sdk and a2a-js make
    the JSON that they verify."""
    found: dict[str, Json] = without_empty(msgspec.to_builtins(card))
    return found


def _for_v0_3(card: AgentCard) -> dict[str, Json]:
    """The members that a client of A2A 0.3 requires."""
    urls = {each.protocol_binding: each.url for each in card.supported_interfaces}
    spoken = [transport for transport in _TRANSPORTS if transport in urls]
    if not spoken:
        return {}
    return {
        "protocolVersion": _VERSION,
        "url": urls[spoken[0]],
        "preferredTransport": spoken[0],
        "additionalInterfaces": [{"transport": transport, "url": urls[transport]} for transport in spoken],
        **({"supportsAuthenticatedExtendedCard": True} if card.capabilities.extended_agent_card else {}),
    }


def openapi_scheme(scheme: dict[str, Json]) -> dict[str, Json]:
    """The members of 0.3, which are those of OpenAPI. They say all that those of 1.0 say, because a2a-sdk 1.3 reads a scheme
    that has a `type` as one of 0.3, and then verifies the signature."""
    ((kind, members),) = scheme.items()
    if kind == "httpAuthSecurityScheme":
        return {"type": "http", **members}
    return {"type": "apiKey", "in": members["location"], **{n: each for n, each in members.items() if n != "location"}}


def without_empty(value: Json) -> Json:
    """The same JSON without members and elements that are '', [], {} or null, at any depth."""
    match value:
        case dict():
            members = ((key, without_empty(member)) for key, member in value.items())
            return {key: member for key, member in members if not _is_empty(member)}
        case list() | tuple():
            return [element for element in map(without_empty, value) if not _is_empty(element)]
        case _:
            return value


def first_empty(value: Json, place: str = "") -> str | None:
    """Where the first member or element is that `without_empty` leaves out, as `.options[0].name`; None where there is none."""
    members: Iterable[tuple[str, Json]] = ()
    match value:
        case dict():
            members = ((f"{place}.{name}", member) for name, member in value.items())
        case list() | tuple():
            members = ((f"{place}[{index}]", member) for index, member in enumerate(value))
    for at, member in members:
        found = at if _is_empty(member) else first_empty(member, at)
        if found is not None:
            return found
    return None


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)
