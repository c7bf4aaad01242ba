"""What answers a turn that waits, as statements. Law: as in `units`."""

import msgspec

from gateway import items
from gateway.commits.waiting import Decide
from gateway.reduction import weight
from storage import compiled as do
from storage.statement import Step, Value

_encoder = msgspec.json.Encoder()


def decided(point: Decide) -> list[Step]:
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "agent": point.agent,
        "context": point.context,
        "thread": point.thread,
        "generation": point.generation,
        "task": point.task,
        "turn": point.turn,
        "now": point.now,
    }
    steps: list[Step] = [(do.ANSWER_TURN, values)]
    given = point.answer
    if given is not None:
        values |= {
            "ordinal": given.ordinal,
            "message_id": given.message.message_id,
            "message": _encoder.encode(given.message).decode(),
            "said_at": given.event,
            "digest": given.digest,
            "key_kind": given.key.kind if given.key else None,
            "key": given.key.key if given.key else None,
        }
        steps = [(do.USE_CONTEXT, values), *steps, (do.NEXT_INPUT, values)]
        steps += [_said(item, point) for item in given.items]
    for verdict in point.verdicts:
        decision: dict[str, Value] = {
            "tool_call": verdict.tool_call,
            "call_digest": verdict.digest,
            "decision": verdict.decision,
            "by": verdict.by,
            "standing": point.context if verdict.always else None,
        }
        steps.append((do.DECIDE_TOOL, values | decision))
    if point.question is not None:
        steps.append((do.ASK_AGAIN, values | {"question": _encoder.encode(point.question).decode()}))
    if point.goes_on:
        steps.append((do.START_TASK, values))
    return steps


def _said(item: items.Item, point: Decide) -> Step:
    """What the caller says beside its answers. Its message is an input, and this is only a part of it."""
    values: dict[str, Value] = {
        "thread": point.thread,
        "turn": point.turn,
        "service_call": None,
        "tool_call": None,
        "kind": items.kind(item),
        "provider_id": None,
        "replayable": 1,
        "sent_in": None,
        "weight": weight(item),
        "payload": items.encode(item).decode(),
    }
    return do.NEW_ITEM, values
