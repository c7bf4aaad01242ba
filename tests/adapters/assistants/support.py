"""Settings, requests and emulators for tests of this family."""

from typing import Any

import pytest

from adapters.assistants.adapter import ThreadsAdapter, assistants, foundry_classic
from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import AdapterError, AdapterEvent, AnyAdapterFactory, CallCompleted
from gateway.ports.conversation import Item, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, message, request
from tests.adapters.emulator_support import KEY
from tests.emulators.assistants import ASSISTANT, AssistantsServer
from tests.emulators.scripts import Call, Script
from tests.emulators.server import Validator
from tests.openapi import openai_validator

VERSION = "2025-01-01-preview"
OSLO = (Call("weather", {"city": "Oslo"}, "call_1"),)
TOOL = ToolDeclaration("weather", "The weather of a city.", {"type": "object"})
KINDS: dict[str, tuple[AnyAdapterFactory, str]] = {
    "assistants": (assistants, VERSION),
    "foundry-classic": (foundry_classic, "v1"),
}
"""Each type, with the version that its service wants."""


def settings(factory: AnyAdapterFactory, url: str, **values: Any) -> dict[str, Any]:
    if factory is foundry_classic:
        return {"endpoint": url, "agent_id": ASSISTANT, "api_key": KEY} | values
    return {"base_url": url, "assistant_id": ASSISTANT, "api_key": KEY, "api_version": VERSION} | values


def judge() -> Validator | None:
    """Judges requests by OpenAI's API description where that lies beside the repository. It knows no approvals."""
    try:
        validate = openai_validator()
    except pytest.skip.Exception:
        return None

    def lenient(schema: str, body: object) -> list[str]:
        if isinstance(body, dict):
            body = {key: value for key, value in body.items() if key != "tool_approvals"}
        return validate(schema, body)

    return lenient


def server(script: Script | None = None, *, version: str = VERSION, **options: Any) -> AssistantsServer:
    return AssistantsServer(script, api_key=KEY, version=version, validator=judge(), **options)


def parts(*given: Part) -> UserItem:
    return UserItem(Message(message_id="m1", role=Role.USER, parts=given))


class Service:
    """An emulator, and an adapter in front of it."""

    def __init__(self, emulator: AssistantsServer, adapter: ThreadsAdapter) -> None:
        self.emulator, self.adapter = emulator, adapter

    async def call(self, *items: Item, after: CallCompleted | None = None, **more: Any) -> list[AdapterEvent]:
        """A call with these items, which goes on after another."""
        going_on = {"handle": after.handle, "state": after.state} if after is not None else {}
        return await collect(self.adapter, request("Hi", **{"items": items, **going_on, **more}))

    async def fails(self, *items: Item, after: CallCompleted | None = None) -> AdapterError:
        with pytest.raises(AdapterError) as caught:
            await self.call(*items, after=after)
        return caught.value


def said(words: str) -> UserItem:
    return UserItem(message(words))
