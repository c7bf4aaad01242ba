"""The `tool-calls/v1` extension: how the life of a tool call looks on the wire. Law: a pure function of the call, its phase
and the rendering; `data` is strictly `{id, name, args}` or `{id, name, response}`, objects only; all else is metadata.

Clients drop what has another key or a scalar there (Google ADK) and render the metadata below (ADK, kagent, trpc).
A call has one part with its arguments and one with its outcome; what happens between is metadata of a bare status update.

Who sees what of tool calls: an agent's settings and what a client asks for, made into a rendering. Law: what is not shown
to a caller is never published for it, so that nothing later can show it either.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from gateway.a2a.model import (
    AgentExtension,
    Artifact,
    Json,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.redaction import MASK, JsonPath, redacted_member

URI = "https://a2a-gateway.dev/extensions/tool-calls/v1"

Channel = Literal["status", "artifact"]
Exposure = Literal["full", "args", "names", "none"]
Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Phase(StrEnum):
    REQUESTED = "requested"
    ARGS_DELTA = "args-delta"
    AWAITING_APPROVAL = "awaiting-approval"
    EXECUTING = "executing"
    PROGRESS = "progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    REPLAYED = "replayed"


GOOD_ENDS = frozenset({Phase.SUCCEEDED, Phase.REPLAYED})
ENDS = GOOD_ENDS | {Phase.FAILED, Phase.REJECTED, Phase.CANCELLED, Phase.INTERRUPTED}

_WORDS = {
    Phase.FAILED: "The call failed.",
    Phase.REJECTED: "The call was not approved.",
    Phase.CANCELLED: "The call was not made.",
    Phase.INTERRUPTED: "The outcome of this call is unknown.",
}
"""What is said of an end to those who must not see what the tool said."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """`id` is the gateway's own key. `round` counts service calls, `index` the calls within one, both from 0."""

    id: str
    name: str
    round: int
    index: int
    origin: str
    server: str | None
    started_at: str


class Rendering(msgspec.Struct, frozen=True):
    """What one caller sees of tool calls. `active`: it asked for the extension. `max_result` is in bytes of JSON.

    `redact` begins at the part's data: `$.args...` and `$.response...`.
    """

    channel: Channel = "status"
    exposure: Exposure = "full"
    redact: tuple[JsonPath, ...] = ()
    max_result: int = 64 * 1024
    active: bool = False


EVERYTHING = Rendering()
HIDDEN = Rendering(exposure="none")


@dataclass(frozen=True, slots=True)
class Place:
    """The task whose call it is, and the moment: `now` as the wire writes it, `new_id` for a message that is needed."""

    task_id: str
    context_id: str
    now: str
    new_id: Callable[[], str]


def update(call: CallFacts, phase: str, detail: Json, rendering: Rendering, place: Place) -> Update | None:
    """What the caller is shown of this moment of the call, None for nothing. `phase` is a value of `Phase`.

    `detail` is what the phase brings: the text of all arguments (requested), a piece of it (args-delta), words
    (progress), the outcome or what went wrong (an end); None for the others.
    """
    phase = Phase(phase)
    if rendering.exposure == "none":
        return None
    if phase is Phase.REQUESTED:
        return _sent(requested(call, _text(detail), rendering), f"tool-call:{call.id}", rendering, place)
    if phase in ENDS:
        return _sent(_answered(call, phase, detail, rendering, place.now), f"tool-result:{call.id}", rendering, place)
    facts = _facts(call, phase, rendering)
    if phase is Phase.ARGS_DELTA:
        # A piece of a text cannot be judged by paths: whoever may not see all gets the whole arguments, masked.
        if rendering.redact or rendering.exposure == "names":
            return None
        facts["delta"] = detail
    elif phase is Phase.PROGRESS and rendering.exposure == "full" and not rendering.redact:
        facts["text"] = detail
    return _status(place, metadata={URI: facts})


# --- what is in it ----------------------------------------------------------------------------------------------------


def requested(call: CallFacts, arguments: str, rendering: Rendering = EVERYTHING) -> Part:
    """The one part with all arguments."""
    facts = _facts(call, Phase.REQUESTED, rendering)
    return _part(
        "function_call", call, "args", _masked("args", _arguments(arguments, rendering), facts, rendering), facts
    )


def _answered(call: CallFacts, phase: Phase, output: Json, rendering: Rendering, now: str) -> Part:
    """The one part with the outcome."""
    facts = _facts(call, phase, rendering) | {"endedAt": now}
    response = _masked("response", _outcome(output, phase, rendering), facts, rendering)
    response, cut = _cut(response, rendering.max_result)
    if cut:
        facts["truncated"] = True
    return _part("function_response", call, "response", response, facts)


def _part(kind: str, call: CallFacts, member: str, value: dict[str, Json], facts: dict[str, Json]) -> Part:
    data = {"id": call.id, "name": call.name, member: value}
    return Part(data=data, metadata={"adk_type": kind, "type": kind, "kagent_type": kind, URI: facts})


def _masked(member: str, value: dict[str, Json], facts: dict[str, Json], rendering: Rendering) -> dict[str, Json]:
    if not rendering.redact:
        return value
    masked, facts["redacted"] = redacted_member(member, value, rendering.redact)
    return masked


def _facts(call: CallFacts, phase: Phase, rendering: Rendering) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "phase": phase.value,
        "callId": call.id,
        "name": call.name,
        "round": call.round,
        "index": call.index,
        "origin": call.origin,
        "startedAt": call.started_at,
        "exposure": rendering.exposure,
        "redacted": [],
    }
    if call.server is not None:
        facts["server"] = call.server
    return facts


