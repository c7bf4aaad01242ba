"""Deletion, retention and adoption in a whole gateway, over HTTP: the background jobs really run."""

import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.config.plugins import Registry
from gateway.config.settings import Settings
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterFactory, AnyAdapterFactory
from gateway.testing.serving import serve
from tests.a2a_client import A2A, Refused, a2a_http, text_of
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.running import local_gateway
from tests.support.core import query, until
from tests.support.deletions import DAY, DeletingAdapter
from tests.support.scripted import BR, says

ALL = "/admin/api/v1/contexts"


class _Settings(Settings):
    """No settings beyond the keys of every agent."""

    type: str


class _Plugins(Registry):
    def __init__(self, adapter: DeletingAdapter) -> None:
        self._adapter = adapter

    def known_types(self) -> tuple[str, ...]:
        return ("forgetful",)

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return _Settings if section == "agents" else super().settings_model(section, kind)

    def factory(self, adapter_type: str) -> AnyAdapterFactory:
        factory: AdapterFactory[Any] = AdapterFactory(_Settings, lambda _: self._adapter, "", ())
        return factory


def clock(later_by: int = 0) -> Clock:
    return Clock(now=lambda: time.time_ns() // 1_000_000 + later_by)


async def test_a_deleted_context_is_soon_deleted_at_its_backend(tmp_path: Path) -> None:
    adapter = DeletingAdapter(BR, says("one", "r1"), says("two", "r2"))
    async with (
        local_gateway("echo: {type: forgetful}", tmp_path, registry=_Plugins(adapter)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        for text in ("1", "2"):
            await A2A(http, "echo").send(text, "c")
        assert (await http.delete(f"{ALL}/c")).status_code == 204
        await until(lambda: sorted(adapter.asked) == ["r1", "r2"])
        await until(lambda: query(gateway.database, "SELECT * FROM delete_job") == [])


async def test_pending_deletions_continue_at_the_next_start(tmp_path: Path) -> None:
    agents, database = "echo: {type: forgetful}", tmp_path / "gateway.db"
    down = DeletingAdapter(BR, says("one", "r1"), answers=(RuntimeError("down"),))
    async with local_gateway(agents, tmp_path, registry=_Plugins(down)) as gateway, a2a_http(gateway.url) as http:
        await A2A(http, "echo").send("1", "c")
        await http.delete(f"{ALL}/c")
        await until(lambda: down.asked == ["r1"])
    assert len(query(database, "SELECT * FROM delete_job")) == 1
    up = DeletingAdapter(BR)
    async with local_gateway(agents, tmp_path, registry=_Plugins(up), clock=clock(DAY)):
        await until(lambda: up.asked == ["r1"])
        await until(lambda: query(database, "SELECT * FROM delete_job") == [])


async def test_expired_data_is_removed_at_the_next_start(tmp_path: Path) -> None:
    agents, settings = "echo: {type: forgetful}", "retention: {events: 1h, tasks: 1d, contexts_idle: 2d}"
    adapter = DeletingAdapter(BR, says("one", "r1"))
    async with (
        local_gateway(agents, tmp_path, settings=settings, registry=_Plugins(adapter)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        await A2A(http, "echo").send("1", "c")
    async with (
        local_gateway(agents, tmp_path, settings=settings, registry=_Plugins(adapter), clock=clock(3 * DAY)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        await until(lambda: adapter.asked == ["r1"])
        with pytest.raises(Refused, match="The context 'c' is expired"):
            await A2A(http, "echo").send("2", "c")


async def test_a_conversation_of_the_backend_can_be_continued(tmp_path: Path) -> None:
    async with serve(ResponsesServer(lambda _: [Say("and on")]).app) as backend:
        agents = f"support: {{type: openai-responses, model: m, base_url: '{backend}/v1', api_key: k}}"
        async with local_gateway(agents, tmp_path) as gateway, a2a_http(gateway.url) as http:
            caller = A2A(http, "support")
            first = await caller.send("hello", "mine")
            [(handle,)] = query(gateway.database, "SELECT handle FROM thread")
            body = {"agent": "support", "handle": handle, "contextId": "theirs"}
            answer = await http.post(f"{ALL}:adopt", json=body)
            assert (answer.status_code, answer.json()) == (201, {"contextId": "theirs"})
            second = await caller.send("go on", "theirs")
            with pytest.raises(Refused, match="is not where this context stands"):
                await caller.send("hi", "new", metadata={"previous_response_id": "resp_else"})
    assert (text_of(first), text_of(second)) == ("and on", "and on")
    assert handle not in caller.seen.decode()
