"""`health`: what a container's HEALTHCHECK calls."""

import asyncio
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.cli.console.output import Stop
from gateway.cli.manage.health import print_health
from gateway.testing.serving import DROP, serve
from tests.gateway.cli.conftest import CommandLine


async def alive(_: Request) -> Response:
    return PlainTextResponse("ok")


async def draining(_: Request) -> Response:
    return PlainTextResponse('{"status":"draining"}\x1b', 503)


app = Starlette(routes=[Route("/livez", alive), Route("/readyz", draining)])


async def test_a_process_that_answers_is_alive(command_line: CommandLine) -> None:
    async with serve(app) as url:
        ended = await command_line("health", "--live", "-u", f"{url}/")
    assert (ended.code, ended.out, ended.err) == (0, "alive\n", "")


async def test_a_gateway_that_takes_no_work_is_not_ready(command_line: CommandLine) -> None:
    async with serve(app) as url:
        for arguments in (["health"], ["health", "--ready"]):
            ended = await command_line(*arguments, "-u", url)
            expected = f'{url}/readyz answered 503: {{"status":"draining"}}\\x1b\n'
            assert (ended.code, ended.out, ended.err) == (69, "", expected)


async def test_the_port_is_that_of_the_environment(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(app) as url:
        monkeypatch.setenv("A2A_GATEWAY__SERVER__PORT", str(urlsplit(url).port))
        assert (await command_line("health", "--live")).code == 0


async def test_a_missing_gateway_is_reported(command_line: CommandLine) -> None:
    async with serve(app) as url:
        pass
    ended = await command_line("health", "-u", url)
    assert (ended.code, ended.err) == (69, f"{url}/readyz cannot be reached: connection refused\n")


async def test_a_broken_connection_is_reported(command_line: CommandLine) -> None:
    async def drop(request: Request) -> Response:
        request.scope["state"][DROP]()
        return Response()

    async with serve(Starlette(routes=[Route("/readyz", drop)])) as url:
        ended = await command_line("health", "-u", url)
    assert ended.code == 69
    assert ended.err.startswith(f"{url}/readyz cannot be reached: ")


async def test_a_gateway_that_does_not_answer_is_reported(
    monkeypatch: pytest.MonkeyPatch, command_line: CommandLine
) -> None:
    monkeypatch.setattr("gateway.cli.manage.health._TIMEOUT", 0.05)
    forever = asyncio.Event()

    async def wait(_: Request) -> Response:
        await forever.wait()
        return Response()

    async with serve(Starlette(routes=[Route("/readyz", wait)])) as url:
        ended = await command_line("health", "-u", url)
        forever.set()
    assert (ended.code, ended.err) == (69, f"{url}/readyz did not answer within 0.05 s\n")


def test_an_https_address_is_asked_over_tls() -> None:
    with pytest.raises(Stop, match=r"^https:.* cannot be reached: connection refused"):
        print_health("https://127.0.0.1:1", live=True)
