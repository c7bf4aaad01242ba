"""Settings of an agent of type `foundry`. Law: what the agent decides at the service has no setting here."""

from typing import Annotated, Self
from urllib.parse import quote

from pydantic import AfterValidator, Field, JsonValue, model_validator

from adapters.http.address import path_segment
from adapters.http.credentials.settings import Auth, CredentialSettings
from adapters.http.settings import ApiKey, BaseUrl, NameInPath, Timeouts
from adapters.openai.foundry.failures import FoundryFailures
from adapters.openai.responses.service import ResponsesWire
from adapters.openai.service import ServiceAddress
from gateway.a2a.model import Json
from gateway.config.settings import Text

_DECIDED = ("input", "stream", "store", "previous_response_id", "conversation", "agent_reference", "agent_session_id")
_OF_THE_AGENT = ("model", "instructions", "temperature", "top_p")


def _project(value: str) -> str:
    if value.endswith("/openai/v1"):
        raise ValueError("must be the address of the project, without /openai/v1")
    return value


ProjectUrl = Annotated[BaseUrl, AfterValidator(_project)]


class FoundrySettings(CredentialSettings):
    """An agent of type `foundry`."""

    endpoint: ProjectUrl = Field(
        description="Address of the project, as https://NAME.services.ai.azure.com/api/projects/PROJECT."
    )
    agent: NameInPath = Field(description="Name of the agent in the project.")
    agent_version: Text | None = Field(None, description="Version of the agent; the latest when not given.")
    hosted: bool = Field(False, description="Use the agent's own endpoint, which hosted agents have.")
    api_version: Text = Field(
        "v1", description="Version of the API of the agent's own endpoint, and of its description."
    )
    api_key: ApiKey | None = Field(None, description="Key of the resource, sent as `api-key`.")
    auth: Auth | None = Field(
        None, description="Credentials other than `api_key`: `entra`, with the scope https://ai.azure.com/.default."
    )
    conversation: bool = Field(
        False,
        description="Make one conversation in the project for each context and stay in it: no chain of responses.",
    )
    background: bool = Field(
        False,
        description="Let the agent go on when nobody listens, and listen again: a turn outlives its gateway process.",
    )
    declare_tools: bool = Field(
        False,
        description="Send the declarations of the gateway's tools. Hosted agents take them; an agent that is defined in the "
        "project calls only functions of its definition, and refuses a request with tools.",
    )
    approvals: bool = Field(True, description="Whether the agent may ask before it calls an MCP server.")
    metadata: dict[str, str] | None = Field(None, description="Kept with every response at the service.")
    verify_chain: bool = Field(
        True, description="Fail when the service says that it did not go on from the response it was told to."
    )
    repeat_unknown: bool = Field(
        False,
        description="Send a request again when nobody knows what became of it: a tool of the agent may run twice.",
    )
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every request, as they are.")

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.hosted and self.agent_version is not None:
            raise ValueError(
                "'hosted: true' and 'agent_version' exclude each other: the endpoint of an agent serves the version that is "
                "active there"
            )
        if self.conversation and self.repeat_unknown:
            raise ValueError(
                "'conversation: true' and 'repeat_unknown: true' exclude each other: it is read before all else"
            )
        for name in (*_DECIDED, *_OF_THE_AGENT, *type(self).model_fields):
            if name in self.extra_body:
                why = "the agent has it" if name in _OF_THE_AGENT else "the gateway decides it, or it has a setting"
                raise ValueError(f"extra_body must not set {name!r}: {why}")
        return self

    @property
    def wire(self) -> ResponsesWire:
        project = self._address(f"{self.endpoint}/openai/v1")
        return ResponsesWire(
            self._address(f"{self._agent_url}/endpoint/protocols/openai", self._query) if self.hosted else project,
            self._fields,
            FoundryFailures(self.secrets()),
            verify_chain=self.verify_chain,
            repeatable=self.repeat_unknown,
            conversations=project,
            declares_tools=self.declare_tools,
        )

    @property
    def description_url(self) -> str:
        """Where the project describes the agent."""
        return f"{self._agent_url}?{self._query}"

    @property
    def _agent_url(self) -> str:
        return f"{self.endpoint}/agents/{path_segment(self.agent)}"

    @property
    def _query(self) -> str:
        return f"api-version={quote(self.api_version, safe='')}"

    @property
    def _fields(self) -> dict[str, Json]:
        reference = {"type": "agent_reference", "name": self.agent, "version": self.agent_version}
        given: dict[str, Json] = {
            # The endpoint of a hosted agent is that of one agent.
            "agent_reference": None
            if self.hosted
            else {name: value for name, value in reference.items() if value is not None},
            "metadata": self.metadata,
            "background": self.background or None,
        }
        return {
            "stream": True,
            **{name: value for name, value in given.items() if value is not None},
            **self.extra_body,
        }

    def _address(self, url: str, query: str = "") -> ServiceAddress:
        headers = {"api-key": self.key} if self.key else {}
        return ServiceAddress(url, self.account, self.timeouts, self.route, headers, self.auth, query)
