"""A pgbouncer in front of a database, for tests. A test without one skips."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.postgres import as_user, free_port, until_listening

_SETTINGS = """\
[databases]
* = host={host} port={server_port} user={user} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
unix_socket_dir =
logfile = {folder}/log
pidfile = {folder}/pid
{more}
"""


@contextmanager
def pooled(url: str, more: str = "") -> Iterator[str]:
    """The URL of the database behind a pooler in transaction mode. `more` are lines of its settings."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer")
    parts = urlsplit(url)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="a2a-gateway-pgbouncer-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings = folder / "settings"
        settings.write_text(
            _SETTINGS.format(
                host=parts.hostname, server_port=parts.port, user=parts.username, password=parts.password, port=port,
                folder=folder, more=more,
            )
        )  # fmt: skip
        if os.geteuid() == 0:
            user = as_user()
            for path in (folder, settings):
                shutil.chown(path, user["user"], user["group"])
        running = subprocess.Popen([program, "-q", str(settings)], cwd=folder, stderr=subprocess.DEVNULL, **as_user())
        try:
            until_listening(port)
            yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        finally:
            running.terminate()
            running.wait()
