"""`serve --record` and `serve --replay`: what makes the agents, and what there is to say at the end."""

import asyncio
import os
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from gateway.app.tapping import TappedRegistry
from gateway.cli.console.output import ExitCode, Stop, reason_of
from gateway.cli.console.parameters import ServeOptions
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.yaml import References
from gateway.engine.runtime import Pace
from gateway.foundation.clock import Clock
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording

log = structlog.get_logger("gateway.cli.serve.recording")

_STAND_IN = "replayed-"


class Wire(msgspec.Struct, frozen=True):
    """What `serve` builds with. `check` is for its end. Raises: Stop (1) for what `--strict` does not allow."""

    registry: Registry
    pace: Pace | None = None
    check: Callable[[], None] = lambda: None


@contextmanager
def tapped(options: ServeOptions, config: GatewayConfig, text: Callable[[], str], folder: Path) -> Generator[Wire]:
    """`text` reads that of the configuration, `folder` is its place. Raises: Stop (2) for a folder that cannot be used."""

    def references() -> frozenset[str]:
        return References(os.environ, folder).values(text())

    if options.record is not None:
        try:
            recording = Recording(options.record, Clock())
        except OSError as error:
            raise _unusable(options.record, reason_of(error)) from error
        with recording:
            log.info("record.begun", folder=str(options.record))
            yield Wire(TappedRegistry(recording, references, config))
        return
    shown = options.replay or Path()
    try:
        replay = Replay(shown, int(options.replay_speed))
    except OSError as error:
        raise _unusable(shown, reason_of(error)) from error
    except ValueError as error:
        raise _unusable(shown, str(error)) from error

    def check() -> None:
        unused = [f"{file}: nobody asked for it" for file in replay.unused]
        if options.strict and (problems := [*replay.missing, *unused]):
            raise Stop(ExitCode.UNEXPECTED, "\n".join((f"the replay of {shown} did not fit:", *problems)))

    log.info("replay.begun", folder=str(shown))
    yield Wire(TappedRegistry(replay, references, config), _pace(int(options.replay_speed)), check)


def stand_in(text: str, folder: Path) -> None:
    """A replay needs no secrets: a variable that the configuration refers to, and that is not set, gets a value."""
    for name in References(os.environ, folder).missing(text):
        os.environ[name] = f"{_STAND_IN}{name}"


def _pace(speed: int) -> Pace:
    """How the gateway waits before it asks a backend again."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / speed if speed else 0)

    return Pace(sleep)


def _unusable(folder: Path, why: str) -> Stop:
    return Stop(ExitCode.USAGE, f"{shlex.quote(str(folder))} cannot be used for recordings: {why}")
