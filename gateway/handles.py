"""What an adapter may say of a static handle. Law: it is named once, by the call that makes the conversation, and never
changes again."""

from msgspec.structs import replace

from gateway.commits.threads import ThreadRecord
from gateway.items import HandleKind
from gateway.ports import AdapterError, AdapterEvent, CallCompleted, CallStarted, ErrorClass


def is_static(thread: ThreadRecord) -> bool:
    return thread.handle_kind is HandleKind.STATIC


def in_conversation(thread: ThreadRecord, event: AdapterEvent) -> AdapterEvent:
    """The event as the turn takes it, on a thread with a static handle: a known one is not pending once more, and need not
    be confirmed by name. Raises: AdapterError (CONTRACT_BROKEN) for another one."""
    if thread.handle is None or not isinstance(event, CallStarted | CallCompleted):
        return event
    if event.handle not in (None, thread.handle):
        what = f"the static handle {thread.handle!r} became {event.handle!r}"
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, what)
    return replace(event, handle=None if isinstance(event, CallStarted) else thread.handle)
