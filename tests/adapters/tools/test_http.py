"""A request of an HTTP API as a tool, against a real server: requests, outputs, refusals."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from adapters.tools.http import HttpTool, HttpToolSettings
from gateway.a2a.model import Json
from gateway.ports.tools import SourceTool, ToolError, ToolOutput, ToolRun
from gateway.testing.serving import serve
from tests.adapters.raw_server import Exchange, RawServer, StartRaw, plain
from tests.support.certificates import certificate
from tests.support.core import soon
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}, "tags": {"type": "array"}},
    "required": ["id"],
}


DEEP = "[" * 101 + "]" * 101


class Orders:
    """An API that echoes its request; /slow never answers."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.come, self.gone = asyncio.Event(), asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/orders/{id}", self.order, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
                Route("/answer/{kind}", self.answer),
                Route("/moved", lambda _: RedirectResponse("/orders/1")),
                Route("/slow", self.slow),
            ]
        )

    async def order(self, request: Request) -> Response:
        self.requests.append(
            {
                "method": request.method,
                "target": request.scope["raw_path"].decode() + (f"?{query}" if (query := request.url.query) else ""),
                "headers": dict(request.headers),
                "body": (await request.body()).decode(),
            }
        )
        return JSONResponse({"id": request.path_params["id"], "paid": True})

    async def answer(self, request: Request) -> Response:
        match request.path_params["kind"]:
            case "latin":
                return Response("grün".encode("latin-1"), headers={"Content-Type": "text/plain; charset=iso-8859-1"})
            case "odd-charset":
                return Response(b"abc", headers={"Content-Type": "text/plain; charset=klingon"})
            case "empty":
                return Response(status_code=204)
            case "binary":
                return Response(bytes(range(256)), media_type="image/png")
            case "broken-json":
                return Response("{", media_type="application/json")
            case "deep":
                return Response(DEEP, media_type="application/json")
            case "problem":
                return JSONResponse({"title": "gone"}, status_code=410, media_type="application/problem+json")
            case "no-key":
                return JSONResponse({"error": "the key sk-secret is wrong"}, status_code=401)
            case "huge":
                return Response("x" * (5 * 1024 * 1024), media_type="text/plain")
            case kind:
                return Response(kind, status_code=500, media_type="text/plain")

    async def slow(self, request: Request) -> Response:
        self.come.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()
        return Response()


@pytest.fixture
async def orders() -> Orders:
    return Orders()


@pytest.fixture
async def base(orders: Orders) -> AsyncIterator[str]:
    async with serve(orders.app) as url:
        yield url


def settings(**given: Any) -> HttpToolSettings:
    return HttpToolSettings.model_validate({"description": "d", **given}, context={"name": "orders", "base_dir": "."})


async def call(arguments: dict[str, Json], **given: Any) -> ToolOutput:
    tool = HttpTool(settings(**given))
    try:
        return await tool.run(ToolRun("orders", arguments, "call-1", "ctx", "me"))
    finally:
        await tool.aclose()


async def test_it_is_one_tool_called_as_its_entry_with_an_argument_for_each_place() -> None:
    tool = HttpTool(settings(url="http://h/{id}?lang={lang}"))
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "lang": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    assert await tool.tools() == (SourceTool("orders", "d", schema, idempotent=True),)
    assert await tool.tools() is await tool.tools()


async def test_only_what_changes_nothing_is_idempotent_by_itself() -> None:
    made = [
        (await HttpTool(settings(url="http://h", **given)).tools())[0]
        for given in ({"method": "POST", "name": "make"}, {"method": "PUT", "idempotent": True}, {"idempotent": False})
    ]
    assert [(each.name, each.idempotent) for each in made] == [("make", False), ("orders", True), ("orders", False)]


