"""The OpenAPI description of a gateway: what it has, and how it is served."""

import re
from typing import Any

import pytest

from gateway.a2a.wire.v0_3.proto_requests import METHODS as METHODS_0_3
from gateway.a2a.wire.v1_0 import METHODS
from tests.a2a_client import a2a_http
from tests.interaction.harness import Gateway, JsonRpc, agent
from tests.running import StartLocal, start_local

__all__ = ["start_local"]

AGENTS = """
echo: {type: python, ref: 'tests.interop.echo_agent:reply', default: true}
other: {type: python, ref: 'tests.interop.echo_agent:reply'}
"""
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"


async def described(start_local: StartLocal, settings: str = "") -> dict[str, Any]:
    gateway = await start_local(AGENTS, settings=settings)
    async with a2a_http(gateway.url) as http:
        answer = await http.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    assert found["servers"] == [{"url": gateway.url}]
    return found


def operations(description: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Method and path by the name of the operation."""
    return {
        operation["operationId"]: (method, path)
        for path, item in description["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


async def test_every_operation_of_both_versions_is_described(start_local: StartLocal) -> None:
    found = operations(await described(start_local))
    assert {name for name in found if "." not in name} == {*METHODS, "SubscribeToTaskByPost"}
    assert {name.removeprefix("v0_3.") for name in found if name.startswith("v0_3.")} == {
        *METHODS_0_3,
        "SubscribeToTaskByPost",
    }
    assert found["GetTask"] == ("get", "/a2a/{agent}/tasks/{id}")
    assert found["v0_3.CancelTask"] == ("post", "/a2a/{agent}/v1/tasks/{id}:cancel")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "",
            {
                "admin.ExportContext": ("get", "/admin/api/v1/contexts/{context}"),
                "admin.DeleteContext": ("delete", "/admin/api/v1/contexts/{context}"),
                "admin.ImportContext": ("post", "/admin/api/v1/contexts:import"),
                "admin.AdoptConversation": ("post", "/admin/api/v1/contexts:adopt"),
                "admin.GetHealth": ("get", "/admin/api/v1/health"),
                "admin.ListUnfinishedPush": ("get", "/admin/api/v1/push"),
                "admin.ReplayPush": ("post", "/admin/api/v1/push:replay"),
            },
        ),
        (
            "push: {enabled: false}",
            {
                "admin.ExportContext": ("get", "/admin/api/v1/contexts/{context}"),
                "admin.DeleteContext": ("delete", "/admin/api/v1/contexts/{context}"),
                "admin.ImportContext": ("post", "/admin/api/v1/contexts:import"),
                "admin.AdoptConversation": ("post", "/admin/api/v1/contexts:adopt"),
                "admin.GetHealth": ("get", "/admin/api/v1/health"),
            },
        ),
    ],
    ids=["all", "without push"],
)
async def test_what_is_served_of_the_admin_api_is_described(
    start_local: StartLocal, settings: str, expected: dict[str, tuple[str, str]]
) -> None:
    found = operations(await described(start_local, settings))
    assert {name: where for name, where in found.items() if name.startswith("admin.")} == expected


async def test_paths_name_the_agents_that_there_are(start_local: StartLocal) -> None:
    found = (await described(start_local))["paths"]["/a2a/{agent}/tasks/{id}"]["parameters"]
    assert [(each["name"], each["in"]) for each in found] == [("agent", "path"), ("id", "path")]
    assert found[0]["schema"] == {"type": "string", "enum": ["echo", "other"]}


@pytest.mark.parametrize(
    ("settings", "statuses", "security"),
    [("", [], None), (KEYS, ["401", "403"], [{"apiKey": []}, {"bearer": []}])],
    ids=["open", "keyed"],
)
async def test_it_says_how_callers_authenticate(
    start_local: StartLocal, settings: str, statuses: list[str], security: list[Any] | None
) -> None:
    found = await described(start_local, settings)
    export = found["paths"]["/admin/api/v1/contexts/{context}"]["get"]["responses"]
    assert found.get("security") == security
    assert sorted({"401", "403"} & set(export)) == statuses
    assert {each["type"] for each in found["components"].get("securitySchemes", {}).values()} == (
        {"http", "apiKey"} if settings else set()
    )


async def test_every_reference_leads_to_a_schema_with_a_public_name(start_local: StartLocal) -> None:
    found = await described(start_local)
    named = set(re.findall(r"'#/components/schemas/([^']+)'", repr(found)))
    assert named <= set(found["components"]["schemas"])
    assert not [name for name in found["components"]["schemas"] if name.rpartition(".")[2].startswith("_")]


async def test_whoever_has_no_key_is_refused_at_every_address(start_local: StartLocal) -> None:
    gateway = await start_local(AGENTS, settings=KEYS)
    async with a2a_http(gateway.url) as http:
        found = operations((await http.get("/openapi.json")).json())
        statuses = {
            name: (
                await http.request(method, path.replace("{agent}", "echo").replace("{", "").replace("}", ""))
            ).status_code
            for name, (method, path) in found.items()
        }
    assert statuses == dict.fromkeys(found, 401)


async def test_an_error_has_the_statuses_of_its_version(start_local: StartLocal) -> None:
    paths = (await described(start_local))["paths"]
    cancel = [paths[f"/a2a/{{agent}}{below}/tasks/{{id}}:cancel"]["post"]["responses"] for below in ("", "/v1")]
    assert "TASK_NOT_CANCELABLE" in cancel[0]["400"]["description"]
    assert cancel[1]["409"]["description"] == "TASK_NOT_CANCELABLE"
    schemas = [responses["404"]["content"]["application/json"]["schema"] for responses in cancel]
    assert schemas == [{"$ref": "#/components/schemas/Error"}, {"$ref": "#/components/schemas/v0_3.Error"}]


async def test_it_is_kept_by_clients_and_not_sent_again() -> None:
    gateway = Gateway(JsonRpc(), agent("echo"))
    answer = await gateway.request("GET", "/openapi.json")
    etag = answer.header("etag")
    assert etag is not None
    assert (answer.header("content-type"), answer.header("cache-control")) == (
        "application/json",
        "public, max-age=300",
    )
    assert (await gateway.request("GET", "/openapi.json", if_none_match=etag)).status == 304
    assert (await gateway.request("POST", "/openapi.json")).status == 405
    other = await Gateway(JsonRpc(), agent("echo")).request("GET", "/openapi.json")
    assert (other.body, other.header("etag")) == (answer.body, etag)
