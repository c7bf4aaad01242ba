"""`check --live`: what each backend and source of tools can do."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from adapters.tools.http import HttpTool
from gateway.ports.tools import SourceTool
from gateway.testing.serving import DROP, serve
from tests.adapters.tools.served_mcp import ROOT
from tests.emulators.chat import ChatServer
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Status
from tests.emulators.server import Emulator
from tests.gateway.cli.conftest import CommandLine, Ended
from tests.support.certificates import certificate, server_context
from tests.support.forward_proxy import forward_proxy
from tests.support.installed import install, run
from tests.support.refusing import refusing_port

KEY = "sk-proj-0123456789abcdef"
Check: TypeAlias = Callable[..., Awaitable[Ended]]


@pytest.fixture
async def check(tmp_path: Path, command_line: CommandLine) -> AsyncIterator[Check]:
    """Runs `check --live` on one agent in front of this emulator, or of nothing."""
    async with AsyncExitStack() as stack:

        async def checked(emulator: Emulator | None, kind: str, more: str = "") -> Ended:
            url = f"http://127.0.0.1:{refusing_port()}"
            if emulator is not None:
                url = await stack.enter_async_context(serve(emulator.app))
            agent = f"{{type: {kind}, model: m, api_key: {KEY}, base_url: '{url}/v1'{more}}}"
            (tmp_path / "gateway.yaml").write_text(f"version: 1\nagents:\n  a: {agent}\n")
            ended = await command_line("check", "--live", "-c", str(tmp_path / "gateway.yaml"))
            file = f"{tmp_path}/gateway.yaml:"
            return Ended(ended.code, ended.out.replace(f"{file} ", ""), ended.err.replace(f"{file}3:3: ", ""))

        yield checked


class Obliging(ChatServer):
    """Accepts every model."""

    def knows_model(self, name: str) -> bool:
        return True


FOUND = [
    (Obliging(models=("n",)), "openai-chat", "", "the model is not listed, but answers; it streams"),
    (
        ResponsesServer(models=("m",)),
        "openai-responses",
        "",
        "the model is listed; it streams; it refuses a response id that it does not know",
    ),
    (ResponsesServer(), "openai-responses", "", "it streams; it refuses a response id that it does not know"),
    (
        ResponsesServer(dialect=RESPONSES_DIALECTS["ogx"]),
        "openai-responses",
        "",
        "it streams; it refuses a response id that it does not know",
    ),
    (
        ResponsesServer(dialect=RESPONSES_DIALECTS["litellm"]),
        "openai-responses",
        ", verify_chain: false",
        (
            "it streams; "
            "it takes a response id that it does not know: a conversation that it has lost goes on without its beginning"
        ),
    ),
    (ResponsesServer(), "openai-responses", ", history: {owner: gateway}", "it streams"),
    (ChatServer(models=("m", "n")), "openai-chat", "", "the model is listed; it streams"),
    (ChatServer(), "openai-chat", "", "it streams"),
]


@pytest.mark.parametrize(("emulator", "kind", "more", "words"), FOUND)
async def test_it_says_what_a_backend_can_do(
    emulator: Emulator, kind: str, more: str, words: str, check: Check
) -> None:
    ended = await check(emulator, kind, more)
    assert (ended.code, ended.out, ended.err) == (0, f"ok; agents: a\nagents.a: {words}\n", "")


async def test_it_leaves_nothing_at_the_backend(check: Check) -> None:
    server = ResponsesServer()
    await check(server, "openai-responses")
    assert server.stored == {}


@pytest.mark.parametrize("kind", ["openai-chat", "openai-responses"])
async def test_a_missing_backend_is_unreachable(kind: str, check: Check) -> None:
    ended = await check(None, kind)
    assert ended.code == 69
    assert ended.err.startswith("agents.a: cannot be used (")
    assert ended.err.endswith("); is it running, and is its address right?\n")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_named_with_its_refusal(
    tmp_path: Path, command_line: CommandLine, scheme: str
) -> None:
    async with forward_proxy("407 Proxy Authentication Required") as proxy:
        agent = f"{{type: openai-chat, model: m, base_url: '{scheme}://127.0.0.1:1/v1', proxy: '{proxy.url}'}}"
        tool = f"  t: {{type: mcp, url: '{scheme}://127.0.0.1:1/mcp', proxy: '{proxy.url}'}}\n"
        (tmp_path / "gateway.yaml").write_text(f"version: 1\ntools:\n{tool}agents:\n  a: {agent}\n")
        ended = await command_line("check", "--live", "-c", str(tmp_path / "gateway.yaml"))
    assert ended.code == 69
    remedy = "are `proxy`, its credentials and the address right, and is it running?"
    assert f"agents.a: cannot be used (the proxy {proxy.url} answers HTTP 407); {remedy}\n" in ended.err
    assert "tools.t: cannot be used (" in ended.err
    # A port may have these digits, too.
    assert ended.err.replace(proxy.url, "").count("407") == 2


async def test_an_mcp_server_that_expects_tls_is_told_as_such(tmp_path: Path, command_line: CommandLine) -> None:
    context = server_context(certificate(tmp_path, "localhost"))
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        url = f"http://localhost:{server.sockets[0].getsockname()[1]}/mcp"
        (tmp_path / "gateway.yaml").write_text(f"version: 1\ntools:\n  t: {{type: mcp, url: '{url}'}}\n{AGENT}")
        ended = await command_line("check", "--live", "-c", str(tmp_path / "gateway.yaml"))
    assert ended.code == 69
    assert "does its address begin with https:// and not with http://?" in ended.err


@pytest.mark.parametrize("name", ["agents.a", "tools.t"])
async def test_a_certificate_that_has_expired_is_no_matter_of_the_address(
    tmp_path: Path, command_line: CommandLine, name: str
) -> None:
    file = certificate(tmp_path, "localhost", days=(-2, -1))
    context = server_context(file)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        agent = f"{{type: openai-chat, model: m, base_url: '{url}/v1', ca: {file}}}"
        if name == "tools.t":
            agent = "{type: python, ref: 'gateway.cli.demo.agent:reply'}"
        tool = f"tools:\n  t: {{type: mcp, url: '{url}/mcp', ca: {file}}}\n" if name == "tools.t" else ""
        (tmp_path / "gateway.yaml").write_text(f"version: 1\nagents:\n  a: {agent}\n{tool}")
        ended = await command_line("check", "--live", "-c", str(tmp_path / "gateway.yaml"))
    expected = "its certificate has expired: the server needs a new one, unless the clock of this machine is wrong\n"
    assert ended.code == 69
    assert ended.err.endswith(f": {name}: cannot be used: {expected}")


@pytest.mark.parametrize("server", [ChatServer, ResponsesServer])
async def test_a_wrong_key_is_reported_without_the_key(
    server: type[ChatServer | ResponsesServer], check: Check
) -> None:
    kind = "openai-chat" if server is ChatServer else "openai-responses"
    ended = await check(server(api_key="sk-another"), kind)
    assert ended.code == 77
    assert ended.err.startswith("agents.a: is reachable, but refuses the credentials (HTTP 401: invalid_api_key")
    assert "0123" not in ended.err


async def test_a_missing_model_is_an_invalid_configuration(check: Check) -> None:
    ended = await check(ChatServer(models=("n",)), "openai-chat")
    assert (ended.code, ended.err) == (
        78,
        (
            "agents.a: is reachable, but refuses the request (HTTP 404: model_not_found, invalid_request_error: "
            "The model `m` does not exist or you do not have access to it.); check the model and the other settings\n"
        ),
    )


async def test_a_rate_limited_backend_exits_with_try_again(check: Check) -> None:
    busy = ChatServer(lambda _: [Status(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}})])
    ended = await check(busy, "openai-chat")
    assert (ended.code, ended.err) == (
        75,
        (
            "agents.a: is reachable, but takes no more requests now (HTTP 429: rate_limit_exceeded: slow down); "
            "try again later\n"
        ),
    )


async def test_every_agent_is_asked_and_the_most_severe_finding_is_the_exit_code(
    tmp_path: Path, command_line: CommandLine
) -> None:
    async with serve(ChatServer(api_key="sk-another").app) as locked, serve(ChatServer().app) as open_to_all:
        agents = {
            "closed": f"{locked}/v1",
            "gone": f"http://127.0.0.1:{refusing_port()}/v1",
            "good": f"{open_to_all}/v1",
        }
        lines = "".join(
            f"  {name}: {{type: openai-chat, model: m, base_url: '{url}'}}\n" for name, url in agents.items()
        )
        python = "  mine: {type: python, ref: 'gateway.cli.demo.agent:reply'}\n"
        file = tmp_path / "gateway.yaml"
        file.write_text(f"version: 1\nagents:\n{lines}{python}")
        ended = await command_line("check", "--live", "-c", str(file))
    assert ended.code == 69
    assert [line.split(": ")[1] for line in ended.err.splitlines()] == ["agents.closed", "agents.gone"]
    assert ended.out.splitlines()[1:] == [
        f"{file}: agents.good: it streams",
        f"{file}: agents.mine: gateway.cli.demo.agent:reply is loaded",
    ]


# --- tools ------------------------------------------------------------------------------------------------------------

AGENT = "agents:\n  mine: {type: python, ref: 'gateway.cli.demo.agent:reply'}\n"


async def test_every_source_of_tools_is_asked_for_its_tools(tmp_path: Path, command_line: CommandLine) -> None:
    (tmp_path / "mine.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    file = tmp_path / "gateway.yaml"
    program = f"[{sys.executable!r}, -m, tests.adapters.tools.mcp_server]"
    tools = (
        f"  small: {{type: mcp, command: {program}, cwd: {str(ROOT)!r}, allow: [echo, add]}}\n"
        "  clock: {type: python, ref: './mine.py:now'}\n"
        "  order: {type: http, url: 'http://localhost/{id}', description: One order.}\n"
    )
    file.write_text(f"version: 1\ntools:\n{tools}{AGENT}")
    ended = await command_line("check", "--live", "-c", str(file))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[2:] == [
        f"{file}: tools.small: 2 tools (of 16): echo, add",
        f"{file}: tools.clock: 1 tool: now",
        f"{file}: tools.order: 1 tool: order",
    ]


async def test_an_unusable_source_of_tools_is_reported(tmp_path: Path, command_line: CommandLine) -> None:
    file = tmp_path / "gateway.yaml"
    gone = f"  gone: {{type: mcp, url: 'http://127.0.0.1:{refusing_port()}/mcp'}}\n"
    narrow = "  narrow: {type: http, url: 'http://localhost/', description: d, allow: [other]}\n"
    file.write_text(f"version: 1\ntools:\n{gone}{narrow}{AGENT}")
    ended = await command_line("check", "--live", "-c", str(file))
    assert ended.code == 69
    lines = [line.removeprefix(f"{file}:") for line in ended.err.splitlines() if line.startswith(str(file))]
    assert lines[0].startswith("3:3: tools.gone: cannot be used (ConnectError")
    assert lines[1:] == ["4:3: tools.narrow: works, but has no tool that can be used (of 1); check `allow`"]


async def test_a_missing_command_is_named_with_its_source_and_line(tmp_path: Path, command_line: CommandLine) -> None:
    file = tmp_path / "gateway.yaml"
    gone = "  files:\n    type: mcp\n    command: [npxx, -y, server]\n"
    ends = f"  ends: {{type: mcp, command: [{sys.executable!r}, -c, '']}}\n"
    file.write_text(f"version: 1\ntools:\n{gone}{ends}{AGENT}")
    ended = await command_line("check", "--live", "-c", str(file))
    assert ended.code == 69
    missing, ended_again = [line.removeprefix(f"{file}:") for line in ended.err.splitlines() if str(file) in line]
    remedy = "install it, or write its whole path in `command`"
    assert missing == f"3:3: tools.files: cannot be used: there is no command 'npxx' on the PATH; {remedy}"
    assert ended_again.startswith(f"6:3: tools.ends: cannot be used: the command {sys.executable!r} was started, but ")


async def test_tools_that_cannot_be_made_are_found_without_asking(tmp_path: Path, command_line: CommandLine) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"version: 1\ntools:\n  clock: {{type: python, ref: './none.py:now'}}\n{AGENT}")
    ended = await command_line("check", "-c", str(file))
    assert ended.code == 78
    assert ended.err.startswith(f"{file}:3:3: tools.clock: './none.py:now': there is no file")


async def test_a_rule_about_approvals_that_fits_no_tool_is_reported_where_it_stands(
    tmp_path: Path, command_line: CommandLine
) -> None:
    (tmp_path / "mine.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    file = tmp_path / "gateway.yaml"
    async with serve(ChatServer().app) as backend:
        file.write_text(
            "version: 1\n"
            "tools:\n"
            "  clock: {type: python, ref: './mine.py:now'}\n"
            f"  gone: {{type: mcp, url: 'http://127.0.0.1:{refusing_port()}/mcp'}}\n"
            "agents:\n"
            f"  a: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [clock, gone], approvals: [\n"
            "    {tool: clock.now},\n"
            "    {tool: clock.know},\n"
            "    {tool: gone.know},\n"
            "    {tool: '*.know'}]}\n"
        )
        ended = await command_line("check", "--live", "-c", str(file))
        assert ended.code == 69
        unreachable, misfit = [line.removeprefix(f"{file}:") for line in ended.err.splitlines() if str(file) in line]
        assert unreachable.startswith("4:3: tools.gone: cannot be used (")
        assert misfit == (
            "8:6: agents.a.approvals[1].tool: 'clock.know' fits no tool; did you mean 'clock.now'? there: clock.now"
        )
        file.write_text(file.read_text().replace("tools: [clock, gone]", "tools: [clock]").replace("gone.", "clock."))
        ended = await command_line("check", "--live", "-c", str(file))
        assert [line.split(":")[1:3] for line in ended.err.splitlines() if "fits no tool" in line] == [
            ["8", "6"],
            ["9", "6"],
            ["10", "6"],
        ]
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "  gone:" not in line))
        assert (await command_line("check", "--live", "-c", str(file))).code == 78


async def test_what_is_told_beside_the_findings_stands_on_standard_error(
    tmp_path: Path, command_line: CommandLine
) -> None:
    (tmp_path / "mine.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    file = tmp_path / "gateway.yaml"
    says = "import sys; print('no key is set', file=sys.stderr)"
    program = f'[{sys.executable}, -c, "{says}"]'
    file.write_text(
        "version: 1\n"
        "tools:\n"
        "  clock: {type: python, ref: './mine.py:now', allow: [now, later]}\n"
        f"  ends: {{type: mcp, command: {program}}}\n"
        f"{AGENT}"
    )
    ended = await command_line("check", "--live", "-c", str(file))
    assert (ended.code, ended.out.splitlines()[2:]) == (69, [f"{file}: tools.clock: 1 tool: now"])
    told = [line.split("] ", 1)[1] for line in ended.err.splitlines() if "] " in line and str(file) not in line]
    assert sorted(told) == [
        "tools.allow-fits-nothing source=clock allow=later tools=['now']",
        "tools.output source=ends line='no key is set'",
    ]


async def test_a_source_that_breaks_does_not_keep_the_others_from_being_asked(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_: HttpTool) -> tuple[SourceTool, ...]:
        raise RuntimeError("broken")

    monkeypatch.setattr(HttpTool, "tools", breaks)
    (tmp_path / "mine.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    file = tmp_path / "gateway.yaml"
    order = "  order: {type: http, url: 'http://localhost/{id}', description: One order.}\n"
    file.write_text(f"version: 1\ntools:\n{order}  clock: {{type: python, ref: './mine.py:now'}}\n{AGENT}")
    ended = await command_line("check", "--live", "-c", str(file))
    assert (ended.code, ended.out.splitlines()[2:]) == (69, [f"{file}: tools.clock: 1 tool: now"])
    assert ended.err == f"{file}:3:3: tools.order: cannot be used: it raised RuntimeError: broken\n"


# --- MCP servers that do not work -------------------------------------------------------------------------------------

PROGRAMS = {
    "missing": ["no-such-program", "-y"],
    "ends": [sys.executable, "-c", "pass"],
    "fails": [sys.executable, "-c", "raise SystemExit('no key is set')"],
    "prints": [sys.executable, "-c", "print('Welcome!'); print('{}'); print('[1]')"],
    "chatters": [sys.executable, "-c", "print('Welcome!', flush=True); input(); input(); print('Bye', flush=True)"],
    "bytes": [sys.executable, "-c", "import os; os.write(1, bytes(range(128, 256)) + b'\\n'); input()"],
    "sleeps": [sys.executable, "-c", "import time; time.sleep(1000)"],
    "echoes": ["cat"],
}


async def drop(request: Request) -> Response:
    request.scope["state"][DROP]()
    return Response()


def answering(answer: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answered(_: Request) -> Response:
        return answer

    return answered


ANSWERS = {
    "page": PlainTextResponse("<html>Welcome</html>", media_type="text/html"),
    "no-json": PlainTextResponse("Welcome", media_type="application/json"),
    "other-json": JSONResponse({"hello": "world"}),
    "no-events": PlainTextResponse("data: Welcome\n\n", media_type="text/event-stream"),
    "empty-events": PlainTextResponse("", media_type="text/event-stream"),
    "accepted": Response(status_code=202),
    "forbidden": PlainTextResponse("no", status_code=403),
    "broken": PlainTextResponse("Traceback (most recent call last)", status_code=500),
    "elsewhere": Response(status_code=307, headers={"location": "http://127.0.0.1:1/mcp"}),
}


async def test_each_mcp_server_that_does_not_work_is_one_line_and_the_others_are_asked(
    tmp_path: Path, command_line: CommandLine
) -> None:
    ended = asyncio.Event()

    async def hang(_: Request) -> Response:
        await ended.wait()
        return Response()

    routes = [Route(f"/{name}", answering(answer), methods=["GET", "POST"]) for name, answer in ANSWERS.items()]
    routes += [Route("/drops", drop, methods=["GET", "POST"]), Route("/hangs", hang, methods=["GET", "POST"])]
    (tmp_path / "mine.py").write_text("def now():\n    'The time.'\n    return '12:00'\n")
    file = tmp_path / "gateway.yaml"
    async with serve(Starlette(routes=routes)) as url:
        wrong = {name: f"command: {json.dumps(program)}" for name, program in PROGRAMS.items()}
        wrong |= {name: f"url: '{url}/{name}'" for name in [*ANSWERS, "drops", "hangs"]}
        wrong["refused"] = f"url: 'http://127.0.0.1:{refusing_port()}/mcp'"
        wrong["nowhere"] = "url: 'http://no-such-host.invalid/mcp'"
        tools = "".join(f"  {name}: {{type: mcp, timeout: 5s, {how}}}\n" for name, how in wrong.items())
        file.write_text(f"version: 1\ntools:\n{tools}  clock: {{type: python, ref: './mine.py:now'}}\n{AGENT}")
        found = await command_line("check", "--live", "-c", str(file))
        ended.set()
    assert (found.code, found.out.splitlines()[2:]) == (69, [f"{file}: tools.clock: 1 tool: now"])
    told = [line for line in found.err.splitlines() if not line.startswith(f"{file}:")]
    assert [line for line in told if "] tools.output source=" not in line] == []
    problems = [line.split(": ", 2) for line in found.err.splitlines() if line.startswith(f"{file}:")]
    assert [path for _, path, _ in problems] == [f"tools.{name}" for name in wrong]
    assert all(text.startswith("cannot be used") and len(text) < 400 for _, _, text in problems)


# --- a backend that describes its agent ---

DESCRIBING = """
from gateway.a2a.model import AgentSkill
from gateway.config.settings import Settings
from gateway.ports.adapter import AdapterError, AdapterFactory, ErrorClass, StateKind
from gateway.ports.capabilities import Description
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


