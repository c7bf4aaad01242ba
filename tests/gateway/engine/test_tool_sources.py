"""The tools of several sources: names, limits, checks, and a source that is down."""

import asyncio
from pathlib import Path

import pytest
import structlog

from gateway.a2a.model import Json
from gateway.app.build import build_agents, build_sources
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.engine.tool_sources import AttachedSource, SourceToolset, source_breaker
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolError, ToolOutput, ToolRun

ANY: dict[str, Json] = {"type": "object"}


def tool(name: str, parameters: dict[str, Json] | None = None, *, idempotent: bool = False) -> SourceTool:
    return SourceTool(name, f"Does {name}.", parameters or ANY, idempotent)


class Scripted:
    """A source that has these tools, or none while it is `down`; it answers with what it was asked."""

    def __init__(self, *tools: SourceTool) -> None:
        self.listed = tools
        self.down = ""
        self.hangs = False
        self.asked = 0
        self.closed = 0
        self.output: Json = None

    async def tools(self) -> tuple[SourceTool, ...]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise ToolError(self.down)
        return self.listed

    async def run(self, run: ToolRun) -> ToolOutput:
        return ToolOutput(self.output or run.name)

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_tool_is_offered_under_its_own_name_with_the_settings_of_its_source() -> None:
    source = Scripted(tool("search", {"type": "object", "required": ["q"]}, idempotent=True))
    offered = await SourceToolset([AttachedSource("github", "mcp", source, timeout=5, max_result=10)]).offered()
    (found,) = offered.values()
    assert offered.keys() == {"search"}
    assert found.declaration == ToolDeclaration("search", "Does search.", {"type": "object", "required": ["q"]})
    assert (found.identity, found.server, found.own_name) == ("github.search", "mcp:github", "search")
    assert (found.source, found.timeout, found.idempotent) == (source, 5, True)
    assert (found.complaint({"q": 1}), found.complaint({})) == (None, "'q' is a required property")
    source.output = "x" * 20
    assert (await found.run(ToolRun("search", {}, "k", "c", "p"))).output == "x" * 20
    assert found.max_result == 10


async def test_tools_stand_in_the_order_of_their_sources_and_collisions_get_distinct_names() -> None:
    a, b = Scripted(tool("z"), tool("read")), Scripted(tool("read"), tool("a"))
    offered = await SourceToolset([AttachedSource("files", "mcp", a), AttachedSource("web", "http", b)]).offered()
    assert [(name, each.identity) for name, each in offered.items()] == [
        ("z", "files.z"),
        ("files_read", "files.read"),
        ("web_read", "web.read"),
        ("a", "web.a"),
    ]


@pytest.mark.parametrize(
    ("allow", "names"),
    [
        (None, ["get_a", "get_b", "Put"]),
        (("get_*",), ["get_a", "get_b"]),
        (("Put", "get_b"), ["get_b", "Put"]),
        (("put",), []),
        ((), []),
    ],
)
async def test_only_what_the_operator_allows_is_offered(allow: tuple[str, ...] | None, names: list[str]) -> None:
    source = Scripted(tool("get_a"), tool("get_b"), tool("Put"))
    assert list(await SourceToolset([AttachedSource("s", "mcp", source, allow)]).offered()) == names


async def test_a_tool_that_is_listed_twice_is_offered_once() -> None:
    source = Scripted(tool("a"), tool("a", {"type": "object", "required": ["x"]}))
    (found,) = (await SourceToolset([AttachedSource("s", "mcp", source)]).offered()).values()
    assert found.complaint({}) is None


async def test_an_allowed_name_that_fits_nothing_is_logged() -> None:
    with structlog.testing.capture_logs() as logs:
        await SourceToolset([AttachedSource("s", "mcp", Scripted(tool("a")), ("a", "b*"))]).offered()
    assert [(each["event"], each["allow"]) for each in logs] == [("tools.allow-fits-nothing", "b*")]


async def test_a_tool_whose_schema_refers_elsewhere_is_left_out_and_logged() -> None:
    strange = tool("strange", {"properties": {"a": {"$ref": "http://169.254.169.254/x"}}})
    with structlog.testing.capture_logs() as logs:
        offered = await SourceToolset([AttachedSource("s", "mcp", Scripted(strange, tool("a")))]).offered()
    assert list(offered) == ["a"]
    assert [(each["event"], each["source"], each["tool"]) for each in logs] == [("tool.left-out", "s", "strange")]
    assert "refer to 'http://169.254.169.254/x'" in logs[0]["reason"]


