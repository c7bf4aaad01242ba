"""Starts the real peers as child processes on free loopback ports, each with its own state, and kills them at the end.

`.ci/peers.sh` installs them. A test that wants an absent peer skips, or fails where A2A_GATEWAY_REQUIRE_PEERS is 1.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import pytest

from tests.support.ports import free_port

_PROJECT = Path(__file__).parents[2]
_SOURCES = Path(__file__).parent / "peers"
_READY_WITHIN_SECONDS = 90
_CLIENT_WITHIN_SECONDS = 120
_LOG_TAIL_LINES = 60
_CARD = "/.well-known/agent-card.json"


@dataclass(frozen=True, slots=True)
class Peer:
    """A running peer; `url` is the base an OpenAI client wants, `origin` the server without a path."""

    name: str
    origin: str
    url: str
    log: Path

    def log_tail(self) -> str:
        """The last lines it wrote, for the report of a failed test."""
        return _tail(self.log.read_text(errors="replace"))


RUNNING: list[Peer] = []


@dataclass(frozen=True, slots=True)
class Aimock(Peer):
    """A scripted model: peers/aimock/fixtures.json says what it answers to which user message."""

    def journal(self) -> list[dict[str, Any]]:
        """The requests it received, oldest first: `method`, `path`, `body`, `response.status` of each."""
        entries: list[dict[str, Any]] = _ask("GET", f"{self.origin}/__aimock/journal")
        return entries


@dataclass(frozen=True, slots=True)
class Llmock(Peer):
    """A stateless model that breaks its answers on request and judges how the client took it."""

    def play(self, *behaviors: dict[str, Any]) -> None:
        """Forgets what was, then queues these faults for the next requests."""
        _ask("POST", f"{self.origin}/_llmock/reset")
        _ask("POST", f"{self.origin}/_llmock/scenario", {"behaviors": list(behaviors)})

    def verdict(self) -> dict[str, Any]:
        """Its judgement since the last `play`: `passed`, `faults_injected`, `findings` and more."""
        judgement: dict[str, Any] = _ask("GET", f"{self.origin}/_llmock/verdict")
        return judgement


@contextmanager
def aimock(directory: Path, latency_ms: int = 0) -> Iterator[Aimock]:
    """Runs aimock with `latency_ms` between the chunks of a stream; a "slow" answer keeps its own latency."""
    node, script = _node(), _installed("aimock", "aimock/node_modules/@copilotkit/aimock/dist/cli.js")
    port = free_port()
    peer = Aimock("aimock", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/v1", directory / "aimock.log")
    fixtures = _SOURCES / "aimock" / "fixtures.json"
    options = ["-h", "127.0.0.1", "-p", port, "-f", fixtures, "-l", latency_ms, "-c", 10]
    with _child(peer, [node, script, *options], directory, ready="/__aimock/health"):
        yield peer


@contextmanager
def ogx(directory: Path, aimock_url: str) -> Iterator[Peer]:
    """Runs OGX (Responses, Conversations) over the model at `aimock_url`, which must be up: OGX lists it at start."""
    program = _installed("ogx", "venv/ogx/bin/ogx")
    port = free_port()
    peer = Peer("ogx", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/v1", directory / "ogx.log")
    # It insists on TLS otherwise; only loopback sees it.
    command = [program, "run", _SOURCES / "ogx" / "run.yaml", "--insecure", "--port", port]
    with _child(peer, command, directory, ready="/v1/health", environment={"AIMOCK_URL": aimock_url}):
        yield peer


@contextmanager
def mcp_server(directory: Path) -> Iterator[Peer]:
    """Runs an MCP server with the tool `get_weather`, which OGX can call; its `url` is the one of the protocol."""
    program = _installed("ogx", "venv/ogx/bin/python")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("mcp", origin, f"{origin}/mcp", directory / "mcp.log")
    script = _SOURCES / "ogx" / "mcp_server.py"
    with _child(peer, [program, script], directory, ready="/health", environment={"MCP_PORT": str(port)}):
        yield peer


@contextmanager
def agentserver(directory: Path, mode: str = "plain", port: int | None = None) -> Iterator[Peer]:
    """Runs a Foundry hosted agent; `mode` is a key of MODES in peers/agentserver/app.py.

    In the same directory and on the same `port` it is the one that was killed there.
    """
    program = _installed("agentserver", "venv/agentserver/bin/hypercorn")
    port = port or free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("agentserver", origin, origin, directory / "agentserver.log")
    environment = {
        "AGENTSERVER_MODE": mode,
        "AGENTSERVER_ORIGIN": origin,
        "AGENTSERVER_STATE_ROOT": str(directory / "state"),
        "OTEL_SDK_DISABLED": "true",
        "PYTHONPATH": str(_SOURCES / "agentserver"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Its own `app.run()` would listen on all interfaces.
    command = [program, "app:app", "--bind", f"127.0.0.1:{port}", "--workers", 0]
    with _child(peer, command, directory, ready="/readiness", environment=environment):
        yield peer


@contextmanager
def llmock(directory: Path) -> Iterator[Llmock]:
    """Runs llmock."""
    program = _installed("llmock", "venv/llmock/bin/llmock")
    port = free_port()
    peer = Llmock("llmock", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/v1", directory / "llmock.log")
    with _child(peer, [program, "serve", "--host", "127.0.0.1", "--port", port], directory, ready="/health"):
        yield peer


@contextmanager
def authorization_server(directory: Path) -> Iterator[Peer]:
    """Runs oauth2-mock-server, which gives a token to every client; `url` is its token endpoint."""
    script = "oauth2-mock-server/node_modules/oauth2-mock-server/dist/oauth2-mock-server.mjs"
    node, program = _node(), _installed("oauth2-mock-server", script)
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("oauth2-mock-server", origin, f"{origin}/token", directory / "oauth2-mock-server.log")
    command = [node, program, "-a", "127.0.0.1", "-p", port]
    with _child(peer, command, directory, ready="/.well-known/openid-configuration"):
        yield peer


@contextmanager
def langgraph(directory: Path) -> Iterator[Peer]:
    """Runs an Agent Server of LangGraph with the graphs of peers/langgraph/graphs.py, which need no model."""
    program = _installed("langgraph", "venv/langgraph/bin/langgraph")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("langgraph", origin, origin, directory / "langgraph.log")
    # It keeps its threads in the folder of its configuration.
    for name in ("langgraph.json", "graphs.py"):
        shutil.copy(_SOURCES / "langgraph" / name, directory)
    environment = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # Where the port is taken it serves on another without a word, and then is not ready here.
    command = [program, "dev", "--host", "127.0.0.1", "--port", port, "--no-browser", "--no-reload"]
    with _child(peer, command, directory, ready="/ok", environment=environment):
        yield peer


async def langgraph_sdk(directory: Path, url: str, key: str) -> dict[str, Any]:
    """What LangGraph's own client sees of a server that is scripted for it."""
    program = _installed("langgraph", "venv/langgraph/bin/python")
    script = _SOURCES / "langgraph" / "sdk_client.py"
    [seen] = await _told([program, script, url, key], directory, {"LANGSMITH_TRACING": "false"})
    return seen


