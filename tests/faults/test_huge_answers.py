"""Answers of any size and depth: they fail their own task with a plain reason, and cost the gateway little memory.

Text that is really an answer, eight MiB of it, is read, stored and given out: that costs a dozen times its size.
"""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.adapters.raw_server import EVENT_STREAM, Exchange, chunk, plain
from tests.faults.broken_backends import WIRES
from tests.faults.raw_backends import ANSWER, agent, raw_backend, recorded
from tests.running import child_gateways

pytestmark = [pytest.mark.fault("B10"), pytest.mark.xdist_group("huge")]

MIB = 1024 * 1024
DEEP = 20_000


@dataclass(frozen=True, slots=True)
class Huge:
    """`heard` is how long the text is that the caller has of it, `memory` how much more the gateway may need meanwhile."""

    send: Callable[[Exchange], Awaitable[None]]
    told: tuple[str, str]
    heard: int = 0
    memory: int = 64 * MIB


async def _in_pieces(exchange: Exchange, head: bytes, piece: bytes, times: int) -> None:
    """Until the gateway has had enough of it."""
    try:
        await exchange.send(head)
        for _ in range(times):
            await exchange.send(piece)
    except ConnectionError:
        return
    exchange.writer.close()


async def _endless_event(exchange: Exchange) -> None:
    await _in_pieces(exchange, EVENT_STREAM + chunk(b"data: "), chunk(b"x" * MIB), 64)


async def _endless_pings(exchange: Exchange) -> None:
    await _in_pieces(exchange, EVENT_STREAM, chunk((b": %s\n\n" % (b"x" * 1000)) * 1000), 200)


async def _large_page(exchange: Exchange) -> None:
    head = b"HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % (32 * MIB)
    await _in_pieces(exchange, head, b"x" * MIB, 32)


async def _large_page_under_200(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (32 * MIB)
    await _in_pieces(exchange, head, b"[" * MIB, 32)


@cache
def _zeros() -> bytes:
    """Two hundred times as many as they take."""
    press = zlib.compressobj(1, wbits=31)
    return b"".join([*(press.compress(bytes(MIB)) for _ in range(256)), press.flush()])


def _bomb(status: str, kind: str) -> Callable[[Exchange], Awaitable[None]]:
    async def send(exchange: Exchange) -> None:
        await exchange.send(plain(status, _zeros(), Content_Encoding="gzip", Content_Type=kind))

    return send


def _deep(before: bytes, status: str | None = None) -> Callable[[Exchange], Awaitable[None]]:
    deep = before + b"[" * DEEP + b"]" * DEEP + b"}" * before.count(b"{")

    async def send(exchange: Exchange) -> None:
        if status is None:
            await exchange.stream(b"data: %s\n\n" % deep)
        else:
            await exchange.send(plain(status, deep, Content_Type="application/json"))

    return send


async def _large_delta(exchange: Exchange) -> None:
    """Eight MiB of text in one event of either wire, and nothing after it that would end the answer."""
    text = "x" * (8 * MIB)
    choices = [{"index": 0, "delta": {"content": text}}]
    told = {"type": "response.output_text.delta", "item_id": "m", "delta": text}
    wire = told if b'"input"' in exchange.request.body else {"choices": choices}
    await exchange.stream(b"data: %s\n\n" % json.dumps(wire).encode())


HUGE: dict[str, Huge] = {
    "a delta of 8 MiB": Huge(_large_delta, failed(ErrorClass.INTERRUPTED), 8 * MIB, 160 * MIB),
    "an event without end": Huge(_endless_event, failed(ErrorClass.CONTRACT_BROKEN)),
    "pings without end": Huge(_endless_pings, failed(ErrorClass.CONTRACT_BROKEN)),
    "a page of 32 MiB": Huge(_large_page, failed(ErrorClass.BACKEND_FAILED)),
    "JSON of 32 MiB under 200": Huge(_large_page_under_200, failed(ErrorClass.CONTRACT_BROKEN)),
    "a bomb": Huge(_bomb("200 OK", "text/event-stream"), failed(ErrorClass.CONTRACT_BROKEN)),
    "a bomb as an error": Huge(_bomb("500 Oops", "application/json"), failed(ErrorClass.BACKEND_FAILED)),
    "a deep delta": Huge(_deep(b'{"type":"response.output_text.delta","choices":'), failed(ErrorClass.CONTRACT_BROKEN)),
    "a deep error": Huge(_deep(b'{"error":{"message":', "500 Oops"), failed(ErrorClass.BACKEND_FAILED)),
}


def _peak(pid: int) -> int:
    """The most memory that it had since it was last forgotten."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _forget_peak(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak(pid)


_OF_EACH_WIRE = ("a delta of 8 MiB", "a bomb", "a deep delta")
"""What is read by code of its own."""


async def test_answers_of_any_size_and_depth_fail_their_task_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _zeros()
    streams = {wire: await recorded(wire) for wire in WIRES}
    grown: dict[str, int] = {}

    async def answer(exchange: Exchange) -> None:
        wire = "openai-responses" if b'"input"' in exchange.request.body else "openai-chat"
        name = next((name for name in HUGE if json.dumps(name).encode() in exchange.request.body), None)
        if name is None:
            await exchange.stream(streams[wire])
        else:
            await HUGE[name].send(exchange)

    async with raw_backend(answer) as server:
        agents = "\n".join(agent(wire, server).replace("raw:", f"{wire}:") for wire in WIRES)
        async with child_gateways(agents, tmp_path) as start:
            child = await start()
            pid = child.pid
            async with a2a_http(child.url) as http:
                for wire in WIRES:
                    caller = A2A(http, wire)
                    assert why(await caller.send("hello")) == COMPLETED
                    for name in HUGE if wire == "openai-responses" else _OF_EACH_WIRE:
                        huge = HUGE[name]
                        before = _forget_peak(pid)
                        task, beside = await asyncio.gather(caller.send(name), caller.send("beside"))
                        grown[f"{name}, {wire}"] = _peak(pid) - before
                        assert grown[f"{name}, {wire}"] < huge.memory, name
                        assert (why(task), len(text_of(task))) == (huge.told, huge.heard), name
                        assert (why(beside), text_of(beside)) == (COMPLETED, ANSWER)
    with capsys.disabled():
        most = max(grown, key=lambda name: grown[name])
        print(f"\n{len(grown)} huge answers, most memory: {grown[most] / MIB:.0f} MiB more for {most}")  # noqa: T201
