"""The `tool-calls/v1` extension: the form of tool calls on the wire, and the details of them that each caller sees.

Law: this module is pure. `data` is exactly `{id, name, args}` or `{id, name, response}`, and `args` and `response` are
objects. A detail that is hidden from a caller is never published.

Google ADK drops `data` with other keys or with a scalar in place of an object. ADK, kagent and trpc render the metadata
that this module sets. A call has one part with its arguments and one part with its outcome; the phases between them are
metadata of a status update without a message.
"""

from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from gateway.a2a import model, nesting
from gateway.a2a.model import Json, Part
from gateway.a2a.redaction import MASK, JsonPath, at_any_depth, redacted_member

URI = "https://a2a-gateway.dev/extensions/tool-calls/v1"

Channel = Literal["status", "artifact"]
Exposure = Literal["full", "args", "names", "none"]
Update = model.TaskStatusUpdateEvent | model.TaskArtifactUpdateEvent


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
"""The text for the end of a call, for callers that may not see the output of the tool."""


class CallFacts(msgspec.Struct, frozen=True):
    """The facts of a tool call that do not change. `id` is the gateway's id of the call.

    `round` is the number of the service call in its turn, `index` the number of the tool call in its service call; both
    start at 0.
    """

    id: str
    name: str
    round: int
    index: int
    origin: str
    server: str | None
    started_at: str


class Rendering(msgspec.Struct, frozen=True):
    """The form in which one caller sees tool calls. `active` says that the caller asked for the extension.

    `max_result` is a number of bytes of JSON. The paths of `redact` start at the part's data: `$.args...` and
    `$.response...`.
    """

    channel: Channel = "status"
    exposure: Exposure = "full"
    redact: tuple[JsonPath, ...] = ()
    max_result: int = 64 * 1024
    active: bool = False


EVERYTHING = Rendering()
HIDDEN = Rendering(exposure="none")


class Place(msgspec.Struct, frozen=True):
    """The task of a call. `now` is the time in the form of the wire; `new_id` makes the id of a message."""

    task_id: str
    context_id: str
    now: str
    new_id: Callable[[], str]


class Response(msgspec.Struct, frozen=True):
    """The outcome of a call in the form in which one caller sees it. `redacted` are the paths that masked a value of it,
    `truncated` says that only its beginning is shown."""

    value: dict[str, Json]
    redacted: list[str]
    truncated: bool


def update(call: CallFacts, phase: str, detail: Json | Response, rendering: Rendering, place: Place) -> Update | None:
    """Returns the update for this phase of the call, or None when the caller may not see it.

    `phase` is a value of `Phase`. `detail` depends on the phase: the text of all arguments (requested), a piece of that
    text (args-delta), a text (progress), the outcome or the fault, or what `respond` made of it (an end), and None in the
    other phases.
    """
    phase = Phase(phase)
    if rendering.exposure == "none":
        return None
    if phase in ENDS:
        response = detail if isinstance(detail, Response) else respond(phase, detail, rendering)
        return _sent(_answered(call, phase, response, rendering, place.now), f"tool-result:{call.id}", rendering, place)
    if phase is Phase.REQUESTED:
        return _sent(requested(call, _text(detail), rendering), f"tool-call:{call.id}", rendering, place)
    facts = _facts(call, phase, rendering)
    if phase is Phase.ARGS_DELTA:
        # A path cannot be found in a piece of text, so a caller with masked arguments gets only the complete arguments.
        if rendering.redact or rendering.exposure == "names":
            return None
        facts["delta"] = detail
    elif phase is Phase.PROGRESS and rendering.exposure == "full" and not rendering.redact:
        facts["text"] = detail
    return _status(place, metadata={URI: facts})


