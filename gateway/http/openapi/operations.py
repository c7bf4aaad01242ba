"""The operations of HTTP+JSON in an OpenAPI description."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec

from gateway.a2a import errors, model
from gateway.a2a.errors import A2AError, MethodNotFound
from gateway.a2a.model import Json
from gateway.a2a.wire import dialects
from gateway.a2a.wire.dialect import Dialect, Method
from gateway.a2a.wire.v0_3 import proto_results
from gateway.http.openapi.errors import refusals
from gateway.http.openapi.schemas import Schemas
from gateway.http.pipeline import operation_table
from gateway.http.reply import A2A_JSON, JSON
from gateway.http.rest_addresses import V0_3, V1_0, Address, Version
from gateway.http.sse import EVENT_STREAM
from gateway.operations.service import Operations


class Binding(msgspec.Struct, frozen=True):
    """A version of HTTP+JSON. `below` stands in front of its addresses, `space` in front of the names of its operations and of
    the types of its answers, `requests` in front of those of its requests. `written` has the form of a result on the wire,
    where that is not the one of the model."""

    version: Version
    tag: str
    below: str
    space: str
    requests: str
    example: Json
    written: Mapping[type, type]


_TEXT = {"messageId": "1", "role": "ROLE_USER"}
BINDINGS = (
    Binding(V1_0, "A2A 1.0", "", "", "", {"message": {**_TEXT, "parts": [{"text": "Hello"}]}}, {}),
    Binding(
        V0_3,
        "A2A 0.3",
        "/v1",
        "v0_3.",
        "v0_3.request.",
        {"message": {**_TEXT, "content": [{"text": "Hello"}]}, "configuration": {"blocking": True}},
        proto_results.WRITTEN,
    ),
)


class _Said(msgspec.Struct, frozen=True):
    """What is said of an operation, and the errors of its own."""

    summary: str
    refusals: tuple[type[A2AError], ...] = ()


_NO_TASK = (errors.TaskNotFound,)
_PUSH = (errors.TaskNotFound, errors.PushNotificationNotSupported)
_SEND = (*_PUSH, errors.UnsupportedOperation, errors.ContentTypeNotSupported)
_SAID: Mapping[str, _Said] = {
    "SendMessage": _Said(
        "Sends a message and gives the task or the message that answers it", (*_SEND, errors.Unanswered)
    ),
    "SendStreamingMessage": _Said("Sends a message and streams what becomes of it", _SEND),
    "GetTask": _Said("Gives a task", _NO_TASK),
    "ListTasks": _Said("Lists the caller's tasks, the latest first"),
    "CancelTask": _Said("Cancels a task", (*_NO_TASK, errors.TaskNotCancelable)),
    "SubscribeToTask": _Said(
        "Streams a task from now on, or from an event on", (*_NO_TASK, errors.UnsupportedOperation)
    ),
    "CreateTaskPushNotificationConfig": _Said("Has the events of a task posted to an address", _PUSH),
    "GetTaskPushNotificationConfig": _Said("Gives a push notification configuration of a task", _PUSH),
    "ListTaskPushNotificationConfigs": _Said("Lists the push notification configurations of a task", _PUSH),
    "DeleteTaskPushNotificationConfig": _Said("Deletes a push notification configuration of a task", _PUSH),
    "GetExtendedAgentCard": _Said(
        "Gives the card of the agent for this caller",
        (errors.UnsupportedOperation, errors.ExtendedAgentCardNotConfigured),
    ),
}
_ALWAYS = (
    errors.InvalidParams,
    errors.VersionNotSupported,
    errors.NotFound,
    errors.TooManyRequests,
    errors.Busy,
    errors.InternalError,
)
_OF_A_BODY = (errors.ParseError, errors.InvalidRequest, errors.PayloadTooLarge, errors.UnsupportedMediaType)
_MESSAGES = ("SendMessage", "SendStreamingMessage")


class Described(msgspec.Struct, frozen=True):
    """The operations of one version. `agents` are the names that stand in paths, `longest` is the length of the longest id.
    `keyed`: callers authenticate."""

    binding: Binding
    schemas: Schemas
    agents: Sequence[str]
    longest: int
    keyed: bool

    def paths(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for address in self.binding.version.addresses:
            operations = self._operations(address)
            if operations:
                fields = [self._id(field) for field in address.fields]
                found[f"/a2a/{{agent}}{self.binding.below}/{address.form}"] = {
                    "parameters": [self._agent(), *fields],
                    **operations,
                }
        return found

    def _operations(self, address: Address) -> dict[str, Json]:
        """By HTTP method, of the operations that the version has."""
        [dialect] = self.binding.version.dialects.values()
        found: dict[str, Json] = {}
        named: set[str] = set()
        for http_method, name in address.operations.items():
            try:
                method = dialect.method(name)
            except MethodNotFound:
                continue
            with_body = http_method == "POST"
            title = f"{self.binding.space}{name}{'ByPost' if name in named else ''}"
            operation = self._operation(dialect, method, address, with_body=with_body)
            found[http_method.lower()] = {"operationId": title, **operation}
            named.add(name)
        return found

    def _operation(self, dialect: Dialect, method: Method, address: Address, *, with_body: bool) -> dict[str, Json]:
        said = _SAID[method.operation]
        kinds: list[type[A2AError]] = [*_ALWAYS, *said.refusals, *(_OF_A_BODY if with_body else ())]
        if method.needs_extensions:
            kinds.append(errors.ExtensionSupportRequired)
        if self.keyed:
            kinds.append(errors.Unauthenticated)
        parameters = [*self._headers(dialect, method), *(() if with_body else self._query(method, address))]
        return {
            "summary": said.summary,
            "tags": [self.binding.tag],
            "parameters": parameters,
            **({"requestBody": self._body(method, address)} if with_body else {}),
            "responses": {
                "200": self._answer(method),
                **refusals(kinds, self.binding.version.errors, f"{self.binding.space}Error"),
            },
        }

    def _agent(self) -> dict[str, Json]:
        names = {"type": "string", "enum": list(self.agents)}
        return {"name": "agent", "in": "path", "required": True, "description": "Name of the agent.", "schema": names}

    def _id(self, field: str) -> dict[str, Json]:
        text = {"type": "string", "minLength": 1, "maxLength": self.longest}
        return {"name": field, "in": "path", "required": True, "schema": text}

    def _headers(self, dialect: Dialect, method: Method) -> Iterable[dict[str, Json]]:
        versions = {"type": "string", "enum": list(self.binding.version.dialects)}
        required = dialects.UNNAMED not in self.binding.version.dialects
        yield {"name": "A2A-Version", "in": "header", "required": required, "schema": versions}
        yield _header(dialect.extensions.decode(), "URIs of extensions, with commas between them.", {"type": "string"})
        if method.operation in _MESSAGES:
            visible = {"type": "string", "pattern": "^[!-~]+$", "maxLength": self.longest}
            yield _header("Idempotency-Key", "The same message under the same key is done once.", visible)
        if method.operation == "SubscribeToTask":
            number = {"type": "string", "pattern": "^[0-9]{1,18}$"}
            yield _header("Last-Event-ID", "The `id` of the last event that was seen.", number)

    def _query(self, method: Method, address: Address) -> Iterable[dict[str, Json]]:
        members = self.schemas.texts(method.request, _json_names(method.request, address), self.binding.requests)
        for name, (schema, required) in members.items():
            # Objects have no form in a URL.
            if schema.get("type") != "object":
                yield {"name": name, "in": "query", "required": required, "schema": schema}

    def _body(self, method: Method, address: Address) -> dict[str, Json]:
        in_path = _json_names(method.request, address)
        if in_path:
            schema = self.schemas.without(method.request, in_path, self.binding.requests)
        else:
            schema = self.schemas.of(method.request, self.binding.requests)
        content: dict[str, Json] = {"schema": schema}
        if method.operation in _MESSAGES:
            content["example"] = self.binding.example
        return {"required": not address.optional_body, "content": _in_json(content)}

    def _answer(self, method: Method) -> dict[str, Json]:
        if method.streaming:
            what = "Events, which the schema describes one by one."
            schema = {"type": "object", "required": ["data"], "properties": self._event()}
            return {"description": what, "content": {EVENT_STREAM.decode(): {"schema": schema}}}
        result = _result(method.operation)
        if result is type(None):
            return {"description": "It is done.", "content": _in_json({"schema": {"type": "object"}})}
        return {"description": "The answer.", "content": _in_json({"schema": self._written(result)})}

    def _event(self) -> dict[str, Json]:
        """The fields of an event. OpenAPI 3.1 has no word for streams of them."""
        content = self._written(model.StreamResponse)
        return {
            "id": {"type": "string", "description": "The number of the event in the log of the task."},
            "event": {"type": "string", "description": "`error` where the stream has failed; then `data` is an error."},
            "data": {"type": "string", "contentMediaType": JSON.decode(), "contentSchema": content},
        }

    def _written(self, result: type) -> dict[str, Json]:
        """The schema of a result on the wire."""
        other = self.binding.written.get(result)
        return self.schemas.of(result) if other is None else self.schemas.of(other, self.binding.space)


def _header(name: str, description: str, schema: dict[str, Json]) -> dict[str, Json]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _json_names(request: type[model.Wire], address: Address) -> frozenset[str]:
    """The members of the request that stand in the path."""
    return frozenset(each.encode_name for each in msgspec.structs.fields(request) if each.name in address.fields)


def _in_json(content: dict[str, Json]) -> dict[str, Json]:
    return {media_type.decode(): content for media_type in (JSON, A2A_JSON)}


def _result(operation: str) -> type:
    """The type of what an operation returns."""
    performs: Mapping[str, Callable[..., Any]] = operation_table(cast("Operations", Operations))
    returned = get_type_hints(performs[operation])["return"]
    found: type = get_args(returned)[0] if get_origin(returned) is Awaitable else returned
    return found
