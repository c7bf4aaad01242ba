"""Agent cards: their content, how they are served and cached."""

from typing import Any

import msgspec
import pytest

from gateway.a2a.wire.card import first_empty, without_empty
from gateway.config.agents import CardConfig, ExtensionConfig, SkillConfig
from gateway.config.gateway import ProviderConfig
from gateway.http.cards import build_card
from gateway.ports.capabilities import Description
from tests.interaction.harness import URL, Gateway, JsonRpc, agent

ECHO: dict[str, Any] = {
    "name": "Echo",
    "description": "Says it again.",
    "supportedInterfaces": [
        {"url": f"{URL}/a2a/echo", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"{URL}/a2a/echo", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ],
    "version": "1.0.0",
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extensions": [
            {
                "uri": "https://a2a-gateway.dev/extensions/tool-calls/v1",
                "description": "Tool calls and their results as updates of the task.",
                "params": {"exposure": "full", "approvals": False, "clientTools": True},
            }
        ],
        "extendedAgentCard": False,
    },
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "echo", "name": "Echo", "description": "Says it again.", "tags": ["echo"]}],
    "protocolVersion": "0.3.0",
    "url": f"{URL}/a2a/echo",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"transport": "JSONRPC", "url": f"{URL}/a2a/echo"},
        {"transport": "HTTP+JSON", "url": f"{URL}/a2a/echo"},
    ],
}
FULL = CardConfig(
    name="Support",
    description="Answers.",
    input_modes=("text/plain", "image/png"),
    output_modes=("application/json",),
    version="2.1",
    skills=(SkillConfig(id="s", name="S", description="Does", tags=("t",), examples=()),),
    extensions=(ExtensionConfig(uri="https://e.example", required=True),),
    documentation_url="https://d.example",
    icon_url="https://i.example",
    tenant="acme",
)
PROVIDER = ProviderConfig(url="https://p.example", organization="P")


@pytest.fixture
def gateway() -> Gateway:
    return Gateway(JsonRpc())


@pytest.mark.parametrize("target", ["/a2a/echo/.well-known/agent-card.json", "/.well-known/agent-card.json"])
async def test_the_card_of_the_only_agent_is_at_its_address_and_at_the_root(gateway: Gateway, target: str) -> None:
    answer = await gateway.request("GET", target)

    assert (answer.status, answer.json) == (200, ECHO)
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "public, max-age=300"
    assert answer.header("last-modified") == "Fri, 20 Nov 2026 10:00:00 GMT"


async def test_a_card_needs_no_version_and_no_host(gateway: Gateway) -> None:
    answer = await gateway.request("GET", "/.well-known/agent-card.json", a2a_version="")

    assert answer.status == 200


async def test_a_known_card_is_not_sent_again(gateway: Gateway) -> None:
    target = "/a2a/echo/.well-known/agent-card.json"
    etag = (await gateway.request("GET", target)).header("etag")
    assert etag is not None

    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = await gateway.request("GET", target, if_none_match=known)
        assert (answer.status, answer.body, answer.header("etag")) == (304, b"", etag)
    assert (await gateway.request("GET", target, if_none_match='"other"')).status == 200


async def test_head_is_get_without_the_body(gateway: Gateway) -> None:
    target = "/a2a/echo/.well-known/agent-card.json"

    got, head = await gateway.request("GET", target), await gateway.request("HEAD", target)

    assert (head.status, head.headers, head.body) == (200, got.headers, b"")


async def test_one_list_has_all_cards() -> None:
    gateway = Gateway(JsonRpc(), agent("echo"), agent("support", "acme"))

    answer = await gateway.request("GET", "/a2a")

    assert answer.status == 200
    assert answer.json["agents"][0] == ECHO | {
        "agent": "echo",
        "url": f"{URL}/a2a/echo",
        "cardUrl": f"{URL}/a2a/echo/.well-known/agent-card.json",
    }
    assert [entry["agent"] for entry in answer.json["agents"]] == ["echo", "support"]


async def test_without_a_default_agent_there_is_no_card_at_the_root() -> None:
    gateway = Gateway(JsonRpc(), agent("echo"), agent("support"))

    answer = await gateway.request("GET", "/.well-known/agent-card.json")

    assert answer.status == 404
    assert answer.json["error"]["message"] == "no agent is the default here; GET /a2a lists them: echo, support"


