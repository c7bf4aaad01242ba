"""The page of metrics, of a gateway that works."""

import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of, new_key, shown
from tests.a2a_client import A2A, a2a_http
from tests.running import Local, StartLocal, child_gateways, start_local
from tests.support.ports import free_port

__all__ = ["start_local"]

AGENT = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
PAGE = "metrics: {path: /metrics}"
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"


async def made_key(gateway: Local, *, admin: bool) -> str:
    key = new_key()
    record = ApiKey(digest_of(key), "k", shown(key), "ada", "", admin, 0)
    await gateway.gateway.runner.runtime.ledger.commit(IssueKey(record))
    return key


async def page(gateway: Local, key: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with a2a_http(gateway.url) as http:
        reply = await http.request(method, "/metrics", headers=headers)
    return reply.status_code, reply.text, dict(reply.headers)


def samples(text: str) -> dict[str, float]:
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_turn_is_seen_on_the_page(start_local: StartLocal) -> None:
    gateway = await start_local(AGENT, settings=PAGE)
    async with a2a_http(gateway.url) as http:
        await A2A(http, "echo").send("hello")
    status, text, headers = await page(gateway)
    found = samples(text)
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert found["a2a_gateway_turns_total['completed', 'echo']"] == 1
    assert found["a2a_gateway_requests_total['SendMessage', 'echo', 'ok']"] == 1
    assert found["a2a_gateway_service_calls_total['completed', 'echo']"] == 1
    assert found["a2a_gateway_turn_first_output_seconds_count['echo']"] == 1
    assert found["a2a_gateway_committed_units_total['stored']"] >= 2
    assert found["a2a_gateway_draining[]"] == 0


async def test_there_is_no_page_where_none_is_wanted(start_local: StartLocal) -> None:
    assert (await page(await start_local(AGENT)))[0] == 404


async def test_the_page_is_read_only(start_local: StartLocal) -> None:
    status, _, headers = await page(await start_local(AGENT, settings=PAGE), method="POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(("admin", "status"), [(None, 401), (False, 403), (True, 200)])
async def test_where_keys_are_asked_for_an_admin_key_reads_the_page(
    start_local: StartLocal, admin: bool | None, status: int
) -> None:
    gateway = await start_local(AGENT, settings=f"{PAGE}\n{KEYS}")
    key = None if admin is None else await made_key(gateway, admin=admin)
    assert (await page(gateway, key))[0] == status


async def test_a_key_that_is_no_admins_hears_that_it_is_the_page_of_metrics(start_local: StartLocal) -> None:
    gateway = await start_local(AGENT, settings=f"{PAGE}\n{KEYS}")
    assert "the page of metrics needs an admin key" in (await page(gateway, await made_key(gateway, admin=False)))[1]


async def test_a_key_that_is_not_valid_is_counted(start_local: StartLocal) -> None:
    gateway = await start_local(AGENT, settings=f"{PAGE}\n{KEYS}")
    assert (await page(gateway, "nonsense"))[0] == 401
    _, text, _ = await page(gateway, await made_key(gateway, admin=True))
    assert samples(text)["a2a_gateway_auth_failures_total['malformed']"] == 1


async def test_metrics_may_have_a_port_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    settings = f"metrics: {{listen: '127.0.0.1:{port}'}}"
    async with child_gateways(AGENT, tmp_path, settings=settings) as start:
        child = await start()
        async with a2a_http(f"http://127.0.0.1:{port}") as own, a2a_http(child.url) as main:
            found = [(await own.get("/metrics")).status_code, (await own.post("/metrics")).status_code]
            found += [(await own.get("/a2a")).status_code, (await main.get("/metrics")).status_code]
        child.signal(signal.SIGTERM)
        ended = await child.ended()
    assert (found, ended) == ([200, 405, 404, 404], 0)
