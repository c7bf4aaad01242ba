"""The depth of the values in an adapter's events. Law: pure; no value that is nested too deep gets past this module, whichever
adapter made it."""

import msgspec

from gateway.a2a import nesting
from gateway.a2a.model import Json, Part
from gateway.core.usage import storable
from gateway.ports import adapter
from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass
from gateway.ports.conversation import ReasoningItem

_WITH_VALUES = frozenset(
    {
        adapter.PartReady,
        adapter.AnswerReplaced,
        adapter.ArtifactReady,
        adapter.ToolCallReady,
        adapter.ToolResultReady,
        adapter.ItemReady,
        adapter.DirectReply,
        adapter.CallCompleted,
    }
)
"""The events that carry JSON of any form. The arguments of a tool call are text."""


def admitted(event: AdapterEvent) -> AdapterEvent:
    """The event as it can be stored. The output of a tool that is nested too deep becomes its JSON text, because the word of
    a tool must not end a turn; a report of tokens that is counts as none, because it is no part of the answer.

    Raises: AdapterError (CONTRACT_BROKEN) for every other value that is nested too deep.
    """
    if type(event) not in _WITH_VALUES:
        return event
    match event:
        case adapter.CallCompleted():
            _check_parts(event.message or ())
            _check(event.state, "the state of the adapter")
            _check(event.secret, "the secret of the adapter")
            if (usage := storable(event.usage)) is not event.usage:
                return msgspec.structs.replace(event, usage=usage)
        case adapter.ToolResultReady(output=output):
            return msgspec.structs.replace(event, output=admitted_output(output))
        case adapter.PartReady(part=part):
            _check_parts((part,))
        case adapter.AnswerReplaced(parts=parts):
            _check_parts(parts)
        case adapter.ArtifactReady(artifact=artifact):
            _check_parts(artifact.parts)
            _check(artifact.metadata, "the metadata of an artifact")
        case adapter.ToolCallReady(opaque=opaque):
            _check(opaque, f"what is given with a tool call ({event.call_id!r})")
        case adapter.ItemReady(item=item):
            value = item.opaque if isinstance(item, ReasoningItem) else item.payload
            _check(value, f"an item ({event.provider_id!r})")
        case adapter.DirectReply(parts=parts, state=state):
            _check_parts(parts)
            _check(state, "the state of the adapter")
    return event


def admitted_output(output: Json) -> Json:
    """The output of a tool, as its JSON text where it is nested too deep. Raises: AdapterError where it has no text."""
    return output if nesting.fits(output) else _text(output)


def _check_parts(parts: tuple[Part, ...]) -> None:
    for part in parts:
        _check(part.data, "the data of a part")
        _check(part.metadata, "the metadata of a part")


def _check(value: object, what: str) -> None:
    if not nesting.fits(value):
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"{what} is {nesting.TOO_DEEP}")


def _text(output: object) -> str:
    try:
        return msgspec.json.encode(output).decode()
    except RecursionError:
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, f"the output of a tool is {nesting.TOO_DEEP}") from None
