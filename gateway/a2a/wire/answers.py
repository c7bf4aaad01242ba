"""The answers of other agents as values of the model, from the JSON of A2A 1.0, of 0.3, and of servers that mix the two.

Law: what two versions write in two ways is read in either, because the version that an agent says is not always the one that
it writes; what no version allows is refused, but for events of a kind that no version has. Sources: A2A 1.0, sections 4, 5.5;
A2A 0.3.0, section 6; langgraph-api 0.16.7, whose updates of 1.0 have the `kind` of 0.3 and no envelope.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gateway.a2a import model
from gateway.a2a.errors import echo
from gateway.a2a.model import Json, Role, StreamResponse, TaskState, Wire
from gateway.a2a.wire.proto_json import Misfit, base64
from gateway.a2a.wire.v0_3.requests import WRAPPED
from gateway.a2a.wire.v0_3.results import STATES

T = TypeVar("T")


class Unreadable(ValueError):
    """The answer is not what A2A allows; the text says where, without the answer's own words."""


class UnknownKind(Unreadable):
    """An object that is none of the four. A later version of A2A may have events of a fifth kind."""


class RpcError(Wire, frozen=True):
    """The `error` object of JSON-RPC. `data` are usually google.rpc objects."""

    code: int = 0
    message: str = ""
    data: Json = None


class _File(Wire, frozen=True, kw_only=True):
    bytes: str | None = None
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = None


class _Part(Wire, frozen=True, kw_only=True):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    file: _File | None = None
    data: Json | UnsetType = UNSET
    metadata: dict[str, Json] | None = None
    filename: str | None = None
    media_type: str | None = None


class _Message(Wire, frozen=True, kw_only=True):
    message_id: str | None = None
    context_id: str | None = None
    task_id: str | None = None
    role: str | int | None = None
    parts: tuple[_Part, ...] | None = None
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class _Artifact(Wire, frozen=True, kw_only=True):
    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    parts: tuple[_Part, ...] | None = None
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] | None = None


class _Status(Wire, frozen=True, kw_only=True):
    state: str | int
    message: _Message | None = None
    timestamp: str | None = None


class _Task(Wire, frozen=True, kw_only=True):
    id: str
    context_id: str | None = None
    status: _Status
    artifacts: tuple[_Artifact, ...] | None = None
    history: tuple[_Message, ...] | None = None
    metadata: dict[str, Json] | None = None


class _Tasks(Wire, frozen=True):
    tasks: tuple[_Task, ...] = ()


class _Update(Wire, frozen=True, kw_only=True):
    """A status update or an artifact update."""

    task_id: str | None = None
    context_id: str | None = None
    status: _Status | None = None
    artifact: _Artifact | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: dict[str, Json] | None = None


class _Kind(Wire, frozen=True):
    kind: str | None = None
    task: msgspec.Raw | UnsetType = UNSET
    message: msgspec.Raw | UnsetType = UNSET
    status_update: msgspec.Raw | UnsetType = UNSET
    artifact_update: msgspec.Raw | UnsetType = UNSET


class _Envelope(Wire, frozen=True):
    result: msgspec.Raw | UnsetType = UNSET
    error: RpcError | None = None


class _EventEnvelope(Wire, frozen=True):
    result: StreamResponse | UnsetType = UNSET
    error: RpcError | None = None


_STATES: Mapping[str | int, TaskState] = {
    **{state.value: state for state in TaskState},
    **{name: state for state, name in STATES.items()},
    **dict(enumerate(TaskState, start=1)),
}
_ROLES: Mapping[str | int | None, Role] = {
    **{role.value: role for role in Role},
    "user": Role.USER,
    "agent": Role.AGENT,
    1: Role.USER,
    2: Role.AGENT,
    None: Role.AGENT,
}
_KINDS = {"task": "task", "message": "message", "status-update": "status_update", "artifact-update": "artifact_update"}

