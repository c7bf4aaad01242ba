"""What the errors of Foundry mean besides those of OpenAI."""

from adapters.http.failures import BackendError
from adapters.openai.failures import OpenAIFailures
from gateway.ports.adapter import ErrorClass


class FoundryFailures(OpenAIFailures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        if error.code == "invalid_parameters" and "malformed identifier" in error.message.lower():
            # The only ids in a request are those of what it continues.
            return ErrorClass.HANDLE_NOT_FOUND
        return super().class_of(error)
