"""Whole responses, and every error of the tree in the form of both bindings."""

import msgspec
import pytest

from gateway.a2a import errors
from gateway.http.reply import A2A_JSON, Reply, error_headers, reason, rest_body, rpc_error, rpc_status
from tests.interaction import asgi


async def test_a_reply_says_its_type_and_length() -> None:
    answer = await asgi.request(Reply(b"{}", 404, A2A_JSON, ((b"x-more", b"1"),)), "GET", "/")

    assert answer == asgi.Answer(
        404, (("content-type", "application/a2a+json"), ("content-length", "2"), ("x-more", "1")), b"{}"
    )


async def test_a_reply_without_a_body_has_no_type() -> None:
    assert await asgi.request(Reply(b"", 404), "GET", "/") == asgi.Answer(404, (("content-length", "0"),), b"")


async def test_that_nothing_has_changed_says_nothing_of_the_length_of_what_is_left_out() -> None:
    assert await asgi.request(Reply(b"", 304), "GET", "/") == asgi.Answer(304, (), b"")


async def test_head_gets_the_headers_alone() -> None:
    answer = await asgi.request(Reply(b"{}"), "HEAD", "/")

    assert answer == asgi.Answer(200, (("content-type", "application/json"), ("content-length", "2")), b"")


REASONS = {
    errors.TaskNotFound: "TASK_NOT_FOUND",
    errors.TaskNotCancelable: "TASK_NOT_CANCELABLE",
    errors.PushNotificationNotSupported: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    errors.UnsupportedOperation: "UNSUPPORTED_OPERATION",
    errors.ContentTypeNotSupported: "CONTENT_TYPE_NOT_SUPPORTED",
    errors.InvalidAgentResponse: "INVALID_AGENT_RESPONSE",
    errors.ExtendedAgentCardNotConfigured: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    errors.ExtensionSupportRequired: "EXTENSION_SUPPORT_REQUIRED",
    errors.VersionNotSupported: "VERSION_NOT_SUPPORTED",
    errors.InvalidParams: "INVALID_PARAMS",
    errors.InvalidRequest: "INVALID_REQUEST",
    errors.MethodNotFound: "METHOD_NOT_FOUND",
    errors.InternalError: "INTERNAL_ERROR",
}
DRAFT_REASONS = {errors.TaskGenerationMismatch: "TASK_GENERATION_MISMATCH"}
"""The official SDK does not know the draft of A2A 1.1."""
TRANSPORT = {
    errors.PayloadTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Unauthenticated: 401,
    errors.NoSuchAddress: 404,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.Busy: 503,
    errors.PermissionDenied: 403,
    errors.TooManyRequests: 429,
}


@pytest.mark.parametrize(
    ("kind", "expected"), (REASONS | DRAFT_REASONS).items(), ids=lambda value: getattr(value, "__name__", value)
)
def test_reasons_are_those_that_clients_map_back(kind: type[errors.A2AError], expected: str) -> None:
    assert reason(kind("text")) == expected


def test_the_official_sdk_knows_every_reason() -> None:
    sdk = pytest.importorskip("a2a.utils.errors")

    assert set(REASONS.values()) <= set(sdk.A2A_REASON_TO_ERROR)


@pytest.mark.parametrize("kind", errors.A2AError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_json_rpc_uses_http_statuses_for_the_transport_only(kind: type[errors.A2AError]) -> None:
    assert rpc_status(kind("text")) == TRANSPORT.get(kind, 200)


def test_texts_and_lists_are_cut() -> None:
    violations = tuple(errors.FieldViolation("f" * 400, "d" * 400) for _ in range(9))
    error = errors.InvalidParams("m" * 400, violations=violations, metadata={"k": "v" * 400})
    cut = "{:.299}…".format

    details = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "INVALID_PARAMS",
            "domain": "a2a-protocol.org",
            "metadata": {"k": cut("v" * 400)},
        },
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": cut("f" * 400), "description": cut("d" * 400)}] * 2,
        },
    ]
    message = cut("m" * 400)
    assert msgspec.json.decode(rpc_error(error, error.code)) == {"code": -32602, "message": message, "data": details}
    assert msgspec.json.decode(rest_body(error)) == {
        "error": {"code": 400, "status": "INVALID_ARGUMENT", "message": message, "details": details}
    }


def test_headers_say_when_to_retry_and_with_which_credentials() -> None:
    assert error_headers(errors.TooManyRequests("text", retry_after=7)) == ((b"retry-after", b"7"),)
    assert error_headers(errors.PermissionDenied("text")) == ()
    assert error_headers(errors.Unauthenticated("text")) == ((b"www-authenticate", b'Bearer realm="a2a-gateway"'),)
    assert error_headers(errors.Unauthenticated("text", presented=True)) == (
        (b"www-authenticate", b'Bearer realm="a2a-gateway", error="invalid_token"'),
    )
