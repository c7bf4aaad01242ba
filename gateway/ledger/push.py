"""Push notifications in the ledger. Law: the event log is the outbox; a configuration is a cursor in it, and only the
process that has moved its `due_at` may deliver.
"""

from enum import StrEnum
from typing import Protocol

import msgspec


class PushState(StrEnum):
    """The state of a delivery. `STOPPED`: the last attempt has failed. `GONE`: the receiver has refused permanently.
    `DONE`: all events are delivered."""

    ACTIVE = "active"
    STOPPED = "stopped"
    GONE = "gone"
    DONE = "done"


class PushConfig(msgspec.Struct, frozen=True):
    """A push configuration. `version` is the version of A2A in which the configuration was made and in which events are
    posted. `sealed` holds its secrets in encrypted form."""

    task: str
    id: str
    version: str
    url: str
    host: str
    scheme: str | None
    sealed: bytes | None


class PushStatus(msgspec.Struct, frozen=True):
    """Progress of the delivery: `next_event` is to be delivered next, after so many failed attempts."""

    config: PushConfig
    agent: str
    state: PushState
    next_event: int
    due_at: int | None
    attempts: int
    last_error: str | None


class DuePush(msgspec.Struct, frozen=True):
    """A configuration with events to deliver. `visible` says that its caller may already know of the task."""

    config: PushConfig
    next_event: int
    due_at: int
    attempts: int
    visible: bool


# --- commit points ---


class PutPushConfig(msgspec.Struct, frozen=True):
    """A configuration of the caller's task, from the next event on; one with the same id is replaced and keeps its cursor.

    Conflict when there is no such task, or it has `most` others.
    """

    tenant: str
    principal: str
    agent: str
    config: PushConfig
    most: int
    now: int


class DeletePushConfig(msgspec.Struct, frozen=True):
    """Removes a configuration; no more is delivered to it."""

    task: str
    id: str


class _Delivery(msgspec.Struct, frozen=True):
    """Conflict when another process has the configuration, or it was replaced."""

    task: str
    id: str
    due_at: int


class ClaimPush(_Delivery, frozen=True):
    """Reserves the delivery for this process until `until`."""

    until: int


class AdvancePush(_Delivery, frozen=True):
    """Events before `next_event` are delivered."""

    next_event: int
    until: int


class CompletePush(_Delivery, frozen=True):
    """Events before `next_event` are delivered: the delivery is due at once when the log has more, else idle, or done with its
    task."""

    next_event: int


class FailPush(_Delivery, frozen=True):
    """An attempt failed. The next attempt is at `until`, or does not follow when `until` is None."""

    until: int | None
    state: PushState
    attempts: int
    error: str


class ReplayPush(msgspec.Struct, frozen=True):
    """A stopped configuration continues from its cursor. Conflict when it is not stopped."""

    task: str
    id: str


PushPoint = PutPushConfig | DeletePushConfig | ClaimPush | AdvancePush | CompletePush | FailPush | ReplayPush


# --- reads ---


class PushReads(Protocol):
    """Push configurations and the progress of their delivery."""

    async def push_configs(self, task: str) -> tuple[PushConfig, ...]:
        """The configurations of a task, in the order in which they were made."""

    async def due_pushes(self, now: int, excluded: tuple[str, ...], limit: int) -> tuple[DuePush, ...]:
        """The deliveries that are due, the longest due first; none to the hosts in `excluded`."""

    async def next_push(self) -> tuple[bool, int | None]:
        """Whether any configuration is active, and when the next delivery is due."""

    async def push_events(self, task: str, first: int) -> tuple[tuple[int, bytes], ...]:
        """(number, A2A 1.0 JSON) of the next few events from number `first` on, in order."""

    async def turn_of_event(self, task: str, number: int) -> tuple[str, str | None] | None:
        """The turn to which this event of a task belongs, and its trace, as in Accept; None when it is gone."""

    async def is_hidden(self, task: str) -> bool:
        """Whether the caller knows of no task: its message was answered with a Message, or may still be."""

    async def push_statuses(self, tenant: str, principal: str) -> tuple[PushStatus, ...]:
        """The caller's configurations, the latest first, without those that are done."""