@contextmanager
def a2a_sdk(directory: Path, *options: str, port: int | None = None) -> Iterator[Peer]:
    """Runs an agent of a2a-sdk 1.3; with the option `whole` its card says that it does not stream."""
    port = port or free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("a2a-sdk", origin, origin, directory / "a2a-sdk.log")
    command = [sys.executable, _SOURCES / "a2a-sdk" / "server.py", port, free_port(), *options]
    with _child(peer, command, directory, ready=_CARD):
        yield peer


@contextmanager
def a2a_sdk_0_3(directory: Path, *options: str) -> Iterator[Peer]:
    """Runs an agent of a2a-sdk 0.3.26, with the options of `a2a_sdk`."""
    program = _installed("a2a-sdk-0.3", "venv/a2a-sdk-0.3/bin/python")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("a2a-sdk-0.3", origin, origin, directory / "a2a-sdk-0.3.log")
    command = [program, _SOURCES / "a2a-sdk-0.3" / "server.py", port, *options]
    with _child(peer, command, directory, ready=_CARD):
        yield peer


@contextmanager
def m365_bot(directory: Path) -> Iterator[Peer]:
    """Runs a bot on Microsoft's 365 Agents SDK; its `url` takes activities."""
    program = _installed("m365-bot", "venv/m365-bot/bin/python")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer("m365", origin, f"{origin}/api/messages", directory / "m365.log")
    environment = {"OTEL_SDK_DISABLED": "true"}
    with _child(peer, [program, _SOURCES / "m365-bot" / "bot.py", port], directory, "/ready", environment):
        yield peer


