"""Log lines on stderr, as JSON objects or as text for people.

Law: data of a caller or backend is a value, never a format string; no value can begin a line of its own or steer a terminal.
"""

import json
import logging
import os
import reprlib
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias, cast

import msgspec
import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter, LogLevelColumnFormatter, plain_traceback
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from gateway.foundation import trace
from gateway.foundation.clock import timestamp

LogFormat: TypeAlias = Literal["text", "json"]

_TRACES = frozenset({"exception", "frames", "stack"})
"""Keys whose values stand below their line; the renderer expects some of them to be text."""

_SPECIAL = frozenset(" =\"'")
_TIME = {"json": "iso", "text": "%Y-%m-%d %H:%M:%S"}

_TALKATIVE = ("aiohttp", "alembic", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "uvicorn")
"""Loggers of libraries of the gateway that tell of each request; they are heard from a warning on, or from `debug` on."""

_REPEATING = ("mcp.client.stdio", "mcp.client.streamable_http")
"""Loggers of libraries that write, with a traceback, what their callers get as an error; they are heard at `debug` alone."""

_NAMELESS = "client"
"""The logger of `mcp.client.session`, whose name may be that of an operator's own logger, too."""

_LONGEST = 8192
"""Characters of a line that is told before its end."""


class LogLine(msgspec.Struct, kw_only=True, gc=False):
    """A line for `write_lines`, which is made thousands of times in a second. Its fields are its facts; an unset one is left
    out."""

    event: str
    level: str = "info"
    timestamp: str = ""
    worker: int | msgspec.UnsetType = msgspec.UNSET


TimedLine: TypeAlias = tuple[int, LogLine]
"""A line, and its time in milliseconds since 1970."""

_encoder = json.JSONEncoder(default=repr)
_quick_encoder = msgspec.json.Encoder()
_basic_config = logging.basicConfig


class _Stderr:
    """Where the lines go. After `keep` that is a descriptor of the log's own, because code of the operator may close standard
    error or exchange it; until then, and where a program around the gateway has put a stream in the place of standard error, it
    is the present `sys.stderr`. A closed log must not end the work that it reports."""

    def __init__(self) -> None:
        self._own: int | None = None
        self._encoding = "utf-8"
        self._renew_lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        """The collector of garbage may let a thread write a line in the middle of another one."""
        self._lock = threading.RLock()

    def keep(self) -> None:
        former, self._own = self._own, None
        if sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
            with suppress(OSError, ValueError):
                self._own, self._encoding = os.dup(sys.__stderr__.fileno()), sys.__stderr__.encoding
        if former is not None:
            os.close(former)

    def write(self, text: str) -> None:
        if self._own is None:
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(text)
            return
        data = text.encode(self._encoding, "backslashreplace")
        with self._lock, suppress(OSError):
            for piece in (data,) if _worker is None else _pieces(data):
                left = memoryview(piece)
                while left:
                    left = left[os.write(self._own, left) :]

    def flush(self) -> None:
        if self._own is None:
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()

    def isatty(self) -> bool:
        with suppress(OSError, ValueError, AttributeError):
            return sys.stderr.isatty() if self._own is None else os.isatty(self._own)
        return False


def _pieces(data: bytes) -> Iterator[bytes]:
    """Whole lines: as many at once as a pipe never mixes with what other processes write, or a longer one by itself."""
    at = 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + select.PIPE_BUF) + 1 or data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end


_stderr = _Stderr()

_console: ConsoleRenderer | None = None
"""The form of lines of text; None where lines are JSON."""

_worker: int | None = None
"""The number of this process, where several have one log."""


def log_format(given: Literal["auto", "text", "json"]) -> LogFormat:
    """`auto` is text on a terminal and JSON elsewhere."""
    if given == "auto":
        return "text" if _stderr.isatty() else "json"
    return given


def configure_logging(level: int = logging.INFO, form: LogFormat = "json", worker: int | None = None) -> None:
    """The lines of the gateway, and those that adapters, libraries and functions of the operator write with `logging`,
    or print in a thread. With `worker` this process is one of several with one log: each line has its number."""
    global _console, _worker  # a function of the operator may configure structlog for itself
    _worker = worker
    _stderr.keep()
    # With `utc=False` the time is that of the machine, which is what a person at a terminal compares it with.
    stamp = structlog.processors.TimeStamper(fmt=_TIME[form], utc=form == "json")
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.processors.add_log_level,
        stamp,
    ]
    if worker is not None:
        common.append(_add_worker)
    renderer = _renderer(form)
    output: list[Processor] = [structlog.processors.format_exc_info, renderer]
    _console = renderer if isinstance(renderer, ConsoleRenderer) else None
    if form == "text":
        output.insert(1, _set_apart)
    structlog.configure(
        processors=[*common, *output],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _stderr)),
        cache_logger_on_first_use=True,
    )
    take_over_logging(level, _last_resort([*common, structlog.stdlib.add_logger_name], output))
    _take_over_stdout()


