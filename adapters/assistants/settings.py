"""Settings of the agents of this family. Law: an assistant is set up at the service, and an agent only adds to it."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, JsonValue, model_validator

from adapters.http.credentials.settings import Auth, CredentialSettings
from adapters.http.settings import ApiKey, BaseUrl, NameInPath, Timeouts
from gateway.a2a.model import Json
from gateway.config.settings import Text, TextOrFile

_DECIDED = frozenset({"assistant_id", "stream", "additional_messages", "additional_instructions", "metadata", "tools"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where the threads of an agent are. `version` is the `api-version` of every request, "" for none; `headers` are those of
    every request."""

    base: str
    version: str
    assistant: str
    headers: dict[str, str]


class ThreadSettings(CredentialSettings):
    api_key: ApiKey | None = Field(
        None, description="Key of the resource, sent as `api-key`; without an `api_version` as a bearer token."
    )
    auth: Auth | None = Field(
        None, description="Credentials other than `api_key`: `entra`, with the scope of the service, and others."
    )
    additional_instructions: TextOrFile | None = Field(
        None, description="What the model is told besides the instructions that it has at the service."
    )
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every run, as they are.")

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        for name in sorted(_DECIDED & self.extra_body.keys()):
            raise ValueError(f"extra_body must not set {name!r}: the gateway decides it, or it has a setting")
        return self

    @property
    def place(self) -> Place:
        raise NotImplementedError

    @property
    def fields(self) -> dict[str, Json]:
        """The fields of every run."""
        told = {"additional_instructions": self.additional_instructions} if self.additional_instructions else {}
        return {"assistant_id": self.place.assistant, "stream": True, **told, **self.extra_body}

    def _key_headers(self, version: str) -> dict[str, str]:
        if not self.key:
            return {}
        return {"api-key": self.key} if version else {"Authorization": f"Bearer {self.key}"}


class AssistantsSettings(ThreadSettings):
    """An agent of type `assistants`."""

    base_url: BaseUrl = Field(description="Where the service is, such as https://RESOURCE.openai.azure.com/openai.")
    assistant_id: NameInPath = Field(description="Id of the assistant (asst_...).")
    api_version: Text | None = Field(
        None, description="`api-version` of every request, which Azure wants: 2025-01-01-preview."
    )

    @property
    def place(self) -> Place:
        version = self.api_version or ""
        headers = {"OpenAI-Beta": "assistants=v2"} | self._key_headers(version)
        return Place(self.base_url, version, self.assistant_id, headers)


class FoundryClassicSettings(ThreadSettings):
    """An agent of type `foundry-classic`."""

    endpoint: BaseUrl = Field(
        description="Address of the project, as https://NAME.services.ai.azure.com/api/projects/PROJECT."
    )
    agent_id: NameInPath = Field(description="Id of the agent (asst_...).")
    api_version: Text = Field("v1", description="`api-version` of every request.")

    @property
    def place(self) -> Place:
        return Place(self.endpoint, self.api_version, self.agent_id, self._key_headers(self.api_version))
