"""What is read of a card: where it is, and which of its interfaces is used."""

from typing import Any

import pytest
from pydantic import ValidationError

from adapters.a2a.card import Interface, NoInterface, addresses, choose, interfaces
from adapters.a2a.settings import A2ASettings, Transport

ALL = tuple(Transport)
OVER_HTTP = (Transport.JSONRPC, Transport.REST)


def settings(url: str = "https://agents.example/travel", **values: Any) -> A2ASettings:
    return A2ASettings.model_validate({"url": url, **values})


def offer(binding: str, url: str = "https://agents.example/rpc", version: str = "1.0", **more: str) -> dict[str, str]:
    return {"protocolBinding": binding, "url": url, "protocolVersion": version, **more}


def card(*offers: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "a", "supportedInterfaces": list(offers), **more}


BELOW_V1 = {
    "name": "a",
    "protocolVersion": "0.3.0",
    "url": "https://agents.example/rpc",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [{"transport": "HTTP+JSON", "url": "https://agents.example/rest"}],
}


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"url": "agents.example"}, "http://"),
        ({"url": "https://key@agents.example"}, "credentials"),
        ({"transport": "SOAP"}, "transport"),
        ({"version": "2.0"}, "version"),
        ({"poll": "10ms"}, "poll"),
        ({"api_key": "k", "auth": {"type": "api_key", "key": "k"}}, "exclude each other"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**{"url": "https://agents.example", **values})


def test_all_credentials_are_known_as_secrets() -> None:
    given = settings(auth={"type": "api_key", "key": "canary-1", "header": "x-key"}, headers={"x-more": "canary-2"})
    assert {"canary-1", "canary-2"} <= set(given.secrets())
    assert given.own_headers == {"x-key": "canary-1"}


# --- where a card is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "first"),
    [
        ("https://a.example", "https://a.example/.well-known/agent-card.json"),
        ("https://a.example/travel/", "https://a.example/travel/.well-known/agent-card.json"),
        ("https://a.example/cards/me.json?v=2", "https://a.example/cards/me.json?v=2"),
        (
            "https://a.example/.well-known/agent-card.json?assistant_id=x",
            "https://a.example/.well-known/agent-card.json?assistant_id=x",
        ),
    ],
)
def test_a_card_is_looked_for_behind_the_address_unless_that_is_its_own(url: str, first: str) -> None:
    assert addresses(url)[0] == first


def test_a_card_of_langgraph_is_looked_for_by_its_assistant() -> None:
    assert addresses("http://l.example:8123/a2a/81cf") == (
        "http://l.example:8123/a2a/81cf/.well-known/agent-card.json",
        "http://l.example:8123/.well-known/agent-card.json?assistant_id=81cf",
        "http://l.example:8123/a2a/81cf/.well-known/agent.json",
    )


# --- which interface --------------------------------------------------------------------------------------------------


def test_the_interfaces_of_1_0_come_first_in_the_order_of_the_card() -> None:
    found = interfaces({**card(offer("GRPC"), offer("JSONRPC", version="0.3.0"), offer("HTTP+JSON"))})
    assert [(each.transport, each.version) for each in found] == [
        ("GRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
    ]


def test_a_card_of_0_3_offers_its_address_and_others() -> None:
    assert interfaces(BELOW_V1) == [
        Interface("https://agents.example/rpc", "JSONRPC", "0.3"),
        Interface("https://agents.example/rest", "HTTP+JSON", "0.3"),
    ]


def test_a_card_that_says_no_version_is_of_0_3() -> None:
    [only] = interfaces({"name": "a", "url": "https://agents.example/rpc"})
    assert (only.version, only.transport) == ("0.3", "JSONRPC")


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({}, ("GRPC", "1.0")),
        ({"transport": "JSONRPC"}, ("JSONRPC", "1.0")),
        ({"version": "0.3"}, ("JSONRPC", "0.3")),
    ],
)
def test_the_first_that_the_settings_allow_is_used(values: dict[str, Any], chosen: tuple[str, str]) -> None:
    offered = card(offer("JSONRPC", version="0.3"), offer("GRPC", "agents.example:443"), offer("JSONRPC"))
    endpoint = choose(offered, settings(**values), ALL)
    assert (endpoint.interface.transport, endpoint.version) == chosen


