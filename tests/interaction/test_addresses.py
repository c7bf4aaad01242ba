"""The agent, tenant and operation of each address; an unknown address is an error in the form of its binding."""

import pytest

from gateway.a2a.model import GetTaskRequest, SubscribeToTaskRequest
from tests.interaction.harness import SEND, Exchange, Gateway, JsonRpc, Refusal, Rest, agent, invalid_params
from tests.interaction.scripted import TASK_JSON, ScriptedStream

ECHO = agent("echo")
SUPPORT = agent("support", "acme")


def asked(gateway: Gateway) -> list[str]:
    return [call.agent.name for _, call, _ in gateway.operations.calls]


def nothing_here(text: str) -> Refusal:
    return Refusal(-32601, 404, "NOT_FOUND", "NOT_FOUND", text, rpc_http=404)


@pytest.mark.parametrize("target", ["/a2a/echo", "/a2a/echo/", "/a2a", "/a2a/"])
async def test_json_rpc_answers_with_and_without_a_slash(jsonrpc: Gateway, target: str) -> None:
    body = jsonrpc.binding.ask("GetTask", {"id": "task-1"}).body

    answer = await jsonrpc.request("POST", target, body)

    assert (answer.status, answer.json) == (200, jsonrpc.binding.result(TASK_JSON))


@pytest.mark.parametrize(
    "target",
    [
        "/a2a/echo/tasks/t",
        "/a2a/tasks/t",
        "/a2a/echo/echo/tasks/t",
        "/a2a/echo/tasks/t?tenant=echo",
        "/a2a/echo/tasks/t?tenant=",
    ],
)
async def test_rest_answers_below_agent_tenant_and_root(rest: Gateway, target: str) -> None:
    answer = await rest.request("GET", target)

    assert (answer.status, answer.json) == (200, TASK_JSON)
    assert asked(rest) == ["echo"]


@pytest.mark.parametrize("target", ["/a2a/echo/tasks/", "/a2a/echo/tasks/t/pushNotificationConfigs/"])
async def test_where_an_id_is_empty_no_list_is_returned(rest: Gateway, target: str) -> None:
    answer = await rest.request("GET", target)

    assert answer.status == 404
    assert asked(rest) == []


@pytest.mark.parametrize("target", ["/a2a/support", "/a2a/acme"])
async def test_an_agent_answers_to_its_name_and_its_tenant(target: str) -> None:
    gateway = Gateway(JsonRpc(), ECHO, SUPPORT)
    body = gateway.binding.ask("GetTask", {"id": "t", "tenant": "acme"}).body

    await gateway.request("POST", target, body)

    assert asked(gateway) == ["support"]


@pytest.mark.parametrize(
    "target", ["/a2a/support/acme/message:send", "/a2a/acme/message:send", "/a2a/acme/acme/message:send"]
)
async def test_the_tenant_may_stand_in_a_rest_path(target: str) -> None:
    gateway = Gateway(Rest(), ECHO, SUPPORT)

    answer = await gateway.request("POST", target, gateway.binding.ask("SendMessage", SEND).body)

    assert answer.status == 200
    assert asked(gateway) == ["support"]


@pytest.mark.parametrize("tenant", ["support", "acme"])
async def test_at_the_root_the_tenant_names_the_agent(tenant: str) -> None:
    gateway = Gateway(JsonRpc(), ECHO, SUPPORT)

    await gateway.request("POST", "/a2a", gateway.binding.ask("GetTask", {"id": "t", "tenant": tenant}).body)

    assert asked(gateway) == ["support"]


@pytest.mark.parametrize(
    ("params", "description"),
    [
        ({"id": "t"}, "this address needs the name of an agent; there are echo, support"),
        ({"id": "t", "tenant": "nobody"}, "no agent is called 'nobody'; there are echo, support"),
    ],
)
async def test_at_the_root_of_several_agents_one_must_be_named(params: dict[str, str], description: str) -> None:
    gateway = Gateway(JsonRpc(), ECHO, SUPPORT)

    answer = await gateway.request("POST", "/a2a", gateway.binding.ask("GetTask", params).body)

    assert (answer.status, answer.json) == gateway.binding.refusal(invalid_params("tenant", description))


