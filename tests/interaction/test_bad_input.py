"""Refused requests: the error of the specification with the field's name, the same on both bindings, without any effect."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gateway.a2a import errors
from tests.interaction.harness import (
    MESSAGE,
    SEND,
    Exchange,
    Gateway,
    Refusal,
    invalid_params,
    parse_error,
)

REQUIRED = "is required and must not be empty"


def message(**changes: Any) -> dict[str, Any]:
    return {"message": {**MESSAGE, **changes}}


def without(name: str) -> dict[str, Any]:
    return {"message": {key: value for key, value in MESSAGE.items() if key != name}}


def configured(**settings: Any) -> dict[str, Any]:
    return {**SEND, "configuration": settings}


@dataclass(frozen=True)
class Row:
    case: str
    operation: str
    params: dict[str, Any]
    refusal: Refusal


def field(case: str, operation: str, params: dict[str, Any], name: str, description: str) -> Row:
    return Row(case, operation, params, invalid_params(name, description))


ROLES = "ROLE_USER, ROLE_AGENT"
STATES = (
    "TASK_STATE_SUBMITTED, TASK_STATE_WORKING, TASK_STATE_COMPLETED, TASK_STATE_FAILED, TASK_STATE_CANCELED, "
    "TASK_STATE_INPUT_REQUIRED, TASK_STATE_REJECTED, TASK_STATE_AUTH_REQUIRED"
)
CONTROL = "must not contain control characters or lone surrogates: "
LONG = "x" * 10_000
TOO_LONG = "must not be longer than 256 characters, it has 10000"
ONE_CONTENT = "has no content: one of text, raw, url and data is required"
BIG_METADATA = {"key": "x" * 65_536}
TOO_BIG = "must not be larger than 65536 bytes of JSON, it has 65546"

FIELDS = (
    field("no message", "SendMessage", {}, "message", REQUIRED),
    field("a message that is text", "SendMessage", {"message": "Hello"}, "message", "must be an object, not a string"),
    field("a message that is an array", "SendMessage", {"message": []}, "message", "must be an object, not an array"),
    field("no messageId", "SendMessage", without("messageId"), "message.messageId", REQUIRED),
    field("an empty messageId", "SendMessage", message(messageId=""), "message.messageId", REQUIRED),
    field(
        "a messageId that is a number",
        "SendMessage",
        message(messageId=7),
        "message.messageId",
        "must be a string, not a number",
    ),
    field("no role", "SendMessage", without("role"), "message.role", REQUIRED),
    field("an unspecified role", "SendMessage", message(role="ROLE_UNSPECIFIED"), "message.role", REQUIRED),
    field(
        "an unknown role", "SendMessage", message(role="user"), "message.role", f"must be one of {ROLES}, not 'user'"
    ),
    field(
        "a role that is true",
        "SendMessage",
        message(role=True),
        "message.role",
        f"must be one of {ROLES}, not a boolean",
    ),
    field(
        "a message of an agent",
        "SendMessage",
        message(role="ROLE_AGENT"),
        "message.role",
        "must be ROLE_USER: an agent's message cannot be sent to it",
    ),
    field("no parts", "SendMessage", without("parts"), "message.parts", REQUIRED),
    field("empty parts", "SendMessage", message(parts=[]), "message.parts", "at least one part is required"),
    field(
        "parts that are an object", "SendMessage", message(parts={}), "message.parts", "must be an array, not an object"
    ),
    field(
        "a part that is text",
        "SendMessage",
        message(parts=["x"]),
        "message.parts[0]",
        "must be an object, not a string",
    ),
    field(
        "a part that is null", "SendMessage", message(parts=[None]), "message.parts[0]", "must be an object, not null"
    ),
    field("a part without content", "SendMessage", message(parts=[{"text": "x"}, {}]), "message.parts[1]", ONE_CONTENT),
    field("a part of null text", "SendMessage", message(parts=[{"text": None}]), "message.parts[0]", ONE_CONTENT),
    field(
        "a part with two contents",
        "SendMessage",
        message(parts=[{"text": "x"}, {"text": "x", "url": "http://a"}]),
        "message.parts[1]",
        "has several contents, text and url: exactly one is allowed",
    ),
    field(
        "a text that is a number",
        "SendMessage",
        message(parts=[{"text": 7}]),
        "message.parts[0].text",
        "must be a string, not a number",
    ),
    field(
        "raw that is no base64", "SendMessage", message(parts=[{"raw": "a!"}]), "message.parts[0].raw", "must be base64"
    ),
    field(
        "raw that is cut", "SendMessage", message(parts=[{"raw": "aGVsb"}]), "message.parts[0].raw", "must be base64"
    ),
    field(
        "metadata that is an array",
        "SendMessage",
        message(metadata=[]),
        "message.metadata",
        "must be an object, not an array",
    ),
    field("metadata over the limit", "SendMessage", message(metadata=BIG_METADATA), "message.metadata", TOO_BIG),
    field("request metadata over the limit", "SendMessage", {**SEND, "metadata": BIG_METADATA}, "metadata", TOO_BIG),
    field(
        "part metadata over the limit",
        "SendMessage",
        message(parts=[{"text": "x", "metadata": BIG_METADATA}]),
        "message.parts[0].metadata",
        TOO_BIG,
    ),
    field("a messageId of 10 kB", "SendMessage", message(messageId=LONG), "message.messageId", TOO_LONG),
    field("a contextId of 10 kB", "SendMessage", message(contextId=LONG), "message.contextId", TOO_LONG),
    field("a taskId of 10 kB", "SendMessage", message(taskId=LONG), "message.taskId", TOO_LONG),
    field(
        "a contextId with a line feed",
        "SendMessage",
        message(contextId="a\nb"),
        "message.contextId",
        f"{CONTROL}'a\\nb'",
    ),
    field(
        "a taskId with an escape", "SendMessage", message(taskId="\x1b[31m"), "message.taskId", f"{CONTROL}'\\x1b[31m'"
    ),
    field(
        "a contextId that is null-terminated",
        "SendMessage",
        message(contextId="a\0b"),
        "message.contextId",
        "must not contain NUL",
    ),
    field(
        "a filename without end",
        "SendMessage",
        message(parts=[{"url": "https://files.example/x", "filename": "x" * 1025}]),
        "message.parts[0].filename",
        "must be up to 1024 characters",
    ),
    field(
        "text with NUL", "SendMessage", message(parts=[{"text": "\0"}]), "message.parts[0].text", "must not contain NUL"
    ),
    field(
        "NUL deep inside data",
        "SendMessage",
        message(parts=[{"data": {"a": [1, {"b": "\0"}]}}]),
        "message.parts[0].data.a[1].b",
        "must not contain NUL",
    ),
    field(
        "too many parts",
        "SendMessage",
        message(parts=[{"text": "x"}] * 1001),
        "message.parts",
        "must not have more than 1000 elements, it has 1001",
    ),
    field(
        "too many references",
        "SendMessage",
        message(referenceTaskIds=["x"] * 101),
        "message.referenceTaskIds",
        "must not have more than 100 elements, it has 101",
    ),
    field(
        "a reference of 10 kB",
        "SendMessage",
        message(referenceTaskIds=["x", LONG]),
        "message.referenceTaskIds[1]",
        TOO_LONG,
    ),
    field(
        "too many extensions",
        "SendMessage",
        message(extensions=["x"] * 51),
        "message.extensions",
        "must not have more than 50 elements, it has 51",
    ),
    field(
        "too many output modes",
        "SendMessage",
        configured(acceptedOutputModes=["text/plain"] * 101),
        "configuration.acceptedOutputModes",
        "must not have more than 100 elements, it has 101",
    ),
    field(
        "an output mode that is a number",
        "SendMessage",
        configured(acceptedOutputModes=[1]),
        "configuration.acceptedOutputModes[0]",
        "must be a string, not a number",
    ),
    field(
        "a negative history",
        "SendMessage",
        configured(historyLength=-1),
        "configuration.historyLength",
        "must not be negative, it is -1",
    ),
    field(
        "half a message of history",
        "SendMessage",
        configured(historyLength=0.5),
        "configuration.historyLength",
        "must be an integer, not 0.5",
    ),
    field(
        "a history that is too long for the protocol",
        "SendMessage",
        configured(historyLength=2**31),
        "configuration.historyLength",
        "must be an integer of 32 bits",
    ),
    field(
        "returnImmediately that is text",
        "SendMessage",
        configured(returnImmediately="yes"),
        "configuration.returnImmediately",
        "must be true or false, not a string",
    ),
    field(
        "a field in both spellings",
        "SendMessage",
        message(contextId="a", context_id="b"),
        "message.contextId",
        "is given twice",
    ),
    field(
        "the same of a stream",
        "SendStreamingMessage",
        message(parts=[]),
        "message.parts",
        "at least one part is required",
    ),
    field(
        "a task id of 10 kB", "GetTask", {"id": LONG[:300]}, "id", "must not be longer than 256 characters, it has 300"
    ),
    field("a task id with a tab", "GetTask", {"id": "a\tb"}, "id", f"{CONTROL}'a\\tb'"),
    field(
        "a negative history of a task",
        "GetTask",
        {"id": "a", "historyLength": -1},
        "historyLength",
        "must not be negative, it is -1",
    ),
    field("a task id with DEL to cancel", "CancelTask", {"id": "a\x7f"}, "id", f"{CONTROL}'a\\x7f'"),
    field(
        "metadata over the limit to cancel", "CancelTask", {"id": "a", "metadata": BIG_METADATA}, "metadata", TOO_BIG
    ),
    field("a task id with a tab to subscribe", "SubscribeToTask", {"id": "a\tb"}, "id", f"{CONTROL}'a\\tb'"),
    field("pages of none", "ListTasks", {"pageSize": 0}, "pageSize", "must be from 1 to 100, not 0"),
    field("pages below none", "ListTasks", {"pageSize": -5}, "pageSize", "must be from 1 to 100, not -5"),
    field("pages of 101", "ListTasks", {"pageSize": 101}, "pageSize", "must be from 1 to 100, not 101"),
    field("pages of a billion", "ListTasks", {"pageSize": 10**9}, "pageSize", "must be from 1 to 100, not 1000000000"),
    field("pages of more than the protocol has", "ListTasks", {"pageSize": 10**12}, "pageSize", "must be an integer"),
    field("pages of many", "ListTasks", {"pageSize": "many"}, "pageSize", "must be an integer, not 'many'"),
    field("an unknown state", "ListTasks", {"status": "DONE"}, "status", f"must be one of {STATES}, not 'DONE'"),
    field(
        "yesterday",
        "ListTasks",
        {"statusTimestampAfter": "yesterday"},
        "statusTimestampAfter",
        "must be a time as 2025-10-28T10:30:00.000Z, not 'yesterday'",
    ),
    field(
        "a day that does not exist",
        "ListTasks",
        {"statusTimestampAfter": "2026-02-30T00:00:00Z"},
        "statusTimestampAfter",
        "must be a time as 2025-10-28T10:30:00.000Z, not '2026-02-30T00:00:00Z'",
    ),
    field(
        "a context of 10 kB to list",
        "ListTasks",
        {"contextId": LONG[:300]},
        "contextId",
        "must not be longer than 256 characters, it has 300",
    ),
    field(
        "another tenant",
        "ListTasks",
        {"tenant": "someone"},
        "tenant",
        "'someone' is not a tenant of the agent 'echo'",
    ),
    field("a tenant with a tab", "ListTasks", {"tenant": "a\tb"}, "tenant", f"{CONTROL}'a\\tb'"),
)


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.case)
async def test_a_bad_field_is_refused_and_named(gateway: Gateway, row: Row) -> None:
    answer = await gateway.ask(row.operation, row.params)

    if row.case == "pages of more than the protocol has":  # a number in a body, but only digits in a URL
        description = (
            "must be an integer of 32 bits"
            if gateway.binding.name == "jsonrpc"
            else "must be an integer, not '1000000000000'"
        )
        row = field(row.case, row.operation, row.params, "pageSize", description)
    assert (answer.status, answer.json) == gateway.binding.refusal(row.refusal)
    assert gateway.operations.calls == []


PARSING: tuple[tuple[str, bytes, Refusal], ...] = (
    ("nothing", b"", parse_error("it is no JSON from line 1, column 1 on")),
    ("text", b"hello", parse_error("it is no JSON from line 1, column 1 on")),
    ("half an object", b'{"message": ', parse_error("it is no JSON from line 1, column 13 on")),
    ("something behind the object", b"{} {}", parse_error("it is no JSON from line 1, column 4 on")),
    ("a raw line feed in a string", b'{"a": "\n"}', parse_error("it is no JSON from line 1, column 8 on")),
    ("a duplicate key", b'{"a": {"b": 1, "b": 2}}', parse_error("the key 'b' is given twice in one object")),
    ("NaN", b'{"a": NaN}', parse_error("NaN is not JSON")),
    ("Infinity", b'{"a": Infinity}', parse_error("Infinity is not JSON")),
    ("minus infinity", b'{"a": -Infinity}', parse_error("-Infinity is not JSON")),
    ("an infinite number", b'{"a": 1e999}', parse_error("the number '1e999' is out of range")),
    (
        "an integer of 21 digits",
        b'{"a": 123456789012345678901}',
        parse_error("an integer has more than 20 digits: '123456789012345678901'"),
    ),
    ("a byte order mark", b"\xef\xbb\xbf{}", parse_error("it starts with a byte order mark")),
    ("invalid UTF-8", b'{"a": "\xff"}', parse_error("it is not UTF-8 at byte 7")),
    ("an encoded surrogate", b'{"a": "\xed\xa0\x80"}', parse_error("it is not UTF-8 at byte 7")),
    ("UTF-16", '{"a": 1}'.encode("utf-16-le"), parse_error("it is no JSON from line 1, column 2 on")),
    ("101 levels", b'{"a":' * 101 + b"1" + b"}" * 101, parse_error("it is nested deeper than 100 levels")),
    ("100,000 levels", b"[" * 100_000, parse_error("it is nested deeper than 100 levels")),
)


@pytest.mark.parametrize(("body", "refusal"), [row[1:] for row in PARSING], ids=[row[0] for row in PARSING])
async def test_a_body_that_is_not_json_is_refused(gateway: Gateway, body: bytes, refusal: Refusal) -> None:
    answer = await gateway.exchange(gateway.binding.raw(body))

    assert (answer.status, answer.json) == gateway.binding.refusal(refusal, identified=False)
    assert gateway.operations.calls == []


@pytest.mark.parametrize("where", ["message.parts[0].text", "message.metadata.key", "message.contextId"])
async def test_a_lone_surrogate_is_refused_where_it_stands(gateway: Gateway, where: str) -> None:
    spots = {
        "message.parts[0].text": message(parts=[{"text": "HERE"}]),
        "message.metadata.key": message(metadata={"key": "HERE"}),
        "message.contextId": message(contextId="HERE"),
    }
    exchange = gateway.binding.ask("SendMessage", spots[where])

    answer = await gateway.exchange(
        Exchange(exchange.method, exchange.target, exchange.body.replace(b"HERE", b"\\ud83d"))
    )

    refusal = invalid_params(where, "must not contain a lone surrogate")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
    assert gateway.operations.calls == []


@pytest.mark.parametrize("body", [b"null", b"7", b'"text"'])
async def test_a_body_that_is_no_object_is_refused(gateway: Gateway, body: bytes) -> None:
    answer = await gateway.exchange(gateway.binding.raw(body))

    texts = {"jsonrpc": "a JSON-RPC request is an object", "rest": "the body must be an object"}
    refusal = Refusal(
        -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", f"Invalid request: {texts[gateway.binding.name]}"
    )
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal, identified=False)


@pytest.mark.parametrize("declared", ["8388609", "99999999999"])
async def test_a_body_that_says_it_is_too_large_is_refused_unread(gateway: Gateway, declared: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, content_length=declared)

    assert (answer.status, answer.json) == gateway.binding.refusal(TOO_LARGE, identified=False)
    assert gateway.operations.calls == []


TOO_LARGE = Refusal(
    -32600, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", "the body is larger than 8388608 bytes", rpc_http=413
)


async def test_a_body_that_grows_too_large_is_refused(gateway: Gateway) -> None:
    answer = await gateway.exchange(gateway.binding.raw(b" " * (8 * 1024 * 1024 + 1)))

    assert (answer.status, answer.json) == gateway.binding.refusal(TOO_LARGE, identified=False)


async def test_a_body_of_almost_8_mib_is_read(gateway: Gateway) -> None:
    answer = await gateway.ask("SendMessage", message(parts=[{"raw": "aaaa" * (2 * 1024 * 1024 - 100)}]))

    assert answer.status == 200
    assert len(gateway.operations.calls) == 1


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
async def test_a_compressed_body_is_refused(gateway: Gateway, encoding: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, content_encoding=encoding)

    assert (answer.status, answer.json) == gateway.binding.refusal(
        unsupported(f"Content-Encoding {encoding!r} is not read; send it plain"), identified=False
    )


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"]
)
async def test_a_body_of_another_type_is_refused(gateway: Gateway, kind: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, content_type=kind)

    assert (answer.status, answer.json) == gateway.binding.refusal(
        unsupported(f"Content-Type {kind!r} is not read; send application/json"), identified=False
    )


def unsupported(text: str) -> Refusal:
    return Refusal(-32600, 415, "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", text, rpc_http=415)


CORE: tuple[tuple[Exception, Refusal], ...] = (
    (
        errors.TaskNotFound("no such task", metadata={"taskId": "x"}),
        Refusal(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "no such task", metadata={"taskId": "x"}),
    ),
    (
        errors.UnsupportedOperation("the task has ended"),
        Refusal(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", "the task has ended"),
    ),
    (
        errors.invalid("message.contextId", "is not the context of the task"),
        invalid_params("message.contextId", "is not the context of the task"),
    ),
    (
        errors.ContentTypeNotSupported("no images"),
        Refusal(-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", "no images"),
    ),
    (
        errors.TaskNotCancelable("it has ended"),
        Refusal(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE", "it has ended"),
    ),
    (
        errors.InvalidAgentResponse("the agent broke its contract"),
        Refusal(-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE", "the agent broke its contract"),
    ),
    (
        errors.Unauthenticated("no credentials"),
        Refusal(-32600, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", "no credentials", rpc_http=401),
    ),
    (
        RuntimeError("password=hunter2"),
        Refusal(
            -32603,
            500,
            "INTERNAL",
            "INTERNAL_ERROR",
            "Internal error (correlation id c0ffee)",
            metadata={"correlationId": "c0ffee"},
        ),
    ),
)


@pytest.mark.parametrize(("error", "refusal"), CORE, ids=[type(error).__name__ for error, _ in CORE])
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_an_error_of_the_core_is_an_answer(
    gateway: Gateway, operation: str, error: Exception, refusal: Refusal
) -> None:
    gateway.operations.answers |= {"send_message": error, "send_streaming_message": error}

    answer = await gateway.ask(operation, SEND)

    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
    assert answer.header("content-type") == "application/json"


async def test_a_busy_gateway_says_when_to_retry(gateway: Gateway) -> None:
    gateway.operations.answers["send_message"] = errors.Busy("too many turns are waiting", retry_after=2)

    answer = await gateway.ask("SendMessage", SEND)

    refusal = Refusal(-32603, 503, "UNAVAILABLE", "BUSY", "too many turns are waiting", rpc_http=503)
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
    assert answer.header("retry-after") == "2"


async def test_no_error_is_longer_than_2_kib(gateway: Gateway) -> None:
    violations = tuple(errors.FieldViolation("f" * 1000, "d" * 1000) for _ in range(2))
    gateway.operations.answers["send_message"] = errors.InvalidParams("m" * 10_000, violations=violations)

    answer = await gateway.ask("SendMessage", SEND)

    assert len(answer.body) < 2048


async def test_a_caller_gets_no_more_than_100_characters_of_its_own_back(gateway: Gateway) -> None:
    answer = await gateway.ask("SendMessage", message(role="x" * 5000))

    assert b"x" * 97 in answer.body
    assert b"x" * 98 not in answer.body


JSONRPC_ENVELOPES: tuple[tuple[str, Any, Any, Refusal], ...] = tuple(
    (case, body, identity, Refusal(code, 400, "", reason, text))
    for case, body, identity, code, reason, text in (
        ("a batch", [{}], None, -32600, "INVALID_REQUEST", "Invalid request: batches are not supported"),
        ("an empty batch", [], None, -32600, "INVALID_REQUEST", "Invalid request: batches are not supported"),
        (
            "no version",
            {"id": 1, "method": "GetTask"},
            1,
            -32600,
            "INVALID_REQUEST",
            "Invalid request: 'jsonrpc' must be '2.0'",
        ),
        (
            "a version that is a number",
            {"jsonrpc": 2.0, "id": 1, "method": "GetTask"},
            1,
            -32600,
            "INVALID_REQUEST",
            "Invalid request: 'jsonrpc' must be '2.0'",
        ),
        (
            "no method",
            {"jsonrpc": "2.0", "id": 1},
            1,
            -32600,
            "INVALID_REQUEST",
            "Invalid request: 'method' must be the name of a method",
        ),
        (
            "an id that is true",
            {"jsonrpc": "2.0", "id": True, "method": "GetTask"},
            None,
            -32600,
            "INVALID_REQUEST",
            "Invalid request: 'id' must be a string, a number or null",
        ),
        (
            "an id that is an object",
            {"jsonrpc": "2.0", "id": {}, "method": "GetTask"},
            None,
            -32600,
            "INVALID_REQUEST",
            "Invalid request: 'id' must be a string, a number or null",
        ),
        (
            "an id of 257 characters",
            {"jsonrpc": "2.0", "id": "x" * 257, "method": "GetTask"},
            None,
            -32600,
            "INVALID_REQUEST",
            f"Invalid request: 'id' must be up to 256 characters of Unicode, not '{'x' * 97}…'",
        ),
        (
            "an unknown method",
            {"jsonrpc": "2.0", "id": "a", "method": "tasks/get"},
            "a",
            -32601,
            "METHOD_NOT_FOUND",
            "Method not found: 'tasks/get'",
        ),
        (
            "a method of the class and not of the protocol",
            {"jsonrpc": "2.0", "id": "a", "method": "__init__"},
            "a",
            -32601,
            "METHOD_NOT_FOUND",
            "Method not found: '__init__'",
        ),
    )
)


@pytest.mark.parametrize(
    ("body", "identity", "refusal"), [row[1:] for row in JSONRPC_ENVELOPES], ids=[row[0] for row in JSONRPC_ENVELOPES]
)
async def test_a_malformed_json_rpc_request_is_refused(
    jsonrpc: Gateway, body: Any, identity: Any, refusal: Refusal
) -> None:
    answer = await jsonrpc.request("POST", "/a2a/echo", msgspec.json.encode(body))

    assert answer.status == 200
    assert answer.json == {"jsonrpc": "2.0", "id": identity, "error": refusal.rpc()}
    assert jsonrpc.operations.calls == []


@pytest.mark.parametrize("params", [[], "x", 7])
async def test_params_that_are_no_object_are_refused(jsonrpc: Gateway, params: Any) -> None:
    answer = await jsonrpc.ask("GetTask", params)

    kinds: dict[type, str] = {list: "an array", str: "a string", int: "a number"}
    refusal = invalid_params("params", f"must be an object, not {kinds[type(params)]}")
    assert (answer.status, answer.json) == jsonrpc.binding.refusal(refusal)


async def test_an_id_with_a_lone_surrogate_is_refused(jsonrpc: Gateway) -> None:
    answer = await jsonrpc.request("POST", "/a2a/echo", b'{"jsonrpc":"2.0","id":"\\ud800","method":"ListTasks"}')

    text = "Invalid request: 'id' must be up to 256 characters of Unicode, not '\\ud800'"
    refusal = Refusal(-32600, 400, "", "INVALID_REQUEST", text)
    assert answer.json == {"jsonrpc": "2.0", "id": None, "error": refusal.rpc()}


@pytest.mark.parametrize("identity", ["a", "", 0, -7, 1.5, 12345678901234567890, None])
async def test_every_other_id_comes_back_as_it_was(jsonrpc: Gateway, identity: Any) -> None:
    body = {"jsonrpc": "2.0", "id": identity, "method": "GetTask", "params": {"id": "task-1"}}

    answer = await jsonrpc.request("POST", "/a2a/echo", msgspec.json.encode(body))

    assert answer.json["id"] == identity
    assert "result" in answer.json


async def test_a_request_without_an_id_is_answered_with_null(jsonrpc: Gateway) -> None:
    answer = await jsonrpc.request("POST", "/a2a/echo", b'{"jsonrpc":"2.0","method":"ListTasks"}')

    assert answer.json["id"] is None
    assert "result" in answer.json


@pytest.mark.parametrize(
    ("query", "name", "description"),
    [
        ("pageSize=5&pageSize=6", "pageSize", "is given twice"),
        ("pageSize=5&page_size=6", "pageSize", "is given twice"),
        ("pageSize=", "pageSize", "must be an integer, not ''"),
        ("pageSize=%D9%A5", "pageSize", "must be an integer, not '٥'"),
        ("includeArtifacts=1", "includeArtifacts", "must be true or false, not '1'"),
        ("pageToken=a%00b", "pageToken", "must not contain NUL"),
        ("contextId=%ff", "query", "must be at most 100 parameters in UTF-8, percent-encoded"),
        ("&".join("a=1" for _ in range(101)), "query", "must be at most 100 parameters in UTF-8, percent-encoded"),
    ],
)
async def test_a_bad_query_is_refused(rest: Gateway, query: str, name: str, description: str) -> None:
    answer = await rest.request("GET", f"/a2a/echo/tasks?{query}")

    assert (answer.status, answer.json) == rest.binding.refusal(invalid_params(name, description))


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [("/a2a/echo/tasks/a:cancel", "id", "a"), ("/a2a/echo/tasks/a/pushNotificationConfigs", "taskId", "a")],
)
async def test_a_body_that_contradicts_the_path_is_refused(rest: Gateway, target: str, name: str, value: str) -> None:
    answer = await rest.request("POST", target, msgspec.json.encode({name: "other", "url": "https://a.example"}))

    refusal = invalid_params(name, f"is not the same in the body as in the path, {value!r}")
    assert (answer.status, answer.json) == rest.binding.refusal(refusal)
