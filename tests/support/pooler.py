"""A pgbouncer in front of databases, in transaction mode. A test without one skips, or fails where
A2A_GATEWAY_REQUIRE_POSTGRES is 1."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.postgres import absent, as_user, until_listening

_SETTINGS = """\
[databases]
* = host={host} port={server_port} user={user} password={password}

[pgbouncer]
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 2000
unix_socket_dir = {folder}
logfile = {folder}/log
pidfile = {folder}/pid
{more}
"""


@dataclass(frozen=True, slots=True)
class _Pooler:
    """`settings` is the file that it begins with, `url` that of the database behind it. It listens on a socket in its folder: a
    port could be taken by another process before it has it."""

    program: str
    settings: Path
    url: str

    def await_socket(self) -> None:
        """Raises: TimeoutError."""
        until_listening(str(self.settings.parent / ".s.PGSQL.6432"))


def _prepared(url: str, folder: Path, more: str) -> _Pooler:
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        absent("there is no pgbouncer: install it (Debian: pgbouncer)")
    parts = urlsplit(url)
    settings = folder / "settings"
    settings.write_text(
        _SETTINGS.format(
            host=parts.hostname, server_port=parts.port, user=parts.username, password=parts.password,
            folder=folder, more=more,
        )
    )  # fmt: skip
    if os.geteuid() == 0:
        user = as_user()
        for path in (folder, settings):
            shutil.chown(path, user["user"], user["group"])
    behind = parts._replace(netloc=f"{parts.username}@", query=f"host={folder}&port=6432")
    return _Pooler(program, settings, behind.geturl())


@contextmanager
def pooled(url: str, more: str = "") -> Iterator[str]:
    """The URL of the database behind a pooler of its own. `more` are lines of its settings."""
    with tempfile.TemporaryDirectory(prefix="a2a-gateway-pgbouncer-", ignore_cleanup_errors=True) as name:
        pooler = _prepared(url, Path(name), more)
        command = [pooler.program, "-q", str(pooler.settings)]
        running = subprocess.Popen(command, cwd=name, stderr=subprocess.DEVNULL, **as_user())
        try:
            pooler.await_socket()
            yield pooler.url
        finally:
            running.terminate()
            running.wait()


def begin_pooler(url: str, folder: Path) -> str:
    """The URL behind a pooler that goes on until `end_pooler`. The folder is made."""
    folder.mkdir()
    pooler = _prepared(url, folder, "")
    subprocess.run([pooler.program, "-q", "-d", str(pooler.settings)], cwd=folder, check=True, **as_user())
    pooler.await_socket()
    return pooler.url


def end_pooler(folder: Path) -> None:
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
