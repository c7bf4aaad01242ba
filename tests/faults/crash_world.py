"""The surroundings of the gateways of a crash loop, which survive the kills: services on every wire and with every owner of
the history, and two tools whose effects can be counted.

A message is "NUMBER KIND": the kind decides what the service does, the number makes the text unique.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.testing.serving import serve
from tests.emulators.chat import ChatServer
from tests.emulators.responses_chain import check_calls
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Delay, Say, Step
from tests.emulators.server import Refused
from tests.faults.said import said
from tests.support.rows import query
from tests.support.stores import ledger_url

LEASE_SECONDS = 1.0

KINDS = ("plain", "slow", "tools", "gated")
"""`tools` are run in two rounds; of `gated` two calls have to be allowed, and one beside them has not."""

AGENTS: Mapping[str, str] = {
    "chained": "type: openai-responses",
    "conversed": "type: openai-responses, conversation: true",
    "background": "type: openai-responses, background: true",
    "kept": "type: openai-responses, history: {owner: gateway}",
    "chat": "type: openai-chat",
}
"""The first three leave the history at the backend, each in its own way, the others with the gateway."""

_EFFECTS = "effects.txt"

# A kill falls before the effect, or behind it, when nobody has heard of it yet.
_TOOLS = """
import os
import time
from pathlib import Path


def _done(what):
    time.sleep(0.01)
    file = os.open(Path(__file__).parent / "effects.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, what.encode() + b"\\n")
    os.close(file)
    time.sleep(0.02)


def book(what: str) -> str:
    _done(what)
    return f"booked {what}"


def pay(what: str) -> str:
    _done(what)
    return f"paid {what}"
"""


def _script(conversation: Conversation) -> Iterator[Step]:
    """Every answer ends with all that was said in the conversation."""
    number, _, kind = conversation.text.partition(" ")
    stage = conversation.round
    match kind, stage:
        case "tools", 0:
            yield Say("let me see ")
            yield Delay(0.02)
            yield Call("book", {"what": f"{number}-a"})
            yield Call("book", {"what": f"{number}-b"})
            return
        case "tools", 1:
            yield Call("book", {"what": f"{number}-c"})
            return
        case "gated", 0:
            yield Call("pay", {"what": f"{number}-a"})
            yield Call("book", {"what": f"{number}-b"})
            yield Call("pay", {"what": f"{number}-c"})
            return
    for word in range(20 if kind == "slow" else 4):
        yield Say(f"w{word} ")
        yield Delay(0.02)
    yield Say(SAID + " | ".join(said(conversation)), chunks=2)


SAID = "said: "


@dataclass(frozen=True, slots=True)
class World:
    """`file` is the configuration; everything else of a gateway lies beside it."""

    file: Path
    responses: ResponsesServer
    chat: ChatServer

    @property
    def database(self) -> Path:
        return self.file.parent / "gateway.db"


@asynccontextmanager
async def crash_world(folder: Path, *, lease: float = LEASE_SECONDS, settings: str = "") -> AsyncIterator[World]:
    """`lease` is in seconds, `settings` the YAML of other sections."""
    (folder / "desk.py").write_text(_TOOLS)
    world = World(folder / "gateway.yaml", ResponsesServer(_script), ChatServer(_script))
    async with AsyncExitStack() as stack:
        urls = {
            "openai-responses": await stack.enter_async_context(serve(world.responses.app)),
            "openai-chat": await stack.enter_async_context(serve(world.chat.app)),
        }
        common = "model: m, tools: [desk, till], approvals: [{tool: 'till.*'}], idempotency: message_id"
        lines = [
            f"  {name}: {{{settings}, base_url: '{urls[settings.partition(',')[0].removeprefix('type: ')]}/v1', {common}}}"
            for name, settings in AGENTS.items()
        ]
        world.file.write_text(
            "version: 1\nserver: {port: 0}\n"
            f"storage: {{url: '{ledger_url(world.database)}', lease_timeout: {int(lease * 1000)}ms}}\n{settings}\n"
            "tools:\n  desk: {type: python, ref: './desk.py:book'}\n  till: {type: python, ref: './desk.py:pay'}\n"
            "agents:\n" + "\n".join(lines) + "\n"
        )
        yield world


# --- judging what has happened ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`what` it was about, which is the only one of its kind."""

    what: str
    status: str
    decision: str | None


def runs(world: World) -> Counter[str]:
    """How often each thing was done."""
    file = world.file.parent / _EFFECTS
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def tool_calls(world: World) -> list[ToolCall]:
    rows = query(world.database, "SELECT arguments, status, approval_decision FROM tool_call")
    return [ToolCall(json.loads(arguments)["what"], status, decision) for arguments, status, decision in rows]


def effect_errors(world: World) -> list[str]:
    """Effects that came twice, without a call or despite a rejection, and calls whose status does not match."""
    done, calls = runs(world), tool_calls(world)
    made = Counter(call.what for call in calls)
    found = [f"{what} was done {times} times" for what, times in done.items() if times > 1]
    found += [f"{what} was asked for {times} times" for what, times in made.items() if times > 1]
    found += [f"{what} was done for nobody" for what in done if not made[what]]
    for call in calls:
        if call.status == "completed" and not done[call.what]:
            found.append(f"{call.what} is completed and was not done")
        if call.status in ("rejected", "cancelled") and done[call.what]:
            found.append(f"{call.what} is {call.status} and was done")
        if call.status in ("announced", "pending_approval", "approved", "running"):
            found.append(f"{call.what} is still {call.status}")
    return found


def unpaired_calls(world: World) -> list[str]:
    """Requests with a call without its output, or an output without its call, as the services would see them."""
    sent = [(f"response {name}", (*kept.earlier, *kept.input)) for name, kept in world.responses.stored.items()]
    sent += [(f"conversation {name}", tuple(kept.items)) for name, kept in world.responses.conversations.items()]
    sent += [
        (f"request {number}", tuple(request["input"]))
        for number, request in enumerate(world.responses.requests)
        if request.get("store") is False
    ]
    sent += [
        (f"chat request {number}", tuple(_as_items(request["messages"])))
        for number, request in enumerate(world.chat.requests)
    ]
    found = []
    for where, items in sent:
        try:
            check_calls(items)
        except Refused as error:
            found.append(f"{where}: {bytes(error.response.body).decode()}")
        outputs = Counter(item["call_id"] for item in items if item.get("type") == "function_call_output")
        found += [f"{where} has {times} outputs of {call}" for call, times in outputs.items() if times > 1]
    return found


def _as_items(messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages of Chat Completions as far as they are calls and outputs, each in the words of the other wire."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield {"type": "function_call", "call_id": call["id"]}
        if message.get("role") == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"]}
