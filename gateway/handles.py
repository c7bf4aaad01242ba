"""Where a thread's handle may go. Law: a rotating one follows the completed calls, a static one never changes again."""

from gateway.commits import ThreadRecord
from gateway.items import HandleKind
from gateway.ports import AdapterError, ErrorClass


def behind(thread: ThreadRecord, named: str | None) -> str | None:
    """The thread's handle behind a call that named this one, or none. Raises: AdapterError (CONTRACT_BROKEN)."""
    if named is None:
        return thread.handle
    if is_static(thread) and thread.handle not in (None, named):
        what = f"the static handle {thread.handle!r} became {named!r}"
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, what)
    return named


def is_static(thread: ThreadRecord) -> bool:
    return thread.handle_kind is HandleKind.STATIC


def may_be_missing(thread: ThreadRecord) -> bool:
    """A completed call need not name what cannot have changed."""
    return is_static(thread) and thread.handle is not None
