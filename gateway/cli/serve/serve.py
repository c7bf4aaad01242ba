"""`serve`: the gateway on a configuration file, or on targets of the command line, until a signal.

`demo`: the gateway in front of scripted backends, on a database that goes when it ends.

`init`: a configuration to start from. Law: what is there already stays as it is.
"""

import asyncio
import errno
import logging
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from gateway.app.application import serve
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.terminal import program, visible
from gateway.cli.demo.backends import backends
from gateway.cli.demo.scenario import configuration, introduction
from gateway.cli.serve.check import located, wrong_parts
from gateway.cli.serve.targets import COMMAND_LINE, check_free, compose, invalid, read_composed, read_file, save
from gateway.config.gateway import GatewayConfig, refuse_open_listen
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.foundation.logs import configure_logging
from gateway.ledger.errors import LedgerUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeOrder:
    """What was typed behind `serve`. `default_file` is the file where neither one nor a target is named."""

    targets: Sequence[str]
    file: Path | None
    default_file: Path
    save: Path | None
    force: bool
    host: str | None
    port: int | None
    insecure: bool

    def flags(self) -> dict[str, object]:
        given = {"server.host": self.host, "server.port": self.port}
        return {name: value for name, value in given.items() if value is not None}


def serve_agents(order: ServeOrder) -> int:
    """Raises: Stop."""
    if order.targets and order.file is not None:
        remedy = "leave -c out, or add the agent to the file"
        raise Stop(ExitCode.USAGE, f"serve: takes targets or a file, not both: {remedy}")
    if order.save is None and order.force:
        raise Stop(ExitCode.USAGE, "serve: --force goes with --save FILE: it writes over that file")
    if order.save is not None and not order.targets:
        raise Stop(
            ExitCode.USAGE, "serve: --save writes targets to a file, and there are none: serve TARGET --save FILE"
        )
    source = _of_targets(order) if order.targets else _of_file(order)
    try:
        config = source.read()
    except ConfigInvalid as error:
        raise invalid(error.problems) from error
    problem = refuse_open_listen(config, order.insecure)
    if problem is not None:
        raise invalid([problem])
    if order.save is not None:
        _save(source, config, order.save, force=order.force)
    configure_logging()
    try:
        run_loop(
            serve(
                config,
                lambda url: _announce(config, url),
                lambda: read_again(source.read, config, insecure=order.insecure),
            )
        )
    except OSError as error:
        raise cannot_listen(error, config.server.host, config.server.port) from error
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"the database {config.storage.url} cannot be used: {error}") from error
    except ValueError as error:
        problems = asyncio.run(wrong_parts(source.name, config))
        if not problems:
            raise Stop(ExitCode.CONFIG_INVALID, f"{source.name}: {error}") from error
        raise invalid(problems if order.targets else located(Path(source.name), problems)) from error
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Source:
    """`read` reads the configuration, again and again, and raises ConfigInvalid. `text` is what a file would say."""

    name: str
    read: Callable[[], GatewayConfig]
    text: str = ""


def read_again(read: Callable[[], GatewayConfig], served: GatewayConfig, *, insecure: bool) -> GatewayConfig:
    """The configuration as it is now: where other machines reach the gateway, it must still ask who they are.

    Raises: ConfigInvalid.
    """
    config = read()
    problem = refuse_open_listen(config.model_copy(update={"server": served.server}), insecure)
    if problem is not None:
        raise ConfigInvalid([problem])
    return config


def _of_file(order: ServeOrder) -> _Source:
    file = order.file or order.default_file
    return _Source(str(file), lambda: read_file(file, order.flags()))


def _of_targets(order: ServeOrder) -> _Source:
    """Relative paths start where the file lies, or would."""
    folder = order.save.resolve().parent if order.save is not None else Path.cwd()
    text = compose(order.targets, order.flags(), folder)
    return _Source(COMMAND_LINE, lambda: read_composed(text, order.flags(), folder), text)


