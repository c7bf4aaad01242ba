"""Contexts that come from elsewhere, with a backend's handle or out of another database."""

import msgspec

from gateway.commits.threads import Caller, ThreadRecord
from gateway.portable import ContextDocument


class Adopt(msgspec.Struct, frozen=True):
    """A new context whose first message goes on from the handle of its thread. Hits a row when the public id is taken."""

    caller: Caller
    context_public: str
    thread: ThreadRecord
    now: int


class Import(msgspec.Struct, frozen=True):
    """A context of another database, which now is the caller's."""

    caller: Caller
    document: ContextDocument
    now: int
