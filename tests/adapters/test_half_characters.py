"""Answers of services in JavaScript, which cut a text between the two halves of a character."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from adapters.anthropic.adapter import factory as anthropic
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.openai.chat.adapter import factory as chat
from adapters.openai.responses.adapter import factory as responses
from gateway.ports.adapter import AnyAdapterFactory, MessageReady, TextDelta
from gateway.testing.adapter_scripts import collect, of_type, request
from tests.adapters.emulator_support import Build
from tests.adapters.raw_server import Exchange, StartRaw, plain

PIECES = ("Hi \ud83d", "\ude00 there", "\ud83c", "\udf89")


def _chat() -> list[dict[str, Any]]:
    said = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in PIECES]
    return [*said, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def _messages() -> list[dict[str, Any]]:
    def delta(piece: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}

    begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    return [begin, *map(delta, PIECES), {"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]


def _responses() -> list[dict[str, Any]]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    said = [{"type": "response.output_text.delta", "delta": piece, **at} for piece in PIECES]
    text = {"type": "output_text", "text": "Hi \U0001f600 there\U0001f389"}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}
    whole = {"id": "resp_1", "status": "completed", "output": [item]}
    return [*said, {"type": "response.completed", "response": whole}]


STREAMS: dict[str, tuple[AnyAdapterFactory, Callable[[], list[dict[str, Any]]]]] = {
    "openai-chat": (chat, _chat),
    "anthropic": (anthropic, _messages),
    "openai-responses": (responses, _responses),
}


@pytest.mark.parametrize("family", STREAMS)
async def test_a_character_that_comes_in_two_halves_is_whole(family: str, raw: StartRaw, build: Build) -> None:
    factory, events = STREAMS[family]

    async def answer(exchange: Exchange) -> None:
        await exchange.stream(*(f"data: {json.dumps(event)}\n\n".encode() for event in events()))

    adapter = build(factory, (await raw(answer)).url)
    told = await collect(adapter, request("Hi"))
    assert "".join(event.text for event in of_type(told, TextDelta)) == "Hi \U0001f600 there\U0001f389"
    assert {event.text for event in of_type(told, MessageReady)} <= {"Hi \U0001f600 there\U0001f389"}


async def test_half_a_character_in_a_document_is_replaced(raw: StartRaw) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", rb'{"name":"a\ud83d"}', Content_Type="application/json"))

    client = HttpClient(Timeouts(), Failures(()))
    found = await client.request_json("GET", (await raw(answer)).url)
    await client.aclose()
    assert found == {"name": "a\ufffd"}
