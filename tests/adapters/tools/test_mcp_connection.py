"""Servers of the old protocol that lose sessions, or refuse: which requests are repeated, and which errors result."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from adapters.tools.mcp import McpServer, McpSettings
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.tools import ToolError, ToolOutput
from gateway.testing.serving import serve
from tests.adapters.tools.served_mcp import run

SCHEMA = {"type": "object", "properties": {}}
KEY = "sk-secret"


class Old:
    """A server that speaks the protocol of 2025. It knows one session; `refusal` is how it answers for any other."""

    def __init__(self) -> None:
        self.refusal: Response = JSONResponse({"detail": "not found"}, status_code=404)
        self.session = ""
        self.calls: list[dict[str, Any]] = []
        self.lists = 0
        self.pages: list[list[str]] = [["a"]]
        self.unreadable: list[Any] = []
        self.output_schema: dict[str, Any] | None = None
        self.structured: Any = None
        self.reply: Callable[[dict[str, Any]], Response] | None = None
        """How it answers to a call, where that is not as usual."""
        self._numbers = count(1)
        self.app = Starlette(routes=[Route("/mcp", self.answer, methods=["GET", "POST", "DELETE"])])

    def forget(self) -> None:
        self.session = "nobody's"

    async def answer(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"error": f"{KEY} is what I want"}, status_code=401)
        if request.method != "POST":
            return Response(status_code=404 if "last-event-id" in request.headers else 405)
        asked = await request.json()
        if asked["method"] == "initialize":
            self.session = f"session-{next(self._numbers)}"
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
            return JSONResponse(
                {"jsonrpc": "2.0", "id": asked["id"], "result": result}, headers={"mcp-session-id": self.session}
            )
        if asked["method"] == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        if request.headers.get("mcp-session-id") != self.session:
            return self.refusal
        if "id" not in asked:
            return Response(status_code=202)
        if asked["method"] == "tools/call" and self.reply is not None:
            self.calls.append(asked["params"])
            return self.reply(asked)
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"]} | self._said(asked))

    def _said(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tools/list":
            self.lists += 1
            page = int(asked.get("params", {}).get("cursor", "0"))
            more = {} if self.output_schema is None else {"outputSchema": self.output_schema}
            tools = [{"name": name, "inputSchema": SCHEMA, **more} for name in self.pages[page]] + self.unreadable
            return {"result": {"tools": tools} | ({"nextCursor": str(page + 1)} if page + 1 < len(self.pages) else {})}
        self.calls.append(asked["params"])
        if asked["params"]["name"] == "broken":
            return {"error": {"code": -32603, "message": "Internal error"}}
        more = {} if self.structured is None else {"structuredContent": self.structured}
        return {"result": {"content": [{"type": "text", "text": self.session}], **more}}


@pytest.fixture
def old() -> Old:
    return Old()


@pytest.fixture
async def source(old: Old) -> AsyncIterator[McpServer]:
    async with serve(old.app) as url:
        settings = McpSettings.model_validate({"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {KEY}"}})
        server = McpServer(settings)
        try:
            yield server
        finally:
            await server.aclose()


NO_SESSION = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
REFUSALS = {
    "as specified": JSONResponse({"detail": "no"}, status_code=404),
    "with a word": JSONResponse(
        {"jsonrpc": "2.0", "id": "x", "error": {"code": -32001, "message": "Session not found"}}, status_code=404
    ),
    "as an example does": JSONResponse({"jsonrpc": "2.0", "id": None, "error": NO_SESSION}, status_code=400),
    "as another does": JSONResponse({"jsonrpc": "2.0", "error": NO_SESSION}, status_code=400),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_call_of_a_forgotten_session_is_made_in_a_new_one_once(
    refusal: str, old: Old, source: McpServer
) -> None:
    old.refusal = REFUSALS[refusal]
    assert await source.run(run("a")) == ToolOutput("session-1")
    old.forget()
    assert await source.run(run("a")) == ToolOutput("session-2")
    assert len(old.calls) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        JSONResponse({"jsonrpc": "2.0", "id": 3, "error": {"code": -32600, "message": "Bad"}}, status_code=400),
        JSONResponse({}, status_code=500),
        JSONResponse({}, status_code=403),
    ],
)
async def test_a_call_that_may_have_been_looked_at_is_not_made_again(
    refusal: Response, old: Old, source: McpServer
) -> None:
    await source.run(run("a"))
    old.refusal = refusal
    old.forget()
    with pytest.raises(ToolError):
        await source.run(run("a"))
    assert old.session == "nobody's"


async def test_a_list_of_a_forgotten_session_is_asked_for_in_a_new_one(old: Old, source: McpServer) -> None:
    await source.run(run("a"))
    old.forget()
    assert [tool.name for tool in await source.tools()] == ["a"]


async def test_a_call_that_the_server_fails_is_not_made_again(old: Old, source: McpServer) -> None:
    with pytest.raises(ToolError, match="Internal error"):
        await source.run(run("broken"))
    assert len(old.calls) == 1


async def test_other_calls_of_the_session_do_not_suffer_from_one_that_fails(old: Old, source: McpServer) -> None:
    answers = await asyncio.gather(*(source.run(run(name)) for name in ("a", "broken", "a")), return_exceptions=True)
    assert [isinstance(answer, ToolError) for answer in answers] == [False, True, False]


def told(**reply: Any) -> Callable[[dict[str, Any]], Response]:
    return lambda asked: JSONResponse({"jsonrpc": "2.0", "id": asked["id"]} | reply)


def wrong(code: int) -> Callable[[dict[str, Any]], Response]:
    return told(error={"code": code, "message": "no"})


def stream(text: str, *, cut: bool = False) -> Callable[[dict[str, Any]], Response]:
    async def parts() -> AsyncIterator[str]:
        yield text
        if cut:
            raise ConnectionError

    return lambda _asked: StreamingResponse(parts(), media_type="text/event-stream")


@pytest.mark.parametrize(
    ("reply", "may_have_run"),
    [
        (lambda _: Response("oops", status_code=500), True),
        (lambda _: JSONResponse({}, status_code=502), True),
        (lambda _: Response(status_code=408), True),
        (lambda _: Response(status_code=202), True),
        (lambda _: Response("done", media_type="text/plain"), True),
        (lambda _: Response('{"jsonrpc":', media_type="application/json"), True),
        (stream(": hi\n\n"), True),
        (stream(": hi\n\n", cut=True), True),
        (stream("id: 7\nretry: 1\ndata:\n\n"), True),
        (stream("data: {\n\n"), True),
        (told(result={"nothing": 1}), True),
        (wrong(-32603), True),
        (wrong(-32000), True),
        (wrong(-32601), False),
        (wrong(-32020), False),
        (lambda _: Response(status_code=401), False),
        (lambda _: Response(status_code=429), False),
        (
            lambda _: JSONResponse(
                {"jsonrpc": "2.0", "id": 3, "error": {"code": -32600, "message": "x"}}, status_code=400
            ),
            False,
        ),
    ],
)
async def test_a_failed_call_says_whether_the_tool_may_have_run_and_is_not_made_again(
    reply: Callable[[dict[str, Any]], Response], may_have_run: bool, old: Old, source: McpServer
) -> None:
    await source.tools()
    old.reply = reply
    with pytest.raises(ToolError) as error:
        await source.run(run("a"))
    assert error.value.may_have_run is may_have_run
    assert len(old.calls) == 1


async def test_a_call_that_could_not_be_sent_has_not_run(old: Old) -> None:
    async with serve(old.app) as url:
        settings = McpSettings.model_validate({"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {KEY}"}})
        source = McpServer(settings)
        await source.tools()
    for _ in range(2):  # in the session that was open, and when another one cannot be opened
        with pytest.raises(ToolError) as error:
            await source.run(run("a"))
        assert not error.value.may_have_run
    await source.aclose()


async def test_every_call_has_its_key(old: Old, source: McpServer) -> None:
    await source.run(run("a"))
    assert old.calls[0]["_meta"]["a2a-gateway.dev/idempotency-key"] == "call-1"


async def test_a_list_is_read_page_by_page_and_once(old: Old, source: McpServer) -> None:
    old.pages = [["a", "b"], ["c"]]
    assert [tool.name for tool in await source.tools()] == ["a", "b", "c"]
    await source.tools()
    assert old.lists == 2


@pytest.mark.parametrize(
    ("tool", "name", "reason"),
    [
        ({"name": "b"}, "b", "inputSchema: Field required"),
        ({"name": "b", "inputSchema": []}, "b", "inputSchema: Input should be a valid dictionary"),
        ({"name": "b", "inputSchema": SCHEMA, "description": 5}, "b", "description: Input should be a valid string"),
        ({"inputSchema": SCHEMA}, None, "name: Field required"),
        ("b", None, "Input should be a valid dictionary"),
        (None, None, "Input should be a valid dictionary"),
        ({"name": "b", "inputSchema": None}, "b", "inputSchema: Input should be a valid dictionary"),
    ],
)
async def test_a_tool_that_cannot_be_read_is_left_out_and_the_others_stay(
    old: Old, source: McpServer, tool: Any, name: str | None, reason: str
) -> None:
    old.unreadable = [tool]
    with capture_logs() as logs:
        assert [each.name for each in await source.tools()] == ["a"]
    (said,) = [line for line in logs if line["event"] == "tool.left-out"]
    assert said["tool"] == name
    assert reason in said["reason"]


@pytest.mark.parametrize(
    ("schema", "offered"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"properties": {"a": {"type": "string"}}}, False),
        ({"$ref": "http://x/y"}, False),
        ({"type": "string"}, False),
        ({"type": "object", "properties": {"a": {"type": "nonsense"}}}, False),
        (None, False),
    ],
)
async def test_a_tool_whose_schema_is_none_of_an_object_leaves_the_source_usable(
    old: Old, source: McpServer, schema: Any, offered: bool
) -> None:
    old.unreadable = [{"name": "b", "inputSchema": schema}]
    toolset = SourceToolset([AttachedSource("old", "mcp", source)])
    with capture_logs() as logs:
        assert list(await toolset.offered()) == (["a", "b"] if offered else ["a"])
    assert [line["tool"] for line in logs if line["event"] == "tool.left-out"] == ([] if offered else ["b"])


async def test_the_error_of_refused_credentials_does_not_hold_them(old: Old) -> None:
    async with serve(old.app) as url:
        server = McpServer(McpSettings.model_validate({"url": f"{url}/mcp", "headers": {"Authorization": "Bearer x"}}))
        with pytest.raises(ToolError) as error:
            await server.tools()
        await server.aclose()
    assert error.value.detail == "HTTP 401: Server returned an error response"


@pytest.mark.parametrize(
    "block", [{"type": "video", "uri": "http://x/y"}, {"type": "text", "text": 5}, {"no": "type"}, "bare", None]
)
async def test_a_block_of_a_result_that_cannot_be_read_is_told_as_its_json(
    block: Any, old: Old, source: McpServer
) -> None:
    text, whole = {"type": "text", "text": "a"}, msgspec.json.encode(block).decode()
    old.reply = lambda asked: JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [text, block]}})
    assert await source.run(run("a")) == ToolOutput([text, {"type": "text", "text": whole}])
    old.reply = lambda asked: JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [block]}})
    assert await source.run(run("a")) == ToolOutput(whole)


async def test_a_result_that_cannot_be_read_for_another_reason_is_a_failure(old: Old, source: McpServer) -> None:
    result = {"content": [{"type": "text", "text": "a"}], "isError": "perhaps"}
    old.reply = lambda asked: JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    with pytest.raises(ToolError) as error:
        await source.run(run("a"))
    assert error.value.may_have_run


# --- results of tools that declare the schema of their results ---


def rows(subschema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": subschema}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "structured"),
    [
        (rows({"type": "integer"}), {"a": 1}),
        (rows({"pattern": "^(a+)+$"}), {"a": "a" * 1000}),
        (rows({"pattern": "^(?!x)"}), {"a": "x"}),
    ],
)
async def test_a_structured_result_that_fits_its_schema_is_the_output(
    schema: dict[str, Any], structured: Any, old: Old, source: McpServer
) -> None:
    old.output_schema, old.structured = schema, structured
    await source.tools()
    assert await source.run(run("a")) == ToolOutput(structured)


@pytest.mark.parametrize(
    ("schema", "structured", "why"),
    [
        (rows({"type": "integer"}), {"a": "x"}, "a: 'x' is not of type 'integer'"),
        (rows({"type": "integer"}), None, "did not return structured content"),
        (rows({"type": "int"}), {"a": 1}, "Invalid output schema of tool a"),
        (rows({"pattern": "^(a+)+$"}), {"a": "a" * 5000 + "!"}, "does not match|…"),
        (rows({"uniqueItems": True}), {"a": [{"n": n % 9000} for n in range(9001)]}, "has non-unique elements|…"),
    ],
)
async def test_a_structured_result_that_does_not_fit_is_a_failure_soon(
    schema: dict[str, Any], structured: Any, why: str, old: Old, source: McpServer
) -> None:
    old.output_schema, old.structured = schema, structured
    await source.tools()
    async with asyncio.timeout(20):
        with pytest.raises(ToolError, match=why):
            await source.run(run("a"))


async def test_a_result_that_would_take_too_long_to_check_is_taken_and_logged(old: Old, source: McpServer) -> None:
    old.output_schema = rows({"items": {"pattern": "(x0|.){400}y"}})
    old.structured = {"a": ["x" * 10_000] * 30}
    await source.tools()
    with capture_logs() as logs:
        assert await source.run(run("a")) == ToolOutput(old.structured)
    assert [(line["event"], line["tool"]) for line in logs] == [("tool.result-not-checked", "a")]
