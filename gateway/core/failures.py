"""The caller's text of a failed turn, and the retry of a failed service call. Law: one table of safe texts, never a backend's
words; a retry only where owner, progress and error class make it safe, never after output, never past the turn's deadline.

Source: docs/state-model.md, section 10 and retry table.
"""

import math
from enum import StrEnum

from gateway.foundation.retry import backoff
from gateway.ledger.calls import RESTARTED
from gateway.ledger.tasks import Refused
from gateway.ports.adapter import MEANINGS, AdapterError, ErrorClass, Processed
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

TURN_TIMEOUT = "turn-timeout"
INTERNAL = "internal"
HANDLE_MISSING = "backend-state-lost"
UNKNOWN_TOOL = "unknown-tool"
OWNER_CONFLICT = "owner-conflict"
ROUND_LIMIT = "tool-round-limit"
TOOLS_FAILING = "tools-failing"
TOOLS_UNAVAILABLE = "tools-unavailable"
TOOL_OUTCOME_UNKNOWN = "tool-outcome-unknown"
CONTEXT_STUCK = "context-stuck"

_TEXTS: dict[str, str] = {
    ErrorClass.UNREACHABLE: "The agent's backend could not be reached.",
    ErrorClass.RATE_LIMITED: "The agent's backend is at its rate limit; try again later.",
    ErrorClass.LOCKED: "The conversation is in use at the agent's backend; try again when what runs in it has ended.",
    ErrorClass.UNAUTHORISED: "The gateway is not authorised at the agent's backend.",
    ErrorClass.NOT_SERVED: "The agent's backend does not serve this agent as it is set up; its settings need a look.",
    ErrorClass.HANDLE_NOT_FOUND: "The agent's backend no longer knows this conversation; start a new context.",
    ErrorClass.HANDLE_EXPIRED: "The conversation has expired at the agent's backend; start a new context.",
    ErrorClass.STORAGE_DISABLED: "The agent's backend does not keep conversations for this account.",
    ErrorClass.TIMED_OUT: "The agent's backend did not answer in time.",
    ErrorClass.INTERRUPTED: "The agent's backend ended its answer before it was complete.",
    ErrorClass.BACKEND_FAILED: "The agent's backend failed.",
    ErrorClass.CONTRACT_BROKEN: "The agent's backend gave an answer that cannot be used.",
    ErrorClass.REPLAY_MISSING: "The gateway replays a recording, which has no answer to what was asked of the agent's backend.",
    ErrorClass.UNKNOWN: "The agent's backend failed for a reason that is not known.",
    RESTARTED: "The gateway stopped, or could not store what came, while this was running; "
    "the agent may have got the message all the same.",
    TURN_TIMEOUT: "The turn took longer than it may.",
    INTERNAL: "The gateway failed to finish this.",
    HANDLE_MISSING: "The agent's backend answered but did not say how to continue the conversation.",
    OWNER_CONFLICT: "The agent's backend kept a conversation that is not its to keep; the agent's settings need a look.",
    ROUND_LIMIT: "The agent called tools more often than it may.",
    TOOLS_FAILING: "All tools that the agent called failed, several times in a row.",
    TOOLS_UNAVAILABLE: "The agent's tools could not be reached.",
    TOOL_OUTCOME_UNKNOWN: "The gateway stopped while a tool ran; whether the tool did its work is not known.",
    CONTEXT_STUCK: "An earlier message of this context cannot be brought to an end; start a new context.",
    UNKNOWN_TOOL: "The agent asked for a tool that is not attached to it.",
}


REFUSED = "refused"
"""The key of the metadata that says that content was refused; its value is a `Refused`."""

FINISH = "finishReason"
"""The key of the metadata with the reason for an answer that is not whole."""

OTHER_FINISH = "other"
"""The reason of a backend that is none of the known ones, whatever its word is."""

_FINISHES = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "error_limit"}
    | {"content_filter", "content_filtered", "guardrail_intervened", "refusal", "safety", "recitation", "blocklist"}
    | {"prohibited_content", "spii", "language", "sensitive", "error_toxic"}
    | {"incomplete", "pause_turn", "abort", "cancelled", "user_cancel", "timeout", "interrupted"}
    | {"insufficient_system_resource", "network_error", "error", "malformed_function_call"}
)
"""The reasons that callers are told by name: those of OpenAI, Anthropic, Azure, Bedrock, Cohere, DeepSeek, Gemini, Mistral,
SGLang, vLLM and Zhipu, in small letters."""

GAP = "contextGap"
"""The key of the metadata that says that the backend does not know the answer; its value is the reason."""

BACKEND_CANCELLED = "backendCancelled"
"""The key of the metadata that says whether the backend has confirmed that it works no more for a turn that was ended early."""

STOPPED: dict[bool, str] = {
    True: "The agent's backend has confirmed that it has stopped.",
    False: "The agent's backend has not confirmed that it has stopped; it may still work on this.",
}
"""What callers are told of a backend that would go on without a listener."""

_CONTENTS: dict[Refused, str] = {
    "message": "this message",
    "tool-result": "the result of a tool",
    "tool-result-and-message": "the result of a tool and the message beside it",
}

