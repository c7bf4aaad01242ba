"""How a turn that a dead process left can go on, if it can. Law: pure; what may have been done is not done again, what was
shown is not said again, and what makes its process die is taken up a few times and no more.

Source: state-model, section 10 and scenario 109d; reliability, K3 to K12.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway import ownership
from gateway.abilities import Resuming
from gateway.agents import Agent
from gateway.commits.calls import LatestCall
from gateway.commits.threads import ThreadRecord
from gateway.items import StorageOwner
from gateway.model import TaskArtifactUpdateEvent
from gateway.record import Update
from gateway.replaying import begins_at

RESTARTS = 2
"""So often is a service call of one turn made again because its process died."""

_UNDER_WAY = frozenset({"prepared", "sent", "started", "emitting"})


@dataclass(frozen=True, slots=True)
class Listen:
    """The call under way is listened to again, by this handle."""

    call: LatestCall
    pending: str


@dataclass(frozen=True, slots=True)
class Make:
    """The call of this round is made, as this attempt. `instead_of`: one under way, which does not count then."""

    round: int
    attempt: int
    instead_of: str | None = None


def way_on(
    agent: Agent, thread: ThreadRecord, call: LatestCall | None, updates: Sequence[Update], *, open_tools: bool
) -> Listen | Make | None:
    """Of a turn that had begun. `updates` are what the log shows of it; `open_tools`: calls of tools have no outcome."""
    if call is None or thread.lost:
        return None
    if call.status in _UNDER_WAY and call.pending is not None and isinstance(agent.adapter, Resuming):
        return Listen(call, call.pending)
    if open_tools or call.restarts >= RESTARTS:
        return None
    if call.status == "completed":
        # What came of its tools is stored, and the next call has not been made. Without any it was the last one of its
        # turn, and somebody else has found its end.
        return Make(call.round + 1, 0) if call.asked else None
    if says_something(updates, call.round):
        return None
    again = Make(call.round, call.attempt + 1, call.id)
    if call.status in _UNDER_WAY:
        owned = ownership.of_thread(thread, agent.adapter.ownership)
        return again if owned.owner is StorageOwner.GATEWAY and owned.may_repeat else None
    # It was known to be refused, and its process died while it waited to ask again.
    return Make(again.round, again.attempt) if call.status == "failed" else None


def says_something(updates: Sequence[Update], round_: int) -> bool:
    """Does the log show anything of the service call with this number? Where it cannot be told, it does."""
    return any(
        isinstance(update, TaskArtifactUpdateEvent) or update.status.message is not None or update.metadata is not None
        for update in updates[begins_at(updates, round_) :]
    )
