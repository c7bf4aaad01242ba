"""The adapter of type `copilot-studio`: agents of Copilot Studio, and bots that Direct Line reaches."""

from adapters.copilot.direct_line.adapter import DirectLineAdapter
from adapters.copilot.direct_to_engine import EngineAdapter
from adapters.copilot.settings import CopilotSettings, DirectLineSettings, EngineSettings
from gateway.ports.adapter import AdapterFactory, StateKind
from gateway.ports.conversation import HandleKind, StorageOwner


def build(settings: CopilotSettings) -> DirectLineAdapter | EngineAdapter:
    match settings.connection():
        case DirectLineSettings() as line:
            return DirectLineAdapter(settings, line)
        case EngineSettings() as engine:
            return EngineAdapter(settings, engine)


_MODES = ("text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*", "video/*")

factory = AdapterFactory(
    settings=CopilotSettings,
    build=build,
    summary="Copilot Studio, by Direct Line or direct to the engine, and bots behind Direct Line",
    states=(
        StateKind(StorageOwner.BACKEND, HandleKind.STATIC, DirectLineAdapter, "direct_line: {...}"),
        StateKind(StorageOwner.BACKEND, HandleKind.STATIC, EngineAdapter, "direct_to_engine: {...}"),
    ),
    input_modes=_MODES,
    output_modes=_MODES,
    tools=False,
)
