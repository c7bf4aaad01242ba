"""Groups of units whose rows are not as expected: each unit has the outcome that it would have alone."""

from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest
from msgspec.structs import replace

from gateway.ledger.errors import Conflict
from gateway.ledger.leases import Fence
from gateway.ledger.points import CommitPoint
from gateway.ledger.turns import Accept
from storage.postgres.errors import Failure
from storage.postgres.groups import GroupStore
from storage.postgres.session import Outcome, Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import Call, Text, bound, plain, prepared
from storage.write.units import unit
from storage.write.writer import Unit
from tests.storage.postgres.test_failures import context, run


class Watched(Session):
    """Counts its trips. `before_trip` is called with the number of each."""

    trips = 0
    before_trip: Callable[[int], object] = staticmethod(lambda _: None)

    def run(self, calls: Sequence[Call], *, apart: bool = False) -> list[Outcome]:
        self.trips += 1
        self.before_trip(self.trips)
        return super().run(calls, apart=apart)


@pytest.fixture
def session(database_url: str) -> Iterator[Watched]:
    made = Watched(PostgresSettings(url=database_url).conninfo(options=True), 5.0, 30.0, prepares=True)
    yield made
    made.close()


@pytest.fixture
def store(session: Watched) -> GroupStore:
    opened = GroupStore(lambda: session)
    opened.open()
    session.trips = 0
    return opened


def units(*points: CommitPoint) -> list[Unit]:
    return [Unit(unit((point,)), lambda _: None, 0.0, True) for point in points]


def written(store: GroupStore, *points: CommitPoint) -> list[str]:
    """What became of each."""
    group = units(*points)
    outcomes, retried = store.write(group, list, closing=False)
    assert retried == []
    assert [one for one, _ in outcomes] == group
    return ["stored" if error is None else type(error).__name__ for _, error in outcomes]


def contexts(url: str) -> list[int]:
    return [number for (number,) in run(url, "SELECT CAST(substr(id, 9) AS integer) FROM context ORDER BY 1")]


def known(number: int, *, public: int) -> Accept:
    """A new context under the public name of another one."""
    return replace(context(number), context_public=f"public-{public}")


_NOWHERE = Fence("thread-0", 0, 1000)
"""Of a thread that is not there."""


def test_one_unit_that_does_not_fit_costs_its_group_two_trips_and_not_two_for_each_unit(
    database_url: str, session: Watched, store: GroupStore
) -> None:
    some, others = range(1, 20), range(20, 40)
    points: list[CommitPoint] = [*map(context, some), _NOWHERE, *map(context, others)]
    assert written(store, *points) == ["stored"] * 19 + ["Conflict"] + ["stored"] * 20
    assert contexts(database_url) == [*some, *others]
    assert session.trips == 4


def test_a_value_that_no_column_holds_is_left_out_as_well(database_url: str, store: GroupStore) -> None:
    unfit = replace(context(2), context_public="\ud800")
    assert written(store, context(1), unfit, context(3)) == ["stored", "UnicodeEncodeError", "stored"]
    assert contexts(database_url) == [1, 3]


def test_of_many_that_do_not_fit_each_is_left_out_alone(database_url: str, store: GroupStore) -> None:
    points: list[CommitPoint] = [context(number) if number % 2 else _NOWHERE for number in range(1, 12)]
    assert written(store, *points) == ["stored" if number % 2 else "Conflict" for number in range(1, 12)]
    assert contexts(database_url) == [1, 3, 5, 7, 9, 11]


def test_a_group_in_which_nothing_fits_says_so(database_url: str, store: GroupStore) -> None:
    assert written(store, _NOWHERE, _NOWHERE) == ["Conflict", "Conflict"]
    assert written(store, context(1)) == ["stored"]
    assert contexts(database_url) == [1]


def test_a_unit_that_one_before_it_leaves_no_place_for_is_refused(database_url: str, store: GroupStore) -> None:
    assert written(store, context(1), known(2, public=1), context(3)) == ["stored", "Conflict", "stored"]
    assert contexts(database_url) == [1, 3]


def test_a_unit_is_not_refused_for_one_that_is_refused_itself_when_the_group_is_tried_again(
    database_url: str, session: Watched, store: GroupStore
) -> None:
    """Somebody takes the place of the first one between two rounds."""

    def intervene(trip: int) -> None:
        if trip == 3:
            with psycopg.connect(database_url) as other:
                other.execute("INSERT INTO context VALUES ('context-1', '', 'ada', 'another', 'open', 1, 1, NULL)")

    session.before_trip = intervene
    assert written(store, context(1), known(2, public=1), context(3)) == ["Conflict", "stored", "stored"]
    assert contexts(database_url) == [1, 2, 3]


# --- what a session tells of one call


def test_a_statement_that_cannot_be_prepared_says_why(session: Watched) -> None:
    unknown = prepared("UNKNOWN", Text("SELECT 1 FROM nowhere"))
    before, failed, behind = session.run([bound(text, {}) for text in (plain("SELECT 1"), unknown, plain("SELECT 2"))])
    assert not isinstance(before, Failure)
    assert isinstance(failed, Failure)
    assert failed.state == "42P01"
    assert isinstance(behind, Failure)
    assert behind.state == ""


def test_a_conflict_names_what_could_not_be_done(store: GroupStore) -> None:
    [(_, error)], _ = store.write(units(_NOWHERE), list, closing=False)
    assert isinstance(error, Conflict)
    assert str(error).startswith("could not fence off the holder of an expired lease")