async def test_get_asks_with_the_query_and_answers_json(orders: Orders, base: str) -> None:
    output = await call(
        {"id": 7, "note": "a b", "tags": ["x"]},
        url=f"{base}/orders/{{id}}?full=1",
        parameters=SCHEMA,
        headers={"X-Key": " sk-secret "},
    )
    assert output == ToolOutput({"id": "7", "paid": True})
    (request,) = orders.requests
    assert (request["method"], request["target"], request["body"]) == (
        "GET",
        "/orders/7?full=1&note=a%20b&tags=%5B%22x%22%5D",
        "",
    )
    assert request["headers"]["x-key"] == "sk-secret"
    assert not {"idempotency-key", "content-type", "cookie"} & request["headers"].keys()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_other_methods_send_what_the_address_does_not_take_as_json(
    method: str, orders: Orders, base: str
) -> None:
    await call({"id": 7, "note": "ü"}, method=method, url=f"{base}/orders/{{id}}", parameters=SCHEMA)
    (request,) = orders.requests
    assert (request["method"], request["target"], msgspec.json.decode(request["body"])) == (
        method,
        "/orders/7",
        {"note": "ü"},
    )
    assert request["headers"]["content-type"] == "application/json"
    assert request["headers"]["idempotency-key"] == "call-1"


async def test_an_argument_cannot_reach_another_path(orders: Orders, base: str) -> None:
    await call({"id": "../admin?x=1#y"}, url=f"{base}/orders/{{id}}")
    output = await call({"id": ".."}, url=f"{base}/orders/{{id}}")
    assert [each["target"] for each in orders.requests] == []
    assert output == ToolOutput("an argument must not be empty, `.` or `..`: it stands in a path", error=True)


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("latin", ToolOutput("grün")),
        ("odd-charset", ToolOutput("abc")),
        ("empty", ToolOutput(None)),
        ("binary", ToolOutput({"mediaType": "image/png", "bytes": 256})),
        ("broken-json", ToolOutput("{")),
        ("deep", ToolOutput(DEEP)),
        ("problem", ToolOutput({"status": 410, "answer": {"title": "gone"}}, error=True)),
        ("down", ToolOutput({"status": 500, "answer": "down"}, error=True)),
        ("huge", ToolOutput("x" * 4 * 1024 * 1024)),
    ],
)
async def test_an_answer_of_any_kind_is_an_output(kind: str, output: ToolOutput, base: str) -> None:
    assert await call({}, url=f"{base}/answer/{kind}") == output


async def test_an_answer_about_the_credentials_is_for_the_operator_alone(base: str) -> None:
    with pytest.raises(ToolError) as error:
        await call({}, url=f"{base}/answer/no-key", headers={"Authorization": "Bearer sk-secret"})
    assert error.value.detail == "GET at 127.0.0.1: HTTP 401"
    assert not error.value.may_have_run


async def test_a_redirect_is_not_followed(orders: Orders, base: str) -> None:
    with pytest.raises(ToolError, match=r"GET at 127\.0\.0\.1: HTTP 307") as error:
        await call({}, url=f"{base}/moved")
    assert error.value.may_have_run
    assert orders.requests == []


async def test_the_error_of_an_absent_server_holds_no_headers() -> None:
    with pytest.raises(ToolError, match=r"GET at 127\.0\.0\.1: ClientConnectorError") as error:
        await call({}, url=f"http://127.0.0.1:{refusing_port()}/", headers={"X-Key": "sk-secret"})
    assert "sk-secret" not in f"{error.value.detail}{error.value.__cause__}{error.value.__context__}"
    assert not error.value.may_have_run


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_lost_connection_repeats_only_what_is_idempotent_and_that_once(
    raw: StartRaw, method: str, idempotent: bool
) -> None:
    async def answer(exchange: Exchange) -> None:
        if len(server.requests) > 1:
            await exchange.send(plain("200 OK", b'"done"', Content_Type="application/json"))
        exchange.writer.close()

    server = await raw(answer)
    given = {"url": server.url, "method": method, "idempotent": idempotent}
    if idempotent:
        assert await call({}, **given) == ToolOutput("done")
        first, second = server.requests
        assert first.header("Idempotency-Key") == second.header("Idempotency-Key")
    else:
        with pytest.raises(ToolError, match="ServerDisconnectedError") as error:
            await call({}, **given)
        assert error.value.may_have_run
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", b"HTTP/1.1 200 OK\r\nNo header\r\n\r\n", b"no HTTP\r\n\r\n"],
)
async def test_an_answer_that_is_cut_or_broken_says_that_the_tool_may_have_run(raw: StartRaw, answer: bytes) -> None:
    async def broken(exchange: Exchange) -> None:
        await exchange.send(answer)
        exchange.writer.close()

    server = await raw(broken)
    with pytest.raises(ToolError) as error:
        await call({}, url=server.url, method="POST")
    assert error.value.may_have_run
    assert len(server.requests) == 1