_REFUSALS: dict[str, str] = {
    ErrorClass.REJECTED: "The agent's backend refused {}: its content was not accepted.",
    ErrorClass.OVERFLOW: "The agent's backend refused {}: with it, the conversation is too long.",
    ErrorClass.POLICY: "The agent's backend refused {}: its content is against the policy of the backend.",
    ErrorClass.UNSENDABLE: "The gateway did not send {}: the agent's backend cannot take its content.",
}
"""Sentences around the content."""


def cause(failure: str) -> str:
    """A failure in a sentence for operators; empty for a class that is not known. What a safe text says behind its semicolon is
    for callers."""
    if failure in _REFUSALS:
        return _REFUSALS[failure].format("a message or the result of a tool")
    return _TEXTS[failure].partition(";")[0].rstrip(".") + "." if failure in _TEXTS else ""


def refused_content(failure: str, round_: int, *, words: bool = False) -> Refused | None:
    """The content that the failure of the service call with this number refused, if it did. `words` says that its request
    carried a message of the caller."""
    meaning = MEANINGS.get(failure)
    if meaning is None or not meaning.refuses_content:
        return None
    if not round_:
        return "message"
    return "tool-result-and-message" if words else "tool-result"


def shown_finish(reason: str) -> str:
    """The name of the reason for callers. A backend may write anything into it: a word that is not known stays here."""
    known = reason.lower()
    return known if known in _FINISHES else OTHER_FINISH


def safe_text(
    failure: str,
    correlation_id: str,
    retry_after: int | None = None,
    refused: Refused | None = None,
    hint: str = "",
) -> str:
    """The text of a failure for the caller. `retry_after` as of `time_until_retry`; `refused` is the content that the backend
    refused, or that could not be sent to it; `hint` as of AdapterError."""
    text = _TEXTS.get(failure)
    if text is None:
        left = "Both are" if refused == "tool-result-and-message" else "It is"
        sentence = _REFUSALS[failure].format(_CONTENTS[refused or "message"])
        text = f"{sentence} {left} left out of the conversation from now on."
    later = f" It can be asked again in {retry_after} s." if retry_after is not None else ""
    more = f" {hint}" if hint else ""
    return f"{text}{more}{later} (correlation id {correlation_id})"


_TRIES = 3
_LOCKED_TRIES = 4
_LOCKED_WAIT = 1.0
_FIRST_WAIT = 0.5
_NOT_FOUND_WAIT = 1.0
_LONGEST_WAIT = 4.0
_LONGEST_RETRY_AFTER = 60.0
"""Seconds. A turn does not wait for a backend that asks for more; the caller may send the message again later."""
_LONGEST_TOLD = 1e9
"""Seconds. An adapter may name any number, infinity included; more than these is none."""


class CallProgress(StrEnum):
    """How far a service call came: no reply, taken by the backend, part of the answer received."""

    SENT = "sent"
    STARTED = "started"
    EMITTED = "emitted"


def may_repeat(ownership: Ownership, phase: CallProgress, error: AdapterError, tries: int, *, continues: bool) -> bool:
    """`tries` is the number of failed tries, with this one. `continues`: the request continues from a handle."""
    kind, meaning = error.kind, error.kind.meaning
    if phase is CallProgress.EMITTED:
        return False
    if phase is CallProgress.STARTED:
        return ownership.may_repeat and meaning.transient
    if kind is ErrorClass.HANDLE_NOT_FOUND:
        # A backend may need a moment until it finds what it has just stored.
        return ownership.owner is StorageOwner.BACKEND and continues
    if error.stale_connection and tries == 1 and ownership.handle is not HandleKind.STATIC:
        # The backend closes connections that were idle for long, and this request crossed with that.
        return True
    return meaning.transient and (ownership.may_repeat or meaning.processed is Processed.NO)


def retry_wait(error: AdapterError, tries: int, remaining: float, jitter: float) -> float | None:
    """The seconds until the next try after `tries` failed tries, or None when there is no further try.

    `remaining` is the number of seconds that the turn has left. `jitter`, from 0 to 1, spreads the tries of many turns.
    """
    retry_after = error.retry_after
    match error.kind:
        case ErrorClass.LOCKED:
            wait = backoff(_LOCKED_WAIT, _LONGEST_WAIT, tries) if tries < _LOCKED_TRIES else None
        case ErrorClass.HANDLE_NOT_FOUND:
            wait = _NOT_FOUND_WAIT if tries == 1 else None
        case _:
            wait = backoff(_FIRST_WAIT, _LONGEST_WAIT, tries, jitter) if tries < _TRIES else None
    if wait is None or (retry_after is not None and retry_after > _LONGEST_RETRY_AFTER):
        return None
    wait += retry_after or 0.0
    return wait if wait < remaining else None


def time_until_retry(error: AdapterError, resting: int | None) -> int | None:
    """Seconds before which another message would fail as this one: `resting`, while the gateway makes no request to the
    backend, else those that the backend named. None where nobody knows, or where time mends nothing."""
    named = error.retry_after
    if resting is not None or named is None or not error.kind.meaning.transient:
        return resting
    return math.ceil(named) if 0 < named < _LONGEST_TOLD else None
