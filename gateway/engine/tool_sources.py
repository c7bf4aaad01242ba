"""The toolset of an agent: the current tools of its sources, as its model may call them.

Law: the checks of a list of tools hold as long as the source gives the same list.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeAlias

import structlog

from gateway.core.tools.approval_rules import ApprovalRule, KnownTools, in_force
from gateway.core.tools.toolset import Complaint, OfferedTool, offered_names
from gateway.foundation.clock import Clock
from gateway.foundation.retry import Breaker
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolError, ToolSource

log = structlog.get_logger("gateway.engine.tool_sources")

Listing: TypeAlias = tuple[SourceTool, ...]
"""The tools that a source has, as it lists them."""


def source_breaker(monotonic: Callable[[], float]) -> Breaker:
    """One failure is enough: each wait for a source that is not there would delay a turn."""
    return Breaker(monotonic, failures=1, cooldown=15.0, longest=300.0)


@dataclass(frozen=True, slots=True)
class AttachedSource:
    """A source under its name in the configuration, with the operator's settings for it. `timeout` is in seconds.

    `breaker`: no turn waits for a source that is not required and was not there at the last try.
    """

    name: str
    kind: str
    source: ToolSource
    allow: tuple[str, ...] | None = None
    timeout: float = 60.0
    required: bool = True
    max_result: int = 65536
    breaker: Breaker = field(default_factory=lambda: source_breaker(Clock().monotonic), compare=False)

    def allows(self, tool: str) -> bool:
        return self.allow is None or any(fnmatchcase(tool, pattern) for pattern in self.allow)

    async def tools(self) -> Listing:
        """Raises: ToolError, also when it takes too long."""
        try:
            async with asyncio.timeout(self.timeout):
                return await self.source.tools()
        except TimeoutError as error:
            raise ToolError(f"it did not say within {self.timeout:g} s which tools it has") from error


class SourceToolset:
    """A Toolset of these sources, in their order. A source that is away has the tools that it listed last, for the rules
    about approvals."""

    def __init__(self, sources: Sequence[AttachedSource]) -> None:
        self._sources = tuple(sources)
        self._listed: tuple[Listing | None, ...] | None = None
        self._last: dict[str, Listing] = {}
        self._known: KnownTools = MappingProxyType({})
        self._in_force: tuple[KnownTools, Sequence[ApprovalRule], tuple[ApprovalRule, ...]] | None = None
        self._offered: Mapping[str, OfferedTool] = MappingProxyType({})
        self._checking = asyncio.Lock()

    async def offered(self) -> Mapping[str, OfferedTool]:
        listed = await self._listings()
        async with self._checking:
            if self._listed is None or any(new is not old for new, old in zip(listed, self._listed, strict=True)):
                # Checking many schemas takes time, and so does importing the checker for the first one.
                self._offered = await asyncio.to_thread(_offer, self._sources, listed)
                self._listed = listed
                for attached, tools in zip(self._sources, listed, strict=True):
                    if tools is not None:
                        self._last[attached.name] = tools
                self._known = known_tools(self._last)
            return self._offered

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        if not rules:
            return rules
        if self._in_force is None or self._in_force[0] is not self._known or self._in_force[1] != rules:
            found = in_force(rules, [attached.name for attached in self._sources], self._known)
            self._in_force = self._known, rules, found
            self._log_misfits(rules)
        return self._in_force[2]

    def _log_misfits(self, rules: Sequence[ApprovalRule]) -> None:
        for rule in rules:
            half = rule.misfit(self._known)
            if half is not None:
                known = sorted(self._known)
                log.error("approvals.fit-nothing", rule=rule.tool, half=half, asks_about_all=rule.ask, tools=known)

    async def _listings(self) -> tuple[Listing | None, ...]:
        """None for a source that is unreachable and not required. Raises: ToolError for a required one."""
        if len(self._sources) == 1:
            answers: list[Listing | ToolError | None] = [await _asked(self._sources[0])]
        else:
            answers = await asyncio.gather(*map(_asked, self._sources))
        for attached, answer in zip(self._sources, answers, strict=True):
            if isinstance(answer, ToolError):
                raise ToolError(f"tools.{attached.name}: {answer.detail}") from answer
        return tuple(answer for answer in answers if not isinstance(answer, ToolError))


def known_tools(listings: Mapping[str, Listing]) -> KnownTools:
    """The tools of these listings, which stand under the names of their sources."""
    return {
        f"{source}.{tool.name}": tool.parameters
        for source, tools in listings.items()
        # Of two tools with one name the first is offered.
        for tool in reversed(tools)
    }


async def _asked(attached: AttachedSource) -> Listing | ToolError | None:
    """None for a source that is unreachable and not required."""
    if attached.required:
        try:
            return await attached.tools()
        except ToolError as error:
            return error
    breaker = attached.breaker
    number = breaker.admit()
    if number is None:
        return None
    try:
        listed = await attached.tools()
    except ToolError as error:
        breaker.failed(number)
        log.warning("tools.unreachable", source=attached.name, reason=error.detail, retry_in=round(breaker.rest, 1))
        drop_tracebacks(error)
        return None
    finally:
        breaker.left(number)
    if breaker.answered():
        log.info("tools.reachable", source=attached.name)
    return listed


def _offer(sources: Sequence[AttachedSource], listed: Sequence[Listing | None]) -> Mapping[str, OfferedTool]:
    checked = [
        (attached, *each)
        for attached, tools in zip(sources, listed, strict=True)
        if tools is not None
        for each in _checked(attached, tools)
    ]
    names = offered_names([(attached.name, tool.name) for attached, tool, _ in checked])
    return MappingProxyType(
        {
            name: OfferedTool(
                declaration=ToolDeclaration(name, tool.description, tool.parameters),
                identity=f"{attached.name}.{tool.name}",
                server=f"{attached.kind}:{attached.name}",
                own_name=tool.name,
                source=attached.source,
                timeout=attached.timeout,
                complaint=complaint,
                idempotent=tool.idempotent,
                max_result=attached.max_result,
            )
            for name, (attached, tool, complaint) in zip(names, checked, strict=True)
        }
    )


def _checked(attached: AttachedSource, tools: Listing) -> Iterator[tuple[SourceTool, Complaint]]:
    """The tools that the operator allows and whose arguments can be checked."""
    from gateway.core.tools.arguments import SchemaRefused, checker

    names = {tool.name for tool in tools}
    for pattern in attached.allow or ():
        if not any(fnmatchcase(name, pattern) for name in names):
            log.warning("tools.allow-fits-nothing", source=attached.name, allow=pattern, tools=sorted(names))
    seen: set[str] = set()
    for tool in tools:
        if tool.name not in seen and attached.allows(tool.name):
            seen.add(tool.name)
            try:
                found = checker(tool.parameters)
            except SchemaRefused as error:
                log.error("tool.left-out", source=attached.name, tool=tool.name, reason=str(error))
                continue
            if found.unchecked:
                log.warning("tool.pattern-not-checked", source=attached.name, tool=tool.name, patterns=found.unchecked)
            yield tool, found
