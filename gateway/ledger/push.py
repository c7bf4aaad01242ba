"""What the ledger keeps of push notifications and how it changes. Law: the event log is the outbox; a configuration is a
cursor in it, and only who has moved its `due_at` on may deliver.

A commit point that names `due_at` hits no row when another process has the configuration, or it was made anew.
"""

from enum import StrEnum
from typing import Protocol

import msgspec


class PushState(StrEnum):
    """`STOPPED`: given up after the last attempt. `GONE`: the receiver does not want it. `DONE`: all is delivered."""

    ACTIVE = "active"
    STOPPED = "stopped"
    GONE = "gone"
    DONE = "done"


class PushConfig(msgspec.Struct, frozen=True):
    """`version`: of A2A, in which it was made and is answered. `sealed`: what is secret of it, encrypted."""

    task: str
    id: str
    version: str
    url: str
    host: str
    scheme: str | None
    sealed: bytes | None


class PushStatus(msgspec.Struct, frozen=True):
    """How far the delivery of a configuration is: `next_event` waits, after so many failed attempts."""

    config: PushConfig
    agent: str
    state: PushState
    next_event: int
    due_at: int | None
    attempts: int
    last_error: str | None


class DuePush(msgspec.Struct, frozen=True):
    """A configuration with something to deliver. `visible`: its task is known to be one that its caller may know of."""

    config: PushConfig
    next_event: int
    due_at: int
    attempts: int
    visible: bool


# --- commit points ---


class PutPush(msgspec.Struct, frozen=True):
    """A configuration of the caller's task, from its next event on; one with the same id is replaced where it stands.

    Hits no row when there is no such task, or it has `most` others.
    """

    tenant: str
    principal: str
    agent: str
    config: PushConfig
    most: int
    now: int


class DropPush(msgspec.Struct, frozen=True):
    """Nothing more is sent there."""

    task: str
    id: str


class TakePush(msgspec.Struct, frozen=True):
    """This process delivers it until `until`."""

    task: str
    id: str
    due_at: int
    until: int


class MovePush(msgspec.Struct, frozen=True):
    """Events before `next_event` are delivered."""

    task: str
    id: str
    due_at: int
    next_event: int
    until: int


class LeavePush(msgspec.Struct, frozen=True):
    """Nothing is left to deliver but what came from number `behind` on."""

    task: str
    id: str
    due_at: int
    behind: int


class FailPush(msgspec.Struct, frozen=True):
    """An attempt failed; the next one is at `until`, None where there is none."""

    task: str
    id: str
    due_at: int
    until: int | None
    state: PushState
    attempts: int
    error: str


class ReplayPush(msgspec.Struct, frozen=True):
    """A configuration that was stopped goes on where it stands. Hits no row when it was not."""

    task: str
    id: str


PushPoint = PutPush | DropPush | TakePush | MovePush | LeavePush | FailPush | ReplayPush


# --- reads ---


class PushReads(Protocol):
    """The part of the Ledger port that is about push notifications."""

    async def push_configs(self, task: str) -> tuple[PushConfig, ...]:
        """Those of a task, in the order in which they were made."""
        ...

    async def due_pushes(self, now: int, but: tuple[str, ...], limit: int) -> tuple[DuePush, ...]:
        """Those to deliver now, the longest due first; none to the hosts in `but`."""
        ...

    async def next_push(self) -> tuple[bool, int | None]:
        """Is there any that may get events, and when is the next one due?"""
        ...

    async def push_events(self, task: str, first: int) -> tuple[tuple[int, bytes], ...]:
        """(number, A2A 1.0 JSON) of the next few events from number `first` on, in order."""
        ...

    async def is_answered_bare(self, task: str) -> bool:
        """Was the message answered by another one, so that nobody may know of this task?"""
        ...

    async def pushes(self, tenant: str, principal: str) -> tuple[PushStatus, ...]:
        """The caller's configurations, the latest first, but for those that are done."""
        ...