class Upstream(Settings):
    knows: str = ""


class Adapter:
    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    def __init__(self, settings):
        self.knows = settings.knows

    async def call(self, request):
        yield

    async def describe(self):
        if self.knows == "down":
            raise AdapterError(ErrorClass.UNREACHABLE, "connection refused")
        skill = AgentSkill(id="book", name="Book", description="Books", tags=("t",))
        return Description(name="Travel", skills=(skill,)) if self.knows else Description()

    async def aclose(self):
        pass


states = (StateKind(StorageOwner.GATEWAY, HandleKind.NONE, Adapter),)
factory = AdapterFactory(Upstream, Adapter, "An agent with a card", states)
"""


def test_what_a_backend_describes_is_shown(tmp_path: Path) -> None:
    install(tmp_path, {"acme-upstream": {"upstream": "upstream:factory"}}, {"upstream": DESCRIBING})
    agents = "a: {type: upstream, knows: itself}, b: {type: upstream}, c: {type: upstream, knows: down}"
    (tmp_path / "gateway.yaml").write_text(f"version: 1\nagents: {{{agents}}}\n")
    ended = run(tmp_path, "check", "--live")
    assert ended.stdout.splitlines()[1:] == [
        "gateway.yaml: agents.a: it calls itself 'Travel', with the skills book",
        "gateway.yaml: agents.b: it tells no name, with no skills",
    ]
    assert (ended.returncode, "agents.c: cannot be used (connection refused)" in ended.stderr) == (69, True)
    assert "  gateway  streaming, tools, describe" in run(tmp_path, "backends").stdout.splitlines()
