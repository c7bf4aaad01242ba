"""Agents by where their history is kept and on which wire, in front of one script."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.testing.serving import serve
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Script

_KINDS = {
    "backend": "type: openai-responses",
    "gateway": "type: openai-responses, history: {owner: gateway}",
    "conversation": "type: openai-responses, conversation: true",
    "background": "type: openai-responses, background: true",
    "chat": "type: openai-chat",
}
KINDS = tuple(_KINDS)

OF_THE_GATEWAY = frozenset({"gateway", "chat"})
"""The gateway keeps the history of these."""


class Services:
    """One of each wire. `settings` has those of an agent of each kind."""

    def __init__(self, script: Script) -> None:
        self.responses, self.chat = ResponsesServer(script), ChatServer(script)
        self.settings: Mapping[str, str] = {}


@asynccontextmanager
async def services(script: Script) -> AsyncIterator[Services]:
    made = Services(script)
    async with serve(made.responses.app) as one, serve(made.chat.app) as other:
        made.settings = {
            kind: f"{settings}, model: m, base_url: '{other if kind == 'chat' else one}/v1'"
            for kind, settings in _KINDS.items()
        }
        yield made
