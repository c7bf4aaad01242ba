"""The errors of Direct Line and of the engine. Law: a failing bot is not a failing service, and no token stays in a text.

Source: Direct Line API 3.0, "HTTP status codes" and "Errors": codes are stable, messages are not.
"""

import re
from collections.abc import Mapping

from adapters.http.failures import BackendError, Failures
from gateway.ports.adapter import AdapterError, ErrorClass

_CODES = {
    "TokenExpired": ErrorClass.HANDLE_EXPIRED,
    "BotRejectedActivity": ErrorClass.BACKEND_FAILED,
}
_TOKENS = re.compile(r"(?<=[?&]t=)[^\s\"'&]+|\beyJ[\w-]+\.[\w.-]+")
"""Tokens of conversations, which no configuration knows: in the address of a stream, and by their form."""


class CopilotFailures(Failures):
    def detail(self, text: str) -> str:
        return super().detail(_TOKENS.sub("***", text))

    def class_of(self, error: BackendError) -> ErrorClass | None:
        return _CODES.get(error.code or "")

    def is_about(self, handle: str, error: BackendError) -> bool:
        """The address of every request that has a handle ends with it."""
        return True

    def from_response(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        handle: str | None = None,
        instead_of: str = "an event stream",
    ) -> AdapterError:
        error = super().from_response(status, headers, body, handle=handle, instead_of=instead_of)
        # Behind such a code there is an answering service: only its bot has failed.
        error.backend_down = error.backend_down and not any(code in error.detail for code in _CODES)
        return error
