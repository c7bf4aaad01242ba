"""A tool of the gateway that writes a line to a file for each effect: the effects of a dead process can be counted."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.app import build
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.core.agents import Agents
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.engine.tool_sources import AttachedSource
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolOutput, ToolRun
from tests.support.rows import query

_FILE = "effects.txt"
_NAME = "book"


class Effects:
    """Source and toolset in one. A line is the key of the call and what was booked."""

    def __init__(self, folder: Path, *, idempotent: bool) -> None:
        self._file = folder / _FILE
        self._idempotent = idempotent

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> Mapping[str, OfferedTool]:
        declaration = ToolDeclaration(_NAME, "Books it.", {"type": "object"})
        tool = OfferedTool(declaration, f"effects.{_NAME}", "test:effects", _NAME, self, 60.0, lambda *_: None)
        return {_NAME: replace(tool, idempotent=self._idempotent)}

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        line = f"{run.key} {run.arguments['what']}\n".encode()
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
        return ToolOutput(f"booked {run.arguments['what']}")

    async def aclose(self) -> None:
        return


def effects(folder: Path) -> list[str]:
    """The keys of the calls that had their effect, in order."""
    file = folder / _FILE
    return [line.partition(" ")[0] for line in file.read_text().splitlines()] if file.exists() else []


def effect_errors(folder: Path, database: Path) -> list[str]:
    """Effects that came twice or without a call, and calls whose status does not match."""
    done = Counter(effects(folder))
    calls = dict(query(database, "SELECT id, status FROM tool_call"))
    twice = [f"{call} was done {times} times" for call, times in done.items() if times > 1]
    unknown = [f"{call} was done for nobody" for call in done.keys() - calls.keys()]
    missing = [
        f"{call} is completed and was not done" for call in calls if calls[call] == "completed" and not done[call]
    ]
    secret = [f"{call} is {calls[call]} and was done" for call in done if calls.get(call) == "cancelled"]
    return [*twice, *unknown, *missing, *secret]


def attach(folder: Path, *, idempotent: bool = False) -> None:
    """Every agent of the gateway that this process is about to build gets the tool."""
    build_agents, toolset = build.build_agents, Effects(folder, idempotent=idempotent)

    def with_tools(
        config: GatewayConfig, registry: Registry, sources: Mapping[str, AttachedSource] | None = None
    ) -> Agents:
        return Agents(tuple(replace(agent, toolset=toolset) for agent in build_agents(config, registry, sources)))

    build.build_agents = with_tools
