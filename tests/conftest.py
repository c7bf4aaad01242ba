"""What all tests share. Faults are logged as plain text: with all locals of every frame, as structlog does it where rich is
installed, one of them takes seconds on a busy machine."""

import structlog


def pytest_configure() -> None:
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])