def _arguments(text: str, rendering: Rendering) -> dict[str, Json]:
    """What is no JSON cannot be looked into, so it is masked where anything is to be."""
    if rendering.exposure == "names" or not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {"raw": MASK if rendering.redact else text}
    return value if isinstance(value, dict) else {"value": value}


def _outcome(output: Json, phase: Phase, rendering: Rendering) -> dict[str, Json]:
    if rendering.exposure != "full":
        return {} if phase in GOOD_ENDS else _error(phase, _WORDS[phase])
    return _response(output) if phase in GOOD_ENDS else _error(phase, _text(output))


def _error(phase: Phase, message: str) -> dict[str, Json]:
    return {"error": {"code": phase.value, "message": message}}


def _response(output: Json) -> dict[str, Json]:
    if isinstance(output, str):
        try:
            value = msgspec.json.decode(output)
        except (msgspec.DecodeError, RecursionError):
            return {"result": output}
        return value if isinstance(value, dict) else {"result": output}
    return output if isinstance(output, dict) else {"result": output}


def _text(output: Json) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def _cut(response: dict[str, Json], limit: int) -> tuple[dict[str, Json], bool]:
    """What is too large, and the beginning of its text in the shape of any text."""
    match response:
        case {"error": {"code": code, "message": str() as message}}:
            start = _beginning(message, limit)
            return {"error": {"code": code, "message": start}}, start != message
        case {"result": str() as text, **others} if not others:
            start = _beginning(text, limit)
            return {"result": start}, start != text
        case _:
            whole = msgspec.json.encode(response)
            return (response, False) if len(whole) <= limit else ({"result": _beginning(whole.decode(), limit)}, True)


def _beginning(text: str, limit: int) -> str:
    """At most so many bytes of it, and no half of a character."""
    return text.encode()[:limit].decode(errors="ignore")


# --- how it travels ---------------------------------------------------------------------------------------------------


def _sent(part: Part, artifact_id: str, rendering: Rendering, place: Place) -> Update:
    """Call and outcome are two artifacts: under one id the outcome, which appends nothing, would replace the call."""
    extensions = (URI,) if rendering.active else None
    if rendering.channel == "artifact":
        artifact = Artifact(artifact_id=artifact_id, parts=(part,), extensions=extensions)
        return TaskArtifactUpdateEvent(
            task_id=place.task_id, context_id=place.context_id, artifact=artifact, last_chunk=True
        )
    message = Message(
        message_id=place.new_id(),
        context_id=place.context_id,
        task_id=place.task_id,
        role=Role.AGENT,
        parts=(part,),
        extensions=extensions,
    )
    return _status(place, message)


def _status(place: Place, message: Message | None = None, metadata: dict[str, Json] | None = None) -> Update:
    return TaskStatusUpdateEvent(
        task_id=place.task_id,
        context_id=place.context_id,
        status=TaskStatus(state=TaskState.WORKING, message=message, timestamp=place.now),
        metadata=metadata,
    )


ARTIFACT_CLIENTS = frozenset(
    {
        "https://google.github.io/adk-docs/a2a/a2a-extension/",
        "https://kagent.dev/extensions/hitl/v1",
        "trpc-a2a-version",
    }
)
"""Named in A2A-Extensions by clients that read tool calls best as artifacts: Google ADK (`use_legacy=False`), kagent, trpc."""


@dataclass(frozen=True, slots=True)
class ShowingRule:
    """For callers whose principal fits one of the patterns; None leaves what the agent says."""

    principals: tuple[str, ...]
    exposure: Exposure | None = None
    redact: tuple[JsonPath, ...] | None = None


@dataclass(frozen=True, slots=True)
class Showing:
    """The settings of one agent. `max_result` is in bytes. The first rule that fits a caller holds for it."""

    when: Literal["always", "negotiated", "never"] = "always"
    channel: Literal["auto", "status", "artifact"] = "auto"
    exposure: Exposure = "full"
    redact: tuple[JsonPath, ...] = ()
    max_result: int = 64 * 1024
    rules: tuple[ShowingRule, ...] = ()


def rendering(showing: Showing, principal: str, named: frozenset[str]) -> Rendering:
    """What this caller sees; `named` are the extensions that its request asks for."""
    active = URI in named
    if showing.when == "never" or (showing.when == "negotiated" and not active):
        return HIDDEN
    exposure, redact = showing.exposure, showing.redact
    for rule in showing.rules:
        if any(fnmatchcase(principal, pattern) for pattern in rule.principals):
            exposure = exposure if rule.exposure is None else rule.exposure
            redact = redact if rule.redact is None else rule.redact
            break
    channel: Channel = "artifact" if named & ARTIFACT_CLIENTS else "status"
    if showing.channel != "auto":
        channel = showing.channel
    return Rendering(channel, exposure, redact, showing.max_result, active)


def announced(showing: Showing, *, approvals: bool = False, client_tools: bool = False) -> tuple[AgentExtension, ...]:
    """The extension as a card declares it: not at all where nobody is shown anything."""
    if showing.when == "never":
        return ()
    params = {"exposure": showing.exposure, "approvals": approvals, "clientTools": client_tools}
    words = "Tool calls and their results as updates of the task."
    return (AgentExtension(uri=URI, description=words, required=False, params=params),)
