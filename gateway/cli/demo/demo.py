"""`demo`: the gateway in front of scripted backends, on a database that is removed when it ends."""

import errno
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.app.process import serve
from gateway.cli.console.terminal import program
from gateway.cli.demo.backends import backends
from gateway.cli.demo.scenario import configuration, introduction
from gateway.cli.serve.serve import cannot_listen, run_loop
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.foundation.logs import configure_logging

_HOST = "127.0.0.1"
_PORTS = range(8080, 8100)


def run_demo(port: int | None) -> None:
    """Raises: Stop when no port is free."""
    configure_logging(logging.WARNING)
    try:
        with TemporaryDirectory(prefix="a2a-gateway-demo-") as folder:
            run_loop(_run(Path(folder), _PORTS if port is None else (port,)))
    except KeyboardInterrupt:  # before the gateway handles signals
        pass


async def _run(folder: Path, ports: range | tuple[int]) -> None:
    async with backends() as url:
        text = configuration(url, folder / "gateway.db")
        for port in ports:
            try:
                await serve(_load(text, folder, port), _introduce)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise cannot_listen(error, _HOST, port) from error
            else:
                return


def _load(text: str, folder: Path, port: int) -> GatewayConfig:
    flags = {"server.host": _HOST, "server.port": port}
    return load(text, source="demo", env=dict[str, str](), plugins=Registry(), base_dir=folder, overrides=flags)


def _introduce(url: str) -> None:
    sys.stdout.write(f"{introduction(url, program(), ('responses', 'notes', 'chat', 'python'))}\n")
    sys.stdout.flush()
