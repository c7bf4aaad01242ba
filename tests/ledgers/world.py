"""What the gateways of a recorded ledger work with: services on both wires that remember, two desks of tools, an agent in
Python, and a receiver of notifications.

A message is "KIND: WORDS", and the kind decides what the service does. Every answer ends with all that was said in the
conversation, and all that tools have brought: so an answer shows what its request held.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.testing.serving import serve
from tests.emulators.chat import ChatServer
from tests.emulators.responses_chain import StoredResponse
from tests.emulators.responses_conversations import KeptConversation
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Cut, Fail, Item, Pause, Say, Status, Step, Think
from tests.receiver import Receiver, receiving

Json = dict[str, Any]

_COMMON = (
    "model: m, tools: [desk, broken, till], approvals: [{tool: 'till.*'}], standing_approvals: allow, "
    "client_tools: [{name: camera, description: Takes a picture., parameters: {type: object}}]"
)
_OF_SERVICES: Mapping[str, str] = {
    "chained": "type: openai-responses, base_url: 'RESPONSES/v1'",
    "conversed": "type: openai-responses, base_url: 'RESPONSES/v1', conversation: true, tool_calls: {when: never}",
    "background": "type: openai-responses, base_url: 'RESPONSES/v1', background: true",
    "kept": "type: openai-responses, base_url: 'RESPONSES/v1', history: {owner: gateway}",
    "chat": "type: openai-chat, base_url: 'CHAT/v1', tool_calls: {when: never}",
    "rebuilding": "type: openai-responses, base_url: 'RESPONSES/v1', on_lost_handle: rebuild",
    "atomic": "type: openai-responses, base_url: 'RESPONSES/v1', history: {persistence: per_turn}",
}
FUNCTION = "clerk"
AGENTS = "".join(
    [
        *(f"{name}: {{{settings}, {_COMMON}}}\n" for name, settings in _OF_SERVICES.items()),
        f"{FUNCTION}: {{type: python, ref: './clerk.py:reply'}}\n",
    ]
)
"""YAML with the words RESPONSES and CHAT for the addresses of the services."""


def placed(agents: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        agents = agents.replace(name.upper(), url)
    return agents


SETTINGS = """\
auth: {mode: any_of, api_keys: {enabled: true}}
push: {allow_http: true, ports: [], allow_private_networks: [127.0.0.0/8], encryption_key: a-key-that-only-tests-have-0000000}
tools:
  desk: {type: python, ref: './desk.py:book'}
  broken: {type: python, ref: './desk.py:spoil'}
  till: {type: python, ref: './desk.py:pay'}
"""
ENCRYPTION_KEY = b"a-key-that-only-tests-have-0000000"

FILES: Mapping[str, str] = {
    "desk.py": """\
def book(what: str) -> str:
    return f"booked {what}"


def spoil(what: str) -> str:
    raise ValueError(f"no {what}")


def pay(what: str) -> str:
    return f"paid {what}"
""",
    "clerk.py": """\
from gateway.agent import Artifact, InputRequired, Reject, ToolCall, ToolResult


async def reply(turn):
    kind = turn.text.partition(":")[0]
    turn.state["turns"] = turn.state.get("turns", 0) + 1
    if kind == "ask":
        raise InputRequired("Which one?")
    if kind == "reject":
        raise Reject("Not this.")
    if kind == "files":
        yield Artifact([{"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "hello.txt"}], name="a file")
        yield Artifact([{"data": {"rows": [1, 2.5, None, "\\u2028"]}}], artifact_id="table", name="a table")
        yield ToolCall("call_1", "lookup", {"city": "Oslo"})
        yield ToolResult("call_1", {"result": "3C"})
    earlier = [part["text"] for entry in turn.history if entry["role"] == "ROLE_USER" for part in entry["parts"]]
    yield " | ".join([*earlier, turn.text]) + f" ({turn.state['turns']})"
""",
}


@dataclass(slots=True)
class World:
    """`go` releases the paused answers. `reached` has the messages at which a service has paused."""

    responses: ResponsesServer = field(init=False)
    chat: ChatServer = field(init=False)
    receiver: Receiver = field(default_factory=Receiver)
    urls: dict[str, str] = field(default_factory=dict)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    reached: dict[str, asyncio.Event] = field(default_factory=dict)

    def at(self, text: str) -> asyncio.Event:
        return self.reached.setdefault(text, asyncio.Event())

    def script(self, conversation: Conversation) -> Iterator[Step]:
        kind, _, words = conversation.text.partition(": ")
        match kind, conversation.round:
            case "tools", 0:
                yield Think("They want something booked.")
                yield Say("let me see ", chunks=2)
                yield Call("book", {"what": words})
                yield Call("spoil", {"what": words}, chunks=1)
                return
            case "gated", 0:
                yield Call("pay", {"what": words}, chunks=1)
                yield Call("pay", {"what": f"{words} twice"}, chunks=1)
                return
            case "mixed", 0:
                yield Call("pay", {"what": words}, chunks=1)
                yield Call("book", {"what": words}, chunks=1)
                return
            case ("unsure", 0) | ("pays", 0):
                yield Call("book" if kind == "unsure" else "pay", {"what": words}, chunks=1)
                return
            case "camera", 0:
                yield Call("camera", {"of": words}, chunks=1)
                return
            case "fails", _:
                yield Say("I can")
                yield Fail()
                return
            case "refused", _:
                yield Status(400, {"error": {"message": "not these words", "type": "invalid_request_error"}})
                return
            case "cut", _:
                yield Say("I can")
                yield Cut()
                return
            case "compacts", _:
                yield Item({"type": "compaction", "encrypted_content": "gAAAAC"})
            case "waits", _:
                yield Say("wait ")
                self.at(conversation.text).set()
                yield Pause(self.go)
            case "silent", _:
                self.at(conversation.text).set()
                yield Pause(self.go)
        yield Say(answer_to(conversation.user_texts, _outputs(conversation)))

    def state(self) -> Json:
        """All that the Responses service remembers."""
        return {
            "responses": [{"body": kept.body, "input": kept.input} for kept in self.responses.stored.values()],
            "conversations": {name: kept.items for name, kept in self.responses.conversations.items()},
        }

    def restore(self, state: Json) -> None:
        stored = self.responses.stored
        for kept in state["responses"]:
            body = kept["body"]
            before = stored.get(body["previous_response_id"])
            stored[body["id"]] = StoredResponse(body, tuple(kept["input"]), before.history if before else ())
        for name, items in state["conversations"].items():
            conversation = KeptConversation(items)
            conversation.id = name
            self.responses.conversations[name] = conversation


def answer_to(said: list[str] | tuple[str, ...], outputs: list[str]) -> str:
    return " | ".join(said) + "".join(f" [{output}]" for output in outputs)


def _outputs(conversation: Conversation) -> list[str]:
    """The results of tools in the whole conversation."""
    found = []
    for item in conversation.items:
        if item.get("type") == "function_call_output":
            found.append(item["output"])
        elif item.get("role") == "tool":
            found.append(item["content"])
    return [output if isinstance(output, str) else output[0]["text"] for output in found]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    made.responses, made.chat = ResponsesServer(made.script), ChatServer(made.script)
    async with AsyncExitStack() as stack:
        made.urls["responses"] = await stack.enter_async_context(serve(made.responses.app))
        made.urls["chat"] = await stack.enter_async_context(serve(made.chat.app))
        await stack.enter_async_context(receiving(made.receiver))
        yield made
