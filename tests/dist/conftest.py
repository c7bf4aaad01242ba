"""What `make dist` has made, and environments with nothing but that in them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.conftest import AUTHORITIES, DISK
from tests.dist.interpreters import ROOT

Environment: TypeAlias = Callable[[str, str], AbstractContextManager[Path]]


def of_the_machine() -> dict[str, str]:
    """The variables with which package registries are reached."""
    return {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"} | (
        {"SSL_CERT_FILE": os.environ[AUTHORITIES]} if os.environ[AUTHORITIES] else {}
    )


def uv(*arguments: str | Path) -> str:
    """What uv writes to standard output."""
    command = [os.environ.get("UV", "uv"), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=of_the_machine(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel() -> Path:
    [found] = (ROOT / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def source() -> Path:
    """The source distribution."""
    [found] = (ROOT / "dist").glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Makes one of this Python in which a package with these extras is installed, and gives the folder of its programs.

    All else has the versions of the lock, so that a day's release of somebody else does not break the build.
    """
    locked = tmp_path_factory.mktemp("lock") / "constraints.txt"
    uv("export", "--locked", "--no-dev", "--all-extras", "--no-emit-project", "--no-hashes", "--output-file", locked)

    @contextmanager
    def made(python: str, package: str) -> Iterator[Path]:
        # On the disk of uv's cache, so that files are linked and not copied.
        folder = Path(tempfile.mkdtemp(prefix="a2a-gateway-dist-", dir=os.environ[DISK]))
        try:
            uv("venv", "--python", python, folder)
            uv("pip", "install", "--python", folder, "--constraint", locked, package)
            yield folder / "bin"
        finally:
            shutil.rmtree(folder)

    return made
