"""Servers of PostgreSQL for tests. A test without one skips, or fails where A2A_GATEWAY_REQUIRE_POSTGRES is 1."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest

from tests.support.ports import free_port

NAMED = "A2A_GATEWAY_TEST_POSTGRES"
"""The variable with the URL of a server to use, whose user may make databases."""

_REQUIRED = "A2A_GATEWAY_REQUIRE_POSTGRES"
_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
_LOG_TAIL_LINES = 20


def absent(
    reason: str = f"there is no PostgreSQL: install its server (Debian: postgresql), or name one with {NAMED}",
) -> NoReturn:
    if os.environ.get(_REQUIRED) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@cache
def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`: that of the PATH, of `pg_config`, or of the newest package of Debian."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent  # a link may stand there alone
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
        if (Path(told.stdout.strip()) / "initdb").exists():
            return Path(told.stdout.strip())
    versions = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    return max(versions, key=lambda path: int(path.parent.name), default=None)


def as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next(name for name in ("postgres", "nobody") if name in names)
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a folder of its own: `data` are its files, `log` is what it writes. It listens on loopback, and on a socket
    in `folder`."""

    folder: Path
    port: int
    password: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def run(self, program: str, *arguments: object) -> None:
        """One of PostgreSQL's programs, as the server's user. Raises: RuntimeError with what it wrote."""
        found = programs()
        assert found is not None
        command = [str(found / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **as_user())
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def configure(self, settings: dict[str, str]) -> None:
        """They count from the next start on, the last one of a name."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Returns when it serves."""
        self.run("pg_ctl", "start", "--wait", "--pgdata", self.data, "--log", self.log)

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "immediate") -> None:
        """`immediate` is a crash: it recovers when it starts again."""
        self.run("pg_ctl", "stop", "--wait", "--mode", mode, "--pgdata", self.data)

    def kill(self) -> None:
        """All its processes at once, as when its machine is lost."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # so that it begins no other
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        killed = [postmaster, *map(int, children)]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        while any(Path(f"/proc/{pid}").exists() for pid in killed):
            time.sleep(0.01)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """In the block it takes connections, as its system does that for it, and says nothing."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # so that it begins no other
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        stopped = [postmaster, *map(int, children)]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        """A standby becomes a server that takes writes. Returns when it does."""
        self.run("pg_ctl", "promote", "--wait", "--pgdata", self.data)

    def reload(self) -> None:
        """What was configured counts where it needs no start."""
        self.run("pg_ctl", "reload", "--pgdata", self.data)

    @property
    def running(self) -> bool:
        """Also true where it was killed."""
        return (self.data / "postmaster.pid").exists()

    def end(self) -> None:
        """Stops it if it runs. One that was killed is started first: it clears away what it has left in memory."""
        if self.running:
            try:
                self.stop()
            except RuntimeError:
                self.start()
                self.stop()


def make_server(folder: Path, settings: dict[str, str]) -> Server:
    """In a new folder; it does not run yet."""
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        user = as_user()
        shutil.chown(folder, user["user"], user["group"])
    server = Server(folder, free_port(), secrets.token_hex(16))
    password = folder / "password"
    password.write_text(server.password)
    server.run(
        "initdb", "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={_USER}", "--auth=password",
        f"--pwfile={password}", f"--pgdata={server.data}",
    )  # fmt: skip
    common = {
        "listen_addresses": "127.0.0.1",
        "port": str(server.port),
        "unix_socket_directories": str(folder),
        "max_connections": "500",
    }
    server.configure(common | settings)
    return server


@contextmanager
def postgres_server(settings: dict[str, str] | None = None) -> Iterator[Server]:
    """A server for one test, which may stop and crash it: it loses nothing, and runs."""
    if programs() is None:
        absent()
    with tempfile.TemporaryDirectory(prefix="a2a-gateway-postgres-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        server = make_server(Path(folder) / "server", settings or {})
        server.start()
        try:
            yield server
        finally:
            server.end()


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """A standby that runs and receives what the primary writes. For `synchronous_standby_names` it is called 'standby'."""
    with tempfile.TemporaryDirectory(prefix="a2a-gateway-standby-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            user = as_user()
            shutil.chown(folder, user["user"], user["group"])
        server = Server(folder, free_port(), primary.password)
        source = f"{primary.url()}?application_name=standby"
        server.run(
            "pg_basebackup", "--no-sync", "--checkpoint=fast", "--write-recovery-conf", "--wal-method=stream",
            f"--pgdata={server.data}", f"--dbname={source}",
        )  # fmt: skip
        quick = {"wal_retrieve_retry_interval": "100ms"}
        server.configure({"port": str(server.port), "unix_socket_directories": str(folder), **quick})
        server.start()
        try:
            yield server
        finally:
            server.end()


def url_of_all(*servers: Server) -> str:
    """Whichever of them takes writes."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://{_USER}:{servers[0].password}@{hosts}/postgres?target_session_attrs=read-write"


def until_listening(path: str, seconds: float = 60) -> None:
    """At the socket of this path. Raises: TimeoutError."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens at {path}")