async def test_a_tenant_of_another_agent_is_refused() -> None:
    gateway = Gateway(Rest(), ECHO, SUPPORT)

    answer = await gateway.request("GET", "/a2a/echo/acme/tasks")

    refusal = invalid_params("tenant", "'acme' is not a tenant of the agent 'echo'")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)


async def test_an_unknown_agent_is_not_found(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)

    answer = await gateway.request(exchange.method, exchange.target.replace("echo", "nobody"), b"not even JSON")

    assert (answer.status, answer.json) == gateway.binding.refusal(
        nothing_here("no agent is called 'nobody'"), identified=False
    )


@pytest.mark.parametrize(
    "target",
    [
        "/a2a/echo/nothing/here/at/all",
        "/a2a/echo%2Ftasks",
        "/a2a/echo//tasks",
        "/a2a/echo/x/y/tasks",
        "/a2a/echo/message:delete",
        "/a2a/echo/tasks/a/b",
        "/a2a/echo/tasks/a%2Fb",
        "/a2a/echo/tasks/../secret",
        "/a2a/echo/../../etc/passwd",
        "/a2a/echo/tasks/a/pushNotificationConfigs/b/c",
        "/a2a/echo/.well-known/agent.json",
    ],
)
async def test_an_unknown_address_is_not_found(rest: Gateway, target: str) -> None:
    answer = await rest.request("GET", target)

    assert answer.status == 404
    assert answer.json["error"]["status"] == "NOT_FOUND"
    assert rest.operations.calls == []


@pytest.mark.parametrize("identity", ["..", "%2e%2e", "a%20b", "a.b", "-", "%252F", "a:b:c", ":cancel"])
async def test_an_odd_id_is_only_an_id(rest: Gateway, identity: str) -> None:
    await rest.request("GET", f"/a2a/echo/tasks/{identity}")

    plain = {"%2e%2e": "..", "a%20b": "a b", "%252F": "%2F"}.get(identity, identity)
    assert rest.operations.requests == [("get_task", GetTaskRequest(id=plain))]


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("GET", "/a2a/echo", "POST"),
        ("PUT", "/a2a", "POST"),
        ("GET", "/a2a/echo/message:send", "POST"),
        ("POST", "/a2a/echo/tasks", "GET"),
        ("DELETE", "/a2a/echo/tasks/a", "GET"),
        ("GET", "/a2a/echo/tasks/a:cancel", "POST"),
        ("DELETE", "/a2a/echo/tasks/a:subscribe", "GET, POST"),
        ("PUT", "/a2a/echo/tasks/a/pushNotificationConfigs", "GET, POST"),
        ("POST", "/a2a/echo/tasks/a/pushNotificationConfigs/b", "DELETE, GET"),
        ("POST", "/a2a/echo/.well-known/agent-card.json", "GET, HEAD"),
        ("OPTIONS", "/a2a/echo/message:send", "POST"),
    ],
)
async def test_a_wrong_method_is_refused_with_the_allowed_ones(
    rest: Gateway, method: str, target: str, allowed: str
) -> None:
    answer = await rest.request(method, target)

    assert (answer.status, answer.header("allow")) == (405, allowed)
    assert answer.json["error"]["details"][0]["reason"] == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_task_is_subscribed_to_by_get_and_post(rest: Gateway, method: str) -> None:
    rest.operations.answers["subscribe_to_task"] = ScriptedStream([(1, b"{}")])

    answer = await rest.exchange(Exchange(method, "/a2a/echo/tasks/task-1:subscribe"))

    assert (answer.status, answer.body) == (200, b"id: 1\ndata: {}\n\n")
    assert rest.operations.requests == [("subscribe_to_task", SubscribeToTaskRequest(id="task-1"))]