def _save(source: _Source, config: GatewayConfig, file: Path, *, force: bool) -> None:
    """Only what works is saved."""
    if not force:
        check_free(file)
    problems = asyncio.run(wrong_parts(source.name, config))
    if problems:
        raise invalid(problems)
    save(source.text, file)
    sys.stderr.write(visible(f"wrote {file}; next time: {program()} serve -c {shlex.quote(str(file))}") + "\n")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """On the quickest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def cannot_listen(error: OSError, host: str, port: int) -> Stop:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        text = f"cannot listen on {where}: another program does; stop it, or choose another port: --port PORT"
        return Stop(ExitCode.UNREACHABLE, text)
    reason = (error.strerror or str(error)).lower()
    return Stop(ExitCode.CONFIG_INVALID, f"cannot listen on {where}: {reason}; choose another --host or --port")


def _announce(config: GatewayConfig, url: str) -> None:
    names = list(config.agents)
    lines = [f"a2a-gateway serves {len(names)} {'agent' if len(names) == 1 else 'agents'} on {url}"]
    lines += [f"  {url}/a2a/{name}/.well-known/agent-card.json" for name in names]
    lines += [f"Try: {program()} stream -u {url} -a {names[0]} 'Hello'"]
    sys.stderr.write(visible("\n".join(lines)) + "\n")
    sys.stderr.flush()


_HOST = "127.0.0.1"
_PORTS = range(8080, 8100)


def run_demo(port: int | None) -> int:
    """Raises: Stop when no port can be had."""
    configure_logging(logging.WARNING)
    try:
        with TemporaryDirectory(prefix="a2a-gateway-demo-") as folder:
            run_loop(_demonstrate(Path(folder), _PORTS if port is None else (port,)))
    except KeyboardInterrupt:  # before the gateway took over the signals
        pass
    return ExitCode.OK


async def _demonstrate(folder: Path, ports: range | tuple[int]) -> None:
    async with backends() as url:
        text = configuration(url, folder / "gateway.db")
        for port in ports:
            try:
                await serve(_load(text, folder, port), _show)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise cannot_listen(error, _HOST, port) from error
            else:
                return


def _load(text: str, folder: Path, port: int) -> GatewayConfig:
    flags = {"server.host": _HOST, "server.port": port}
    return load(text, source="demo", env=dict[str, str](), resolver=Registry(), base_dir=folder, overrides=flags)


def _show(url: str) -> None:
    sys.stdout.write(f"{introduction(url, program(), ('responses', 'notes', 'chat', 'python'))}\n")
    sys.stdout.flush()


CONFIGURATION = """\
# The configuration of an A2A gateway. Every key with its default: a2a-gateway check --print
# A value may be ${VARIABLE}, ${VARIABLE:-default} or ${file:path}; keep secrets there and not in this file.
version: 1

# server: {host: 127.0.0.1, port: 8080, public_url: "https://agents.example.com"}
# storage: {url: "sqlite:///./data/gateway.db"}     # relative to this file
# auth: {mode: any_of, api_keys: {enabled: true}}   # then: a2a-gateway keys create NAME
# limits: {request_body: 8MiB, turn_timeout: 15m}

agents:                              # by the name that their addresses carry: /a2a/mine
  mine:                              # a Python function; it gets the history from the gateway
    type: python
    ref: ./my_agent.py:reply
    card:
      name: Mine
      description: Counts the words of a message.

  # openai:                          # OpenAI keeps the conversation
  #   type: openai-responses
  #   model: gpt-5.5
  #   api_key: ${OPENAI_API_KEY}
  #   instructions: Answer briefly.

  # local:                           # Ollama; vLLM, LM Studio and llama.cpp have another base_url
  #   type: openai-chat
  #   base_url: http://localhost:11434/v1
  #   model: llama3.3
"""

AGENT = '''\
"""The agent `mine` of gateway.yaml. After a change, start the gateway again."""

from gateway.agent import ToolCall, ToolResult


async def reply(turn):
    """`turn.text` is what was said, `turn.history` what was said before, `turn.state` a dict that lasts."""
    words = len(turn.text.split())
    yield ToolCall("count", "count_words", {"text": turn.text})
    yield ToolResult("count", {"words": words})
    yield f"That was {words} words, in message {len(turn.history) // 2 + 1} of this conversation."
'''

_FILES = {"gateway.yaml": CONFIGURATION, "my_agent.py": AGENT}


def write_starter(folder: Path) -> int:
    """Raises: Stop (2) when a file is there already or the folder cannot be written."""
    files = {folder / name: text for name, text in _FILES.items()}
    present = [str(file) for file in files if file.exists()]
    if present:
        told = f"{' and '.join(present)} {'is' if len(present) == 1 else 'are'} there already, nothing was written"
        raise Stop(ExitCode.USAGE, f"init: {told}; choose another folder: a2a-gateway init FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
    except OSError as error:
        reason = (error.strerror or "not writable").lower()
        raise Stop(ExitCode.USAGE, f"init: {error.filename} cannot be written: {reason}") from error
    configuration = shlex.quote(str(folder / "gateway.yaml"))
    option = "" if configuration == "gateway.yaml" else f" -c {configuration}"
    lines = [
        f"wrote {', '.join(str(file) for file in files)}",
        f"Try: {program()} check{option}",
        f"     {program()} serve{option}",
    ]
    sys.stdout.write(visible("\n".join(lines)) + "\n")
    return ExitCode.OK
