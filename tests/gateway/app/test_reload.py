"""A new configuration in a running gateway: running turns keep the old one, new requests get the new one."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from adapters.tools.http import HttpToolSettings
from gateway.a2a.errors import Busy
from gateway.app.reload import LoadedConfig, ReloadableApp
from gateway.config.agents import CardConfig
from gateway.config.gateway import GatewayConfig, LimitsConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.core.agents import Agent, Agents
from gateway.engine.fanout import Fanout, StreamLimits
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.http.auth import NoAuthentication
from gateway.http.cards import build_card
from gateway.http.pipeline import Pipeline
from gateway.operations.quotas import Quotas
from gateway.ports.adapter import AnyAdapterFactory
from gateway.ports.tools import SourceTool, ToolOutput, ToolRun, ToolSource
from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http, streamed_text, text_of, user_message
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Pause as Rest
from tests.emulators.scripts import Say
from tests.interaction.scripted import ScriptedOperations
from tests.running import local_gateway
from tests.support.core import soon, until
from tests.support.deletions import DeletingAdapter
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, ScriptedAdapter
from tests.support.stores import ledger_url

# --- loaded configurations ---


class Tools:
    """A source of tools that is never called."""

    closed = False

    async def tools(self) -> tuple[SourceTool, ...]:
        raise AssertionError

    async def run(self, run: ToolRun) -> ToolOutput:
        raise AssertionError

    async def aclose(self) -> None:
        self.closed = True


class Part:
    """One loaded configuration. Its requests last until `go`, its turns until `turns_ended`."""

    def __init__(self) -> None:
        self.adapter = ScriptedAdapter(G)
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.turns_ended = asyncio.Event()
        card = build_card("a", CardConfig(), "http://localhost")
        self.tools = Tools()
        agents, clock = Agents((Agent("a", card, self.adapter),)), Clock()
        pipeline = Pipeline(
            ScriptedOperations(), agents, NoAuthentication(), LimitsConfig(), clock, Drain(), Quotas(clock)
        )
        self.loaded = LoadedConfig(self._answer, agents, pipeline, (self.tools,))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.set()
        await self.go.wait()


async def _nothing(*_: Any) -> Any:
    raise AssertionError("nobody reads or writes here")


def reloadable(*parts: Part) -> ReloadableApp:
    async def left(agents: Agents) -> None:
        [part] = [part for part in parts if part.loaded.agents is agents]
        await part.turns_ended.wait()

    return ReloadableApp(parts[0].loaded, left)


async def test_a_call_over_grpc_keeps_the_configuration_that_it_began_with() -> None:
    old, new = Part(), Part()
    front = reloadable(old, new)
    async with front.open():
        with front.pipelines() as first:
            front.replace(new.loaded)
            old.turns_ended.set()
            with front.pipelines() as second:
                assert (first, second) == (old.loaded.pipeline, new.loaded.pipeline)
            assert not old.adapter.closed
        await until(lambda: old.adapter.closed)


async def test_an_adapter_is_closed_when_its_last_request_and_its_last_turn_have_ended() -> None:
    old, new = Part(), Part()
    front = reloadable(old, new)
    async with front.open(), asyncio.TaskGroup() as group:
        request = group.create_task(front({}, _nothing, _nothing))
        await soon(old.entered.wait())
        front.replace(new.loaded)
        later = group.create_task(front({}, _nothing, _nothing))
        await soon(new.entered.wait())
        assert not old.adapter.closed
        old.go.set()
        await soon(request)
        assert not old.adapter.closed
        assert not old.tools.closed
        old.turns_ended.set()
        await until(lambda: old.tools.closed)
        assert old.adapter.closed
        assert not new.adapter.closed
        assert not new.tools.closed
        new.go.set()
        await soon(later)
    assert new.adapter.closed


async def test_at_the_end_everything_is_closed_even_with_waiters() -> None:
    parts = [Part(), Part(), Part()]
    front = reloadable(*parts)
    async with front.open():
        front.replace(parts[1].loaded)
        front.replace(parts[2].loaded)
    assert [part.adapter.closed for part in parts] == [True, True, True]
    assert [part.tools.closed for part in parts] == [True, True, True]


async def test_a_close_that_the_end_interrupts_is_made_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Part(), Part()
    begun = asyncio.Event()

    async def hang() -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        old.adapter.closed = True

    monkeypatch.setattr(old.adapter, "aclose", hang)
    old.turns_ended.set()
    front = reloadable(old, new)
    with capture_logs() as logs:
        async with front.open():
            front.replace(new.loaded)
            await soon(begun.wait())
    assert (old.adapter.closed, new.adapter.closed, logs) == (True, True, [])


@pytest.mark.parametrize("fault", [RuntimeError, asyncio.CancelledError])
async def test_an_adapter_that_cannot_be_closed_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]
) -> None:
    async def fail() -> None:
        raise fault("no")

    old, new = Part(), Part()
    monkeypatch.setattr(old.adapter, "aclose", fail)
    monkeypatch.setattr(old.tools, "aclose", fail)
    old.turns_ended.set()
    front = reloadable(old, new)
    with capture_logs() as logs:
        async with front.open():
            front.replace(new.loaded)
            await until(lambda: len(logs) > 1)
    assert {(line["event"], line.get("agent")) for line in logs} == {
        ("adapter.not-closed", "a"),
        ("tools.not-closed", None),
    }
    assert new.adapter.closed
    assert new.tools.closed


# --- a gateway --------------------------------------------------------------------------------------------------------


def configuration(url: str, folder: Path, agents: str, limits: str = "{}") -> GatewayConfig:
    text = f"version: 1\nlimits: {limits}\nagents:\n  {agents}\n"
    return load(
        text,
        source="test.yaml",
        env={},
        plugins=Registry(),
        base_dir=folder,
        overrides={"server.public_url": url, "storage.url": ledger_url(folder / "gateway.db")},
    )


def chat(url: str) -> str:
    return f"chat: {{type: openai-chat, model: m, base_url: '{url}/v1'}}"


async def test_a_running_turn_ends_at_its_first_backend_and_the_context_continues_at_the_new_one(
    tmp_path: Path,
) -> None:
    pause = asyncio.Event()
    old = ChatServer(lambda _: [Say("one "), Rest(pause), Say("two")])
    new = ChatServer(lambda _: [Say("three")])
    async with (
        serve(old.app) as before,
        serve(new.app) as after,
        local_gateway(chat(before), tmp_path) as local,
        a2a_http(local.url) as http,
    ):
        agent = A2A(http, "chat")
        async with agent.stream("Hello") as stream:
            early = await stream.read_until(lambda frames: streamed_text(frames) == "one ")
            context = early[0].event["task"]["contextId"]
            await local.gateway.reload(configuration(local.url, tmp_path, chat(after)))
            pause.set()
            frames = await stream.rest()
        answer = await agent.send("And now?", context)
    assert (streamed_text(frames), text_of(answer)) == ("one two", "three")
    assert [message["content"] for message in new.requests[0]["messages"]] == ["Hello", "one two", "And now?"]
    assert len(old.requests) == 1


async def test_a_turn_without_a_listener_ends_at_its_first_backend_too(tmp_path: Path) -> None:
    reached, pause = asyncio.Event(), asyncio.Event()

    def script(_: object) -> Iterator[Say | Rest]:
        yield Say("one ")
        reached.set()
        yield Rest(pause)
        yield Say("two")

    async with (
        serve(ChatServer(script).app) as before,
        serve(ChatServer().app) as after,
        local_gateway(chat(before), tmp_path) as local,
        a2a_http(local.url) as http,
    ):
        body = {"message": user_message("Hello"), "configuration": {"returnImmediately": True}}
        sent = await http.post("/a2a/chat/message:send", json=body)
        await soon(reached.wait())
        await local.gateway.reload(configuration(local.url, tmp_path, chat(after)))
        await A2A(http, "chat").send("Hello")
        pause.set()
        await soon(local.gateway.runner.idle())
        assert text_of(await A2A(http, "chat").get(sent.json()["task"]["id"])) == "one two"


def test_a_new_limit_of_streams_holds_at_once() -> None:
    fanout = Fanout(StreamLimits(streams=1))
    fanout.check_room()
    fanout.limits = StreamLimits(streams=0)
    with pytest.raises(Busy):
        fanout.check_room()


async def test_tools_are_those_of_the_new_configuration_and_the_old_ones_are_closed(tmp_path: Path) -> None:
    tools = {name: Tools() for name in ("before", "after")}

    class Sources(Registry):
        def tool_source(self, tool_type: str, settings: BaseModel) -> ToolSource:
            assert isinstance(settings, HttpToolSettings)
            return tools[settings.description]

    source = "{type: http, url: 'http://localhost', description: DESCRIPTION}"
    agent = "a: {type: openai-chat, model: m, base_url: 'http://localhost:1/v1', tools: [t]}"
    section = f"tools: {{t: {source}}}\n"
    async with local_gateway(
        agent, tmp_path, settings=section.replace("DESCRIPTION", "before"), registry=Sources()
    ) as local:
        following = configuration(local.url, tmp_path, f"{agent}\n{section.replace('DESCRIPTION', 'after')}")
        await local.gateway.reload(following)
        await until(lambda: tools["before"].closed)
        assert not tools["after"].closed
    assert tools["after"].closed


class Adapters(Registry):
    """Builds an adapter for each load of an agent; `answers` are those of the first adapter's `forget`."""

    def __init__(self, *answers: Pause) -> None:
        self.built: list[DeletingAdapter] = []
        self._answers = answers

    def factory(self, adapter_type: str) -> AnyAdapterFactory:
        return replace(super().factory(adapter_type), build=self._build)

    def _build(self, _: BaseModel) -> DeletingAdapter:
        self.built.append(DeletingAdapter(BR, answers=() if self.built else self._answers))
        return self.built[-1]