def add_trace(_logger: object, _name: str, facts: EventDict) -> EventDict:
    """Where the work of which the line tells is in a trace, if it is in one."""
    place = trace.current()
    if place is not None:
        facts.setdefault("trace_id", place.trace_id)
        facts.setdefault("span_id", place.span_id)
    return facts


def _add_worker(_logger: object, _name: str, facts: EventDict) -> EventDict:
    facts["worker"] = _worker
    return facts


def write_lines(lines: Sequence[TimedLine]) -> None:
    """Writes lines in one piece and in the form of all others. This sets their timestamps and workers."""
    time_of = timestamp if _console is None else _local_time
    for at, line in lines:
        line.timestamp = time_of(at)
        if _worker is not None:
            line.worker = _worker
    if _console is None:
        text = _dense([line for _, line in lines])
    else:
        text = "".join(f"{_console(None, '', _facts(line))}\n" for _, line in lines)
    _stderr.write(text)
    _stderr.flush()


def _dense(lines: Sequence[LogLine]) -> str:
    """As JSON, in a tenth of the time that the encoder of the standard library takes."""
    try:
        text = _quick_encoder.encode_lines(lines)
    except UnicodeEncodeError:
        text = b""
    if text and text.isascii():
        return text.decode()
    # The standard library escapes everything else, control characters beyond ASCII among it.
    return "".join(f"{_encoder.encode(_facts(line))}\n" for line in lines)


def _facts(line: LogLine) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(line).items() if value is not msgspec.UNSET}


def _local_time(milliseconds: int) -> str:
    return time.strftime(_TIME["text"], time.localtime(milliseconds / 1000))


class _Printed:
    """Standard output of a process that runs code of the operator. `owner` is the thread of the gateway. What other threads
    print, which is code of the operator, are lines of the log; a line without an end is told when it is flushed, or in
    pieces."""

    def __init__(self, stdout: TextIO) -> None:
        self.owner = threading.current_thread()
        self._stdout = stdout
        self._bytes = _PrintedBytes(self)
        self._begun: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)

    @property
    def buffer(self) -> Any:
        return self._stdout.buffer if self._is_owner() else self._bytes

    def write(self, text: str) -> int:
        if self._is_owner():
            return self._stdout.write(text)
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        for line in lines:
            _tell_printed(line)
        if len(rest) > _LONGEST:
            _tell_printed(rest)
        elif rest:
            self._begun[thread] = rest
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """In the gateway's thread, which flushes at the end of the process, all that is begun."""
        if self._is_owner():
            self._stdout.flush()
            begun = list(self._begun)
        else:
            begun = [threading.get_ident()]
        for thread in begun:
            text = self._begun.pop(thread, "")
            if text:
                _tell_printed(text)

    def _is_owner(self) -> bool:
        # In a copy of the process that another thread has forked, that one is the main thread.
        return threading.current_thread() in (self.owner, threading.main_thread())


class _PrintedBytes(BufferedIOBase):
    """What other threads print as bytes."""

    def __init__(self, printed: _Printed) -> None:
        self._printed = printed

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._printed.write(raw.decode(errors="replace"))
        return len(raw)

    def flush(self) -> None:
        self._printed.flush()

    def close(self) -> None:
        """Does nothing, because all threads share it."""


def _tell_printed(line: str) -> None:
    structlog.get_logger("gateway.foundation.logs").info("python.output", line=line)


def _take_over_stdout() -> None:
    if isinstance(sys.stdout, _Printed):
        sys.stdout.owner = threading.current_thread()
    else:
        sys.stdout = cast("TextIO", _Printed(sys.stdout))


# --- the standard library's logging


