"""The services of all turns: a breaker for each backend, leases from now on, and warnings that are given once."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.core.agents import Agent
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.runtime import Breakers, Pace, Runtime
from gateway.engine.under_way import UnderWay
from gateway.foundation.retry import COOLDOWN, FAILURES
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import Backend
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.ports.observer import SILENT
from tests.support.core import CARD, Core, Time
from tests.support.scripted import G, ScriptedAdapter

BACKEND = Backend("http://backend/v1", "key")
DOWN = AdapterError(ErrorClass.UNREACHABLE, "refused")
BAD_GATEWAY = AdapterError(ErrorClass.BACKEND_FAILED, "HTTP 502", backend_down=True)

COUNT = [ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT]
SAY_NOTHING = [ErrorClass.INTERRUPTED, ErrorClass.UNKNOWN, ErrorClass.UNSENDABLE]
ANSWERS = [kind for kind in ErrorClass if kind not in (*COUNT, *SAY_NOTHING)]


def agent(name: str = "echo", backend: Backend | None = BACKEND) -> Agent:
    return Agent(name, CARD, ScriptedAdapter(G), backend=backend)


def ask(
    breakers: Breakers, error: BaseException | None = None, *, answered: bool = False, of: Agent | None = None
) -> None:
    try:
        with breakers.request(of or agent()) as request:
            if answered:
                request.answered()
            if error is not None:
                raise error
    except BaseException as raised:
        if raised is not error:
            raise


def broken(time: Time | None = None) -> Breakers:
    breakers = Breakers((time or Time()).clock)
    for _ in range(FAILURES):
        ask(breakers, DOWN)
    return breakers


@pytest.mark.parametrize("error", [*(AdapterError(kind, "") for kind in COUNT), BAD_GATEWAY], ids=str)
def test_a_failure_of_an_absent_backend_counts(error: AdapterError) -> None:
    breakers = Breakers(Time().clock)
    for _ in range(FAILURES):
        assert not breakers.refuses(agent())
        ask(breakers, error)
    assert breakers.refuses(agent())
    assert breakers.rest(agent(), DOWN) == COOLDOWN


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_of_any_kind_counts_as_an_answer(kind: ErrorClass) -> None:
    breakers = Breakers(Time().clock)
    for _ in range(FAILURES - 1):
        ask(breakers, DOWN)
    ask(breakers, AdapterError(kind, ""))
    for _ in range(FAILURES - 1):
        ask(breakers, DOWN)
    assert not breakers.refuses(agent())


@pytest.mark.parametrize(
    "error", [*(AdapterError(kind, "") for kind in SAY_NOTHING), asyncio.CancelledError(), OSError("disk")], ids=repr
)
def test_a_failure_that_says_nothing_of_the_backend_neither_counts_nor_is_an_answer(error: BaseException) -> None:
    breakers = Breakers(Time().clock)
    for _ in range(FAILURES - 1):
        ask(breakers, DOWN)
    for _ in range(FAILURES):
        ask(breakers, error)
    assert not breakers.refuses(agent())
    ask(breakers, DOWN)
    assert breakers.refuses(agent())


@pytest.mark.parametrize("error", [DOWN, BAD_GATEWAY, AdapterError(ErrorClass.TIMED_OUT, "")], ids=str)
def test_after_the_beginning_of_an_answer_no_failure_counts(error: AdapterError) -> None:
    breakers = Breakers(Time().clock)
    for _ in range(2 * FAILURES):
        ask(breakers, error, answered=True)
    assert not breakers.refuses(agent())


def test_a_request_that_is_refused_is_not_made_and_says_when_it_may_be() -> None:
    time = Time()
    breakers = broken(time)
    time.monotonic += 6.5
    with pytest.raises(AdapterError) as raised, breakers.request(agent()):
        raise AssertionError
    assert (raised.value.kind, raised.value.retry_after) == (ErrorClass.UNREACHABLE, 24)
    assert breakers.rest(agent(), DOWN) == 24


def test_a_request_refused_during_a_trial_may_come_back_soon() -> None:
    time = Time()
    breakers = broken(time)
    time.monotonic += COOLDOWN
    assert breakers.rest(agent(), DOWN) is None
    with breakers.request(agent()):
        assert breakers.rest(agent(), DOWN) == 1
        with pytest.raises(AdapterError) as raised, breakers.request(agent()):
            raise AssertionError
    assert raised.value.retry_after == 1
    assert not breakers.refuses(agent())


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_no_time_is_named_for_a_failure_that_it_does_not_mend(kind: ErrorClass) -> None:
    mended = broken().rest(agent(), AdapterError(kind, ""))
    assert mended == (None if kind in (*ANSWERS, ErrorClass.UNSENDABLE) else COOLDOWN)


def test_a_cancelled_trial_lets_the_next_request_be_the_trial() -> None:
    time = Time()
    breakers = broken(time)
    time.monotonic += COOLDOWN
    ask(breakers, asyncio.CancelledError())
    ask(breakers)
    for _ in range(FAILURES - 1):
        ask(breakers, DOWN)
    assert not breakers.refuses(agent())


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (Backend("http://backend/v1", "key"), True),
        (Backend("http://backend/v1", "another key"), False),
        (Backend("http://backend/v1"), False),
        (Backend("http://elsewhere/v1", "key"), False),
        (None, False),
    ],
    ids=["the same", "another account", "no account", "another address", "none named"],
)
def test_agents_share_what_is_known_of_one_backend(other: Backend | None, shared: bool) -> None:
    assert broken().refuses(agent("another", other)) is shared


def test_an_adapter_that_names_no_backend_is_always_asked() -> None:
    breakers, nameless = Breakers(Time().clock), agent(backend=None)
    for _ in range(3 * FAILURES):
        ask(breakers, DOWN, of=nameless)
    ask(breakers, of=nameless)
    assert (breakers.refuses(nameless), breakers.rest(nameless, DOWN)) == (False, None)


def test_the_log_has_a_line_for_each_change_and_no_account() -> None:
    time = Time()
    with capture_logs() as lines:
        breakers = broken(time)
        with pytest.raises(AdapterError), breakers.request(agent()):
            raise AssertionError
        time.monotonic += COOLDOWN
        ask(breakers, BAD_GATEWAY)
        time.monotonic += COOLDOWN
        ask(breakers, answered=True)
        ask(breakers)
    who: dict[str, Any] = {"backend": "http://backend/v1", "agent": "echo"}
    down = {**who, "log_level": "warning", "event": "backend.unreachable", "retry_in": COOLDOWN}
    tried = {**who, "log_level": "info", "event": "backend.tried-again"}
    assert lines == [
        {**down, "failure": "unreachable", "detail": "refused"},
        tried,
        {**down, "failure": "backend-failed", "detail": "HTTP 502"},
        tried,
        {**who, "log_level": "info", "event": "backend.reachable"},
    ]


def test_a_backend_does_not_show_its_account() -> None:
    assert repr(BACKEND) == "Backend(address='http://backend/v1')"


def runtime(core: Core, time: Time) -> Runtime:
    return Runtime(core.ledger, time.clock, "me", 2.5, Pace(), AdapterSecrets(b"k" * 32))


async def test_a_call_is_prepared_from_the_thread_as_it_is_with_a_lease_from_now_on(core: Core) -> None:
    time = Time()
    thread = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.ROTATING, "r1", 7, None)
    prepared = runtime(core, time).prepare(thread, "turn", "task", round_=2, attempt=1)
    assert (prepared.handle_in, prepared.generation, prepared.holder) == ("r1", 7, "me")
    assert (prepared.round, prepared.attempt, prepared.lease_until) == (2, 1, time.now + 2500)


async def test_an_operator_is_warned_of_a_thread_once(core: Core) -> None:
    known = runtime(core, Time())
    assert [known.first_warning(thread) for thread in ("a", "b", "a", "b")] == [True, True, False, False]


async def test_the_threads_that_were_warned_of_are_not_remembered_for_ever(core: Core) -> None:
    known = runtime(core, Time())
    for number in range(1001):
        assert known.first_warning(str(number))
    assert known.first_warning("0")
    assert not known.first_warning("1000")


def test_a_service_call_is_counted_while_it_is_under_way() -> None:
    clock = Time().clock
    calls = UnderWay(clock.monotonic)
    with Breakers(clock).observed(agent(), SILENT, calls):
        assert sum(number for _, number in calls.numbers()) == 1
    assert not dict(calls.numbers())
