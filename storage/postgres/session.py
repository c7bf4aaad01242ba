"""A connection to PostgreSQL, over libpq. Law: all calls of a run are one trip; a connection that has failed is not used
again.

Source: PostgreSQL's manual, "libpq", section "Pipeline Mode".
"""

import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from psycopg import Error, pq

from storage.postgres.addresses import attempts
from storage.postgres.errors import Failure, Lost, Silent
from storage.postgres.text import Call, decoded
from storage.statement import Row

_OK, _TUPLES, _SYNC, _ABORTED = (
    pq.ExecStatus.COMMAND_OK,
    pq.ExecStatus.TUPLES_OK,
    pq.ExecStatus.PIPELINE_SYNC,
    pq.ExecStatus.PIPELINE_ABORTED,
)
_BINARY = pq.Format.BINARY

MARGIN = 5.0
"""Seconds that the server may be silent beside those of the longest statement."""


class Result(msgspec.Struct, frozen=True):
    """`count` is the number of rows that were changed or found."""

    count: int
    rows: list[Row]


Outcome = Result | Failure


class Session:
    """One thread at a time uses it."""

    def __init__(
        self,
        conninfo: str,
        connect_timeout: float,
        timeout: float,
        *,
        prepares: bool,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        """Connects. `connect_timeout` is the number of seconds for each address, `timeout` those within which the server
        says something more; `on_silence` is called when it does not. Without `prepares` no statement is prepared. Raises:
        Lost."""
        self._on_silence = on_silence
        self._timeout = timeout
        self._prepares = prepares
        self._prepared: set[bytes] = set()
        try:
            self._pg = _connected(conninfo, connect_timeout)
            self._pg.nonblocking = 1
            self._pg.enter_pipeline_mode()
            self._poll = select.poll()
            self._poll.register(self._pg.socket, select.POLLIN)
            self._encrypted = self._pg.ssl_in_use
        except Error as error:
            raise Lost(str(error)) from error

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """In the block the server may be silent for so long."""
        timeout, self._timeout = self._timeout, seconds
        try:
            yield
        finally:
            self._timeout = timeout

    @property
    def usable(self) -> bool:
        return self._pg.status == pq.ConnStatus.OK

    def close(self) -> None:
        self._pg.finish()

    def run(self, calls: Sequence[Call], *, apart: bool = False) -> list[Outcome]:
        """The outcome of each call; behind one that has failed the others are not run. `apart` runs the others as well, each in
        a transaction of its own where none is open. Raises: Lost."""
        try:
            return self._run(calls, apart=apart)
        except Error as error:
            self.close()
            raise Lost(str(error)) from error
        except BaseException:
            # Answers may be left, which the next run would take for its own.
            self.close()
            raise

    def one(self, call: Call) -> list[Row]:
        """The rows of one call. Raises: Failure, Lost."""
        [outcome] = self.run([call])
        if isinstance(outcome, Failure):
            raise outcome
        return outcome.rows

    def heard(self, seconds: float, woken: int) -> list[str]:
        """The notifications that have come, or come within so many seconds. Returns earlier, without any, when the
        descriptor `woken` can be read. Raises: Lost."""
        try:
            self._take_decrypted()
            found = self._notifications()
            if not found:
                poll = select.poll()
                poll.register(self._pg.socket, select.POLLIN)
                poll.register(woken, select.POLLIN)
                if any(descriptor == self._pg.socket for descriptor, _ in poll.poll(seconds * 1000)):
                    self._pg.consume_input()
                    found = self._notifications()
        except Error as error:
            self.close()
            raise Lost(str(error)) from error
        return found

    def _notifications(self) -> list[str]:
        found = []
        while (notification := self._pg.notifies()) is not None:
            found.append(notification.extra.decode())
        return found

    def _run(self, calls: Sequence[Call], *, apart: bool) -> list[Outcome]:
        awaited: list[bytes | None] = []
        fresh: set[bytes] = set()
        for call in calls:
            self._send(call, fresh, awaited)
            if apart:
                self._pg.pipeline_sync()
        if not apart:
            self._pg.pipeline_sync()
        self._flush()
        outcomes: list[Outcome] = []
        refused: Failure | None = None
        for name in awaited:
            outcome = self._outcome()
            if name is None:
                # What cannot be prepared cannot be run either, and the server says why only once.
                outcomes.append(refused or outcome)
                refused = None
                if apart:
                    self._synchronised()
            elif isinstance(outcome, Result):
                self._prepared.add(name)
            else:
                refused = outcome
        if not apart:
            self._synchronised()
        if not self._prepares:
            # A pooler delivers what another client has asked for on the same connection of the server, and libpq keeps it.
            self._notifications()
        return outcomes

    def _send(self, call: Call, fresh: set[bytes], awaited: list[bytes | None]) -> None:
        name, pg = call.text.name, self._pg
        if not name or not self._prepares:
            pg.send_query_params(call.text.sql, call.parameters, None, call.formats, _BINARY)
        else:
            if name not in self._prepared and name not in fresh:
                pg.send_prepare(name, call.text.sql)
                fresh.add(name)
                awaited.append(name)
            pg.send_query_prepared(name, call.parameters, call.formats, _BINARY)
        awaited.append(None)

    def _flush(self) -> None:
        if not self._pg.flush():
            return
        self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
        try:
            while self._pg.flush():
                # The server may stop to read until its answers are read.
                if self._wait() & select.POLLIN:
                    self._pg.consume_input()
        finally:
            self._poll.modify(self._pg.socket, select.POLLIN)

    def _wait(self) -> int:
        found = self._poll.poll(self._timeout * 1000)
        if not found:
            self._on_silence()
            raise Silent
        return found[0][1]

    def _next(self) -> Any:
        while self._pg.is_busy():
            self._take_decrypted()
            if self._pg.is_busy():
                self._wait()
                self._pg.consume_input()
        return self._pg.get_result()

    def _take_decrypted(self) -> None:
        """What libpq has decrypted and not yet taken, the socket does not show any more."""
        if self._encrypted:
            self._pg.consume_input()

    def _outcome(self) -> Outcome:
        found = self._next()
        if found is None:
            raise Lost("the server has closed the connection")
        outcome = _outcome(found)
        if isinstance(outcome, Failure) and self._pg.status != pq.ConnStatus.OK:
            raise Lost(outcome.text)
        # Behind a result there is a mark of its end, which libpq has by then.
        self._pg.get_result()
        return outcome

    def _synchronised(self) -> None:
        found = self._next()
        if found is None or found.status != _SYNC:
            raise Lost("the server has closed the connection")


def _connected(conninfo: str, timeout: float) -> pq.abc.PGconn:
    """A connection to the first address that takes it. Raises: Lost, Error."""
    why = Lost("no address")
    for attempt in attempts(conninfo):
        pg = pq.PGconn.connect_start(attempt)
        try:
            _connect(pg, time.monotonic() + timeout)
        except Lost as error:
            pg.finish()
            why = error
        else:
            return pg
    raise why


def _connect(pg: pq.abc.PGconn, deadline: float) -> None:
    """Without libpq's own wait, which would stop the whole process. Raises: Lost, Error."""
    events: dict[int, int] = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
    while (status := pg.connect_poll()) in events:
        poll = select.poll()
        poll.register(pg.socket, events[status])
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise Lost("the server did not take the connection in time")
    if status != pq.PollingStatus.OK:
        raise Lost(_text(pg.get_error_message()))


def _outcome(found: Any) -> Outcome:
    status = found.status
    if status == _OK:
        return Result(found.command_tuples or 0, [])
    if status == _TUPLES:
        return Result(found.ntuples, _rows(found))
    if status == _ABORTED:
        return Failure("", "a call before it has failed")
    state = found.error_field(pq.DiagnosticField.SQLSTATE) or b""
    # Neither the detail nor the whole message: they may quote values.
    text = found.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or found.error_message
    return Failure(state.decode(), _text(text))


def _rows(found: Any) -> list[Row]:
    columns = [(number, _DECODERS[found.ftype(number)]) for number in range(found.nfields)]
    get = found.get_value
    return [
        tuple([None if (value := get(row, number)) is None else decode(value) for number, decode in columns])
        for row in range(found.ntuples)
    ]


def _text(message: bytes | str) -> str:
    text = message if isinstance(message, str) else message.decode(errors="replace")
    return text.strip() or "no reason is given"


def _number(value: bytes) -> int:
    return int.from_bytes(value, signed=True)


def _decoders(decode: Callable[[bytes], Any], *types: int) -> Iterable[tuple[int, Callable[[bytes], Any]]]:
    return [(each, decode) for each in types]


_DECODERS: dict[int, Callable[[bytes], Any]] = dict(
    [
        *_decoders(b"\x01".__eq__, 16),
        *_decoders(bytes, 17),
        *_decoders(_number, 20, 21, 23),
        *_decoders(decoded, 19, 25, 705, 1042, 1043),
        *_decoders(lambda _: None, 2278),
    ]
)
"""By the numbers that PostgreSQL gives its types: bool, bytea, int8, int2, int4, name, text, unknown, bpchar, varchar, void."""


class Connect(Protocol):
    """Opens a connection. Raises: Lost."""

    def __call__(self, *, on_silence: Callable[[], None] = ...) -> Session: ...