LEVELS = ("debug", "info", "warning", "error", "critical")
"""Of lines, as `logging` numbers them: 10, 20, ..."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def level_name(number: int) -> str:
    """The level of a line at or below this one of `logging`, which may have others, and other names."""
    return LEVELS[min(max(number // 10, 1), len(LEVELS)) - 1]


class LogRecords(logging.Handler):
    """Lines of `logging`, as `tell` tells them. A call whose line cannot be made, because its arguments do not fit its message,
    is told as such, and raises nothing into the code that makes it."""

    def __init__(self, tell: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell(record)
        except Exception as error:  # noqa: BLE001  # whatever the values of the call raise
            with suppress(Exception):
                _tell_faulty(record, error)


def _tell_faulty(call: logging.LogRecord, error: Exception) -> None:
    tell = getattr(structlog.get_logger("gateway.foundation.logs"), level_name(call.levelno))
    tell(
        "python.log-failed",
        message=call.msg if isinstance(call.msg, str) else _short.repr(call.msg),
        arguments=_short.repr(call.args),
        detail=traceback.format_exception_only(error)[-1].strip(),
        file=call.pathname,
        line=call.lineno,
        function=call.funcName,
        logger=call.name,
        exc_info=call.exc_info,
    )


def _last_resort(before: list[Processor], output: list[Processor]) -> logging.Handler:
    processors = [ProcessorFormatter.remove_processors_meta, *output]
    formatter = ProcessorFormatter(foreign_pre_chain=before, processors=processors)

    def tell(record: logging.LogRecord) -> None:
        _stderr.write(f"{formatter.format(record)}\n")
        _stderr.flush()

    return LogRecords(tell)


def _is_not_of_mcp(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parts[-3:] != ("mcp", "client", "session.py")


def take_over_logging(level: int, handler: logging.Handler) -> None:
    """Lines of `logging` go to the handler, unless code of the operator has configured `logging`.

    It is the handler of last resort and not one of the root logger, because only then a configuration of the operator has
    its effect.
    """
    handler.setLevel(level)
    logging.lastResort = handler
    logging.basicConfig = _configure_when_told
    logging.captureWarnings(True)
    # Its own handler, because Python gives this logger one that writes nothing.
    logging.getLogger("py.warnings").handlers[:] = [handler]
    logging.getLogger().setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.NOTSET if level <= logging.DEBUG else max(level, logging.WARNING))
    for name in _REPEATING:
        logging.getLogger(name).setLevel(logging.NOTSET if level <= logging.DEBUG else logging.CRITICAL)
    nameless = logging.getLogger(_NAMELESS)
    nameless.removeFilter(_is_not_of_mcp)
    if level > logging.DEBUG:
        nameless.addFilter(_is_not_of_mcp)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_end_of_thread


def _configure_when_told(**given: Any) -> None:
    """`logging.basicConfig`, which `logging.info()` and the like call without arguments: without a place or a form for lines
    it would add nothing but a second form."""
    if given.keys() <= {"level"}:
        if "level" in given:
            logging.getLogger().setLevel(given["level"])
    else:
        _basic_config(**given)


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit:
        return
    name = ended.thread.name if ended.thread is not None else None
    error = ended.exc_value
    structlog.get_logger("gateway.foundation.logs").error("thread.failed", thread=name, exc_info=error or True)


# --- forms


def _renderer(form: LogFormat) -> Processor:
    if form == "json":
        # JSON escapes control characters.
        return structlog.processors.JSONRenderer(serializer=lambda value, **_: _encoder.encode(value))
    colors = _stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    styles = ConsoleRenderer.get_default_level_styles(colors)
    columns = [
        Column("", KeyValueColumnFormatter("", "", "", _value)),
        Column("timestamp", KeyValueColumnFormatter(None, "", "", str)),
        Column("level", LogLevelColumnFormatter(styles, "\x1b[0m" if colors else "")),
        Column("event", KeyValueColumnFormatter(None, "", "", _visible)),
    ]
    return ConsoleRenderer(columns=columns, exception_formatter=plain_traceback, sort_keys=False)


def _visible(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)[1:-1]


def _value(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    return value if value and value.isprintable() and _SPECIAL.isdisjoint(value) else repr(value)


def _set_apart(_logger: object, _name: str, facts: EventDict) -> EventDict:
    """Values of several lines, such as a traceback, stand below their line. Each of their lines is indented, so that none looks
    like a line of the log."""
    long = [key for key, value in facts.items() if key in _TRACES or (key != "event" and _has_lines(value))]
    blocks = [(key, _lines(facts.pop(key))) for key in long]
    if blocks:
        facts["exception"] = "\n".join(line for key, text in blocks for line in _block(key, text))
    return facts


def _has_lines(value: object) -> bool:
    return isinstance(value, str) and "\n" in value.strip()


def _lines(value: object) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _block(key: str, text: str) -> Iterator[str]:
    if key != "exception":
        yield f"  {key}:"
    yield from (f"    {_visible(line)}" for line in text.strip("\n").splitlines())
