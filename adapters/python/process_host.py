"""Runs a function in a process of its own. Law: the process begins with the first call, and again after it has died; what it
was at has failed with the reason; it never outlives the gateway."""

import asyncio
import contextvars
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import structlog

from adapters.python import wire
from adapters.python.calls import CallFailed, Calls, Failure
from adapters.python.loop_thread import Mailbox
from gateway.a2a.model import Json
from gateway.foundation import trace
from gateway.foundation.lines import Lines
from gateway.foundation.logs import LEVELS
from gateway.foundation.retry import backoff
from gateway.ports.adapter import ErrorClass
from gateway.ports.tools import SourceTool

log = structlog.get_logger("adapters.python.process_host")

_GRACE = 3.0
"""Seconds that a process has to end."""
_SILENCE = 5.0
"""Seconds after which a process is killed that does not answer a cancellation: its event loop is blocked."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_LINE = 8192


class ProcessHost:
    """Makes the calls of one function. For one event loop of the gateway."""

    def __init__(self, owner: Mapping[str, str], begin: wire.Begin) -> None:
        self._owner = owner
        self._begin = begin
        self._process: _Process | None = None
        self._deaths = 0
        self._not_before = 0.0

    async def calls(self) -> Calls:
        """Raises: CallFailed: UNREACHABLE while the process is not started again, or else BACKEND_FAILED."""
        process = self._latest()
        await asyncio.shield(process.ready)
        return process.calls

    async def tool(self) -> SourceTool | None:
        """The description of a function that is a tool. Raises: as `calls`."""
        return await asyncio.shield(self._latest().ready)

    def _latest(self) -> "_Process":
        process = self._process
        if process is None or process.over:
            if process is not None:
                self._note_death(process)
                wait = self._not_before - asyncio.get_running_loop().time()
                if wait > 0:
                    detail = f"{process.reason or 'its process has ended'}; it is started again in {wait:.1f} s"
                    raise CallFailed(Failure(ErrorClass.UNREACHABLE, detail, retry_after=wait))
            process = self._process = _Process(self._owner, self._begin)
        return process

    def _note_death(self, process: "_Process") -> None:
        """A process that has not ended a call since the death before is not started at once."""
        if not process.noted:
            process.noted = True
            self._deaths = 1 if process.useful else self._deaths + 1
            if self._deaths > 1:
                self._not_before = process.ended_at + backoff(_FIRST_WAIT, _LONGEST_WAIT, self._deaths - 1)

    async def aclose(self) -> None:
        """Idempotent."""
        if self._process is not None:
            await self._process.aclose()


class _Process:
    """One process, from its start to its end: a WorkerPort. `over`: it takes no more calls. `useful`: it has ended one."""

    def __init__(self, owner: Mapping[str, str], begin: wire.Begin) -> None:
        loop = asyncio.get_running_loop()
        self.calls = Calls(self)
        self.ready: asyncio.Future[SourceTool | None] = loop.create_future()
        self.over = self.useful = self.noted = False
        self.reason = ""
        self.ended_at = 0.0
        self._owner = owner
        self._begin = begin
        self._loop = loop
        self._in, self._out = Lines(self._received, self._closed), wire.LineWriter()
        self._printed = Lines(self._print, lambda: None, longest=_LINE)
        self._mailbox = Mailbox[bytes](loop.call_soon, self._out.send)
        self._disconnected = asyncio.Event()
        self._closing = False
        self._doubt: asyncio.TimerHandle | None = None
        self._process: asyncio.subprocess.Process | None = None
        # In no task group, because the process outlives a turn. `aclose` waits for it.
        self._life = loop.create_task(self._live(), context=contextvars.Context())

    async def _live(self) -> None:
        try:
            process = self._process = await self._spawn()
        except OSError as error:
            return self._end(f"its process cannot be started: {error}")
        if self._closing:
            self._kill()
        code = await process.wait()
        # What the process sent before its end counts.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._disconnected.wait(), _GRACE)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if not self._closing:
            log.error("python.process-ended", **self._owner, detail=self.reason or f"its process {how}")
        return self._end(self.reason or f"its process {how}")

    async def _spawn(self) -> asyncio.subprocess.Process:
        """Raises: OSError."""
        # By file descriptor: its incoming messages, its outgoing ones, what it prints.
        level = logging.getLogger().getEffectiveLevel()
        incoming, to_process = os.pipe()
        from_process, outgoing = os.pipe()
        printed, printing = os.pipe()
        try:
            await self._loop.connect_write_pipe(lambda: self._out, os.fdopen(to_process, "wb", buffering=0))
            await self._loop.connect_read_pipe(lambda: self._in, os.fdopen(from_process, "rb", buffering=0))
            await self._loop.connect_read_pipe(lambda: self._printed, os.fdopen(printed, "rb", buffering=0))
            self._mailbox.post(wire.encode(self._begin))
            return await asyncio.create_subprocess_exec(
                # Without `-P`, files of the working directory would hide modules of the gateway.
                *(sys.executable, "-u", "-P", "-m", "adapters.python.child", *map(str, (incoming, outgoing, level))),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printing,
                stderr=printing,
                pass_fds=(incoming, outgoing),
                start_new_session=True,
            )
        finally:
            for given in (incoming, outgoing, printing):
                os.close(given)

    # --- the way to it

    def start(self, number: int, given: bytes) -> None:
        place = trace.current()
        self._mailbox.post(wire.encode(wire.Start(number, msgspec.Raw(given), None if place is None else place.text)))

    def give(self, number: int, weight: int) -> None:
        self._mailbox.post(wire.encode(wire.Give(number, weight)))

    def stop(self, number: int) -> None:
        self._mailbox.post(wire.encode(wire.Stop(number)))
        if self._doubt is None:
            self._doubt = self._loop.call_later(_SILENCE, self._kill_silent)

    # --- the way back

    def _received(self, line: bytes) -> None:
        match wire.from_process.decode(line):
            case wire.Value() as message:
                self.calls.value(message.number, wire.value_of(message))
            case wire.End(number=number, failure=failure):
                self.useful = True
                self.calls.end(number, failure)
            case wire.Ready(tool=tool):
                self.ready.set_result(tool)
            case wire.Alive():
                self._believe()
            case wire.Log(fields=fields):
                self._log(fields)
            case wire.Refused(detail=detail):
                self.reason = detail

    def _print(self, line: bytes) -> None:
        log.info("python.output", **self._owner, line=line.decode(errors="replace"))

    def _log(self, fields: dict[str, Json]) -> None:
        event, level = fields.pop("event", ""), fields.pop("level", "info")
        tell = getattr(log, level if isinstance(level, str) and level in LEVELS else "info")
        tell(event, **{**fields, **self._owner})

    # --- its end

    def _closed(self) -> None:
        """Its end of the connection is closed: it ends, or can do nothing any more."""
        self._disconnected.set()
        self.over, self.ended_at = True, self._loop.time()
        if not self._closing:
            self._loop.call_later(_GRACE, self._kill)

    def _kill_silent(self) -> None:
        self.reason = f"its process was killed: its event loop did not answer for {_SILENCE:g} s"
        self.over, self.ended_at = True, self._loop.time()
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _believe(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    def _end(self, reason: str) -> None:
        self._believe()
        self.over, self.reason, self.ended_at = True, reason, self._loop.time()
        self._out.close()
        failure = Failure(ErrorClass.BACKEND_FAILED, reason)
        if not self.ready.done():
            self.ready.set_exception(CallFailed(failure))
            self.ready.exception()  # asyncio logs an exception that is never retrieved
        self.calls.fail_all(failure)

    async def aclose(self) -> None:
        self._closing = True
        self._out.close()
        await asyncio.wait({self._life}, timeout=_GRACE)
        self._kill()
        await asyncio.wait({self._life})