_exact_event = msgspec.json.Decoder(_EventEnvelope)
_exact = msgspec.json.Decoder(StreamResponse)
_envelope = msgspec.json.Decoder(_Envelope)
_kind = msgspec.json.Decoder(_Kind)
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (_Task, _Tasks, _Message, _Update)
}


def rpc_result(body: bytes) -> bytes | RpcError:
    """The JSON of the result in a response of JSON-RPC, or its error. Raises: Unreadable."""
    envelope = _decoded(_envelope, body, "a response of JSON-RPC")
    if envelope.error is not None:
        return envelope.error
    if envelope.result is UNSET:
        raise Unreadable("a response of JSON-RPC with neither result nor error")
    return bytes(envelope.result)


def rpc_event(body: bytes) -> StreamResponse | RpcError:
    """One event of a stream of JSON-RPC, or the error that ends the stream. Raises: Unreadable."""
    try:
        found = _exact_event.decode(body)
    except (msgspec.DecodeError, RecursionError):
        found = _EventEnvelope()
    if found.error is not None:
        return found.error
    if found.result is not UNSET and _has_content(found.result):
        return found.result
    result = rpc_result(body)
    return result if isinstance(result, RpcError) else _tolerant(result)


def response(body: bytes) -> StreamResponse:
    """An event of a stream, or the answer to a message: a task, a message or an update. Raises: Unreadable."""
    try:
        found = _exact.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _tolerant(body)
    return found if _has_content(found) else _tolerant(body)


def task(body: bytes) -> model.Task:
    """Raises: Unreadable."""
    found = response(body) if body.startswith(b'{"task"') else None
    if found is not None and found.task is not None:
        return found.task
    return _task(_decoded(_decoders[_Task], body, "a task"))


def tasks(body: bytes) -> tuple[model.Task, ...]:
    """Those of one page. Raises: Unreadable."""
    return tuple(map(_task, _decoded(_decoders[_Tasks], body, "a list of tasks").tasks))


def checked(found: StreamResponse) -> StreamResponse:
    """The same value, which was made of protobuf. Raises: Unreadable where it has no content that can be used."""
    if _has_content(found):
        return found
    if found == StreamResponse():
        raise UnknownKind("neither a task nor a message nor an update")
    raise Unreadable("a part without content")


def _has_content(found: StreamResponse) -> bool:
    """Whether it is one of the four, with one content in each of its parts, as the model has it."""
    if found.artifact_update is not None:
        return _all_one(found.artifact_update.artifact.parts)
    if found.status_update is not None:
        return _says_one(found.status_update.status.message)
    if found.message is not None:
        return _says_one(found.message)
    whole = found.task
    if whole is None:
        return False
    messages = (whole.status.message, *(whole.history or ()))
    return all(map(_says_one, messages)) and all(_all_one(each.parts) for each in whole.artifacts or ())


def _says_one(message: model.Message | None) -> bool:
    return message is None or _all_one(message.parts)


def _all_one(parts: tuple[model.Part, ...]) -> bool:
    for part in parts:
        given = (part.text is not None) + (part.raw is not None) + bool(part.url) + (part.data is not UNSET)
        if given != 1 or not (part.raw is None or _is_base64(part.raw)):
            return False
    return True


def _is_base64(raw: str) -> bool:
    """Whether it is base64 as the model has it. Any other form is read in the spelling of any version, or refused there."""
    try:
        return base64(raw) == raw
    except Misfit:
        return False


# --- in the spelling of any version


def _tolerant(body: bytes) -> StreamResponse:
    found = _decoded(_kind, body, "an answer")
    # A message of 0.3 has a `kind` and no member of this name; a task or an update may have one that is something else.
    for name in ("task", "status_update", "artifact_update", "message"):
        inner = getattr(found, name)
        if inner is not UNSET and found.kind is None:
            return _of(name, bytes(inner))
    if found.kind not in _KINDS:
        raise UnknownKind(f"an answer of the kind {echo(found.kind)}")
    return _of(_KINDS[found.kind], body)


