"""Backends that fail in every known way, and the canary words and key that no caller may see."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import failed
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import (
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    Json,
    NoTerminal,
    Pause,
    Raw,
    Say,
    Status,
    Step,
)
from tests.emulators.server import Emulator
from tests.support.refusing import refusing_port

KEY = "sk-canary-0a1b2c3d4e5f6a7b8c9d"
WORDS = "canary of the backend"
_QUOTED = f"{WORDS}: the key {KEY} at postgres://user:pass@10.0.0.1/db"
_PAGE = f"<!DOCTYPE html><html><body><h1>{_QUOTED}</h1></body></html>"


def _error(code: str | None = None) -> Json:
    return {"error": {"message": _QUOTED, "type": "invalid_request_error", "param": None, "code": code}}


# An event of both wires at once.
_NOT_UTF_8 = (
    b'data: {"type":"response.output_text.delta","delta":"\xff","choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n'
)

_OF_WRONG_TYPES = b'data: {"type":"response.output_text.delta","delta":"x","item_id":[],"choices":{"a":1}}\n\n'
_INFINITE = b'data: {"type":"response.output_text.delta","delta":1e999,"choices":[{"delta":{"content":1e999}}]}\n\n'
_EVENTS = {"Content-Type": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Each request gets `steps` of its own; `heard` is the part of the answer that the caller gets, `wait` the seconds that the
    backend asks for."""

    kind: ErrorClass
    steps: Callable[[], Iterable[Step] | AsyncIterable[Step]]
    heard: str = ""
    wait: int | None = None

    @property
    def told(self) -> tuple[str, str]:
        """State of the task, and its text without the correlation id."""
        return failed(self.kind, self.wait)


async def _silence() -> AsyncIterator[Step]:
    await asyncio.Event().wait()
    yield Say("never")


FAULTS: dict[str, Fault] = {
    "refused": Fault(ErrorClass.UNREACHABLE, list),
    "wrong key": Fault(ErrorClass.UNAUTHORISED, list),
    "400": Fault(ErrorClass.REJECTED, lambda: [Status(400, _error())]),
    "422": Fault(ErrorClass.REJECTED, lambda: [Status(422, _error())]),
    "filtered": Fault(ErrorClass.POLICY, lambda: [Status(400, _error("content_filter"))]),
    "403": Fault(ErrorClass.UNAUTHORISED, lambda: [Status(403, _error())]),
    "404": Fault(ErrorClass.NOT_SERVED, lambda: [Status(404, _error("model_not_found"))]),
    "409": Fault(ErrorClass.LOCKED, lambda: [Status(409, _error("conversation_locked"))]),
    "413": Fault(ErrorClass.OVERFLOW, lambda: [Status(413, _PAGE)]),
    "too long": Fault(ErrorClass.OVERFLOW, lambda: [Status(400, _error("context_length_exceeded"))]),
    "429": Fault(
        ErrorClass.RATE_LIMITED, lambda: [Status(429, _error("rate_limit_exceeded"), {"Retry-After": "1"})], wait=1
    ),
    "429 without a body": Fault(ErrorClass.RATE_LIMITED, lambda: [Status(429)]),
    "quota": Fault(ErrorClass.NOT_SERVED, lambda: [Status(429, _error("insufficient_quota"))]),
    "500": Fault(ErrorClass.BACKEND_FAILED, lambda: [Status(500, _error())]),
    "502 with a page": Fault(ErrorClass.BACKEND_FAILED, lambda: [Html(502, _PAGE)]),
    "504": Fault(ErrorClass.BACKEND_FAILED, lambda: [Status(504, _QUOTED)]),
    "529": Fault(ErrorClass.RATE_LIMITED, lambda: [Status(529, _error("overloaded_error"))]),
    "503": Fault(ErrorClass.BACKEND_FAILED, lambda: [Status(503, _QUOTED)]),
    "redirect": Fault(ErrorClass.NOT_SERVED, lambda: [Status(302, _QUOTED, {"Location": f"/{KEY}"})]),
    "a page under 200": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Html(200, _PAGE)]),
    "JSON under 200": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Status(200, {"said": _QUOTED})]),
    "malformed": Fault(
        ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(f"data: {{{_QUOTED}\n\n".encode()), Say("two")], "one "
    ),
    "not UTF-8": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(_NOT_UTF_8)], "one "),
    "nothing under 200": Fault(ErrorClass.INTERRUPTED, lambda: [Status(200, "", _EVENTS)]),
    "half an event": Fault(
        ErrorClass.INTERRUPTED, lambda: [Say("one "), Raw(b'data: {"type":"response.outp'), NoTerminal()], "one "
    ),
    "wrong types": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(_OF_WRONG_TYPES), Say("two")], "one "),
    "an array": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(b"data: [1]\n\n"), Say("two")], "one "),
    "null": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(b"data: null\n\n"), Say("two")], "one "),
    "BOM": Fault(
        ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(b"data: \xef\xbb\xbf{}\n\n"), Say("two")], "one "
    ),
    "infinite": Fault(ErrorClass.CONTRACT_BROKEN, lambda: [Say("one "), Raw(_INFINITE), Say("two")], "one "),
    "cut at once": Fault(ErrorClass.INTERRUPTED, lambda: [Cut()]),
    "cut in the text": Fault(ErrorClass.INTERRUPTED, lambda: [Say("one "), Cut()], "one "),
    "no last event": Fault(ErrorClass.INTERRUPTED, lambda: [Say("one "), NoTerminal()], "one "),
    "failed": Fault(ErrorClass.BACKEND_FAILED, lambda: [Say("one "), Fail(message=_QUOTED)], "one "),
    "error in the stream": Fault(ErrorClass.BACKEND_FAILED, lambda: [Say("one "), ErrorEvent(message=_QUOTED)], "one "),
    "no byte": Fault(ErrorClass.TIMED_OUT, _silence),
    "stalled": Fault(ErrorClass.TIMED_OUT, lambda: [Say("one "), Pause(asyncio.Event())], "one "),
}


