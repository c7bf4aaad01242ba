"""Log lines: one JSON object each, on stderr. Law: what a caller or backend sent is a value, never a format string."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


class _Stderr:
    """The standard error of the moment. A log that nobody reads any more must not end the work that it tells of."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logging(level: int = logging.INFO) -> None:
    """JSON escapes control characters, so no line can be forged."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
