"""The adapters of threads pass the conformance suite, at either service."""

from functools import partial
from typing import Any, ClassVar

from adapters.assistants.adapter import assistants, foundry_classic
from gateway.ports.tools import ToolDeclaration
from tests.adapters.assistants.support import VERSION, judge
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import plays
from tests.emulators.assistants import AssistantsServer
from tests.emulators.scripts import Say, ServerTool


class _Suite(EmulatorSuite):
    server: AssistantsServer

    async def backend_is_released(self) -> None:
        """The run goes on; what is released is the connection of its listener."""
        await self.server.left.wait()

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("There it is."))

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [
            [("user", "".join(part["text"] for part in message["content"])) for message in body["additional_messages"]]
            for body in self.server.asked
        ]

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        return [[ToolDeclaration(**tool["function"]) for tool in body["tools"] or ()] for body in self.server.asked]

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        """Outcomes that nobody wants an answer to go together with the run that follows them."""
        requests: list[list[tuple[str, str]]] = []
        before: list[tuple[str, str]] = []
        for body in self.server.asked:
            given = [(one["tool_call_id"].split("_")[3], one["output"]) for one in body.get("tool_outputs", ())]
            before += given
            if body.get("stream"):
                requests.append(before)
                before = []
        return requests


class TestAssistants(_Suite):
    factory = assistants
    emulator: ClassVar = partial(AssistantsServer, version=VERSION, validator=judge())


class TestFoundryClassic(_Suite):
    factory = foundry_classic
    emulator: ClassVar = partial(AssistantsServer, version="v1", validator=judge())
