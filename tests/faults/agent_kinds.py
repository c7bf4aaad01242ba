"""Agents by where their history is kept and on which wire, in front of one script."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.testing.serving import serve
from tests.contract.backends import KEY, ROWS
from tests.emulators.anthropic import MessagesServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Script

_KINDS = {
    "backend": "type: openai-responses",
    "gateway": "type: openai-responses, history: {owner: gateway}",
    "conversation": "type: openai-responses, conversation: true",
    "background": "type: openai-responses, background: true",
    "chat": "type: openai-chat",
    "messages": "type: anthropic",
}
KINDS = tuple(_KINDS)

OF_THE_MATRIX = {row.name: row for row in ROWS}
"""The rows of the contract matrix, which are kinds, too."""

OF_THE_GATEWAY = frozenset({"gateway", "chat", "messages"})
"""The gateway keeps the history of these."""


class Services:
    """One of each wire. `settings` has those of an agent of each kind."""

    def __init__(self, script: Script) -> None:
        self.responses, self.chat, self.messages = ResponsesServer(script), ChatServer(script), MessagesServer(script)
        self.settings: Mapping[str, str] = {}


@asynccontextmanager
async def services(script: Script) -> AsyncIterator[Services]:
    made = Services(script)
    async with AsyncExitStack() as stack:
        servers = made.responses, made.chat, made.messages
        one, other, third = [await stack.enter_async_context(serve(server.app)) for server in servers]
        urls = {"chat": other, "messages": third}
        made.settings = {
            kind: f"{settings}, model: m, base_url: '{urls.get(kind, one)}/v1'" for kind, settings in _KINDS.items()
        }
        yield made


@asynccontextmanager
async def row_of_matrix(name: str, script: Script) -> AsyncIterator[str]:
    """The settings of an agent of this row, in front of its emulator."""
    row = OF_THE_MATRIX[name]
    async with row.emulator(script, api_key=KEY).serve() as url:
        yield json.dumps({"type": row.type, **row.settings(url), **row.more}).removeprefix("{").removesuffix("}")
