"""Cards that a backend describes, in a whole gateway: the start waits for nobody, and every form of the card follows."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from gateway.a2a.model import AgentSkill
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.ports.adapter import AdapterError, AdapterFactory, AnyAdapterFactory, ErrorClass
from gateway.ports.capabilities import Description
from tests.a2a_client import A2A, Refused, a2a_http, user_message
from tests.interaction.harness import Binding
from tests.interaction.test_extended_cards import extended, key_file, signing, skills, verify
from tests.interaction.test_keys import issue
from tests.running import Local, local_gateway
from tests.support.core import BOUND, until
from tests.support.describing_adapter import DescribingAdapter
from tests.support.scripted import Pause, says

TOLD = Description(
    name="Travel",
    version="7.1",
    skills=(AgentSkill(id="book", name="Book", description="Books a flight", tags=("travel",)),),
    input_modes=("text/plain",),
)
AGENTS = """\
echo:
  type: upstream
  card:
    description: Mine.
    extended: {skills: [{id: refund, name: Refund, description: Pays back, tags: [t]}]}
"""
CARD = "/a2a/echo/.well-known/agent-card.json"


class _Settings(BaseModel):
    pass


class _Plugins(Registry):
    """An adapter of the list for each configuration."""

    def __init__(self, *adapters: DescribingAdapter) -> None:
        self._adapters_left = list(adapters)

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return _Settings if section == "agents" else super().settings_model(section, kind)

    def factory(self, kind: str) -> AnyAdapterFactory:
        found: AdapterFactory[Any] = AdapterFactory(_Settings, lambda _: self._adapters_left.pop(0), "", ())
        return found


async def described(http: httpx2.AsyncClient) -> dict[str, Any]:
    """The card, when it has the name that the backend told."""
    async with asyncio.timeout(BOUND):
        while True:
            card: dict[str, Any] = (await http.get(CARD)).json()
            if card["name"] == TOLD.name:
                return card


async def test_a_gateway_whose_backend_is_silent_starts_and_serves_the_words_of_the_operator(tmp_path: Path) -> None:
    silence = Pause()
    adapter = DescribingAdapter(answers=[silence, TOLD])
    key_file(tmp_path, "key.pem")
    async with (
        local_gateway(AGENTS, tmp_path, settings=signing("key.pem"), registry=_Plugins(adapter)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        card = (await http.get(CARD)).json()
        assert (card["name"], card["version"], card["description"], skills(card)) == (
            "echo",
            "1.0.0",
            "Mine.",
            ["echo"],
        )
        silence.go.set()
        assert (await described(http))["version"] == "7.1"


async def test_all_forms_of_the_card_follow_the_description(tmp_path: Path, binding: Binding) -> None:
    adapter = DescribingAdapter(answers=[TOLD])
    key_file(tmp_path, "key.pem")
    async with (
        local_gateway(AGENTS, tmp_path, settings=signing("key.pem"), registry=_Plugins(adapter)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        card = await described(http)
        assert (card["version"], card["description"], skills(card)) == ("7.1", "Mine.", ["book"])
        # Members of A2A 0.3 stand in the same document.
        assert (card["protocolVersion"], card["defaultInputModes"]) == ("0.3.0", ["text/plain"])
        more = await extended(http, binding, await issue(gateway, "ada"))
        assert (more["name"], skills(more)) == ("Travel", ["book", "refund"])
        listed = (await http.get("/a2a")).json()["agents"]
        assert [each["name"] for each in listed] == ["Travel"]
        for each in (card, more):
            await verify(http, each)
        for _ in range(5):
            await http.get(CARD)
        assert adapter.asked == 1


async def test_a_media_type_that_the_card_does_not_name_any_more_is_refused(tmp_path: Path) -> None:
    adapter = DescribingAdapter(says("well"), answers=[TOLD])
    async with (
        local_gateway("echo: {type: upstream}", tmp_path, registry=_Plugins(adapter)) as gateway,
        a2a_http(gateway.url) as http,
    ):
        await described(http)
        with pytest.raises(Refused, match="this agent knows text/plain"):
            await A2A(http, "echo").call("SendMessage", message=user_message("", parts=[{"data": {"a": 1}}]))


async def test_a_reload_keeps_the_card_while_the_backend_is_down(tmp_path: Path) -> None:
    down = AdapterError(ErrorClass.UNREACHABLE, "connection refused")
    before, after = DescribingAdapter(answers=[TOLD]), DescribingAdapter(answers=[down])
    plugins = _Plugins(before, after)
    async with (
        local_gateway("echo: {type: upstream}", tmp_path, registry=plugins) as gateway,
        a2a_http(gateway.url) as http,
    ):
        await described(http)
        await _reload(gateway, tmp_path, plugins)
        await until(lambda: after.asked == 1)
        assert (await http.get(CARD)).json()["name"] == "Travel"
        assert before.closed


async def _reload(gateway: Local, folder: Path, plugins: Registry) -> None:
    text = "version: 1\nagents: {echo: {type: upstream, card: {description: Other.}}}"
    overrides = {"server.public_url": gateway.url}
    config = load(text, source="x.yaml", env={}, plugins=plugins, base_dir=folder, overrides=overrides)
    await gateway.gateway.reload(config)
