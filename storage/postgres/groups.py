"""Groups of units on PostgreSQL. Law: a group first locks the rows of all contexts and threads that its steps name, and of the
tasks to whose logs they append, in one order, so that each of its statements sees what was committed before; it is told of only
when it is known to be committed.

When the connection is lost behind COMMIT, nobody knows whether the group counts. Each group has a number, which it writes into
the row of its writer: a new connection reads the row, and waits there for the end of the old transaction.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gateway.ledger.errors import Conflict
from storage.postgres import sql
from storage.postgres.errors import (
    Behind,
    Failure,
    Lost,
    Silent,
    Standby,
    Unconfirmed,
    conflicts,
    only_reads,
    transient,
    trouble,
    unavailable,
    unfit,
    waited_in_vain,
)
from storage.postgres.footprint import last, locks, notification
from storage.postgres.held import Held, divided
from storage.postgres.session import Outcome as Answer
from storage.postgres.session import Session
from storage.postgres.text import Call, Prepared, bound
from storage.statement import Statement, Step
from storage.write.conflicts import conflict
from storage.write.trouble import Trouble
from storage.write.writer import Outcome, Unit

_TRIES = 3
"""Of a group that waits for a transaction which waits for the group."""

_ROUNDS = 3
"""Of a group whose units go together, each time without one that does not fit; behind them each unit has a savepoint."""

_PAUSE = 0.1
"""Seconds between two attempts to reach the server while units wait for it."""

_CONFIRMED = 3.0
"""Seconds within which synchronous standbys confirm a commit to a connection that is to read."""

_OLD = 7 * 24 * 3600 * 1000
"""Milliseconds after which the row of a writer that is gone is deleted."""

WHAT = "the database did not commit"


class _Doubt(msgspec.Struct, frozen=True):
    """A group whose COMMIT was not answered, and its outcomes where it counts."""

    number: int
    outcomes: list[Outcome]


class ServerTime(msgspec.Struct):
    """Milliseconds since 1970 by the server's clock, and the time of the monotonic clock at which it said so."""

    said: int
    at: float

    def now(self) -> int:
        return self.said + int((time.monotonic() - self.at) * 1000)


