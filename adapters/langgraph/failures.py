"""What the errors of a LangGraph Agent Server mean. Law: when a run has begun, its thread may hold the message, whatever
the run has failed of.

Source: langgraph-api 0.16.7.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from adapters.http.failures import BackendError, Failures
from adapters.langgraph.wire import RunError
from gateway.ports.adapter import AdapterError, ErrorClass

_ASSISTANT = re.compile(r"(invalid|no such|unknown) assistant|assistant .*not found", re.IGNORECASE)
_THREAD = re.compile(r"\bthread\b", re.IGNORECASE)
_EITHER = re.compile(r"thread or assistant not found", re.IGNORECASE)
_UNANSWERED = frozenset({ErrorClass.BACKEND_FAILED, ErrorClass.RATE_LIMITED})


class LangGraphFailures(Failures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        if _ASSISTANT.search(error.message) and not _EITHER.search(error.message):
            return ErrorClass.NOT_SERVED
        return None

    def is_about(self, handle: str, error: BackendError) -> bool:
        return _THREAD.search(error.message) is not None

    @contextmanager
    def of_look_up(self) -> Iterator[None]:
        """The block asks for a run: that the server cannot answer now says nothing of the run."""
        try:
            yield
        except AdapterError as error:
            if error.kind not in _UNANSWERED:
                raise
            raise error.as_kind(ErrorClass.INTERRUPTED) from error

    def from_run(self, failed: RunError) -> AdapterError:
        """The error for the last event of a run that has failed."""
        return self.error(ErrorClass.BACKEND_FAILED, f"the run failed: {failed.error}: {failed.message}")