async def test_a_second_lost_connection_is_an_error(raw: StartRaw) -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.reset()

    server = await raw(answer)
    with pytest.raises(ToolError):
        await call({}, url=server.url)
    assert len(server.requests) == 2


async def test_cancelling_closes_the_connection(orders: Orders, base: str) -> None:
    async with asyncio.TaskGroup() as group:
        calling = group.create_task(call({}, url=f"{base}/slow"))
        await soon(orders.come.wait())
        calling.cancel()
    await soon(orders.gone.wait())


# --- where a model names the host -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "localhost", "10.0.0.1", "169.254.169.254", "0x7f.0.0.1"]
)
async def test_a_host_that_a_model_names_must_be_public(host: str, orders: Orders, base: str) -> None:
    port = base.rpartition(":")[2]
    output = await call({"host": host}, url=f"http://{{host}}:{port}/orders/1")
    assert output.error
    assert isinstance(output.output, str)
    assert "must not be contacted" in output.output
    assert orders.requests == []


async def test_a_host_that_the_operator_names_may_be_on_his_own_network(base: str) -> None:
    assert (await call({}, url=f"{base}/orders/1")).output == {"id": "1", "paid": True}


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "ftp://h"}, "must be an address"),
        (
            {"url": "http://h/{id}", "parameters": {"type": "object"}},
            "url has {id}, so 'id' must be among the `required`",
        ),
        (
            {"url": "http://h/{id}", "parameters": {"type": "object", "required": ["id"]}},
            "url has {id}, so 'id' must be among the `properties`",
        ),
        (
            {"url": "http://h?q={q}", "parameters": {"type": "object", "properties": {}}},
            "url has {q}, so 'q' must be among the `properties`",
        ),
        ({"url": "http://h", "parameters": {"type": "objekt"}}, "parameters: its parameters are no JSON Schema"),
        (
            {"url": "http://h", "parameters": {"properties": {"a": {"pattern": "^(?!internal)"}}}},
            "parameters: the pattern '^(?!internal)' cannot be checked: look-around",
        ),
        (
            {"url": "http://h", "parameters": {"properties": {"a": {"$ref": "http://x/y"}}}},
            "parameters: its parameters refer to 'http://x/y', which is not in them",
        ),
        ({"url": "http://h", "headers": {"X Key": "a"}}, "'X Key' is no name of a header"),
        ({"url": "http://h", "headers": {"X-Key": "sk-secret\r\nX: y"}}, "the value of 'X-Key' must be one line"),
        ({"url": "http://h", "name": "a b"}, "String should match pattern"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        settings(**given)
    assert words in str(error.value)
    assert "sk-secret" not in str(error.value)


async def test_a_request_goes_through_the_proxy_with_the_headers_of_the_operator(base: str, orders: Orders) -> None:
    async with forward_proxy() as proxy:
        given = {"url": f"{base}/orders/{{id}}", "proxy": proxy.url, "headers": {"X-Team": "red"}}
        assert await call({"id": "7"}, **given) == ToolOutput({"id": "7", "paid": True})
    [head], [request] = proxy.heads, orders.requests
    assert head.startswith(f"GET {base}/orders/7 ")
    assert request["headers"]["x-team"] == "red"


async def test_a_certificate_is_trusted_where_the_settings_name_its_authority(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", b'"done"', Content_Type="application/json"))

    file = certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    raw = RawServer(answer)
    async with await asyncio.start_server(raw.serve_connection, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
        assert await call({}, url=url, ca=str(file)) == ToolOutput("done")
        with pytest.raises(
            ToolError, match="GET at localhost: its certificate is not trusted: self-signed certificate"
        ):
            await call({}, url=url)
        with pytest.raises(ToolError, match=r"Server disconnected; does its address begin with https:"):
            await call({}, url=url.replace("https:", "http:"))
        await raw.stop()


def test_a_proxy_and_a_host_that_a_model_names_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="`proxy` cannot be used"):
        settings(url="https://{shop}.example/", proxy="http://proxy:3128")
