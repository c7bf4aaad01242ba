"""`health`: what a container's HEALTHCHECK calls."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.cli.console.output import Stop
from gateway.cli.manage.health import print_health
from gateway.testing.serving import DROP, serve
from tests.gateway.cli.conftest import Call, CommandLine
from tests.support.certificates import certificate, server_context


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configuration(server: str) -> str:
    """A file that says where it listens; what else it holds, and what it refers to, is not looked at."""
    return f"version: 1\nserver: {server}\nagents: {{a: {{type: openai-chat, api_key: '${{NOT_SET}}', odd: 1}}}}\n"


@pytest.mark.parametrize(
    "server",
    ["{{port: {}}}", "{{port: {}, host: 0.0.0.0, public_url: 'https://agents.example'}}", "\n  port: ${{NOT_SET:-{}}}"],
)
async def test_the_address_is_that_of_the_configuration(command_line: CommandLine, folder: Path, server: str) -> None:
    async with serve(app) as url:
        text = configuration(server.format(urlsplit(url).port))
        (folder / "gateway.yaml").write_text(text)
        assert (await command_line("health", "--live")).code == 0
        (folder / "gateway.yaml").write_text(configuration("{port: 1}"))
        assert (await command_line("health", "--live")).code == 69
        (folder / "other.yaml").write_text(text)
        assert (await command_line("health", "--live", "-c", "other.yaml")).code == 0
        assert (await command_line("health", "--live", "-u", url)).code == 0


async def test_a_variable_wins_over_the_configuration(
    command_line: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gateway.yaml").write_text("server: {port: '${NOT_SET}', host: 192.0.2.1}")
    async with serve(app) as url:
        port = urlsplit(url).port
        monkeypatch.setenv("A2A_GATEWAY__SERVER__PORT", str(port))
        monkeypatch.setenv("a2a_gateway__server__host", "::")
        ended = await command_line("health", "--live")
        assert ended.err.startswith(f"http://[::1]:{port}/livez cannot be reached")
        monkeypatch.setenv("a2a_gateway__server__host", "127.0.0.1")
        assert (await command_line("health", "--live")).code == 0


@pytest.mark.parametrize(
    ("file", "code", "text"),
    [
        ("server: {port: eight}", 78, "gateway.yaml:1:16: server.port: must be a whole number, not 'eight'"),
        ("server: {port: true}", 78, "gateway.yaml:1:16: server.port: must be a whole number, not true"),
        ("server: {host: 5}", 78, "gateway.yaml:1:16: server.host: must be text, not 5"),
        (
            "server: {port: '${NOT_SET}'}",
            78,
            "gateway.yaml:1:16: server.port: the environment variable NOT_SET is not set; set it",
        ),
        ("a: [", 78, "gateway.yaml:1:5: not valid YAML: "),
        ("server: {port: 0}", 2, "the system chooses the port of this gateway; say which: health -u URL"),
    ],
)
def test_a_configuration_without_an_address_is_reported(
    call: Call, folder: Path, file: str, code: int, text: str
) -> None:
    (folder / "gateway.yaml").write_text(file)
    ended = call("health")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(text)


def test_a_named_configuration_has_to_be_there(call: Call, folder: Path) -> None:
    ended = call("health", "-c", "none.yaml")
    problem = "the file none.yaml cannot be read: no such file or directory"
    remedy = "name another with -c FILE, or the address of the gateway with -u URL"
    assert (ended.code, ended.err) == (78, f"{problem}; {remedy}\n")


@pytest.mark.parametrize(
    ("server", "variables"),
    [
        ("server: {port: 70000}", {}),
        ("server: {port: -1, host: ''}", {}),
        ("server: {port: 80.5}", {}),
        ("server: {port: '80'}", {}),
        ("server: {port: }", {}),
        ("server: {port: [1], host: {a: 1}}", {}),
        ("server: {host: 5}", {}),
        ("server: [1]", {}),
        ("server: 8080", {}),
        ("server:", {}),
        ("server: '${NOT_SET}'", {}),
        ("server: {host: !own x}", {}),
        ("server: {port: 1}\nserver: {port: 2}", {}),
        ("", {"A2A_GATEWAY__SERVER__PORT": "70000"}),
        ("", {"A2A_GATEWAY__SERVER__PORT": "many"}),
        ("", {"A2A_GATEWAY__SERVER__PORT": " "}),
        ("", {"A2A_GATEWAY__SERVER_PORT": "1"}),
        ("", {"A2A_GATEWAY__SERVER": "1"}),
        ("server: 1", {"A2A_GATEWAY__SERVER__PORT": "1"}),
        ("", {"A2A_GATEWAY__SERVER__PORT": "1", "a2a_gateway__server__port": "2"}),
    ],
)
def test_a_server_section_that_serve_refuses_is_reported_in_its_words(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, server: str, variables: dict[str, str]
) -> None:
    agent = "agents: {a: {type: python, ref: 'gateway.cli.demo.agent:reply'}}"
    (folder / "gateway.yaml").write_text(f"version: 1\n{agent}\n{server}\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = call("health")
    assert (ended.code, ended.out) == (78, "")
    assert ended.err == call("check").err
    assert ended.err


@pytest.mark.parametrize("text", ["- a", "port: ["])
def test_a_file_that_is_no_configuration_is_reported_in_the_words_of_serve(call: Call, folder: Path, text: str) -> None:
    (folder / "gateway.yaml").write_text(text)
    ended = call("health")
    assert (ended.code, ended.err) == (78, call("check").err)


def test_a_folder_is_no_configuration(call: Call, folder: Path) -> None:
    (folder / "gateway.yaml").mkdir()
    ended = call("health")
    assert (ended.code, ended.err.partition(";")[0]) == (78, "the file gateway.yaml cannot be read: is a directory")


@pytest.mark.parametrize(
    ("server", "variables"),
    [
        ("", {"A2A_GATEWAY__SERVER": "{{port: {}}}"}),
        ("server: {{port: '${{P}}'}}", {"P": "{}"}),
        ("server: {{port: {}, host: localhost}}", {}),
    ],
)
async def test_every_way_to_say_where_it_listens_is_read(
    command_line: CommandLine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    variables: dict[str, str],
) -> None:
    async with serve(app) as url:
        port = urlsplit(url).port
        (folder / "gateway.yaml").write_text(f"version: 1\n{server.format(port)}\n")
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(port))
        ended = await command_line("health", "--live")
    assert (ended.code, ended.err) == (0, "")


def test_a_variable_that_sets_nothing_is_named_as_serve_does(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2A_GATEWAY_SERVER__PORT", "1")
    (folder / "gateway.yaml").write_text("server: {port: 1}\n")
    ended = call("health")
    warning = "environment: A2A_GATEWAY_SERVER__PORT: sets nothing; did you mean A2A_GATEWAY__SERVER__PORT?"
    assert ended.err.splitlines()[0] == f"warning: {warning}"


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "[::1]", "no-such-host.invalid"])
def test_a_host_that_cannot_be_is_unreachable(call: Call, folder: Path, host: str) -> None:
    (folder / "gateway.yaml").write_text(f"server: {{host: '{host}'}}\n")
    ended = call("health")
    assert (ended.code, ended.out) == (69, "")
    assert "/readyz cannot be reached: " in ended.err
    assert "codec" not in ended.err


def test_health_imports_neither_client_nor_models(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("server: {port: 1}")
    heavy = "{'asyncio', 'gateway.config.settings', 'httpx2', 'starlette'}"
    start = f"import sys; from gateway.cli.main import run; run(['health']); assert not {heavy} & set(sys.modules)"
    # Coverage in a subprocess imports modules of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "http://127.0.0.1:1/readyz cannot be reached: connection refused\n")


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
        print_health("https://127.0.0.1:1", None, live=True)


async def test_a_certificate_that_is_not_trusted_is_told_with_what_helps(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = certificate(tmp_path, "localhost")
    context = server_context(file)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        ended = await command_line("health", "-u", url)
        remedy = "name a file with the certificate itself in SSL_CERT_FILE"
        expected = (
            f"{url}/readyz cannot be reached: its certificate is not trusted: self-signed certificate; {remedy}\n"
        )
        assert (ended.code, ended.out, ended.err) == (69, "", expected)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        ended = await command_line("health", "-u", url)
        assert (ended.code, ended.err.startswith("SSL_CERT_FILE: the file ")) == (2, True)