async def test_a_pattern_that_cannot_be_checked_is_logged_and_its_tool_is_offered() -> None:
    looking = tool("looking", {"properties": {"a": {"pattern": "^(?!x)"}}})
    with structlog.testing.capture_logs() as logs:
        offered = await SourceToolset([AttachedSource("s", "mcp", Scripted(looking, tool("a")))]).offered()
    assert list(offered) == ["looking", "a"]
    [line] = logs
    assert (line["event"], line["tool"], line["patterns"]) == ("tool.pattern-not-checked", "looking", ("^(?!x)",))


async def test_checked_tools_are_kept_until_a_source_lists_others() -> None:
    a, b = Scripted(tool("a")), Scripted(tool("b"))
    toolset = SourceToolset([AttachedSource("a", "mcp", a), AttachedSource("b", "mcp", b)])
    first = await toolset.offered()
    assert await toolset.offered() is first
    b.listed = (tool("c"),)
    assert list(await toolset.offered()) == ["a", "c"]
    assert (a.asked, b.asked) == (3, 3)


async def test_a_required_source_that_is_not_there_is_an_error_that_names_it() -> None:
    source = Scripted(tool("a"))
    source.down = "ConnectError"
    toolset = SourceToolset([AttachedSource("a", "mcp", Scripted(tool("b"))), AttachedSource("github", "mcp", source)])
    with pytest.raises(ToolError) as error:
        await toolset.offered()
    assert error.value.detail == "tools.github: ConnectError"
    source.down = ""
    assert list(await toolset.offered()) == ["b", "a"]


async def test_an_optional_source_is_left_out_with_a_warning_until_it_is_back() -> None:
    source, now = Scripted(tool("a")), [1000.0]
    source.down = "ConnectError"
    github = AttachedSource("github", "mcp", source, required=False, breaker=source_breaker(lambda: now[0]))
    toolset = SourceToolset([github, AttachedSource("b", "mcp", Scripted(tool("b")))])
    with structlog.testing.capture_logs() as logs:
        assert list(await toolset.offered()) == ["b"]
    assert [(each["event"], each["source"], each["reason"], each["retry_in"]) for each in logs] == [
        ("tools.unreachable", "github", "ConnectError", 15)
    ]
    source.down = ""
    now[0] += 15
    with structlog.testing.capture_logs() as logs:
        assert list(await toolset.offered()) == ["a", "b"]
        assert list(await toolset.offered()) == ["a", "b"]
    assert [(each["event"], each["source"]) for each in logs] == [("tools.reachable", "github")]


async def test_an_optional_source_that_is_down_is_not_waited_for_in_every_turn_nor_by_every_agent() -> None:
    source, now = Scripted(tool("a")), [1000.0]
    source.hangs = True
    slow = AttachedSource("slow", "mcp", source, timeout=0.01, required=False, breaker=source_breaker(lambda: now[0]))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert list(await SourceToolset([slow]).offered()) == []
    assert (source.asked, len(logs)) == (1, 1)
    now[0] += 15
    toolset = SourceToolset([slow])
    assert list(await asyncio.gather(toolset.offered(), toolset.offered(), toolset.offered())) == [{}, {}, {}]
    assert source.asked == 2


async def test_a_cancelled_trial_holds_up_no_later_one() -> None:
    source, now = Scripted(tool("a")), [1000.0]
    source.down = "ConnectError"
    toolset = SourceToolset(
        [AttachedSource("s", "mcp", source, required=False, breaker=source_breaker(lambda: now[0]))]
    )
    assert list(await toolset.offered()) == []
    source.down, source.hangs = "", True
    now[0] += 15
    async with asyncio.TaskGroup() as group:
        trial = group.create_task(toolset.offered())
        await asyncio.sleep(0)
        trial.cancel()
    source.hangs = False
    assert list(await toolset.offered()) == ["a"]


async def test_a_source_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    source = Scripted(tool("a"))
    source.hangs = True
    with pytest.raises(ToolError, match=r"tools\.s: it did not say within 0\.01 s which tools it has"):
        await SourceToolset([AttachedSource("s", "mcp", source, timeout=0.01)]).offered()


# --- from the configuration -------------------------------------------------------------------------------------------

FILE = """\
version: 1
tools:
  clock: {type: python, ref: "./clock.py:now", allow: [now], timeout: 5s, required: false, max_result: 1KiB}
  orders: {type: http, url: "http://localhost/{id}", description: An order.}
agents:
  a: {type: openai-chat, model: m, tools: [orders, clock]}
"""