def test_without_grpc_the_next_one_is_used() -> None:
    endpoint = choose(card(offer("GRPC", "agents.example:443"), offer("HTTP+JSON")), settings(), OVER_HTTP)
    assert endpoint.interface.transport == "HTTP+JSON"


@pytest.mark.parametrize(
    ("offered", "values", "why"),
    [
        (card(), {}, "offers nothing"),
        (card(offer("SOAP")), {}, "offers SOAP 1.0, and not any that is spoken here"),
        (card(offer("JSONRPC")), {"transport": "HTTP+JSON"}, "offers JSONRPC 1.0, and not HTTP"),
        (card(offer("JSONRPC")), {"version": "0.3"}, "and not 0.3"),
        (card(offer("GRPC")), {}, "pip install"),
        ({"name": "a", "supportedInterfaces": "JSONRPC"}, {}, "offers nothing"),
        (card(offer("JSONRPC", "https://[agents.example/rpc")), {}, "offers nothing"),
        (card(offer("JSONRPC", "https://agents.example:port/rpc")), {}, "offers nothing"),
        (card(offer("JSONRPC", "https://me:hidden@agents.example/rpc")), {}, "offers nothing"),
        ({**BELOW_V1, "url": "https://[agents.example/rpc", "additionalInterfaces": []}, {}, "offers nothing"),
    ],
)
def test_a_card_without_a_usable_interface_is_refused_with_what_it_offers(
    offered: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(NoInterface, match=why):
        choose(offered, settings(**values), OVER_HTTP)


def test_a_tenant_is_that_of_the_card_unless_the_settings_name_one() -> None:
    offered = card(offer("JSONRPC", tenant="theirs"))
    assert choose(offered, settings(), ALL).interface.tenant == "theirs"
    assert choose(offered, settings(tenant="ours"), ALL).interface.tenant == "ours"


# --- where requests go ------------------------------------------------------------------------------------------------


def reached(url: str, interface: str, transport: str = "JSONRPC", **values: Any) -> str:
    return choose(card(offer(transport, interface)), settings(url, **values), ALL).interface.url


@pytest.mark.parametrize(
    ("interface", "url"),
    [
        ("https://agents.other/rpc", "https://agents.example"),
        ("http://agents.example/rpc", "https://agents.example"),
        ("https://example/rpc", "https://agents.example"),
    ],
)
def test_credentials_go_to_no_other_host_and_not_in_the_clear(interface: str, url: str) -> None:
    with pytest.raises(NoInterface, match="set `endpoint`"):
        reached(url, interface)


def test_the_operator_may_say_where_the_agent_is() -> None:
    where = "https://agents.other/rpc"
    assert reached("https://agents.example", "http://internal:9/rpc", endpoint=where) == where


@pytest.mark.parametrize(
    ("url", "interface", "found"),
    [
        ("http://127.0.0.1:9000", "http://localhost:9000/rpc", "http://127.0.0.1:9000/rpc"),
        ("http://localhost:9000", "http://0.0.0.0:9001/rpc", "http://localhost:9001/rpc"),
        ("http://agent:9000", "http://0.0.0.0:8080/rpc", "http://agent:9000/rpc"),
        ("http://[::1]:9000", "http://127.0.0.1:9000/", "http://[::1]:9000/"),
    ],
)
def test_an_agent_that_names_its_machine_by_itself_is_reached_by_the_name_that_was_given(
    url: str, interface: str, found: str
) -> None:
    assert reached(url, interface) == found


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://agents.example", "http://agents.example:50051"),
        ("https://agents.example", "https://agents.example:50051"),
    ],
)
def test_an_address_of_grpc_without_a_scheme_is_as_safe_as_that_of_the_card(url: str, found: str) -> None:
    assert reached(url, "agents.example:50051", "GRPC") == found


# --- what else --------------------------------------------------------------------------------------------------------


def test_streaming_and_extensions_are_read_and_langgraph_is_known_by_its_own() -> None:
    uri = "https://langchain.com/a2a/extensions/history-scope/v1"
    capabilities = {"streaming": True, "extensions": [{"uri": uri}, {"uri": 1}, "x"]}
    endpoint = choose(card(offer("JSONRPC"), capabilities=capabilities), settings(), ALL)
    assert (endpoint.streaming, endpoint.extensions, endpoint.langgraph) == (True, frozenset({uri}), True)
    plain = choose(card(offer("JSONRPC")), settings(), ALL)
    assert (plain.streaming, plain.extensions, plain.langgraph) == (False, frozenset(), False)