def mcp_everything() -> tuple[str, str]:
    """The command of MCP's own test server, without its argument `stdio` or `streamableHttp`."""
    script = "mcp-everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    return _node(), str(_installed("mcp-everything", script))


def _node() -> str:
    return shutil.which("node") or absent("node, which peers run on, is not on PATH")


@contextmanager
def gateway(directory: Path, configuration: str, name: str = "gateway") -> Iterator[Peer]:
    """Runs `a2a-gateway serve` on this configuration, for clients in processes of their own."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    peer = Peer(name, origin, origin, directory / "gateway.log")
    file = directory / "gateway.yaml"
    file.write_text(configuration)
    environment = {"PYTHONPATH": str(_PROJECT), "A2A_GATEWAY__SERVER__PORT": str(port)}
    command = [sys.executable, "-m", "gateway", "serve", "-c", file]
    with _child(peer, command, directory, ready="/readyz", environment=environment):
        yield peer


def client(peer: str, directory: Path, asked: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a client has seen in each of the checks that it is asked for, in the form of peers/clients/reporting.py.

    Checks that it has not come to have the end of its log as `raised`.
    """
    folder = _SOURCES / peer
    command: list[object]
    if (folder / "package.json").exists():
        command = [_node(), folder / "checks.mjs", _installed(peer, f"{peer}/node_modules").parent]
    elif (folder / "requirements.txt").exists():
        command = [_installed(peer, f"venv/{peer}/bin/python"), folder / "checks.py"]
    else:
        command = [sys.executable, folder / "checks.py"]
    environment = {"PYTHONPATH": str(_SOURCES / "clients"), "PYTHONWARNINGS": "ignore", "OTEL_SDK_DISABLED": "true"}
    log = directory / "client.log"
    with log.open("wb") as err, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*(str(word) for word in command), json.dumps({**asked, "lines": str(directory / "lines")})],
            cwd=directory,
            env=_bare(directory) | environment,
            stdin=subprocess.DEVNULL,
            stdout=err,
            stderr=err,
            timeout=_CLIENT_WITHIN_SECONDS,
            check=False,
        )
    lines = directory / "lines"
    seen = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    unseen = {"raised": _tail(log.read_text(errors="replace"))}
    return dict.fromkeys(asked["checks"], unseen) | {line.pop("check"): line for line in seen}