class GroupStore:
    """A `Store` of the writer."""

    def __init__(
        self,
        connect: Callable[[], Session],
        begin: Sequence[Call] = (),
        *,
        read: Callable[[], Session] | None = None,
        check: Callable[[], None] = lambda: None,
        patience: float = 0.0,
    ) -> None:
        """`connect` opens a connection that may write, `read` one that reads, where it is another; `check` is called before one
        that is open is used. They raise Lost. `begin` is run at the beginning of each transaction. `patience` is the number of
        seconds for which any unit waits for a row."""
        self._connect = connect
        self._read = read or connect
        self._check = check
        self._patience = patience
        self._begin = (bound(sql.BEGIN, {}), *begin)
        self._writer = secrets.token_hex(8)
        self._session: Session | None = None
        self._number = 0
        """Of the latest group that is known to be committed."""
        self._doubt: _Doubt | None = None
        self._held: set[int] = set()
        """The units, by identity, that were held up in the latest group and may be retried."""
        self._late: set[int] = set()
        """These, and those that were not tried because of them."""
        self.trouble = Trouble()
        self.time: ServerTime
        """From `open` on."""

    def open(self) -> None:
        """Raises: LedgerUnavailable."""
        try:
            self._session = self._connect()
            _answered(self._session.run([bound(sql.FORGET_WRITERS, {"age": _OLD})]))
            self._enter(self._session)
            self._look(self._session)
        except (Failure, Lost) as error:
            raise unavailable("the database does not open for writing", error) from error

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def write(
        self, units: list[Unit], waiting: Callable[[], list[Unit]], *, closing: bool
    ) -> tuple[list[Outcome], list[Unit]]:
        """As `Store.write`. A unit whose group is in doubt is retried however long it takes to know."""
        outcomes: list[Outcome] = []
        held = Held()
        began = time.monotonic()
        try:
            self._reached()
            outcomes += self._settle()
            self._write_all(_others(units, outcomes), outcomes, held)
        except Behind as error:
            self._doubt = None
            refused = unavailable(WHAT, error)
            self.trouble.refused(refused.trouble)
            return [*outcomes, *((unit, refused) for unit in _others(units, outcomes))], []
        except (Failure, Lost) as error:
            self.trouble.refused(trouble(error))
            if only_reads(error) and self._session is not None:
                # What an operator changes counts for new connections.
                self._session.close()
            left = [*_others(units, outcomes), *waiting()]
            failed, retried = self._not_written(left, error, closing=closing)
            if retried:
                time.sleep(_PAUSE)
            return [*outcomes, *failed], retried
        self._held = {id(unit) for unit in held.units}
        if held.why is not None and not outcomes:
            self.trouble.refused(trouble(held.why))
        else:
            self.trouble.stored(unit for unit, _ in outcomes)
        if held.why is None:
            self._late = set()
            return outcomes, []
        left = _others(units, outcomes)
        for unit in left:
            if id(unit) not in self._late:
                unit.until = max(unit.until, began + self._patience)
        self._late = {id(unit) for unit in left}
        failed, retried = self._not_written(left, held.why, closing=closing)
        return [*outcomes, *failed], retried

    def _write_all(self, units: list[Unit], outcomes: list[Outcome], held: Held) -> None:
        """Adds to both. Units of which some are held up go one by one, so that others do not fail with them; where many are,
        the rest is left out. Raises: Lost, Failure, Behind."""
        together, one_by_one = divided(units, self._held) if self._held else (units, [])
        try:
            if together:
                outcomes += self._written(together)
        except Failure as error:
            if not self._held_up(error):
                raise
            if len(together) == 1:
                held.add(together[0], error)
            else:
                one_by_one = units
        for unit in one_by_one:
            if held.many:
                return
            if held.keeps(unit):
                held.add(unit)
                continue
            try:
                outcomes += self._written([unit], briefly=True)
            except Failure as error:
                if not self._held_up(error):
                    raise
                held.add(unit, error)

    def _held_up(self, error: Failure) -> bool:
        """Whether a group waits for rows. One in doubt waits for what became of it."""
        return self._doubt is None and waited_in_vain(error)

    def _not_written(
        self, units: list[Unit], why: Failure | Lost, *, closing: bool
    ) -> tuple[list[Outcome], list[Unit]]:
        doubted = set() if self._doubt is None else {id(unit) for unit, _ in self._doubt.outcomes}
        now = time.monotonic()
        retried = [unit for unit in units if not closing and (id(unit) in doubted or now < unit.until)]
        if len(retried) == len(units):
            return [], retried
        error = unavailable(WHAT, self._cause(why))
        kept = {id(unit) for unit in retried}
        return [(unit, error) for unit in units if id(unit) not in kept], retried

    def reading(self) -> Session:
        """A connection to a server that has all that was confirmed. Any thread may call it. Raises: Lost, Failure."""
        confirmed = self._number
        session = self._read()
        with _kept(session):
            [(latest, recovers, unconfirmed)] = session.one(self._call(sql.NUMBER))
            if recovers:
                raise Standby
            if self._lags(latest, confirmed):
                raise Behind
            if unconfirmed:
                # Another one that waits as well would stay at the server when it is given up.
                raise Unconfirmed
            self._confirm(session)
        return session

    def _confirm(self, session: Session) -> None:
        """A server that was restarted shows what no synchronous standby has: after a failover it would be gone again. Raises:
        Lost, Failure."""
        try:
            with session.patient(_CONFIRMED):
                session.one(bound(sql.CONFIRM, {}))
        except Silent as error:
            raise self._cause(error) from error

    def _cause(self, error: Failure | Lost) -> Failure | Lost:
        """Unconfirmed instead of an error that has this cause: what waits for a standby keeps its locks."""
        if not isinstance(error, Silent) and not (isinstance(error, Failure) and waited_in_vain(error)):
            return error
        try:
            session = self._read()
            try:
                [(unconfirmed,)] = session.one(bound(sql.UNCONFIRMED, {}))
            finally:
                session.close()
        except (Failure, Lost):
            return error
        return Unconfirmed() if unconfirmed else error

    # --- the connection ---

    def _reached(self) -> Session:
        """Raises: Lost, Failure, Behind."""
        self._check()
        if self._session is None or not self._session.usable:
            self._session = None
            session = self._connect()
            with _kept(session):
                latest = self._look(session)
                if self._lags(latest, self._number):
                    raise Behind
                if latest is None:
                    self._enter(session)
                    self._look(session)
            self._session = session
        return self._session

    def _lags(self, latest: int | None, confirmed: int) -> bool:
        """Whether a server whose latest group is this one lacks something. The row of a writer that has written nothing for
        long is deleted by others, and is entered again."""
        return self.time.now() - self.time.said < _OLD if latest is None else latest < confirmed

    def _enter(self, session: Session) -> None:
        """Raises: Lost, Failure."""
        _answered(session.run([self._call(sql.NEW_WRITER, number=self._number)]))

    def _look(self, session: Session) -> int | None:
        """The number of the latest group that counts. Raises: Lost, Failure."""
        rows = session.one(self._call(sql.LATEST_GROUP))
        if not rows:
            return None
        [(latest, said)] = rows
        self._latest = latest
        self.time = ServerTime(said, time.monotonic())
        return int(latest)

    def _settle(self) -> list[Outcome]:
        """The outcomes of a group that was in doubt and counts. No other group gets a number that counts already."""
        doubt, self._doubt = self._doubt, None
        self._number = max(self._number, self._latest)
        return doubt.outcomes if doubt is not None and self._latest == doubt.number else []

    def _call(self, text: Prepared, **values: str | int) -> Call:
        return bound(text, {"writer": self._writer, **values})

    # --- a group ---

    def _written(self, units: list[Unit], *, briefly: bool = False) -> list[Outcome]:
        """`briefly`: it waits less for rows. Raises: Lost, Failure, Behind."""
        begin = (*self._begin, _BRIEFLY) if briefly else self._begin
        session = self._reached()
        for _ in range(_TRIES - 1):
            try:
                return self._once(session, units, begin)
            except Failure as error:
                if not transient(error):
                    raise
            except Lost:
                # The server may have closed a connection that nobody used.
                session = self._reached()
                settled = self._settle()
                if settled:
                    return settled
        return self._once(session, units, begin)

    def _once(self, session: Session, units: list[Unit], begin: Sequence[Call]) -> list[Outcome]:
        """Raises: Lost, Failure."""
        number = self._number + 1
        try:
            outcomes = self._applied(session, units, begin, number)
        except Failure:
            session.run([_ROLLBACK])
            raise
        except Behind:
            session.close()
            raise
        self._doubt = _Doubt(number, outcomes)
        committed, *_ = session.run([_COMMIT, *notification(units)], apart=True)
        _answered([committed])
        self._doubt, self._number = None, number
        return outcomes

    def _applied(self, session: Session, units: list[Unit], begin: Sequence[Call], number: int) -> list[Outcome]:
        """Before the COMMIT. Raises: Lost, Failure, Behind."""
        refused: dict[int, Exception] = {}
        for _ in range(_ROUNDS):
            places = [place for place in range(len(units)) if place not in refused]
            found = self._together(session, [units[place] for place in places], begin, number)
            if found is None:
                return [(unit, refused.get(place)) for place, unit in enumerate(units)]
            _answered(session.run([_ROLLBACK]))
            place, why = places[found[0]], found[1]
            if any(place < other for other in refused):
                # What was refused behind it may have been so because of it.
                break
            refused[place] = why
        return self._one_by_one(session, units, begin, number)

    def _together(
        self, session: Session, units: list[Unit], begin: Sequence[Call], number: int
    ) -> tuple[int, Exception] | None:
        """Without savepoints, as nearly all units fit. The place of the first unit that does not fit, and why. Raises: Lost,
        Failure, Behind."""
        calls: list[Call] = []
        owners: list[tuple[int, Statement]] = []
        for place, unit in enumerate(units):
            try:
                calls += [bound(sql.PREPARED[statement.name], values) for statement, values in unit.steps]
            except Exception as error:  # noqa: BLE001  # of this unit alone: the thread continues with the others
                return place, error
            owners += [(place, statement) for statement, _ in unit.steps]
        steps = _steps(units)
        first, end = [*begin, *locks(steps)], last(steps)
        answers = session.run([*first, *calls, *end, self._call(sql.COUNT_GROUP, number=number)])
        _answered(answers[: len(first)])
        for (place, statement), answer in zip(owners, answers[len(first) :], strict=False):
            why = _error(statement, answer)
            if why is not None:
                return place, why
        _answered(answers[len(first) + len(calls) : -1])
        self._said(answers[-1])
        return None

    def _one_by_one(self, session: Session, units: list[Unit], begin: Sequence[Call], number: int) -> list[Outcome]:
        """Each unit with a savepoint, to which it alone is rolled back. Raises: Lost, Failure, Behind."""
        steps = _steps(units)
        _answered(session.run([*begin, *locks(steps)]))
        outcomes: list[Outcome] = []
        for unit in units:
            error = _apply(session, unit.steps)
            if error is not None:
                _answered(session.run([_UNDO, _RELEASE]))
            outcomes.append((unit, error))
        *answers, counted = session.run([*last(steps), self._call(sql.COUNT_GROUP, number=number)])
        _answered(answers)
        self._said(counted)
        return outcomes

    def _said(self, answer: Answer) -> None:
        """Raises: Failure, Behind."""
        _answered([answer])
        if not isinstance(answer, Failure):
            if not answer.rows:
                # Behind a pooler another server may take the place of one without the loss of a connection. Or the row was
                # deleted. A new connection shows which.
                raise Behind
            [(said,)] = answer.rows
            self.time = ServerTime(said, time.monotonic())


