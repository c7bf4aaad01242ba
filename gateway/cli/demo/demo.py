"""`demo`: the gateway in front of scripted backends, on a database that is removed when it ends, and what to try on it."""

import errno
import json
import logging
import shlex
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.app.pages import pages_wanted
from gateway.app.process import serve
from gateway.cli.console.output import program
from gateway.cli.demo.backends import backends
from gateway.cli.serve.serve import cannot_listen, run_loop
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.foundation.logs import configure_logging, log_format

_HOST = "127.0.0.1"
_PORTS = range(8080, 8100)
_QUESTION = "What is the weather in Oslo?"
_CONTEXT_COMMANDS = (
    ("responses", "the service keeps the conversation; its response id rotates"),
    ("notes", "the gateway keeps the conversation"),
)


def run_demo(port: int | None) -> None:
    """Raises: Stop when no port is free."""
    configure_logging(logging.WARNING, log_format("auto"))
    try:
        with TemporaryDirectory(prefix="a2a-gateway-demo-") as folder:
            run_loop(_run(Path(folder), _PORTS if port is None else (port,)))
    except KeyboardInterrupt:  # before the gateway handles signals
        pass


async def _run(folder: Path, ports: range | tuple[int]) -> None:
    async with backends() as url:
        text = configuration(url, folder / "gateway.db")
        for port in ports:
            flags = {"server.host": _HOST, "server.port": port}
            config = load(text, source="demo", env={}, plugins=Registry(), base_dir=folder, overrides=flags)
            try:
                await serve(config, partial(_introduce, pages_wanted(config)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise cannot_listen(error, _HOST, port) from error
            else:
                return


def _introduce(pages: bool, url: str) -> None:
    sys.stdout.write(f"{introduction(url, program(), ('responses', 'notes', 'chat', 'python'), pages=pages)}\n")
    sys.stdout.flush()


def configuration(backend: str, database: Path) -> str:
    """The gateway.yaml of the demo; `backend` is the base URL of both APIs."""
    return f"""\
version: 1
server: {{shutdown_grace: 2s}}
logs: {{level: warning}}
storage: {{url: {json.dumps(f"sqlite:///{database}")}}}
agents:
  responses:
    type: openai-responses
    model: scripted
    base_url: {backend}
    default: true
    card:
      name: Responses
      description: A Responses API that keeps the conversation itself and runs a tool on its own side.
      skills: [{{id: weather, name: Weather, description: Tells the weather, tags: [weather], examples: ["{_QUESTION}"]}}]
  notes:
    type: openai-responses
    model: scripted
    base_url: {backend}
    history: {{owner: gateway}}
    card: {{name: Notes, description: The same API with store=false; the gateway keeps the conversation.}}
  chat:
    type: openai-chat
    model: scripted
    base_url: {backend}
    card: {{name: Chat, description: A Chat Completions API; the gateway keeps the conversation.}}
  python:
    type: python
    ref: gateway.cli.demo.agent:reply
    card: {{name: Python, description: A Python function that calls a tool of its own.}}
"""


def introduction(url: str, program: str, agents: tuple[str, ...], *, pages: bool = False) -> str:
    """What to try on the demo at this base URL; `program` is how a shell calls the command. `pages`: there are some to look
    at."""
    where = "" if url in {"http://127.0.0.1:8080", "http://localhost:8080"} else f" -u {shlex.quote(url)}"
    lines = [f"The demo runs on {url}: the real gateway in front of scripted backends."]
    lines += [f"Look at it in a browser: {url}/ui/"] if pages else []
    lines += ["", "Agents:"]
    lines += [f"  {name:<10} {url}/a2a/{name}/.well-known/agent-card.json" for name in agents]
    lines += ["", "Try in another terminal:"]
    lines += [f"  {program} stream{where} -a {name} '{_QUESTION}'" for name in agents]
    lines += ["", "The second message of a context knows the first:"]
    for name, why in _CONTEXT_COMMANDS:
        lines += [
            f"  # {why}",
            f"  {program} send{where} -a {name} --context {name}-1 'My name is Ada.'",
            f"  {program} stream{where} -a {name} --context {name}-1 'What did I say first?'",
        ]
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    data = shlex.quote(json.dumps(body, separators=(",", ":")))
    headers = "-H 'A2A-Version: 1.0' -H 'Content-Type: application/json'"
    lines += [
        "",
        "The same in plain JSON-RPC:",
        f"  curl -s {url}/a2a/responses {headers} -d {data}",
        "",
        "Ctrl-C ends the demo and removes what it kept.",
    ]
    return "\n".join(lines)