AGENT = "a: {type: openai-chat, model: m, base_url: 'http://localhost:1/v1'}"


async def test_an_adapter_stays_open_while_a_turn_arrives(tmp_path: Path) -> None:
    adapters = Adapters()
    async with local_gateway(AGENT, tmp_path, registry=adapters) as local, a2a_http(local.url) as http:
        with local.gateway.runner.in_flight.now:
            await local.gateway.reload(configuration(local.url, tmp_path, AGENT))
            await http.get("/a2a/a/.well-known/agent-card.json")
            assert not adapters.built[0].closed
        await until(lambda: adapters.built[0].closed)


async def test_an_adapter_stays_open_while_it_has_a_handle_forgotten(tmp_path: Path) -> None:
    async with local_gateway(AGENT, tmp_path) as local:
        database = local.database
    change(database, "INSERT INTO delete_job VALUES ('t r-1', 'a', 'r-1', 1, 0)")
    adapters = Adapters(held := Pause())
    async with local_gateway(AGENT, tmp_path, registry=adapters) as local, a2a_http(local.url) as http:
        await soon(held.reached.wait())
        await local.gateway.reload(configuration(local.url, tmp_path, AGENT))
        await http.get("/a2a/a/.well-known/agent-card.json")
        assert not adapters.built[0].closed
        held.go.set()
        await until(lambda: adapters.built[0].closed)
    assert adapters.built[0].asked == ["r-1"]


