"""MCP servers as sources of tools, over both transports: one session for all calls, and another after it was lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from adapters.tools import mcp_connection
from adapters.tools.mcp import McpServer, McpSettings
from gateway.ports.tools import ConsentNeeded, ConsentPage, ToolError, ToolOutput, ToolRun
from tests.adapters.tools.served_mcp import BOUND, ROOT, SMALL, Served, eventually, run
from tests.support.refusing import refusing_port

Make = Callable[..., McpServer]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes sources that are closed at the end."""
    async with AsyncExitStack() as stack:

        def made(**given: Any) -> McpServer:
            source = McpServer(McpSettings.model_validate(given))
            stack.push_async_callback(source.aclose)
            return source

        yield made


def over_stdio(make: Make, **more: Any) -> McpServer:
    return make(command=SMALL, cwd=ROOT, **more)


@pytest.fixture(params=["stdio", "http"])
async def source(request: pytest.FixtureRequest, make: Make) -> AsyncIterator[McpServer]:
    if request.param == "stdio":
        yield over_stdio(make)
        return
    served = Served((*SMALL, "PORT"))
    await served.start()
    try:
        yield make(url=served.url)
    finally:
        await served.kill()


# --- tools and outputs -----------------------------------------------------------------------------------------------


async def test_it_lists_tools_as_they_are_declared_until_they_change(source: McpServer) -> None:
    tools = await source.tools()
    by_name = {tool.name: tool for tool in tools}
    assert by_name["echo"].description == "Echoes."
    assert by_name["echo"].parameters["required"] == ["text"]
    assert [name for name, tool in by_name.items() if tool.idempotent] == ["echo", "add"]
    assert await source.tools() is tools
    assert await source.run(run("grow", name="parrot")) == ToolOutput("grown")

    async def has_changed() -> bool:
        return await source.tools() is not tools

    await eventually(has_changed)
    assert [tool.name for tool in await source.tools()] == [*by_name, "parrot"]
    assert await source.run(run("parrot", text="hello")) == ToolOutput("hello")


async def test_an_error_that_quotes_the_environment_of_its_server_is_told_without_it(make: Make) -> None:
    source = over_stdio(make, env={"TOKEN": "Tok3nVALUE-1234"})
    try:
        with pytest.raises(ToolError) as caught:
            await source.run(run("refuses", name="TOKEN"))
    finally:
        await source.aclose()
    assert caught.value.detail == "bad ***"


async def test_results_of_every_form_are_outputs(source: McpServer) -> None:
    progress: list[str] = []
    assert await source.run(run("echo", text="hello")) == ToolOutput("hello")
    assert await source.run(run("add", a=1, b=2)) == ToolOutput({"sum": 3})
    assert await source.run(run("blocks")) == ToolOutput(
        [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    )
    assert await source.run(run("nothing")) == ToolOutput(None)
    assert await source.run(run("fails")) == ToolOutput("Error executing tool fails", error=True)
    assert await source.run(run("none-such")) == ToolOutput("Unknown tool: none-such", error=True)
    assert await source.run(run("works", progress.append, steps=3)) == ToolOutput("done")
    assert progress == ["step 1", "step 2", "step 3"]


async def test_a_call_that_needs_a_consent_names_the_page_and_can_be_made_again(source: McpServer) -> None:
    for _ in range(2):
        with pytest.raises(ConsentNeeded) as caught:
            await source.run(run("mail", user="ada"))
        assert caught.value.pages == (ConsentPage("https://login.example/?user=ada", "To read your mail."),)
    await source.run(run("consent", user="ada"))
    assert await source.run(run("mail", user="ada")) == ToolOutput("two letters for ada")


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"elicitations": None}, {"elicitations": [None, {"mode": "url"}, {"url": 1, "message": "x"}]}],
)
async def test_a_consent_that_names_no_page_is_a_failure_without_one(make: Make, data: Any) -> None:
    with pytest.raises(ToolError, match="sign in") as caught:
        await over_stdio(make).run(run("odd", data=data))
    assert getattr(caught.value, "pages", ()) == ()


async def test_a_page_may_be_named_without_a_reason(make: Make) -> None:
    page = {"url": "https://login.example/", "message": 3}
    with pytest.raises(ConsentNeeded) as caught:
        await over_stdio(make).run(run("odd", data={"elicitations": [page]}))
    assert caught.value.pages == (ConsentPage("https://login.example/"),)


async def test_a_cancelled_call_ends_at_the_server_too_and_nothing_else_does(source: McpServer, tmp_path: Path) -> None:
    hanging, ended = asyncio.Event(), tmp_path / "ended"
    call = run("hangs", lambda _: hanging.set(), ended=str(ended))
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        task = group.create_task(source.run(call))
        await hanging.wait()
        assert await source.run(run("echo", text="meanwhile")) == ToolOutput("meanwhile")
        task.cancel()

    async def has_ended() -> bool:
        return ended.exists()

    await eventually(has_ended)
    assert await source.run(run("echo", text="after")) == ToolOutput("after")


async def test_a_server_that_dies_in_a_call_fails_the_call_and_is_used_again_when_it_is_back(
    make: Make, tmp_path: Path
) -> None:
    served = Served((*SMALL, "PORT"))
    await served.start()
    source = make(url=served.url)
    hanging = asyncio.Event()
    call = run("hangs", lambda _: hanging.set(), ended=str(tmp_path / "ended"))
    try:
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            lost = group.create_task(_failure(source.run(call)))
            await hanging.wait()
            await served.kill()
        assert lost.result().may_have_run
        assert not (await _failure(source.run(run("echo", text="lost")))).may_have_run
        await served.start()
        assert await source.run(run("echo", text="found")) == ToolOutput("found")
    finally:
        await served.kill()


