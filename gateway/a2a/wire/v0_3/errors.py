"""Codes of errors in A2A 0.3, which has fewer of them. Source: A2A 0.3.0, section 8."""

from gateway.a2a.errors import (
    A2AError,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    UnsupportedOperation,
    VersionNotSupported,
)


def code(error: A2AError) -> int:
    """A message to a task that has ended, and one that reads such a task as a stream, have parameters that are not valid."""
    match error:
        case UnsupportedOperation() if "taskId" in error.metadata:
            return InvalidParams.code
        case ExtensionSupportRequired() | VersionNotSupported():
            return InvalidRequest.code
        case _:
            return error.code
