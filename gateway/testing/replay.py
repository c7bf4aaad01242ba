"""For tests of users: their gateway, answered by recordings. In a conftest.py: `from gateway.testing.replay import
replayed`.

Law: the gateway is the command `serve --replay` on a free loopback port, as a test of any kind can call it; it keeps
nothing, and needs no network, no key and no secret.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol

import pytest

_COMMAND = (sys.executable, "-P", str(Path(__file__).parents[2] / "a2a_gateway.py"), "serve")
_READY_SECONDS = 60
_END_SECONDS = 30
_READY = "start.ready"
_KEPT_NOWHERE = {"A2A_GATEWAY__STORAGE": "{url: temporary}", "A2A_GATEWAY__AUTH": "{mode: none}"}
"""Callers of a test need no key: the port is one of loopback."""


class Replayed(Protocol):
    def __call__(self, config: str | Path, folder: str | Path, *, strict: bool = True) -> str:
        """The address of a gateway with this configuration, which the recordings in the folder answer; it ends with the test.
        With `strict` the test fails where they had no answer, or were not all asked for."""


@pytest.fixture
def replayed() -> Iterator[Replayed]:
    """Starts gateways that recordings answer."""
    with ExitStack() as stack:

        def start(config: str | Path, folder: str | Path, *, strict: bool = True) -> str:
            return stack.enter_context(replaying(Path(config), Path(folder), strict=strict))

        yield start


@contextmanager
def replaying(
    config: Path, folder: Path, *, strict: bool = True, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of a gateway that recordings answer while the block runs. `env` is in place of the environment. Raises:
    AssertionError for one that does not start and, if `strict`, at the end for recordings that did not fit."""
    options = ["--replay", str(folder), "--port", "0", "--host", "127.0.0.1", "--workers", "1"]
    options += ["--log-format", "json", "--log-level", "info"]
    command = [*_COMMAND, "-c", str(config), *options, *(["--strict"] if strict else [])]
    process = subprocess.Popen(  # noqa: S603  # the command is the gateway's own
        command, stderr=subprocess.PIPE, env={**(os.environ if env is None else env), **_KEPT_NOWHERE}
    )
    output = _Output(process.stderr)
    with process:
        try:
            yield output.address()
            process.send_signal(signal.SIGTERM)
            process.wait(_END_SECONDS)
        finally:
            process.kill()
            output.close()
    if strict and process.returncode:
        raise AssertionError(output.text)


class _Output:
    """What the process writes, read in a thread, as it would wait for a reader otherwise."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._url = ""
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def address(self) -> str:
        """Waits for it. Raises: AssertionError."""
        self._told.wait(_READY_SECONDS)
        if not self._url:
            raise AssertionError(f"the gateway does not serve:\n{self.text}")
        return self._url

    def close(self) -> None:
        """The process has ended."""
        self._thread.join(_END_SECONDS)

    @property
    def text(self) -> str:
        """What is not for a log."""
        return "".join(line for line in self._lines if not line.startswith("{"))

    def _read(self) -> None:
        for line in self._pipe or ():
            text = line.decode(errors="replace")
            self._lines.append(text)
            if _READY in text and text.startswith("{"):
                self._url = str(json.loads(text)["url"])
                self._told.set()
        self._told.set()
