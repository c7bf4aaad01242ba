"""Requests over every documented limit, to a real process: each gets a short, plain error, has no effect, and the process
continues to serve. The exact errors are in tests/interaction."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.a2a_client import A2A, COMPLETED, a2a_http, user_message, why
from tests.faults.paused_agents import PausedAgents, paused_agents
from tests.invariants import violations
from tests.support.fork_server import fork_server
from tests.support.rows import query
from tests.support.stores import ledger_url

pytestmark = pytest.mark.xdist_group("limits")

KIB, MIB = 1024, 1024 * 1024


def _send(**message: Any) -> bytes:
    params = {"message": {**user_message("over the limit"), **message}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).encode()


def _data(literal: bytes) -> bytes:
    """A message with this JSON in it, as it is."""
    return _send(parts=[{"data": "HERE"}]).replace(b'"HERE"', literal)


def _call(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


@dataclass(frozen=True, slots=True)
class Over:
    """`code` is the HTTP status, or the code of JSON-RPC where it is negative; `says` is a part of the message."""

    code: int
    says: str
    body: bytes = b""
    headers: tuple[str, ...] = ()
    path: str = "/a2a/function"
    host: str = "localhost"


LIMITS: dict[str, Over] = {
    "a body of more than 8 MiB": Over(-32600, "larger than 8388608 bytes", _send(parts=[{"text": "x" * 8 * MIB}])),
    "JSON deeper than 100": Over(-32700, "100", _data(b"[" * 101 + b"]" * 101)),
    "JSON without end": Over(-32700, "100", _data(b"[" * 20_000 + b"]" * 20_000)),
    "a number that is not finite": Over(-32700, "", _data(b"1e999")),
    "not a number": Over(-32700, "", _data(b"NaN")),
    "a whole number of 21 digits": Over(-32700, "", _data(b"9" * 21)),
    "a key twice": Over(-32700, "", _data(b'{"a":1,"a":2}')),
    "a byte order mark": Over(-32700, "", b"\xef\xbb\xbf" + _send()),
    "bytes that are no UTF-8": Over(-32700, "", _data(b'"\xff"')),
    "half a character": Over(-32602, "surrogate", _data(rb'"\ud83d"')),
    "NUL": Over(-32602, "NUL", _data(rb'"\u0000"')),
    "a compressed body": Over(-32600, "Content-Encoding", _send(), ("Content-Encoding: gzip",)),
    "another type": Over(-32600, "Content-Type", _send(), ("Content-Type: text/plain",)),
    "an id of 257 characters": Over(-32602, "256", _send(messageId="m" * 257)),
    "an id with a line feed": Over(-32602, "control", _send(contextId="a\nb")),
    "1,001 parts": Over(-32602, "1000", _send(parts=[{"text": "x"}] * 1001)),
    "101 references": Over(-32602, "100", _send(referenceTaskIds=["t"] * 101)),
    "51 extensions of a message": Over(-32602, "50", _send(extensions=["https://e.example"] * 51)),
    "metadata over 64 KiB": Over(-32602, "65536", _send(metadata={"k": "x" * 64 * KIB})),
    "metadata of a part over 64 KiB": Over(
        -32602, "65536", _send(parts=[{"text": "x", "metadata": {"k": "x" * 64 * KIB}}])
    ),
    "a batch": Over(-32600, "batches", b"[" + _send() + b"]"),
    "a page of none": Over(-32602, "from 1 to 100", _call("ListTasks", pageSize=0)),
    "a page of 101": Over(-32602, "from 1 to 100", _call("ListTasks", pageSize=101)),
    "101 headers": Over(431, "100 headers", _send(), tuple(f"X-{number}: x" for number in range(101))),
    "33 KiB of headers": Over(431, "32768", _send(), (f"X-Long: {'x' * 33 * KIB}",)),
    "a head without end": Over(431, "too large", b"", (f"X-Long: {'x' * 2048 * KIB}",)),
    "a URL over 8 KiB": Over(414, "8192", _send(), path=f"/a2a/function?x={'x' * 8 * KIB}"),
    "another host": Over(421, "Host", _send(), host="evil.example"),
    "two hosts": Over(400, "Host", _send(), ("Host: localhost",)),
    "a page of somewhere else": Over(403, "Origin", _send(), ("Origin: https://evil.example",)),
    "two lengths": Over(400, "", _send(), ("Content-Length: 1",)),
    "a length beside chunks": Over(400, "", _send(), ("Transfer-Encoding: chunked",)),
    "51 extensions of a request": Over(
        -32602, "50", _send(), ("A2A-Extensions: " + ",".join(f"https://e.example/{number}" for number in range(51)),)
    ),
    "an endless key": Over(-32602, "", _send(), (f"Idempotency-Key: {'k' * 300}",)),
    "another version": Over(-32009, "", _send(), ("A2A-Version: 7.0",)),
}


async def _exchange(url: str, over: Over) -> tuple[int, bytes]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    given = [header.partition(":")[0].lower() for header in over.headers]
    usual = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    headers = [f"{name}: {value}" for name, value in usual.items() if name.lower() not in given]
    lines = [f"POST {over.path} HTTP/1.1", f"Host: {over.host}", *headers, f"Content-Length: {len(over.body)}"]
    writer.write("\r\n".join([*lines, *over.headers, "", ""]).encode() + over.body)
    try:
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            return int(head.split()[1]), await (reader.read() if length is None else reader.readexactly(int(length[1])))
    finally:
        writer.close()


async def test_what_is_over_a_limit_is_refused_in_short_words_and_nothing_of_it_is_done(tmp_path: Path) -> None:
    async with paused_agents(tmp_path) as held, fork_server() as parent:
        child = await parent.serving(_configured(tmp_path, held))
        url = child.url.result()
        told = {name: await _exchange(url, over) for name, over in LIMITS.items()}
        wrong = {name: problem for name, answer in told.items() if (problem := _problem(LIMITS[name], *answer))}
        assert wrong == {}
        async with a2a_http(url) as http:
            assert (await A2A(http, "function").call("ListTasks"))["totalSize"] == 0
            assert why(await A2A(http, "function").send("hello")) == COMPLETED
        await child.kill()
    tables = ("context", "task", "turn")
    assert [query(tmp_path / "gateway.db", f"SELECT count(*) FROM {table}") for table in tables] == [[(1,)]] * 3
    assert violations(tmp_path / "gateway.db") == []


def _configured(folder: Path, held: PausedAgents, limits: str = "") -> Path:
    file = folder / "gateway.yaml"
    agents = "".join(f"  {line}\n" for line in held.agents.splitlines())
    storage = f"storage: {{url: '{ledger_url(folder / 'gateway.db')}'}}"
    file.write_text(f"version: 1\nserver: {{port: 0}}\n{storage}\n{limits}\nagents:\n{agents}")
    return file


def _problem(over: Over, status: int, body: bytes) -> str:
    """What is wrong with a refusal."""
    if len(body) > 2 * KIB:
        return f"{len(body)} bytes"
    if re.search(rb"(.)\1{110}", body):
        return "it repeats what it was sent"
    if status == 400 and over.code == 400:
        return ""  # of the parser of HTTP itself
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError):
        return f"{status}: {body[:200]!r}"
    code = error["code"] if over.code < 0 else status
    text = json.dumps(error)
    if code != over.code or over.says not in text or not 0 < len(error["message"]) <= 300:
        return f"{status}: {text}"
    return ""
