"""What all tests share: loggers as a fresh process has them, temporary files in memory, and no reading of certificates."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import httpcore2
import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog._config import BoundLoggerLazyProxy

from tests.support import stores

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30
DISK = "GATEWAY_TESTS_DISK"
AUTHORITIES = "GATEWAY_TESTS_AUTHORITIES"
"""The SSL_CERT_FILE of the machine."""
_AUTHORITY = Path(__file__).parent / "support" / "authority.pem"


# How long an example takes depends on the machine and its other work.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", choices=stores.STORES, default=stores.SQLITE, help="the store that gateways run on")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # In the background of a script Ctrl-C is ignored, and by every process that is started there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault(DISK, tempfile.gettempdir())  # set by the first process of a run
    if "TMPDIR" not in os.environ and _keeps_files_in_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
    stores.begin_run(config.getoption("--ledger"))
    os.environ.setdefault(AUTHORITIES, os.environ.get("SSL_CERT_FILE", ""))
    # To load all authorities of the system takes a client 60 ms, and no test calls anybody whom they know.
    os.environ["SSL_CERT_FILE"] = str(_AUTHORITY)
    httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)
    _renew()  # for fixtures of whole modules, which are made before those of their first test


def _keeps_files_in_memory() -> bool:
    """A commit waits 3 ms for a disk; programs of tests must be allowed to run there."""
    try:
        return not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC and shutil.disk_usage(_MEMORY).free > _ROOM
    except OSError:
        return False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests wait as well as compute."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """What collection made stays for the whole run. Each full garbage collection of a test would look at all of it again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker(stores.SQLITE)
    if mark is not None and stores.chosen() != stores.SQLITE:
        pytest.skip(f"on SQLite only: {mark.args[0]}")


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = report.failed or item.stash.get(_failed, False)
    return report


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Emptied when its test has passed, and not removed: a later test must not get the same path."""
    yield tmp_path
    stores.remove(tmp_path)
    if not request.node.stash.get(_failed, False):
        for path in tmp_path.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, where `tmp_path` may not be."""
    with tempfile.TemporaryDirectory(dir=os.environ[DISK]) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _fresh_loggers() -> None:
    _renew()


_loggers: list[BoundLoggerLazyProxy] = []
_modules = 0


def _renew() -> None:
    """A logger keeps the settings of its first use: settings that a command made in this process must not hold for later tests.

    Faults are shown as plain text: with all locals of every frame, which is structlog's way where rich is installed, one of
    them takes seconds on a busy machine.
    """
    global _modules
    structlog.reset_defaults()
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])
    if len(sys.modules) != _modules:
        modules = sys.modules.copy()  # at once: threads import as well
        _modules = len(modules)
        found = (
            vars(module).get("log") for name, module in modules.items() if name.startswith(("gateway", "adapters"))
        )
        _loggers[:] = [logger for logger in found if isinstance(logger, BoundLoggerLazyProxy)]
    for logger in _loggers:
        vars(logger).pop("bind", None)
