"""`demo`: the gateway in front of scripted backends, on a database that goes when it ends."""

import errno
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.app import serve
from gateway.cli.exits import ExitCode
from gateway.cli.serving import cannot_listen, run_loop
from gateway.cli.terminal import program
from gateway.config import GatewayConfig
from gateway.config_file import load
from gateway.demo import backends, configuration, introduction
from gateway.registry import Registry
from gateway.telemetry import configure_logging

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
    async with backends() as services:
        text = configuration(services, folder / "gateway.db")
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