def _script(conversation: Conversation) -> Iterable[Step] | AsyncIterable[Step]:
    """Fails in the way that the last message names; any other is answered."""
    fault = FAULTS.get(conversation.text)
    return [Say("all is well")] if fault is None else fault.steps()


_WIRES: dict[str, type[Emulator]] = {"openai-responses": ResponsesServer, "openai-chat": ChatServer}
WIRES = tuple(_WIRES)


@dataclass(slots=True)
class Broken:
    """Running backends. `agents` is the YAML of the agents in front of them."""

    agents: str = ""
    servers: dict[str, Emulator] = field(default_factory=dict)


DOWN = ("502 with a page", "503", "504", "no byte")
"""Faults for which a backend is left alone: an agent that shows one has an account of its own."""

_OF_ITS_OWN = (*DOWN, "stalled")


def agent_of(wire: str, fault: str) -> str:
    """The agent that shows the fault on a message with its name."""
    return f"{wire}-{fault.replace(' ', '-')}" if fault in ("refused", "wrong key", *_OF_ITS_OWN) else wire


def _timeouts(agent: str) -> str:
    """Short only where the fault is a silence: any other answer may come late on a busy machine."""
    first_byte = "300ms" if agent.endswith("-no-byte") else "2s"
    between_bytes = "600ms" if agent.endswith("-stalled") else "2s"
    return f"{{first_byte: {first_byte}, between_bytes: {between_bytes}}}"


@asynccontextmanager
async def broken_backends() -> AsyncIterator[Broken]:
    broken = Broken()
    async with AsyncExitStack() as stack:
        for wire, emulator in _WIRES.items():
            server = broken.servers[wire] = emulator(_script)
            strict = emulator(_script, api_key="another key")
            urls = {
                wire: await stack.enter_async_context(serve(server.app)),
                agent_of(wire, "wrong key"): await stack.enter_async_context(serve(strict.app)),
                agent_of(wire, "refused"): f"http://127.0.0.1:{refusing_port()}",
            }
            accounts = dict.fromkeys(urls, KEY)
            # At one address for both wires, which one account would share.
            accounts[agent_of(wire, "refused")] = f"{KEY}-{wire}"
            for number, fault in enumerate(_OF_ITS_OWN):
                urls[agent_of(wire, fault)], accounts[agent_of(wire, fault)] = urls[wire], f"{KEY}-{number}"
            for name, url in urls.items():
                settings = f"type: {wire}, model: m, base_url: '{url}/v1', api_key: {accounts[name]}"
                broken.agents += f"{name}: {{{settings}, timeouts: {_timeouts(name)}}}\n"
        yield broken
