"""Errors in A2A 0.3, which has fewer of them. Source: A2A 0.3.0, section 8; the HTTP statuses are those of its SDKs."""

from collections.abc import Mapping

from gateway.a2a import errors
from gateway.a2a.errors import (
    A2AError,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    UnsupportedOperation,
    VersionNotSupported,
)

_HTTP: Mapping[type[A2AError], int] = {
    errors.TaskNotCancelable: 409,
    errors.PushNotificationNotSupported: 501,
    errors.UnsupportedOperation: 501,
    errors.ContentTypeNotSupported: 415,
    errors.InvalidAgentResponse: 502,
    errors.ExtendedAgentCardNotConfigured: 404,
    errors.InvalidParams: 422,
}
"""Clients of a2a-sdk 0.3 learn nothing of an error but its status. Others have the status of A2A 1.0."""


def counterpart(error: A2AError) -> type[A2AError]:
    """The error of 0.3 for one of 1.0. A message to a task that has ended, and one that reads such a task as a stream, have
    parameters that are not valid."""
    match error:
        case UnsupportedOperation() if "taskId" in error.metadata:
            return InvalidParams
        case ExtensionSupportRequired() | VersionNotSupported():
            return InvalidRequest
        case _:
            return type(error)


def code(error: A2AError) -> int:
    return counterpart(error).code


def http(error: A2AError) -> int:
    kind = counterpart(error)
    return _HTTP.get(kind, kind.http)


def name(error: A2AError) -> str:
    """The name of the error, as `TaskNotFoundError`."""
    return f"{counterpart(error).__name__.removesuffix('Error')}Error"
