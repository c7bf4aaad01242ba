"""The adapter of type `foundry`: agents of a Foundry project. The service keeps the conversations, as a chain of responses or
as a `conversation`. A hosted agent also keeps a sandbox, whose id is in the adapter's state."""

from adapters.openai.foundry.settings import FoundrySettings
from adapters.openai.responses.adapter import BackgroundAdapter, ResponsesAdapter
from adapters.openai.responses.conversation import BackgroundConversation, ConversationAdapter
from adapters.openai.responses.service import ResponsesService
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterFactory, ErrorClass, StateKind
from gateway.ports.capabilities import Description
from gateway.ports.conversation import HandleKind, StorageOwner


class _OfAgent(ResponsesService):
    """Asks the project for the agent, where other services are asked for a model."""

    def __init__(self, settings: FoundrySettings) -> None:
        super().__init__(settings.wire)
        self._description = settings.description_url

    async def _lists_model(self) -> bool | None:
        return None if await self._describe() is None else True

    async def describe(self) -> Description:
        """The agent's name, and what the project says of its latest version."""
        found = await self._describe()
        if found is None:
            raise self._failures.error(ErrorClass.NOT_SERVED, "the service has no description of the agent")
        match found:
            case {"name": str(name), "versions": {"latest": {**latest}}}:
                return Description(name, _text(latest.get("description")), _text(latest.get("version")))
        return Description()

    async def _describe(self) -> Json:
        """None where there are no descriptions of agents, as in the container of one."""
        return await self._http.request_json("GET", self._description)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


class ChainOfAgent(_OfAgent, ResponsesAdapter):
    """Responses that continue each other."""


class BackgroundOfAgent(_OfAgent, BackgroundAdapter):
    """The same, and the service continues them without a listener."""


class ConversationWithAgent(_OfAgent, ConversationAdapter):
    """Responses in a conversation of the project."""


class BackgroundConversationWithAgent(_OfAgent, BackgroundConversation):
    """The same, and the service continues them without a listener."""


def build(settings: FoundrySettings) -> ResponsesAdapter | ConversationAdapter:
    if settings.conversation:
        return BackgroundConversationWithAgent(settings) if settings.background else ConversationWithAgent(settings)
    return BackgroundOfAgent(settings) if settings.background else ChainOfAgent(settings)


_BACKEND = StorageOwner.BACKEND

factory = AdapterFactory(
    settings=FoundrySettings,
    build=build,
    summary="Agents of a Microsoft Foundry project, defined there or hosted",
    states=(
        StateKind(_BACKEND, HandleKind.ROTATING, ChainOfAgent),
        StateKind(_BACKEND, HandleKind.ROTATING, BackgroundOfAgent, "background: true"),
        StateKind(_BACKEND, HandleKind.STATIC, ConversationWithAgent, "conversation: true"),
        StateKind(_BACKEND, HandleKind.STATIC, BackgroundConversationWithAgent, "conversation: true, background: true"),
    ),
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
    approvals=lambda settings: settings.approvals,
)
