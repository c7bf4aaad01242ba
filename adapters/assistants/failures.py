"""What the errors of Azure OpenAI, Azure AI Agents and OpenAI's Assistants mean. Law: a code decides before a text; what a run
reports was processed, because its messages are in the thread.

Source: texts in tests/adapters/assistants/test_failures.py.
"""

import re

from adapters.http.failures import BackendError, Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, ErrorClass

_CODES = {
    "run_already_active": ErrorClass.LOCKED,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    # Sent with status 429 too, but waiting does not help.
    "insufficient_quota": ErrorClass.NOT_SERVED,
    "invalid_api_key": ErrorClass.UNAUTHORISED,
    "content_filter": ErrorClass.POLICY,
    "context_length_exceeded": ErrorClass.OVERFLOW,
    "string_above_max_length": ErrorClass.OVERFLOW,
    "deploymentnotfound": ErrorClass.NOT_SERVED,
}
_TEXTS = (
    (re.compile(r"already has an active run|while a run \S+ is active", re.IGNORECASE), ErrorClass.LOCKED),
    (re.compile(r"content (management |filtering )?policy|responsible ?ai", re.IGNORECASE), ErrorClass.POLICY),
)
_SETTINGS = frozenset(
    {
        *("assistant_id", "model", "instructions", "additional_instructions", "tools", "tool_choice", "tool_resources"),
        *("temperature", "top_p", "response_format", "truncation_strategy", "parallel_tool_calls", "reasoning_effort"),
        *("max_prompt_tokens", "max_completion_tokens", "metadata", "stream"),
    }
)
"""Fields of a run that the settings of the agent decide, and never the conversation."""
_OF_THE_WAY = frozenset({ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})
"""Errors of a request that had no whole answer."""
_THREAD = re.compile(r"no thread found|thread .*not found", re.IGNORECASE)


class ThreadFailures(Failures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        for name in (error.code, error.kind):
            if name is not None and name.lower() in _CODES:
                return _CODES[name.lower()]
        return next((kind for words, kind in _TEXTS if words.search(error.message)), None)

    def is_about_settings(self, error: BackendError) -> bool:
        return re.split(r"[.\[]", error.param or "")[0] in _SETTINGS

    def is_about(self, handle: str, error: BackendError) -> bool:
        return super().is_about(handle, error) or _THREAD.search(error.message) is not None

    def of_run(self, status: str, error: Json, usage: Json) -> AdapterError:
        """A run that ended without an answer. `error` is its `last_error`."""
        failed = self.in_run(error) if error else self.error(ErrorClass.BACKEND_FAILED, f"the run is {status}")
        failed.usage = usage
        return failed

    def of_look_up(self, error: AdapterError) -> AdapterError:
        """An error of a look-up that may be repeated says nothing of the run, which goes on meanwhile."""
        if not error.kind.meaning.transient or error.kind in _OF_THE_WAY:
            return error
        return error.as_kind(ErrorClass.INTERRUPTED)

    def in_run(self, error: Json) -> AdapterError:
        """An error of a stream whose run has begun."""
        failed = self.from_event(error)
        return self.error(ErrorClass.BACKEND_FAILED, failed.detail) if failed.kind in NOT_PROCESSED else failed