@contextmanager
def _kept(session: Session) -> Iterator[None]:
    """A connection that fails in the block is closed: an error leads to it, and may live for long."""
    try:
        yield
    except (Failure, Lost):
        session.close()
        raise


_BRIEFLY = bound(sql.BRIEFLY, {})
_COMMIT, _ROLLBACK = bound(sql.COMMIT, {}), bound(sql.ROLLBACK, {})
_SAVEPOINT, _RELEASE, _UNDO = bound(sql.SAVEPOINT, {}), bound(sql.RELEASE, {}), bound(sql.UNDO, {})


def _answered(answers: Sequence[Answer]) -> None:
    """Raises: Failure."""
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer


def _steps(units: list[Unit]) -> list[Step]:
    return [step for unit in units for step in unit.steps]


def _others(units: list[Unit], outcomes: list[Outcome]) -> list[Unit]:
    """Those without an outcome."""
    known = {id(unit) for unit, _ in outcomes}
    return [unit for unit in units if id(unit) not in known]


def _apply(session: Session, steps: list[Step]) -> Exception | None:
    """The reason to roll the unit back, or None. Raises: Lost, Failure."""
    try:
        calls = [bound(sql.PREPARED[statement.name], values) for statement, values in steps]
    except Exception as error:  # noqa: BLE001  # of this unit alone: the thread continues with the others
        _answered(session.run([_SAVEPOINT]))
        return error
    answers = session.run([_SAVEPOINT, *calls])
    _answered(answers[:1])
    for (statement, _), answer in zip(steps, answers[1:], strict=True):
        reason = _error(statement, answer)
        if reason is not None:
            return reason
    _answered(session.run([_RELEASE]))
    return None


def _error(statement: Statement, answer: Answer) -> Exception | None:
    """Why a unit with this answer is rolled back. Raises: Failure, where it is not the unit's fault."""
    if isinstance(answer, Failure):
        if conflicts(answer):
            return conflict(statement, answer)
        if unfit(answer):
            return answer
        raise answer
    if statement.rows is not None and answer.count != statement.rows:
        return Conflict(f"could not {statement.what}: {answer.count} rows instead of {statement.rows}")
    return None
