"""What a caller is told when a turn fails. Law: one table from the failure to a safe text, never a backend's words."""

from gateway.ports import ErrorClass

RESTARTED = "gateway-restarted"
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
    ErrorClass.REJECTED: "The agent's backend refused the request.",
    ErrorClass.RATE_LIMITED: "The agent's backend is at its rate limit; try again later.",
    ErrorClass.LOCKED: "The conversation is in use at the agent's backend; try again in a few seconds.",
    ErrorClass.UNAUTHORISED: "The gateway is not authorised at the agent's backend.",
    ErrorClass.HANDLE_NOT_FOUND: "The agent's backend no longer knows this conversation; start a new context.",
    ErrorClass.HANDLE_EXPIRED: "The conversation has expired at the agent's backend; start a new context.",
    ErrorClass.STORAGE_DISABLED: "The agent's backend does not keep conversations for this account.",
    ErrorClass.OVERFLOW: "The conversation is too long for the agent's backend.",
    ErrorClass.TIMED_OUT: "The agent's backend did not answer in time.",
    ErrorClass.INTERRUPTED: "The agent's backend ended its answer before it was complete.",
    ErrorClass.BACKEND_FAILED: "The agent's backend failed.",
    ErrorClass.CONTRACT_BROKEN: "The agent's backend gave an answer that cannot be used.",
    ErrorClass.UNKNOWN: "The agent's backend failed for a reason that is not known.",
    RESTARTED: "The gateway stopped, or could not store what came, while this was running; send the message again.",
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


def safe_text(failure: str, correlation_id: str, retry_after: int | None = None) -> str:
    """`retry_after`: seconds for which the backend is left alone."""
    later = f" After several failures in a row it is tried again in {retry_after} s." if retry_after is not None else ""
    return f"{_TEXTS[failure]}{later} (correlation id {correlation_id})"
