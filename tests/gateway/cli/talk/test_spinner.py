"""The line that moves while a command waits."""

import asyncio
import io

import pytest

from gateway.cli.console.output import Screen
from gateway.cli.talk import spinner
from gateway.cli.talk.spinner import waiting
from tests.support.core import BOUND


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal_that_paints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(spinner, "_PERIOD", 0.001)


async def test_it_moves_while_the_block_runs_and_is_gone_at_its_end() -> None:
    err = Terminal()
    with waiting(Screen(io.StringIO(), err), "waiting for the answer"):
        async with asyncio.timeout(BOUND):
            while err.getvalue().count("waiting for the answer (") < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
    assert "\x1b[2m| waiting for the answer (0 s)" in err.getvalue()
    assert "\x1b[2m/ waiting" in err.getvalue()
    assert err.getvalue().endswith("\r\x1b[2K")


async def test_a_block_that_does_not_wait_shows_nothing() -> None:
    err = Terminal()
    with waiting(Screen(io.StringIO(), err), "waiting"):
        pass
    assert err.getvalue() == ""


async def test_it_is_gone_after_a_failure() -> None:
    err = Terminal()

    async def fails() -> None:
        with waiting(Screen(io.StringIO(), err), "waiting"):
            while not err.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0)
            raise ValueError("broken")

    async with asyncio.timeout(BOUND):
        with pytest.raises(ValueError, match="broken"):
            await fails()
    assert err.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize("err", [io.StringIO(), Terminal()])
async def test_a_pipe_and_a_terminal_without_colours_get_none_of_it(
    err: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with waiting(Screen(io.StringIO(), err), "waiting"):
        await asyncio.sleep(0)
    assert err.getvalue() == ""