def _of(name: str, body: bytes) -> StreamResponse:
    match name:
        case "task":
            return StreamResponse(task=_task(_decoded(_decoders[_Task], body, "a task")))
        case "message":
            return StreamResponse(message=_message(_decoded(_decoders[_Message], body, "a message")))
    update: _Update = _decoded(_decoders[_Update], body, "an update")
    owner: dict[str, Any] = {
        "task_id": update.task_id or "",
        "context_id": update.context_id or "",
        "metadata": update.metadata,
    }
    if name == "status_update" and update.status is not None:
        return StreamResponse(status_update=model.TaskStatusUpdateEvent(status=_status(update.status), **owner))
    if update.artifact is None:
        raise Unreadable("an update without its status or artifact")
    artifact, append, last = _artifact(update.artifact, 0), bool(update.append), bool(update.last_chunk)
    return StreamResponse(
        artifact_update=model.TaskArtifactUpdateEvent(artifact=artifact, append=append, last_chunk=last, **owner)
    )


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, what: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        # It names types and the path; the only words of the answer that it may have are names of members.
        raise Unreadable(f"{what} does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{what} is no JSON that can be read") from error


def _task(found: _Task) -> model.Task:
    artifacts, history = found.artifacts, found.history
    return model.Task(
        id=found.id,
        context_id=found.context_id or "",
        status=_status(found.status),
        artifacts=None if artifacts is None else tuple(_artifact(each, i) for i, each in enumerate(artifacts)),
        history=None if history is None else tuple(map(_message, history)),
        metadata=found.metadata,
    )


def _status(found: _Status) -> model.TaskStatus:
    state = _STATES.get(found.state)
    if state is None:
        raise Unreadable(f"a task in the state {echo(found.state)}")
    message = None if found.message is None else _message(found.message)
    return model.TaskStatus(state=state, message=message, timestamp=found.timestamp)


def _message(found: _Message) -> model.Message:
    role = _ROLES.get(found.role)
    if role is None:
        raise Unreadable(f"a message of the role {echo(found.role)}")
    return model.Message(
        message_id=found.message_id or "",
        context_id=found.context_id,
        task_id=found.task_id,
        role=role,
        parts=tuple(map(_part, found.parts or ())),
        metadata=found.metadata,
        extensions=found.extensions,
        reference_task_ids=found.reference_task_ids,
    )


def _artifact(found: _Artifact, index: int) -> model.Artifact:
    return model.Artifact(
        artifact_id=found.artifact_id or f"artifact-{index}",
        name=found.name,
        description=found.description,
        parts=tuple(map(_part, found.parts or ())),
        metadata=found.metadata,
        extensions=found.extensions,
    )


def _part(found: _Part) -> model.Part:
    about: dict[str, Any] = {
        "metadata": found.metadata,
        "filename": found.filename or None,
        "media_type": found.media_type or None,
    }
    file = found.file
    if file is not None:
        about = {"metadata": found.metadata, "filename": file.name, "media_type": file.mime_type}
    raw, url = (found.raw, found.url) if file is None else (file.bytes, file.uri)
    if found.text is not None:
        return model.Part(text=found.text, **about)
    if url:
        return model.Part(url=url, **about)
    if raw is not None:
        try:
            return model.Part(raw=base64(raw), **about)
        except Misfit:
            raise Unreadable("a file that is not base64") from None
    if found.data is UNSET:
        raise Unreadable("a part without content")
    return _data(found.data, about)


def _data(data: Json, about: dict[str, Any]) -> model.Part:
    """Data of 0.3 that are no object are wrapped into one, with a mark in the metadata."""
    metadata = about["metadata"]
    if isinstance(data, dict) and metadata and metadata.get(WRAPPED) is True and data.keys() == {"value"}:
        rest = {key: value for key, value in metadata.items() if key != WRAPPED}
        return model.Part(data=data["value"], **{**about, "metadata": rest or None})
    return model.Part(data=data, **about)