# --- a child process --------------------------------------------------------------------------------------------------


async def test_a_child_that_dies_in_a_call_fails_the_call_and_another_one_is_started(make: Make) -> None:
    source = over_stdio(make)
    first = await _process(source)
    with pytest.raises(ToolError, match="Connection closed") as error:
        await source.run(run("dies"))
    assert error.value.may_have_run
    assert await _process(source) != first


async def test_a_child_that_was_killed_while_nothing_ran_is_started_again(make: Make) -> None:
    source = over_stdio(make)
    first = await _process(source)
    os.kill(first, signal.SIGKILL)

    async def is_another() -> bool:
        try:
            return await _process(source) != first
        except ToolError:  # the loss was not noticed yet
            return False

    await eventually(is_another)


async def test_a_child_that_answers_nothing_after_a_call_was_given_up_is_ended_and_another_one_is_started(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mcp_connection, "_PING_SECONDS", 0.5)
    source = over_stdio(make)
    first = await _process(source)
    hanging = asyncio.Event()
    call = run("hangs", lambda _: hanging.set(), ended=str(tmp_path / "ended"))
    with capture_logs() as logs:
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            other = group.create_task(_refusal(source.run(call)))
            await hanging.wait()
            await _stalled(source, tmp_path)
            assert await _process(source) != first
            assert other.result() == "Connection closed"
    assert [line["source"] for line in logs if line["event"] == "tools.stalled"] == ["mcp"]

    async def has_ended() -> bool:
        try:
            os.kill(first, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(has_ended)


async def test_a_child_that_answers_after_a_call_was_given_up_is_kept(make: Make, tmp_path: Path) -> None:
    source = over_stdio(make)
    first = await _process(source)
    hanging = asyncio.Event()
    call = run("hangs", lambda _: hanging.set(), ended=str(tmp_path / "ended"))
    await _given_up(source, call, hanging.wait)
    assert await _process(source) == first


async def test_closing_ends_a_child_that_is_being_checked(make: Make, tmp_path: Path) -> None:
    source = over_stdio(make)
    first = await _process(source)
    await _stalled(source, tmp_path)
    async with asyncio.timeout(BOUND):
        await source.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


async def _given_up(source: McpServer, call: ToolRun, has_begun: Callable[[], Awaitable[object]]) -> None:
    """Makes the call, and cancels it when it has begun."""
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        task = group.create_task(source.run(call))
        await has_begun()
        task.cancel()


async def _stalled(source: McpServer, folder: Path) -> None:
    """Makes a call that stops the server, and gives it up."""
    began = anyio.Path(folder / "began")
    await _given_up(source, run("stalls", began=str(began)), partial(eventually, began.exists))


async def test_concurrent_first_calls_share_one_child(make: Make) -> None:
    source = over_stdio(make)
    assert len(set(await asyncio.gather(*(_process(source) for _ in range(5))))) == 1


async def test_a_child_sees_what_it_was_given_and_no_secret_of_the_gateway(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = make(command=SMALL, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "TOKEN": "t"})
    output = (await source.run(run("environment"))).output
    assert isinstance(output, str)
    folder, _, *variables = output.split("\n")
    assert folder == str(tmp_path)
    assert "TOKEN=t" in variables
    assert "sk-secret" not in output


async def test_closing_ends_the_child(make: Make) -> None:
    source = over_stdio(make)
    process = await _process(source)
    await source.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(ToolError, match="the source is closed"):
        await source.tools()


async def _process(source: McpServer) -> int:
    output = (await source.run(run("environment"))).output
    assert isinstance(output, str)
    return int(output.split("\n")[1])


# --- failures to open -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({"command": ("no-such-program",)}, "there is no command 'no-such-program'"),
        ({"command": (sys.executable, "-c", "pass")}, "Connection closed"),
        ({"url": f"http://127.0.0.1:{refusing_port()}/mcp"}, "ConnectError"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_an_error_and_tried_again(
    given: dict[str, Any], detail: str, make: Make
) -> None:
    source = make(**given)
    for _ in range(2):
        with pytest.raises(ToolError, match=detail):
            await source.tools()


async def test_closing_does_not_wait_for_a_server_that_never_answers(make: Make) -> None:
    source = make(command=(sys.executable, "-c", "import time; time.sleep(1000)"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_refusal(source.tools()))
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND):
            await source.aclose()
    assert task.result() == "it was closed"


async def _failure(asked: Awaitable[object]) -> ToolError:
    with pytest.raises(ToolError) as error:
        await asked
    return error.value


async def _refusal(asked: Awaitable[object]) -> str:
    return (await _failure(asked)).detail


def test_without_the_package_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "adapters.tools.mcp_connection", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ValueError, match=r"pip install 'a2a-gateway\[mcp\]'"):
        McpServer(McpSettings(command=("x",)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs either `url` or `command`"),
        ({"url": "http://h", "command": ["x"]}, "needs either `url` or `command`"),
        ({"url": "http://h", "env": {"A": "b"}}, "`env` cannot be used with `url`"),
        ({"url": "http://h", "cwd": "x"}, "`cwd` cannot be used with `url`"),
        ({"command": ["x"], "headers": {"A": "b"}}, "`headers` cannot be used with `command`"),
        ({"command": []}, "at least 1 item"),
        ({"url": "ws://h"}, "must be an address"),
        ({"url": "http://h", "headers": {"A": "sk-secret\nB: c"}}, "must be one line"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_start(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        McpSettings.model_validate(given)
    assert words in str(error.value)
    assert "sk-secret" not in str(error.value)
