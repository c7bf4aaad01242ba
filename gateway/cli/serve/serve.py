"""`serve`: the gateway on a configuration file, or on targets of the command line, until a signal."""

import asyncio
import errno
import logging
import shlex
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import structlog

from gateway.app.process import serve
from gateway.cli.console.address import check_trust
from gateway.cli.console.output import ExitCode, Stop, program, reason_of, visible
from gateway.cli.console.parameters import DEFAULT_FILE, ServeOptions
from gateway.cli.serve.check import build_problems, with_positions
from gateway.cli.serve.sources import COMMAND_LINE, compose, doubts, invalid, read_composed, read_file, warn
from gateway.config.gateway import GatewayConfig, open_listen_problem
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, Problem
from gateway.config.workers import worker_count, workers_problem
from gateway.foundation.addresses import http_url
from gateway.foundation.ending import bound_end
from gateway.foundation.logs import LogFormat, configure_logging, log_format
from gateway.ledger.errors import LedgerUnavailable

if TYPE_CHECKING:
    from gateway.app.workers.orders import Orders

T = TypeVar("T")

log = structlog.get_logger("gateway.cli.serve.serve")


@dataclass(frozen=True, slots=True)
class _Source:
    """`read` reads the configuration at every call; it raises ConfigInvalid. `text` is the equal file, `folder` the place of
    either."""

    name: str
    read: Callable[[], GatewayConfig]
    folder: Path
    text: str = ""


def serve_agents(options: ServeOptions) -> None:
    """Raises: Stop."""
    bound_end()
    if options.worker is None:
        _check(options)
        _serve(options, None)
    else:
        from gateway.cli.serve.workers import worker_place

        with worker_place(options.worker) as (given, orders):
            _serve(given, orders)


def _serve(options: ServeOptions, orders: "Orders | None") -> None:
    """With `orders` as one of several processes. Raises: Stop."""
    with _trust_checked():
        source = _source(options)
        if options.replay is not None:
            from gateway.cli.serve.recording import stand_in

            stand_in(_text(source), source.folder)
        try:
            config = read_config(source.read, None, insecure=options.insecure)
        except ConfigInvalid as error:
            raise invalid(error.problems) from error
    if orders is not None:
        from gateway.cli.serve.workers import refuse_changed

        refuse_changed(config, source.name, orders)
    if options.save is not None and orders is None:
        _save(source, config, options.save, force=options.force)
    _run(source, config, options, orders)


@contextmanager
def _trust_checked() -> Generator[None]:
    """Checks whom the environment trusts while the block runs: OpenSSL reads the authorities of a system for 15 ms, without the
    interpreter's lock. Raises: Stop, as `check_trust`, in place of what the block raises."""
    with ThreadPoolExecutor(1, "authorities") as pool:
        checked = pool.submit(check_trust, ExitCode.CONFIG_INVALID)
        try:
            yield
        finally:
            checked.result()


def _check(options: ServeOptions) -> None:
    """Raises: Stop (2) for options that exclude each other."""
    if options.targets and options.file is not None:
        problem = "takes targets or a file, not both: leave -c out, or add the agent to the file"
    elif options.save is None and options.force:
        problem = "--force goes with --save FILE: it writes over that file"
    elif options.save is not None and not options.targets:
        problem = "--save writes targets to a file, and there are none: serve TARGET --save FILE"
    elif options.record is not None and options.replay is not None:
        problem = "--record and --replay exclude each other: what is replayed is recorded already"
    elif options.replay is None and (options.strict or options.replay_speed != "0"):
        problem = "--strict and --replay-speed go with --replay DIR"
    else:
        return
    raise Stop(ExitCode.USAGE, f"serve: {problem}")


def _run(source: _Source, config: GatewayConfig, options: ServeOptions, orders: "Orders | None") -> None:
    """Serves until a signal. Raises: Stop where the gateway cannot start."""
    form = log_format(config.logs.format)
    level = logging.getLevelNamesMapping()[config.logs.level.upper()]
    configure_logging(level, form, None if orders is None else orders.number)
    announce = _announcement(config, options, form) if orders is None else orders.serves
    is_tapped = options.record is not None or options.replay is not None
    count = worker_count(config, Registry()) if orders is None else 1
    if is_tapped and count > 1:
        raise Stop(ExitCode.USAGE, f"serve: {count} processes cannot share recordings: add --workers 1")
    try:
        if is_tapped:
            _serve_tapped(source, config, options, announce)
        elif count > 1:
            from gateway.cli.serve.workers import serve_by_workers

            serve_by_workers(config, options, count, announce)
        else:
            reload = partial(read_config, source.read, config, insecure=options.insecure)
            run_loop(serve(config, announce, reload, orders))
    except OSError as error:
        raise cannot_listen(error, config.server.host, config.server.port) from error
    except ConfigInvalid as error:
        raise invalid(_located(source, options, error.problems)) from error
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"the database {config.storage.address} cannot be used: {error}") from error
    except ValueError as error:
        problems = asyncio.run(build_problems(source.name, config))
        if not problems:
            raise Stop(ExitCode.CONFIG_INVALID, f"{source.name}: {error}") from error
        raise invalid(_located(source, options, problems)) from error


