"""Log lines: one JSON object each, on stderr. Law: data of a caller or backend is a value, never a format string."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor


class _Stderr:
    """The present standard error. A closed log must not end the work that it reports."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logging(level: int = logging.INFO) -> None:
    """JSON escapes control characters, so no line can be forged."""
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    stderr = cast("TextIO", _Stderr())
    output: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*common, *output],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stderr),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _last_resort(stderr, common, output)


def _last_resort(stderr: TextIO, common: list[Processor], output: list[Processor]) -> logging.Handler:
    """The handler for log lines that adapters and libraries write with `logging`, unless code of the operator has
    configured `logging`."""
    handler = logging.StreamHandler(stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[ProcessorFormatter.remove_processors_meta, *output],
        )
    )
    return handler
