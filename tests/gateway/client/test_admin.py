"""The admin API over HTTP, and the meaning of answers of foreign servers."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.client.admin import (
    NoAdminApi,
    adopt_handle,
    delete_context,
    export_context,
    import_context,
    list_pushes,
    replay_pushes,
)
from gateway.client.transport import ClientError, Refused, Unreachable, open_http
from gateway.testing.serving import serve

OURS = {"error": {"message": "none", "details": [{"reason": "NOT_FOUND", "domain": "a2a-protocol.org"}]}}


async def deleting(answer: Response, below: str = "") -> list[str]:
    """The addresses that were called."""
    called: list[str] = []

    async def note(request: Request) -> Response:
        called.append(f"{request.method} {request.url.path}?{request.url.query}")
        return answer

    app = Starlette(routes=[Route("/{path:path}", note, methods=["GET", "DELETE"])])
    async with serve(app) as url, open_http(url) as http:
        await delete_context(http, f"{url}{below}", "c 1/2", "notes")
    return called


@pytest.mark.parametrize("below", ["", "/", "/a2a", "/a2a/notes/", "/.well-known/agent-card.json"])
async def test_the_gateway_is_found_from_the_typed_address(below: str) -> None:
    assert await deleting(Response(status_code=204), below) == ["DELETE /admin/api/v1/contexts/c 1/2?agent=notes"]
    assert await deleting(Response(status_code=204), f"/base{below}") == [
        "DELETE /base/admin/api/v1/contexts/c 1/2?agent=notes"
    ]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (JSONResponse(OURS, 404), Refused),
        (JSONResponse({"detail": "Not Found"}, 404), NoAdminApi),
        (Response("<html>", 405), NoAdminApi),
        (Response("", 200), NoAdminApi),
        (Response("", 401), Refused),
        (Response("", 503), Refused),
    ],
)
async def test_a_foreign_server_and_a_refusal_differ(answer: Response, error: type[ClientError]) -> None:
    with pytest.raises(error):
        await deleting(answer)


async def test_an_address_without_a_server_is_unreachable() -> None:
    async with open_http("http://127.0.0.1:1") as http:
        with pytest.raises(Unreachable):
            await delete_context(http, "http://127.0.0.1:1", "c-1")


async def test_whole_contexts_have_addresses_of_their_own() -> None:
    called: list[tuple[str, str, bytes]] = []

    async def note(request: Request) -> Response:
        called.append((request.method, request.url.path, await request.body()))
        return Response(b"document") if request.method == "GET" else JSONResponse({"contextId": "c-1"}, 201)

    app = Starlette(routes=[Route("/{path:path}", note, methods=["GET", "POST"])])
    async with serve(app) as url, open_http(url) as http:
        assert await export_context(http, f"{url}/a2a/notes", "c 1/2") == b"document"
        assert await import_context(http, url, b"{}") == "c-1"
        assert await adopt_handle(http, url, "notes", "resp_1", None) == "c-1"
    assert called == [
        ("GET", "/admin/api/v1/contexts/c 1/2", b""),
        ("POST", "/admin/api/v1/contexts:import", b"{}"),
        ("POST", "/admin/api/v1/contexts:adopt", b'{"agent":"notes","handle":"resp_1","contextId":null}'),
    ]


async def test_push_notifications_have_addresses_of_their_own() -> None:
    called: list[tuple[str, str, bytes]] = []

    async def note(request: Request) -> Response:
        called.append((request.method, request.url.path, await request.body()))
        return JSONResponse({"configs": [{"id": "c"}]} if request.method == "GET" else {"replayed": 2})

    app = Starlette(routes=[Route("/{path:path}", note, methods=["GET", "POST"])])
    async with serve(app) as url, open_http(url) as http:
        assert await list_pushes(http, f"{url}/a2a/notes") == [{"id": "c"}]
        assert await replay_pushes(http, url, "t", None) == 2
    assert called == [
        ("GET", "/admin/api/v1/push", b""),
        ("POST", "/admin/api/v1/push:replay", b'{"taskId":"t","id":null}'),
    ]
