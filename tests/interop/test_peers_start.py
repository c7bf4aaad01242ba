"""The behaviour of the real peers on their own wire that adapters and their tests rely on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.interop.peer_processes import Aimock, Llmock, Peer
from tests.interop.recording_proxy import RecordingProxy

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=30) as made:
        yield made


def _respond(client: httpx2.Client, url: str, said: str, previous: str | None = None) -> httpx2.Response:
    body = {"model": "openai/gpt-4", "input": said, "previous_response_id": previous}
    return client.post(f"{url}/responses", json={name: value for name, value in body.items() if value is not None})


def _text(response: httpx2.Response) -> str:
    text: str = response.raise_for_status().json()["output"][0]["content"][0]["text"]
    return text


@contextmanager
def _streamed(client: httpx2.Client, url: str, said: str) -> Iterator[Iterator[dict[str, Any]]]:
    body = {"model": "openai/gpt-4", "input": said, "stream": True}
    with client.stream("POST", f"{url}/responses", json=body) as response:
        yield (json.loads(line.removeprefix("data:")) for line in response.iter_lines() if line.startswith("data:"))


def test_ogx_gives_each_response_an_id_of_its_own_and_keeps_the_chain(
    client: httpx2.Client, ogx_peer: Peer, aimock_peer: Aimock
) -> None:
    first = _respond(client, ogx_peer.url, "one").json()["id"]
    second = _respond(client, ogx_peer.url, "two", first).json()["id"]
    third = _respond(client, ogx_peer.url, "three", second).json()

    assert len({first, second, third["id"]}) == 3
    assert third["previous_response_id"] == second
    assert aimock_peer.journal()[-1]["body"]["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": _HELLO},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": _HELLO},
        {"role": "user", "content": "three"},
    ]


def test_ogx_refuses_an_unknown_previous_response(client: httpx2.Client, ogx_peer: Peer) -> None:
    refused = _respond(client, ogx_peer.url, "one", "resp_unknown")

    assert refused.status_code == 404
    assert refused.json()["detail"].startswith("Response 'resp_unknown' not found.")


def test_ogx_loses_a_deleted_response(client: httpx2.Client, ogx_peer: Peer) -> None:
    first = _respond(client, ogx_peer.url, "one").json()["id"]
    client.delete(f"{ogx_peer.url}/responses/{first}").raise_for_status()

    assert _respond(client, ogx_peer.url, "two", first).status_code == 404


def test_ogx_never_completes_a_response_whose_stream_was_dropped(
    client: httpx2.Client, ogx_peer: Peer, ogx_proxy: RecordingProxy
) -> None:
    ogx_proxy.cut_stream(after_events=5)
    with pytest.raises(httpx2.RemoteProtocolError), _streamed(client, ogx_proxy.url, "slow") as events:
        list(events)
    dropped = ogx_proxy.exchanges[0].events[0]["response"]["id"]
    # As long as the dropped one would have needed, without a clock.
    assert _text(_respond(client, ogx_peer.url, "slow")).endswith("tick39")

    assert client.get(f"{ogx_peer.url}/responses/{dropped}").json()["status"] == "in_progress"
    assert _respond(client, ogx_peer.url, "and then?", dropped).status_code == 400


def test_ogx_hides_a_rate_limit_of_its_model(client: httpx2.Client, ogx_peer: Peer) -> None:
    with _streamed(client, ogx_peer.url, "limit") as events:
        last = list(events)[-1]

    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "rate_limit_exceeded"


def test_a_hosted_agent_keeps_the_chain(client: httpx2.Client, agentserver_peer: Peer) -> None:
    first = _respond(client, agentserver_peer.url, "one").json()["id"]

    assert _text(_respond(client, agentserver_peer.url, "two", first)) == "echo 'two' history=2 conversation=None"


def test_a_hosted_agent_forgets_silently_when_the_previous_response_is_unknown(
    client: httpx2.Client, agentserver_peer: Peer
) -> None:
    unknown = f"caresp_{'0' * 50}"
    accepted = _respond(client, agentserver_peer.url, "two", unknown)

    assert _text(accepted) == "echo 'two' history=0 conversation=None"
    # Not even the echo tells.
    assert accepted.json()["previous_response_id"] == unknown


def test_a_hosted_agent_cancels_a_response_whose_stream_was_dropped(
    client: httpx2.Client, agentserver_peer: Peer, agentserver_proxy: RecordingProxy
) -> None:
    agentserver_proxy.cut_stream(after_events=6)
    with pytest.raises(httpx2.RemoteProtocolError), _streamed(client, agentserver_proxy.url, "slow") as events:
        list(events)
    dropped = agentserver_proxy.exchanges[0].events[0]["response"]["id"]
    assert _text(_respond(client, agentserver_peer.url, "slow")).rstrip().endswith("tick39")

    assert client.get(f"{agentserver_peer.url}/responses/{dropped}").json()["status"] == "cancelled"


def test_llmock_judges_a_client_that_takes_a_truncated_stream_for_an_answer(
    client: httpx2.Client, llmock_peer: Llmock
) -> None:
    llmock_peer.play({"type": "stream_fault", "kind": "truncate", "after_chunks": 3})
    with _streamed(client, llmock_peer.url, "hi") as events:
        types = [event["type"] for event in events]

    assert types == ["response.created", "response.in_progress", "response.output_item.added"]
    verdict = llmock_peer.verdict()
    assert (verdict["passed"], verdict["faults_injected"]) == (False, 1)
    assert [finding["code"] for finding in verdict["findings"]] == ["truncated_stream_accepted"]


def test_llmock_judges_a_client_that_ignores_retry_after(client: httpx2.Client, llmock_peer: Llmock) -> None:
    llmock_peer.play({"type": "fail", "status": 429, "retry_after": 5, "times": 1})
    statuses = [_respond(client, llmock_peer.url, "hi").status_code for _ in range(2)]

    assert statuses == [429, 200]
    assert [finding["code"] for finding in llmock_peer.verdict()["findings"]] == ["retry_after_ignored"]


def test_the_proxy_records_what_passes_in_order(
    client: httpx2.Client, ogx_peer: Peer, ogx_proxy: RecordingProxy
) -> None:
    with _streamed(client, ogx_proxy.url, "hi") as events:
        types = [event["type"] for event in events]
    _respond(client, ogx_proxy.url, "two", "resp_unknown")
    client.get(f"{ogx_proxy.url}/responses?limit=1").raise_for_status()

    streamed, refused, listed = ogx_proxy.exchanges
    assert [event["type"] for event in streamed.events] == types
    assert types[-1] == "response.completed"
    assert (streamed.method, streamed.path, streamed.status) == ("POST", "/v1/responses", 200)
    assert refused.body == {"model": "openai/gpt-4", "input": "two", "previous_response_id": "resp_unknown"}
    assert refused.status == 404
    assert (listed.method, listed.body, listed.status) == ("GET", None, 200)
    assert ogx_proxy.sent("POST", "/v1/responses") == [streamed.body, refused.body]


def test_the_proxy_cuts_only_the_stream_it_was_told_to(
    client: httpx2.Client, ogx_peer: Peer, ogx_proxy: RecordingProxy
) -> None:
    ogx_proxy.cut_stream(after_events=2, nth=2)
    with _streamed(client, ogx_proxy.url, "hi") as events:
        assert list(events)[-1]["type"] == "response.completed"
    with pytest.raises(httpx2.RemoteProtocolError), _streamed(client, ogx_proxy.url, "hi") as events:
        list(events)

    assert [(exchange.cut, len(exchange.events) == 2) for exchange in ogx_proxy.exchanges] == [
        (False, False),
        (True, True),
    ]


def test_a_client_that_leaves_the_proxy_leaves_the_peer(
    client: httpx2.Client, agentserver_peer: Peer, agentserver_proxy: RecordingProxy
) -> None:
    with _streamed(client, agentserver_proxy.url, "slow") as events:
        left = next(events)["response"]["id"]
    _text(_respond(client, agentserver_peer.url, "slow"))

    assert client.get(f"{agentserver_peer.url}/responses/{left}").json()["status"] == "cancelled"
