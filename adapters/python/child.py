"""The process of a function with `run_in: process`: `python -m adapters.python.child IN OUT LEVEL`, two file descriptors and
the level of the log.

Law: it ends with its parent, and never for a signal that is meant for its parent; what the function emits is on its way before
the function goes on.
"""

import asyncio
import contextvars
import ctypes
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from adapters.python import wire
from adapters.python.agent_call import AgentService, PythonSettings
from adapters.python.block_watch import watch
from adapters.python.calls import Failure
from adapters.python.loop_thread import LoopThread
from adapters.python.tool import PythonToolSettings, ToolService
from adapters.python.worker import Run, Worker, escaped
from gateway.foundation import trace
from gateway.foundation.forks import keep_from_copies
from gateway.foundation.lines import Lines
from gateway.foundation.logs import LogRecords, add_trace, level_name, take_over_logging

_PR_SET_PDEATHSIG = 1
"""Source: Linux, prctl(2)."""
_GRACE = 1.0
_KINDS: dict[str, tuple[Any, Any]] = {
    PythonSettings.kind: (PythonSettings, AgentService),
    PythonToolSettings.kind: (PythonToolSettings, ToolService),
}


class Outbox:
    """Writes lines to the parent in a thread of its own, because the event loop may be blocked. May be used in any thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="python outbox", daemon=True)
        self._thread.start()

    def post(self, line: bytes) -> None:
        self._lines.put(line)

    def log(self, fields: EventDict) -> None:
        told = {name: value if _is_plain(value) else repr(value) for name, value in fields.items()}
        try:
            line = wire.encode(wire.Log(told))
        except (TypeError, ValueError):
            # A list may hold anything, and a text half of a character.
            line = wire.encode(wire.Log({_sendable(name): _sendable(value) for name, value in told.items()}))
        self.post(line)

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(_GRACE)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            lines = [line]
            with suppress(Empty):
                while (line := self._lines.get_nowait()) is not None:
                    lines.append(line)
            lines.append(b"")
            data = memoryview(b"\n".join(lines))
            with suppress(OSError):  # the parent is gone
                while data:
                    data = data[os.write(self.fd, data) :]
            if line is None:
                return


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | list | None)


def _sendable(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="backslashreplace").decode()


class Function:
    """The function of this process, once the parent has named it. A GatewayPort."""

    def __init__(self, thread: LoopThread, under_way: set[Run], outbox: Outbox, incoming: int) -> None:
        self._thread = thread
        self._outbox = outbox
        self._incoming = incoming
        self._under_way = under_way
        self._worker: Worker | None = None
        keep_from_copies(self)

    def descriptors(self) -> tuple[int, int]:
        """Of its pipes."""
        return self._incoming, self._outbox.fd

    async def listen(self) -> None:
        lines, pipe = Lines(self._received, self._closed), os.fdopen(self._incoming, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: lines, pipe)

    def value(self, number: int, value: object) -> None:
        self._outbox.post(wire.encode_value(number, value))

    def end(self, number: int, failure: Failure | None) -> None:
        try:
            line = wire.encode(wire.End(number, failure))
        except (TypeError, ValueError):
            # The text of an exception may be what no JSON can be, and so may the pages of a consent.
            line = wire.encode(wire.End(number, failure and Failure(failure.kind, ascii(failure.detail))))
        self._outbox.post(line)

    def _closed(self) -> None:
        self._thread.close()

    def _received(self, line: bytes) -> None:
        message = wire.to_process.decode(line)
        if isinstance(message, wire.Begin):
            self._begin(message)
        elif self._worker is not None:
            match message:
                case wire.Start(number=number, given=given, trace=place):
                    self._worker.start(number, bytes(given), _context(place))
                case wire.Give(number=number, weight=weight):
                    self._worker.give(number, weight)
                case wire.Stop(number=number):
                    self._outbox.post(wire.encode(wire.Alive()))
                    self._worker.stop(number)

    def _begin(self, message: wire.Begin) -> None:
        settings_of, service_of = _KINDS[message.kind]
        context = {"base_dir": Path(message.base_dir), "name": message.name}
        try:
            settings = settings_of.model_validate_json(bytes(message.settings), context=context)
            service = service_of(settings)
        except ValueError as error:
            self._outbox.post(wire.encode(wire.Refused(str(error))))
            self._thread.close()
            return
        watch.add(self._thread, self._under_way, settings.blocked_after)
        self._worker = Worker(service, self, self._under_way, {})
        self._outbox.post(wire.encode(wire.Ready(service.tool)))


def _context(place: str | None) -> contextvars.Context:
    """Of a call that is there in a trace."""
    context, found = contextvars.copy_context(), trace.from_text(place)
    if found is not None:
        context.run(trace.enter, found)
    return context


def _configure_logging(outbox: Outbox, level: int) -> None:
    def post(_: WrappedLogger, __: str, fields: EventDict) -> EventDict:
        outbox.log(fields)
        raise structlog.DropEvent

    def tell(record: logging.LogRecord) -> None:
        fields = {"event": record.getMessage(), "level": level_name(record.levelno), "logger": record.name}
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        outbox.log(add_trace(None, "", fields))

    known: list[Processor] = [add_trace, structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(processors=[*known, post])
    take_over_logging(level, LogRecords(tell))


def _end_with_parent() -> None:
    """A loop that is blocked does not see the end of its pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    _end_with_parent()
    # A terminal and a service manager signal whole groups of processes. A handler, because programs that the function
    # starts would inherit an ignored signal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    incoming, outgoing, level = map(int, sys.argv[1:])
    for inherited in (incoming, outgoing):
        os.set_inheritable(inherited, False)
    outbox = Outbox(outgoing)
    _configure_logging(outbox, level)
    under_way: set[Run] = set()
    thread = LoopThread({}, partial(escaped, {}, under_way))
    listening = thread.loop.create_task(Function(thread, under_way, outbox, incoming).listen())
    thread.run()
    del listening
    outbox.close()


if __name__ == "__main__":
    main()