def requested(call: CallFacts, arguments: str, rendering: Rendering = EVERYTHING) -> Part:
    """The part with all arguments of the call."""
    facts = _facts(call, Phase.REQUESTED, rendering)
    given = _arguments(arguments, rendering)
    whole = given if isinstance(given, dict) else {"value": given}
    value, facts["redacted"] = redacted_member("args", whole, _paths(rendering, exact=whole is given))
    return _part("function_call", call, "args", value, facts)


def respond(phase: str, output: Json, rendering: Rendering, limit: int | None = None) -> Response:
    """The outcome as this caller sees it: masked, then cut. `limit` is a number of bytes, besides that of the rendering.

    `phase` is one of `ENDS`.
    """
    value, hit = _outcome(output, Phase(phase), rendering)
    most = rendering.max_result if limit is None else min(limit, rendering.max_result)
    value, cut = _cut(value, most)
    return Response(value, hit, cut)


def _answered(call: CallFacts, phase: Phase, response: Response, rendering: Rendering, now: str) -> Part:
    """The part with the outcome of the call."""
    facts = _facts(call, phase, rendering) | {"endedAt": now, "redacted": list(response.redacted)}
    if response.truncated:
        facts["truncated"] = True
    return _part("function_response", call, "response", response.value, facts)


def _part(kind: str, call: CallFacts, member: str, value: dict[str, Json], facts: dict[str, Json]) -> Part:
    data = {"id": call.id, "name": call.name, member: value}
    return Part(data=data, metadata={"adk_type": kind, "type": kind, "kagent_type": kind, URI: facts})


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


def _paths(rendering: Rendering, *, exact: bool) -> tuple[JsonPath, ...]:
    """The paths for arguments or an outcome. What is no object, or went wrong, has no place of its own in the object that is
    shown (not `exact`): the path to a member of it leads to that member at every depth."""
    return rendering.redact if exact else tuple(map(at_any_depth, rendering.redact))


def _arguments(text: str, rendering: Rendering) -> Json:
    """The value of the arguments. When any path is masked, arguments that are not JSON are masked completely."""
    if rendering.exposure == "names" or not text.strip():
        return {}
    value = _decoded(text)
    return {"raw": MASK if rendering.redact else text} if value is msgspec.UNSET else value


def _decoded(text: str) -> Json:
    """The JSON value of the text, or UNSET when the text is not JSON, or nested too deep to be shown as a value."""
    try:
        return nesting.decode(text)
    except msgspec.DecodeError:
        return msgspec.UNSET


def _outcome(output: Json, phase: Phase, rendering: Rendering) -> tuple[dict[str, Json], list[str]]:
    """The outcome as an object, and the paths that masked any of it. `$.response.result` is all that a tool said in words,
    also where an object in the words takes their place, and where they say what went wrong."""
    good, hit = phase in GOOD_ENDS, list[str]()
    if rendering.exposure != "full":
        output = {} if good else _WORDS[phase]
    if not rendering.redact:
        return _shown(output, phase), hit
    paths = _paths(rendering, exact=good and isinstance(_opened(output), dict))
    if not (good and isinstance(output, dict)):
        said, hit = redacted_member("response", {"result": output}, paths)
        output = said.get("result", MASK)
    value, more = redacted_member("response", _shown(output, phase), paths)
    return value, [path.text for path in paths if path.text in hit or path.text in more]


def _shown(output: Json, phase: Phase) -> dict[str, Json]:
    if phase not in GOOD_ENDS:
        return {"error": {"code": phase.value, "message": _text(output)}}
    value = _opened(output)
    return value if isinstance(value, dict) else {"result": value}


def _opened(output: Json) -> Json:
    """The object in the text of a tool; any other output as it is."""
    value = _decoded(output) if isinstance(output, str) else output
    return value if isinstance(value, dict) else output


def _text(output: Json) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def _cut(response: dict[str, Json], limit: int) -> tuple[dict[str, Json], bool]:
    """Returns the response within the limit, and whether it was cut. An object that is cut becomes a text."""
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
    """The first `limit` bytes of the text, without an incomplete character at the end."""
    return text.encode()[:limit].decode(errors="ignore")


