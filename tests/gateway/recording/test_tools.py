"""Sources of tools, recorded and replayed at the tool port."""

from pathlib import Path

import pytest

from gateway.foundation.clock import Clock
from gateway.ports.tools import (
    ConsentNeeded,
    ConsentPage,
    ResultTooDeep,
    SourceTool,
    ToolError,
    ToolOutput,
    ToolRun,
    ToolSource,
)
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings
from gateway.recording.tools import tapped_source
from tests.gateway.recording.support import at, written

TOOLS = (SourceTool("track", "Tracks.", {"type": "object"}, idempotent=True),)


class Shop:
    """Answers each run with the next of `answers`."""

    def __init__(self, *answers: ToolOutput | ToolError) -> None:
        self._answers = list(answers)
        self.listed = TOOLS
        self.closed = False

    async def tools(self) -> tuple[SourceTool, ...]:
        return self.listed

    async def run(self, run: ToolRun) -> ToolOutput:
        run.progress("looking")
        answer = self._answers.pop(0)
        if isinstance(answer, ToolError):
            raise answer
        return answer

    async def aclose(self) -> None:
        self.closed = True


def run(told: list[str] | None = None, **arguments: str) -> ToolRun:
    heard: list[str] = [] if told is None else told
    return ToolRun("track", dict(arguments), "key", "context", "ada", heard.append)


def replayed(folder: Path) -> ToolSource:
    return tapped_source(Shop(), "shop", Replay(folder, 0).tap("tools.shop"))


async def test_a_run_is_replayed_without_the_tool(tmp_path: Path) -> None:
    output = ToolOutput({"where": ["Oslo", 7]})
    with at():
        with Recording(tmp_path, Clock()) as recording:
            source = tapped_source(Shop(output), "shop", recording.tap("tools.shop"))
            assert await source.tools() == TOOLS
            assert await source.run(run(order="1")) == output
        told: list[str] = []
        again = replayed(tmp_path)
        assert await again.tools() == TOOLS
        assert await again.run(run(told, order="1")) == output
        assert told == ["looking"]


async def test_a_run_that_was_never_recorded_fails_and_says_what_is_nearest(tmp_path: Path) -> None:
    with at():
        with Recording(tmp_path, Clock()) as recording:
            await tapped_source(Shop(ToolOutput(1)), "shop", recording.tap("tools.shop")).run(run(order="1"))
        with pytest.raises(ToolError, match=r"c01/0001\.yaml, differs at \$\.arguments\.order"):
            await replayed(tmp_path).run(run(order="2"))


@pytest.mark.parametrize(
    "error",
    [
        ToolError("broke"),
        ToolError("cut", may_have_run=True),
        ResultTooDeep("deep"),
        ConsentNeeded("ask", (ConsentPage("https://a.example", "why"),)),
    ],
)
async def test_a_failure_is_the_same_failure(tmp_path: Path, error: ToolError) -> None:
    with at():
        with Recording(tmp_path, Clock()) as recording, pytest.raises(ToolError):
            await tapped_source(Shop(error), "shop", recording.tap("tools.shop")).run(run())
        with pytest.raises(type(error)) as caught:
            await replayed(tmp_path).run(run())
    assert (type(caught.value), caught.value.detail) == (type(error), error.detail)
    assert caught.value.may_have_run == error.may_have_run
    assert getattr(caught.value, "pages", None) == getattr(error, "pages", None)


async def test_a_list_is_recorded_when_it_changes(tmp_path: Path) -> None:
    with Recording(tmp_path, Clock()) as recording:
        shop = Shop()
        source = tapped_source(shop, "shop", recording.tap("tools.shop"))
        for listed in (TOOLS, TOOLS, (), ()):
            shop.listed = listed  # type: ignore[assignment]
            await source.tools()
    assert [each.url for each in Recordings(tmp_path).all()] == ["tool:shop", "tool:shop"]
    again = replayed(tmp_path)
    assert [await again.tools() for _ in range(3)] == [TOOLS, (), ()]


async def test_arguments_and_results_are_masked_by_the_paths_of_the_agents(tmp_path: Path) -> None:
    from gateway.a2a.redaction import json_path

    paths = [json_path("$.args.card"), json_path("$.response.email")]
    with at(), Recording(tmp_path, Clock()) as recording:
        tap = recording.tap("tools.shop", paths)
        await tapped_source(Shop(ToolOutput({"email": "ada@example.com"})), "shop", tap).run(run(card="4111"))
    assert "4111" not in written(tmp_path)
    assert "ada@" not in written(tmp_path)


async def test_whole_results_are_masked(tmp_path: Path) -> None:
    from gateway.a2a.redaction import json_path

    with at(), Recording(tmp_path, Clock()) as recording:
        tap = recording.tap("tools.shop", [json_path("$.response"), json_path("$.args")])
        await tapped_source(Shop(ToolOutput("ada@example.com")), "shop", tap).run(run(card="4111"))
    assert "4111" not in written(tmp_path)
    assert "ada@" not in written(tmp_path)


async def test_the_source_is_closed(tmp_path: Path) -> None:
    shop = Shop()
    with Recording(tmp_path, Clock()) as recording:
        await tapped_source(shop, "shop", recording.tap("tools.shop")).aclose()
    assert shop.closed
