"""What all tests share: loggers as a fresh process has them, but for faults as plain text. With all locals of every frame, as
structlog does it where rich is installed, one of them takes seconds on a busy machine."""

import signal
import sys

import pytest
import structlog
from structlog._config import BoundLoggerLazyProxy


def pytest_configure() -> None:
    # In the background of a script Ctrl-C is ignored, and by every process that is started there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _renew()  # for fixtures of whole modules, which are made before those of their first test


@pytest.fixture(autouse=True)
def _fresh_loggers() -> None:
    _renew()


def _renew() -> None:
    """A logger keeps the settings of its first use: what a command set up in this process must not hold for later tests."""
    structlog.reset_defaults()
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])
    for name, module in sys.modules.copy().items():  # at once: threads import as well
        logger = vars(module).get("log") if name.startswith("gateway") else None
        if isinstance(logger, BoundLoggerLazyProxy):
            vars(logger).pop("bind", None)
