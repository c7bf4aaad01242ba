"""Log lines: one JSON object each, on stderr. Law: what a caller or backend sent is a value, never a format string."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor


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
    said: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    stderr = cast("TextIO", _Stderr())
    written: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*said, *written],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stderr),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _last_resort(stderr, said, written)


def _last_resort(stderr: TextIO, said: list[Processor], written: list[Processor]) -> logging.Handler:
    """For what adapters and libraries say by `logging`, unless a function of the operator's has set that up."""
    handler = logging.StreamHandler(stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*said, structlog.stdlib.add_logger_name],
            processors=[ProcessorFormatter.remove_processors_meta, *written],
        )
    )
    return handler
