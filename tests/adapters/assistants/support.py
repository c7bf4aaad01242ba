"""Settings, requests and emulators for tests of this family."""

from typing import Any

import pytest

from adapters.assistants.adapter import ThreadsAdapter, assistants, foundry_classic
from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import AdapterEvent, AnyAdapterFactory, CallStarted
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import UserItem
from tests.adapters.emulator_support import KEY
from tests.emulators.assistants import ASSISTANT, AssistantsServer
from tests.emulators.scripts import Script
from tests.emulators.server import Validator
from tests.openapi import openai_validator

VERSION = "2025-01-01-preview"
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


def names(events: list[AdapterEvent]) -> Ongoing:
    """The names of the call of these events."""
    started = [event for event in events if isinstance(event, CallStarted)]
    return Ongoing(started[0].handle, started[-1].run)


__all__ = ["KINDS", "ThreadsAdapter", "judge", "names", "parts", "server", "settings"]