def _serve_tapped(
    source: _Source, config: GatewayConfig, options: ServeOptions, announce: Callable[[str], None]
) -> None:
    """Serves with a recording of what goes over the wire, or from one. Raises: as `serve`; Stop."""
    from gateway.cli.serve.recording import tapped

    reload = partial(read_config, source.read, config, insecure=options.insecure)
    with tapped(options, config, partial(_text, source), source.folder) as wire:
        run_loop(serve(config, announce, reload, registry=wire.registry, pace=wire.pace))
        wire.check()


def _text(source: _Source) -> str:
    """The text of the configuration; empty where its file cannot be read, which is reported when that is."""
    if source.text:
        return source.text
    try:
        return Path(source.name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _announcement(config: GatewayConfig, options: ServeOptions, form: LogFormat) -> Callable[[str], None]:
    """Tells what is hardly meant as it is written, and returns what tells that the gateway serves."""
    if form == "json":
        for problem in doubts(config):
            log.warning("start.doubtful", problem=str(problem))
        return partial(_log_ready, config)
    warn(doubts(config))
    file = options.save if options.targets else options.file or DEFAULT_FILE
    return partial(_announce, config, file)


def _located(source: _Source, options: ServeOptions, problems: Sequence[Problem]) -> Sequence[Problem]:
    """The problems with the places that they have in the file; a composed text has none that the user has seen."""
    named = [replace(problem, file=source.name) for problem in problems]
    return named if options.targets else with_positions(Path(source.name), named)


def read_config(read: Callable[[], GatewayConfig], served: GatewayConfig | None, *, insecure: bool) -> GatewayConfig:
    """The configuration as it is now; `served` is the former one, whose address stays.

    A gateway that other machines reach has to authenticate them. Raises: ConfigInvalid.
    """
    config = read()
    listening = config if served is None else config.model_copy(update={"server": served.server})
    problem = open_listen_problem(listening, insecure) or workers_problem(listening, Registry())
    if problem is not None:
        raise ConfigInvalid([problem])
    return config


def _source(options: ServeOptions) -> _Source:
    """Relative paths of targets resolve against the folder of the saved file, or else the current one."""
    if not options.targets:
        file = options.file or DEFAULT_FILE
        return _Source(str(file), lambda: read_file(file, options.flags()), file.resolve().parent)
    folder = options.save.resolve().parent if options.save is not None else Path.cwd()
    text = compose(options.targets, options.flags(), folder)
    return _Source(COMMAND_LINE, lambda: read_composed(text, options.flags(), folder), folder, text)


def _save(source: _Source, config: GatewayConfig, file: Path, *, force: bool) -> None:
    """Saves only a configuration that works. Raises: Stop."""
    if file.exists() and not force:
        remedy = "write over it with --force, or choose another name: --save FILE"
        raise Stop(ExitCode.USAGE, f"{file} is there already; {remedy}")
    problems = asyncio.run(build_problems(source.name, config))
    if problems:
        raise invalid(problems)
    try:
        file.write_text(source.text, encoding="utf-8")
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"{file} cannot be written: {reason_of(error)}") from error
    sys.stderr.write(visible(f"wrote {file}; next time: {program()} serve -c {shlex.quote(str(file))}") + "\n")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Runs on uvloop where it is installed."""
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
    return Stop(
        ExitCode.CONFIG_INVALID, f"cannot listen on {where}: {reason_of(error)}; choose another --host or --port"
    )


def _log_ready(config: GatewayConfig, url: str) -> None:
    cards = {name: f"{url}/a2a/{name}/.well-known/agent-card.json" for name in config.agents}
    kept = Registry().ledger(config.storage.url).keeps
    log.info(
        "start.ready", url=url, host=config.server.host, public_url=config.server.public_url, cards=cards, kept=kept
    )


def _announce(config: GatewayConfig, file: Path | None, url: str) -> None:
    """`file` holds the configuration, None where the command line does; `url` is where this machine reaches the gateway."""
    server, names = config.server, list(config.agents)
    bound = http_url(server.host, urlsplit(url).port or 0)
    cards = f"; the cards name {server.public_url}" if "public_url" in server.model_fields_set else ""
    key = "" if config.auth.mode == "none" else " --key KEY"
    lines = [f"a2a-gateway serves {len(names)} {'agent' if len(names) == 1 else 'agents'} on {bound}{cards}"]
    lines += [f"  {url}/a2a/{name}/.well-known/agent-card.json" for name in names]
    keeps = Registry().ledger(config.storage.url).keeps
    if not keeps:
        lines += [f"The storage is {config.storage.address}: nothing is kept when the gateway ends"]
    lines += [f"Try: {program()} stream -u {url} -a {names[0]}{key} 'Hello'"]
    if key and file is not None and keeps:
        option = "" if file == DEFAULT_FILE else f" -c {shlex.quote(str(file))}"
        lines += [f"A key: {program()} keys create NAME{option}"]
    sys.stderr.write(visible("\n".join(lines)) + "\n")
    sys.stderr.flush()