def example(program: str, peer: str, directory: Path, file: Path, *arguments: str) -> str:
    """What an example for people prints, where the packages of this peer are installed; without a peer it needs none.

    `program` is `python`, `node` or `sh`.
    """
    runs = sys.executable if program == "python" else shutil.which(program) or absent(f"{program} is not on PATH")
    if program == "node" and peer:
        (directory / "node_modules").symlink_to(_installed(peer, f"{peer}/node_modules"))
    elif (_SOURCES / peer / "requirements.txt").exists():
        runs = str(_installed(peer, f"venv/{peer}/bin/python"))
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_TESTING": "true"}
    done = subprocess.run(
        [runs, shutil.copy(file, directory), *arguments],
        cwd=directory,
        env=_bare(directory) | quiet | {"OTEL_SDK_DISABLED": "true", "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_CLIENT_WITHIN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, _tail(done.stderr)
    return done.stdout


async def google_adk(directory: Path, card_url: str, *texts: str, streaming: bool = True) -> list[dict[str, Any]]:
    """What Google ADK makes of one agent: each event of its runner, then each that its session remembers."""
    program = _installed("adk", "venv/adk/bin/python")
    script = _SOURCES / "adk" / "client.py"
    # A key of no worth: with none at all it looks for a cloud project.
    environment = {"GOOGLE_API_KEY": "unused", "OTEL_SDK_DISABLED": "true", "PYTHONWARNINGS": "ignore"}
    whole = [] if streaming else ["--whole"]
    return await _told([program, script, *whole, card_url, *texts], directory, environment)


async def ag_ui(directory: Path, agent_url: str, text: str) -> list[dict[str, Any]]:
    """What @ag-ui/a2a shows of one agent through the example client: each `event`, and at last `newMessages`."""
    node = shutil.which("node")
    packages = _installed("agui", "agui/node_modules/@ag-ui/a2a").parents[2]
    if node is None:
        absent("node, which agui runs on, is not on PATH")
    bridge = _PROJECT / "examples" / "ag-ui" / "a2a_client.mjs"
    return await _told([node, _SOURCES / "agui" / "client.mjs", packages, bridge, agent_url, text], directory, {})


async def directlinejs(
    directory: Path, url: str, token: str, text: str, *, count: int, sockets: bool
) -> list[dict[str, Any]]:
    """What botframework-directlinejs makes of one conversation: the id of its message, then `count` activities of the bot."""
    packages = _installed("directlinejs", "directlinejs/node_modules/botframework-directlinejs").parents[1]
    script = _SOURCES / "directlinejs" / "client.mjs"
    command = [_node(), script, packages, url, token, "true" if sockets else "false", text, count]
    return await _told(command, directory, {})


async def copilotstudio_client(directory: Path, url: str, token: str, *texts: str) -> list[dict[str, Any]]:
    """What microsoft-agents-copilotstudio-client gives of one conversation: the activities of the start and of each turn."""
    program = _installed("copilotstudio-client", "venv/copilotstudio-client/bin/python")
    script = _SOURCES / "copilotstudio-client" / "client.py"
    return await _told([program, script, url, token, *texts], directory, {"PYTHONWARNINGS": "ignore"})


async def snippet(directory: Path, language: str, text: str, environment: dict[str, str]) -> str:
    """What a snippet prints that says how to call an agent, run with the official SDK of its language."""
    commands: dict[str, Callable[[], tuple[str, str]]] = {
        "sh": lambda: ("sh", "snippet.sh"),
        "python": lambda: (sys.executable, "snippet.py"),
        "js": lambda: (_node(), "snippet.mjs"),
    }
    program, name = commands[language]()
    if language == "js":
        (directory / "node_modules").symlink_to(_installed("a2a-js", "a2a-js/node_modules"))
    (directory / name).write_text(text)
    process = await asyncio.create_subprocess_exec(
        program,
        name,
        cwd=directory,
        env=_bare(directory) | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return (await _output(process)).decode()


async def _told(command: list[object], directory: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """The JSON lines that a client prints until it ends."""
    process = await asyncio.create_subprocess_exec(
        *(str(word) for word in command),
        cwd=directory,
        env=_bare(directory) | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return [json.loads(line) for line in (await _output(process)).splitlines()]


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """What a client prints until it ends, which it has to do in peace."""
    try:
        async with asyncio.timeout(_READY_WITHIN_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        tail = _tail(err.decode(errors="replace"))
        pytest.fail(f"the client ended with {process.returncode}:\n{tail}", pytrace=False)
    return out


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])


def _bare(directory: Path) -> dict[str, str]:
    """An environment that keeps the caller's keys and proxies away, and what a peer writes inside `directory`."""
    return {"PATH": os.environ["PATH"], "HOME": str(directory), "TMPDIR": str(directory)}


def _installed(name: str, path: str) -> Path:
    found = Path(os.environ.get("A2A_GATEWAY_PEERS", _PROJECT / "peers")).absolute() / path
    if not found.exists():
        absent(f"peer {name} is not installed: run .ci/peers.sh")
    return found


def folder_with(peer: str) -> Path:
    """The folder of all peers, where this one is installed."""
    return _installed(peer, f"{peer}.stamp").parent


def absent(reason: str) -> NoReturn:
    if os.environ.get("A2A_GATEWAY_REQUIRE_PEERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def _child(
    peer: Peer, command: list[object], directory: Path, ready: str, environment: dict[str, str] | None = None
) -> Iterator[None]:
    with peer.log.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            env=_bare(directory) | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        RUNNING.append(peer)
        _await_ready(peer, process, peer.origin + ready)
        yield
    finally:
        RUNNING.remove(peer)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_ready(peer: Peer, process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    with httpx2.Client(trust_env=False) as client:
        while not _answers(client, url):
            if process.poll() is not None:
                pytest.fail(f"peer {peer.name} ended with {process.returncode}:\n{peer.log_tail()}", pytrace=False)
            if time.monotonic() > deadline:
                pytest.fail(f"peer {peer.name} was not ready at {url}:\n{peer.log_tail()}", pytrace=False)
            time.sleep(0.05)


def _answers(client: httpx2.Client, url: str) -> bool:
    try:
        return client.get(url).is_success
    except httpx2.TransportError:
        return False


def _ask(method: str, url: str, body: object = None) -> Any:
    with httpx2.Client(trust_env=False) as client:
        return client.request(method, url, json=body).raise_for_status().json()