def _sent(part: Part, artifact_id: str, rendering: Rendering, place: Place) -> Update:
    """The update that carries the part. Call and outcome are two artifacts with different ids, because an artifact that
    does not append replaces the artifact of the same id."""
    extensions = (URI,) if rendering.active else None
    task, context = place.task_id, place.context_id
    if rendering.channel == "artifact":
        artifact = model.Artifact(artifact_id=artifact_id, parts=(part,), extensions=extensions)
        return model.TaskArtifactUpdateEvent(task_id=task, context_id=context, artifact=artifact, last_chunk=True)
    parts, new = (part,), place.new_id()
    message = model.Message(
        message_id=new, context_id=context, task_id=task, role=model.Role.AGENT, parts=parts, extensions=extensions
    )
    return _status(place, message)


def is_of_call(artifact: model.Artifact) -> bool:
    """Whether the artifact is one of those that hold a call or its outcome, and not an agent's own that speaks of a call."""
    return artifact.artifact_id.startswith(("tool-call:", "tool-result:"))


def _status(place: Place, message: model.Message | None = None, metadata: dict[str, Json] | None = None) -> Update:
    return model.TaskStatusUpdateEvent(
        task_id=place.task_id,
        context_id=place.context_id,
        status=model.TaskStatus(state=model.TaskState.WORKING, message=message, timestamp=place.now),
        metadata=metadata,
    )


ARTIFACT_CLIENTS = frozenset(
    {
        "https://google.github.io/adk-docs/a2a/a2a-extension/",
        "https://kagent.dev/extensions/hitl/v1",
        "trpc-a2a-version",
    }
)
"""Values of A2A-Extensions that identify clients that read tool calls best as artifacts: Google ADK
(`use_legacy=False`), kagent and trpc."""


class VisibilityRule(msgspec.Struct, frozen=True):
    """Settings for callers whose principal matches one of the patterns. None keeps the agent's setting."""

    principals: tuple[str, ...]
    exposure: Exposure | None = None
    redact: tuple[JsonPath, ...] | None = None


class Visibility(msgspec.Struct, frozen=True):
    """The settings of one agent for the visibility of its tool calls.

    `max_result` is a number of bytes. The first rule that matches a caller applies.
    """

    when: Literal["always", "negotiated", "never"] = "always"
    channel: Literal["auto", "status", "artifact"] = "auto"
    exposure: Exposure = "full"
    redact: tuple[JsonPath, ...] = ()
    max_result: int = 64 * 1024
    rules: tuple[VisibilityRule, ...] = ()


def rendering(visibility: Visibility, principal: str, named: frozenset[str]) -> Rendering:
    """Returns the rendering for one caller. `named` holds the extensions that the caller's request asks for."""
    active = URI in named
    if visibility.when == "never" or (visibility.when == "negotiated" and not active):
        return HIDDEN
    exposure, redact = visibility.exposure, visibility.redact
    for rule in visibility.rules:
        if any(fnmatchcase(principal, pattern) for pattern in rule.principals):
            exposure = exposure if rule.exposure is None else rule.exposure
            redact = redact if rule.redact is None else rule.redact
            break
    channel: Channel = "artifact" if named & ARTIFACT_CLIENTS else "status"
    if visibility.channel != "auto":
        channel = visibility.channel
    return Rendering(channel, exposure, redact, visibility.max_result, active)


def card_extensions(
    visibility: Visibility, *, approvals: bool = False, client_tools: bool = False
) -> tuple[model.AgentExtension, ...]:
    """The extension as an agent card declares it, or an empty tuple when no caller sees tool calls."""
    if visibility.when == "never":
        return ()
    params = {"exposure": visibility.exposure, "approvals": approvals, "clientTools": client_tools}
    words = "Tool calls and their results as updates of the task."
    return (model.AgentExtension(uri=URI, description=words, required=False, params=params),)