async def test_an_unknown_agent_has_no_card(gateway: Gateway) -> None:
    answer = await gateway.request("GET", "/a2a/nobody/.well-known/agent-card.json")

    assert answer.status == 404
    assert answer.json["error"]["message"] == "no agent is called 'nobody'"


def test_a_card_names_each_interface_once_for_every_version_the_preferred_one_first() -> None:
    card = build_card("support", FULL, "https://a2a.example/", versions=("1.0", "1.1"))

    spoken = [(each.protocol_version, each.protocol_binding) for each in card.supported_interfaces]
    assert spoken == [("1.0", "JSONRPC"), ("1.0", "HTTP+JSON"), ("1.1", "JSONRPC"), ("1.1", "HTTP+JSON")]
    assert {(each.url, each.tenant) for each in card.supported_interfaces} == {
        ("https://a2a.example/a2a/support", FULL.tenant)
    }


def test_a_card_has_the_operators_values() -> None:
    card = without_empty(msgspec.to_builtins(build_card("support", FULL, "https://a2a.example/", provider=PROVIDER)))

    assert card["supportedInterfaces"] == [
        {
            "url": "https://a2a.example/a2a/support",
            "protocolBinding": binding,
            "tenant": "acme",
            "protocolVersion": "1.0",
        }
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert card["capabilities"]["extensions"][1] == {"uri": "https://e.example", "required": True}
    assert card["skills"] == [{"id": "s", "name": "S", "description": "Does", "tags": ["t"]}]
    assert card["provider"] == {"url": "https://p.example", "organization": "P"}
    assert (card["version"], card["documentationUrl"], card["iconUrl"]) == (
        "2.1",
        "https://d.example",
        "https://i.example",
    )
    assert (card["defaultInputModes"], card["defaultOutputModes"]) == (
        ["text/plain", "image/png"],
        ["application/json"],
    )


@pytest.mark.parametrize(("tenant", "named"), [(None, "support"), ("acme", "acme")])
def test_an_agent_is_found_at_the_grpc_port_by_its_tenant(tenant: str | None, named: str) -> None:
    card = build_card("support", CardConfig(tenant=tenant), URL, grpc="a2a.example:50051")

    *over_http, over_grpc = card.supported_interfaces
    assert [each.tenant for each in over_http] == [tenant, tenant]
    assert (over_grpc.url, over_grpc.protocol_binding, over_grpc.tenant) == ("a2a.example:50051", "GRPC", named)


def test_nothing_in_a_card_is_empty() -> None:
    nested: Any = {
        "a": "",
        "b": [],
        "c": {},
        "d": None,
        "e": [{"f": ""}, "", 0, False],
        "g": {"h": {"i": []}},
        "j": "x",
    }

    assert without_empty(nested) == {"e": [0, False], "j": "x"}


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"a": None}, ".a"),
        ({"a": 0, "b": {"c": [False, {"d": ""}]}}, ".b.c[1].d"),
        ({"a": [[]]}, ".a[0]"),
        ({"a": 0, "b": [False, "x", {"c": 1}]}, None),
    ],
)
def test_what_a_card_leaves_out_is_found(params: Any, place: str | None) -> None:
    assert first_empty(params) == place
    assert (without_empty(params) == params) is (place is None)


def test_the_official_sdk_reads_a_card() -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    sdk_types = pytest.importorskip("a2a.types")
    card = build_card("support", FULL, URL)

    parsed = json_format.Parse(msgspec.json.encode(card), sdk_types.AgentCard())

    assert [entry.url for entry in parsed.supported_interfaces] == [f"{URL}/a2a/support"] * 2


@pytest.mark.parametrize(
    ("own", "told", "expected"),
    [
        ("https://own.example", "https://told.example", "https://own.example"),
        (None, "https://told.example", "https://told.example"),
        (None, None, "https://all.example"),
    ],
)
def test_the_documentation_of_all_is_for_an_agent_that_has_none(
    own: str | None, told: str | None, expected: str
) -> None:
    described = Description(documentation_url=told)
    card = build_card(
        "a", CardConfig(documentation_url=own), URL, described=described, documentation_url="https://all.example"
    )
    assert card.documentation_url == expected