async def test_agents_cards_and_limits_are_those_of_the_new_configuration(tmp_path: Path) -> None:
    python = "{type: python, ref: 'gateway.cli.demo.agent:reply'"
    async with local_gateway(f"a: {python}}}", tmp_path) as local, a2a_http(local.url) as http:
        described = f"b: {python}, card: {{description: New}}}}"
        await local.gateway.reload(configuration(local.url, tmp_path, described, "{parts: 1}"))
        assert (await http.get("/a2a/a/.well-known/agent-card.json")).status_code == 404
        assert (await http.get("/a2a/b/.well-known/agent-card.json")).json()["description"] == "New"
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "1"}, {"text": "2"}]}
        refused = await http.post("/a2a/b/message:send", json={"message": message}, headers={"A2A-Version": "1.0"})
        assert refused.status_code == 400
        assert "parts" in refused.text


async def test_a_configuration_whose_agents_cannot_be_built_changes_nothing(tmp_path: Path) -> None:
    async with local_gateway("a: {type: python, ref: 'gateway.cli.demo.agent:reply'}", tmp_path) as local:
        with pytest.raises(ValueError, match=r"agents\.a: 'gone:reply': there is no module 'gone'"):
            await local.gateway.reload(configuration(local.url, tmp_path, "a: {type: python, ref: 'gone:reply'}"))
        async with a2a_http(local.url) as http:
            assert text_of(await A2A(http, "a").send("Hello")) == "Your message has 1 word."