def loaded(folder: Path, text: str = FILE) -> GatewayConfig:
    (folder / "clock.py").write_text("def now() -> str:\n    'The time.'\n    return '12:00'\n")
    return load(text, source="gateway.yaml", env={}, plugins=Registry(), base_dir=folder)


async def test_turns_that_begin_together_have_a_new_list_checked_once() -> None:
    source = Scripted(tool("broken", {"type": "no such type"}), tool("search"))
    toolset = SourceToolset([AttachedSource("github", "mcp", source)])
    with structlog.testing.capture_logs() as logs:
        offered = await asyncio.gather(*(toolset.offered() for _ in range(10)))
    assert [list(each) for each in offered] == [["search"]] * 10
    assert [line["event"] for line in logs] == ["tool.left-out"]


async def test_each_entry_is_one_source_as_the_file_says(tmp_path: Path) -> None:
    sources = build_sources(loaded(tmp_path), Registry())
    clock = sources["clock"]
    assert (clock.kind, clock.allow, clock.timeout, clock.required, clock.max_result) == (
        "python",
        ("now",),
        5,
        False,
        1024,
    )
    offered = await SourceToolset([sources["orders"], clock]).offered()
    assert [(name, each.server) for name, each in offered.items()] == [
        ("orders", "http:orders"),
        ("now", "python:clock"),
    ]
    assert await offered["now"].run(ToolRun("now", {}, "k", "c", "p")) == ToolOutput("12:00")


async def test_an_agent_has_the_tools_that_it_names_and_another_has_none(tmp_path: Path) -> None:
    config = loaded(tmp_path, FILE + "  b: {type: openai-chat, model: m}\n")
    agents = build_agents(config, Registry(), build_sources(config, Registry())).by_name
    assert (toolset := agents["a"].toolset) is not None
    assert list(await toolset.offered()) == ["orders", "now"]
    assert agents["b"].toolset is None


def test_an_entry_that_cannot_work_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tools\.clock: .*has no 'later'"):
        build_sources(loaded(tmp_path, FILE.replace(":now", ":later")), Registry())


# --- rules about approvals

RULES = (ApprovalRule("b.get-sum"),)
ALL_OF_B = (ApprovalRule("b.*"),)


async def in_force(toolset: SourceToolset) -> tuple[ApprovalRule, ...]:
    await toolset.offered()
    return tuple(toolset.rules_in_force(RULES))


async def test_a_rule_follows_the_tools_that_its_source_lists() -> None:
    b = Scripted(tool("get-sum"))
    toolset = SourceToolset([AttachedSource("a", "mcp", Scripted(tool("a"))), AttachedSource("b", "mcp", b)])
    assert await in_force(toolset) == RULES
    b.listed = (tool("get_sum"),)
    with structlog.testing.capture_logs() as logs:
        assert await in_force(toolset) == ALL_OF_B
        assert await in_force(toolset) == ALL_OF_B
    assert [(each["event"], each["rule"], each["half"], each["tools"]) for each in logs] == [
        ("approvals.fit-nothing", "b.get-sum", "tool", ["a.a", "b.get_sum"])
    ]
    b.listed = (tool("get-sum"),)
    assert await in_force(toolset) == RULES


async def test_a_source_that_is_away_has_the_tools_that_it_listed_last_and_one_that_never_came_has_none() -> None:
    b, now = Scripted(tool("get-sum")), [1000.0]
    b.down = "ConnectError"
    attached = AttachedSource("b", "mcp", b, required=False, breaker=source_breaker(lambda: now[0]))
    toolset = SourceToolset([AttachedSource("a", "mcp", Scripted(tool("a"))), attached])
    assert await in_force(toolset) == ALL_OF_B
    b.down = ""
    now[0] += 15
    assert await in_force(toolset) == RULES
    b.down = "ConnectError"
    assert await in_force(toolset) == RULES
    assert list(await toolset.offered()) == ["a"]


async def test_a_rule_for_a_tool_that_is_not_allowed_or_left_out_is_no_mistake() -> None:
    broken = tool("get-sum", {"type": "no such type"})
    assert await in_force(SourceToolset([AttachedSource("b", "mcp", Scripted(broken, tool("b")))])) == RULES
    source = Scripted(tool("get-sum"), tool("b"))
    assert await in_force(SourceToolset([AttachedSource("b", "mcp", source, allow=("b",))])) == RULES
