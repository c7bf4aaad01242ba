"""`serve`: the gateway on a configuration file, or on targets of the command line, until a signal."""

import asyncio
import errno
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gateway.app import serve
from gateway.cli.assembling import located, wrong_parts
from gateway.cli.exits import ExitCode, Stop
from gateway.cli.sources import (
    COMMAND_LINE,
    check_free,
    compose,
    invalid,
    read_composed,
    read_file,
    save,
)
from gateway.cli.terminal import program, visible
from gateway.commits.failures import LedgerUnavailable
from gateway.config import GatewayConfig, refuse_open_listen
from gateway.config_problem import ConfigInvalid
from gateway.telemetry import configure_logging

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
