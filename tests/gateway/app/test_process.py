"""The process that serves a gateway."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.app.process import listen_for_metrics
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from tests.support.ports import free_port

_SERVED = """
import asyncio, gc, os, signal, sys
from pathlib import Path
from gateway.app.process import serve
from gateway.config.loader import load
from gateway.config.plugins import Registry

def ready(_):
    print(gc.isenabled())
    os.kill(os.getpid(), signal.SIGTERM)

text = "version: 1\\nserver: {port: 0}\\nagents: {a: {type: openai-chat, model: m}}"
config = load(text, source="-", env={}, plugins=Registry(), base_dir=Path(sys.argv[1]))
gc.disable()
asyncio.run(serve(config, ready))
"""


def test_a_gateway_that_serves_collects_garbage_whatever_its_start_has_set(tmp_path: Path) -> None:
    served = [sys.executable, "-c", _SERVED, str(tmp_path)]
    done = subprocess.run(served, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "True" in done.stdout.splitlines()) == (0, True), done.stderr


def metrics_at(port: int) -> GatewayConfig:
    text = f"version: 1\nmetrics: {{listen: '127.0.0.1:{port}'}}\nagents: {{a: {{type: openai-chat, model: m}}}}"
    return load(text, source="-", env={}, plugins=Registry(), base_dir=Path())


@pytest.mark.parametrize("worker", [0, 1])
def test_each_worker_has_a_port_for_its_metrics(worker: int) -> None:
    port = free_port()
    with ExitStack() as sockets:
        bound = listen_for_metrics(metrics_at(port), sockets, worker)
        assert bound is not None
        assert bound.getsockname() == ("127.0.0.1", port + worker)


def test_a_port_for_metrics_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, ExitStack() as sockets:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=rf"metrics\.listen: cannot listen on 127\.0\.0\.1:{port}: "):
            listen_for_metrics(metrics_at(port), sockets, 0)
