"""What the next message to an agent would send of the conversation, and why the rest is left out. Law: `core.history`
decides; this asks it, with a message that nobody has sent.

Source: docs/state-model.md, section 8.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Message, Role
from gateway.core import ownership
from gateway.core.agents import AgentPolicies
from gateway.core.citations import drop_uncited
from gateway.core.history import Doubt, Window, project
from gateway.ledger.threads import ThreadRecord
from gateway.ports import conversation
from gateway.ports.conversation import HistoryRecord, OutputItem, Ownership, StorageOwner, UserItem, refused_output

_NEXT = "\0next"
"""Stands for the turn of the message that nobody has sent: no row has this id."""


class Fate(StrEnum):
    """SENT: as it is. REPLACED: as a fixed text, since the backend refused it. SHORTENED: without the sources that no answer
    cites. KEPT: not again, the backend has it. DISPLACED, FAILED: its turn does not count. REFUSED: the backend does not take
    it. NOT_REPLAYABLE: no model is to read it again. WINDOW: older than what the agent's limits take. ALONE: a call without
    an outcome or the reverse, or reasoning that leads to nothing that is sent."""

    SENT = "sent"
    REPLACED = "replaced"
    SHORTENED = "shortened"
    KEPT = "kept by the backend"
    DISPLACED = "displaced"
    FAILED = "of a failed turn"
    REFUSED = "refused"
    NOT_REPLAYABLE = "not replayable"
    WINDOW = "outside the window"
    ALONE = "cannot be sent alone"


SENT = frozenset({Fate.SENT, Fate.REPLACED, Fate.SHORTENED})


class PlannedItem(msgspec.Struct, frozen=True):
    """An item of a thread. `weight` is what a model would read of it, in bytes, where it is sent, or what it would have
    read."""

    position: int
    turn: int
    turn_id: str
    kind: str
    weight: int
    fate: Fate


class Lost(StrEnum):
    """What becomes of the next message to a thread whose handle its backend has lost. REBUILT: the conversation is told again
    in a new epoch. FAILS: the agent is set to begin none. GAPS: the gateway does not know all that was said."""

    REBUILT = "rebuilt"
    FAILS = "fails"
    GAPS = "gaps"


def after_loss(
    thread: ThreadRecord, declared: Ownership, policies: AgentPolicies, records: Sequence[HistoryRecord]
) -> tuple[Lost, ThreadRecord]:
    """What the next message does with a lost thread, and the thread as its request then goes on. `records` are all items of
    the thread."""
    following = ownership.rebuild_ownership(ownership.LOST_BEFORE, thread, declared, policies)
    if following is None:
        return Lost.FAILS, thread
    if not ownership.is_complete(records):
        return Lost.GAPS, thread
    begin = ownership.epoch(thread, "", following, why=ownership.LOST_BEFORE, now=0)
    return Lost.REBUILT, ownership.apply_point(thread, begin)


def planned(
    owned: Ownership,
    records: Sequence[HistoryRecord],
    window: Window | None,
    *,
    new_chain: bool = False,
    whole_turns: bool = False,
    drops_uncited: bool = False,
) -> tuple[PlannedItem, ...]:
    """Each of the records with what becomes of it. They are all items of the thread, or its end, or, where its backend keeps
    the conversation, those that it may not have. The other arguments are those of `core.history.project`."""
    whole = new_chain or owned.owner is StorageOwner.GATEWAY
    shown = {record.position: record for record in records}
    if whole and drops_uncited:
        counting = [record for record in records if not record.displaced]
        shown |= {record.position: record for record in drop_uncited([*counting, _next(records)], _NEXT)}
    sent = _sent(owned, [shown[record.position] for record in records], window, new_chain, whole_turns, whole=whole)
    oldest = min((record.turn for record in records if record.position in sent), default=None)
    return tuple(
        [
            _item(record, shown[record.position], sent, oldest, whole_turns=whole_turns, whole=whole)
            for record in records
        ]
    )


def _next(records: Sequence[HistoryRecord]) -> HistoryRecord:
    position = max((record.position for record in records), default=0) + 1
    turn = max((record.turn for record in records), default=0) + 1
    message = Message(message_id="", role=Role.USER, parts=())
    return HistoryRecord(position, turn, UserItem(message), turn_id=_NEXT)


def _sent(
    owned: Ownership,
    records: Sequence[HistoryRecord],
    window: Window | None,
    new_chain: bool,
    whole_turns: bool,
    *,
    whole: bool,
) -> frozenset[int]:
    """The positions of what is sent."""
    # A view names the positions of what is new in it: here all is.
    unsent = [replace(each, sent_in=None) if whole and each.refused_in is None else each for each in records]
    view = project(
        owned,
        [*unsent, _next(records)],
        _NEXT,
        window,
        new_chain=new_chain,
        whole_turns=whole_turns,
        doubt=Doubt(refused_in="", tries=0),
    )
    return frozenset(view.positions) | frozenset(view.back)


def _item(
    record: HistoryRecord,
    shown: HistoryRecord,
    sent: frozenset[int],
    oldest: int | None,
    *,
    whole_turns: bool,
    whole: bool,
) -> PlannedItem:
    item, fate = shown.item, _left_out(record, oldest, whole_turns=whole_turns, whole=whole)
    if record.position in sent:
        fate = Fate.SENT if shown.item == record.item else Fate.SHORTENED
        if record.refused_in is not None and isinstance(item, OutputItem):
            item, fate = refused_output(item), Fate.REPLACED
    weight = conversation.weight(item)
    return PlannedItem(record.position, record.turn, record.turn_id, conversation.kind(item), weight, fate)


def _left_out(record: HistoryRecord, oldest: int | None, *, whole_turns: bool, whole: bool) -> Fate:
    if record.displaced:
        return Fate.DISPLACED
    if whole_turns and record.failed:
        return Fate.FAILED
    if not record.replayable:
        return Fate.NOT_REPLAYABLE if record.refused_in is None else Fate.REFUSED
    if not whole and record.sent_in is not None:
        return Fate.KEPT
    return Fate.WINDOW if oldest is None or record.turn < oldest else Fate.ALONE
