"""The error tree against table 5.4 of the specification, and the limits of its texts."""

import pytest

from gateway.a2a import errors
from gateway.a2a.errors import A2AError, FieldViolation, InvalidParams, echo, invalid

# Source: A2A 1.0, sections 5.4, 9.5 and 11.6.
TABLE = {
    "TaskNotFound": (-32001, "NOT_FOUND", 404),
    "TaskNotCancelable": (-32002, "FAILED_PRECONDITION", 400),
    "PushNotificationNotSupported": (-32003, "FAILED_PRECONDITION", 400),
    "UnsupportedOperation": (-32004, "FAILED_PRECONDITION", 400),
    "ContentTypeNotSupported": (-32005, "INVALID_ARGUMENT", 400),
    "InvalidAgentResponse": (-32006, "INTERNAL", 500),
    "ExtendedAgentCardNotConfigured": (-32007, "FAILED_PRECONDITION", 400),
    "ExtensionSupportRequired": (-32008, "FAILED_PRECONDITION", 400),
    "VersionNotSupported": (-32009, "FAILED_PRECONDITION", 400),
    "TaskGenerationMismatch": (-32010, "ABORTED", 409),
    "ParseError": (-32700, "INVALID_ARGUMENT", 400),
    "InvalidRequest": (-32600, "INVALID_ARGUMENT", 400),
    "MethodNotFound": (-32601, "UNIMPLEMENTED", 404),
    "InvalidParams": (-32602, "INVALID_ARGUMENT", 400),
    "PayloadTooLarge": (-32600, "RESOURCE_EXHAUSTED", 413),
    "UnsupportedMediaType": (-32600, "INVALID_ARGUMENT", 415),
    "EncodingNotSupported": (-32600, "UNIMPLEMENTED", 415),
    "TooManyMessages": (-32600, "UNIMPLEMENTED", 400),
    "Unauthenticated": (-32600, "UNAUTHENTICATED", 401),
    "PermissionDenied": (-32600, "PERMISSION_DENIED", 403),
    "NoSuchAddress": (-32601, "NOT_FOUND", 404),
    "NotFound": (-32601, "NOT_FOUND", 404),
    "MethodNotAllowed": (-32600, "UNIMPLEMENTED", 405),
    "Busy": (-32603, "UNAVAILABLE", 503),
    "Unanswered": (-32603, "INTERNAL", 500),
    "TooManyRequests": (-32603, "RESOURCE_EXHAUSTED", 429),
    "InternalError": (-32603, "INTERNAL", 500),
}


def _classes() -> dict[str, type[A2AError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, A2AError) and value is not A2AError
    }


def test_every_error_has_its_row() -> None:
    found = {name: (c.code, c.grpc, c.http) for name, c in _classes().items()}
    assert found == TABLE


def test_an_error_says_its_text_and_nothing_else() -> None:
    error = errors.TaskNotFound("Task not found")
    assert (str(error), error.message, error.violations, error.metadata, error.retry_after) == (
        "Task not found",
        "Task not found",
        (),
        {},
        None,
    )


def test_an_error_carries_what_it_is_given() -> None:
    error = errors.Busy("later", metadata={"taskId": "t"}, retry_after=5)
    assert (error.metadata, error.retry_after) == ({"taskId": "t"}, 5)


def test_invalid_params_name_their_field() -> None:
    error = invalid("message.parts[0].text", "must be text")
    assert isinstance(error, InvalidParams)
    assert error.message == "Invalid parameters: message.parts[0].text: must be text"
    assert error.violations == (FieldViolation("message.parts[0].text", "must be text"),)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x", "'x'"),
        ("a\nb\x00", r"'a\nb\x00'"),
        ("a" * 98, "'" + "a" * 98 + "'"),
        ("a" * 99, "'" + "a" * 97 + "…'"),
        ("it's" * 50, '"' + ("it's" * 50)[:97] + '…"'),
        ([1], "[1]"),
    ],
)
def test_what_a_caller_sent_is_shown_quoted_and_cut_to_a_hundred_characters(value: object, shown: str) -> None:
    assert echo(value) == shown
    assert len(echo(value)) <= 100
