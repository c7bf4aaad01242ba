"""How the agents stand at their backends, out of an overview and of what this process knows. Law: pure; the pages and the admin
API say the same.

What a backend counts as and how long a call is silent in the middle of an answer, a process knows of its own calls alone; a
call of which nothing has come yet is seen in the ledger, whoever makes it.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from statistics import median

import msgspec

from gateway.foundation.retry import Outage
from gateway.ledger.admin.upkeep import OpenTurnFacts, Overview
from gateway.ledger.states import UNDER_WAY, TurnStatus

SILENCE = 30_000
"""Milliseconds without a piece of an answer after which a service call is silent."""


class HealthState(StrEnum):
    """The worst first. LEFT_ALONE: the backend was not there several times in a row, and nothing is asked of it for a while.
    DOWN: that while is over, and the next request tells whether it is there again. SILENT: nothing has come of a call under way
    for SILENCE."""

    LEFT_ALONE = "left-alone"
    DOWN = "down"
    SILENT = "silent"
    OK = "ok"


class AgentHealth(msgspec.Struct, frozen=True):
    """`since` is the time since which the state has been so, None for OK; `rest` the seconds until a backend that is left alone
    is asked again. `silent` are those of the `calls` under way of which nothing has come for SILENCE. The others count turns,
    `waiting` those too that have ended with a question, `failed` those of the last hour. `first` is the median of the
    milliseconds to the first event of an answer."""

    state: HealthState
    since: int | None
    rest: int | None
    calls: int
    silent: int
    running: int
    queued: int
    waiting: int
    failed: int
    first: float | None


def agent_health(
    found: Overview, agent: str, outage: Outage | None = None, silences: Sequence[float] = ()
) -> AgentHealth:
    """`outage` is that of its backend, `silences` are the seconds for which nothing has come of each of its calls, as this
    process knows them."""
    under_way = [turn for turn in found.turns if turn.agent == agent and turn.call_status in UNDER_WAY]
    begun = [since for turn in under_way if (since := silent_since(turn, found.now)) is not None]
    heard = [found.now - int(1000 * silence) for silence in silences if 1000 * silence >= SILENCE]
    state, since, rest = HealthState.OK, None, None
    if outage is not None:
        state = HealthState.LEFT_ALONE if outage.rest else HealthState.DOWN
        since, rest = found.now - int(1000 * outage.lasted), outage.rest
    elif begun or heard:
        state, since = HealthState.SILENT, min([*begun, *heard])
    counts: Counter[TurnStatus] = Counter()
    for count in (*found.open_counts, *found.question_counts):
        if count.agent == agent:
            counts[count.status] += count.turns
    firsts = [each.first for each in found.call_times if each.agent == agent and each.first is not None]
    return AgentHealth(
        state,
        since,
        rest,
        calls=max(len(under_way), len(silences)),
        silent=max(len(begun), len(heard)),
        running=counts[TurnStatus.RUNNING],
        queued=counts[TurnStatus.ACCEPTED],
        waiting=counts[TurnStatus.WAITING],
        failed=sum(failure.agent == agent for failure in found.failures),
        first=median(firsts) if firsts else None,
    )


def silent_since(turn: OpenTurnFacts, now: int) -> int | None:
    """The time since which its call under way is silent; None where it is not."""
    if turn.prepared_at is None or turn.answering or turn.call_status not in UNDER_WAY:
        return None
    return turn.prepared_at if now - turn.prepared_at >= SILENCE else None
