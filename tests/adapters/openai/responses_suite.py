"""The conformance suite for adapters on the Responses wire."""

from collections.abc import Callable
from typing import Any, ClassVar

from adapters.openai.responses.adapter import factory
from gateway.ports.adapter import AnyAdapterFactory
from gateway.ports.tools import ToolDeclaration
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import plays
from tests.adapters.openai.openai_support import roles_and_texts, tool_of
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say, ServerTool


class ResponsesSuite(EmulatorSuite):
    factory: ClassVar[AnyAdapterFactory] = factory
    emulator: ClassVar[Callable[..., ResponsesServer]] = ResponsesServer
    server: ResponsesServer

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("There it is."))

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [roles_and_texts(body["input"]) for body in self._bodies]

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        kept = ToolDeclaration.__struct_fields__
        return [
            [ToolDeclaration(**{name: tool[name] for name in kept}) for tool in body.get("tools", ())]
            for body in self._bodies
        ]

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        answers = [[item for item in body["input"] if "output" in item] for body in self._bodies]
        return [[(tool_of(item["call_id"]), item["output"]) for item in given] for given in answers]

    @property
    def _bodies(self) -> list[dict[str, Any]]:
        return [body for body in self.server.requests if "input" in body]
