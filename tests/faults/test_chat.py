"""`chat` on a terminal while its gateway stops in the middle of an answer and starts again."""

import signal
from pathlib import Path

import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, a2a_http, failed, text_of, why
from tests.faults.paused_agents import paused_agents
from tests.gateway.cli.pseudo_terminal import Terminal, terminal
from tests.running import child_gateways
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("kill")


def answer(screen: Terminal, question: str) -> str:
    """What stands between a message and the next line that is none of its answer, newlines of the screen left out."""
    lines = screen.shown.rpartition(f"> {question}\n")[2].split("\n")
    return "".join(
        line for line in lines if not line.startswith(("the connection", "connected", "failed", ">", "next"))
    )


@pytest.mark.parametrize(("question", "said"), [("talking function", "one two "), ("talking chained", "one two ")])
async def test_an_answer_that_a_kill_cuts_short_is_shown_once_and_the_conversation_goes_on(
    question: str, said: str, tmp_path: Path
) -> None:
    port, agent = free_port(), question.split()[1]
    settings = f"server: {{port: {port}}}"
    async with paused_agents(tmp_path) as held, child_gateways(held.agents, tmp_path, settings=settings) as start:
        child = await start()
        async with terminal("chat", agent, "-u", child.url) as screen:
            await screen.until("> ")
            screen.type(f"{question}\n")
            await screen.until(said)
            await child.kill()
            await screen.until("the connection is lost")
            child = await start()
            await screen.until(failed(RESTARTED)[1])
            await screen.until("> ")
            shown = answer(screen, question)
            screen.type("next\n")
            await screen.until(f"{question} | next")
            await screen.until("> ")
            screen.type("\x04")
            assert await screen.ended() == 0
        async with a2a_http(child.url) as http:
            context = screen.shown.rpartition("--context ")[2].split()[0]
            [latest, cut] = await A2A(http, agent).tasks(context)
    assert shown == text_of(cut) == said
    assert why(cut) == failed(RESTARTED)
    assert text_of(latest) == f"{question} | next"


async def test_not_a_word_of_a_flood_is_lost_or_said_twice(tmp_path: Path) -> None:
    settings = f"server: {{port: {free_port()}}}"
    async with paused_agents(tmp_path) as held, child_gateways(held.agents, tmp_path, settings=settings) as start:
        child = await start()
        async with terminal("chat", "function", "-u", child.url) as screen:
            await screen.until("> ")
            screen.type("flooding function\n")
            await screen.until("tick " * 50)
            await child.kill()
            child = await start()
            await screen.until(failed(RESTARTED)[1])
            await screen.until("> ")
            screen.type("/quit\n")
            assert await screen.ended() == 0
        async with a2a_http(child.url) as http:
            context = screen.shown.rpartition("--context ")[2].split()[0]
            [cut] = await A2A(http, "function").tasks(context)
    assert answer(screen, "flooding function") == text_of(cut)


async def test_an_answer_that_ends_while_the_gateway_stops_is_shown_whole_by_the_one_that_follows(
    tmp_path: Path,
) -> None:
    settings = f"server: {{port: {free_port()}, shutdown_grace: 30s}}"
    async with paused_agents(tmp_path) as held, child_gateways(held.agents, tmp_path, settings=settings) as start:
        child = await start()
        async with terminal("chat", "function", "-u", child.url) as screen:
            await screen.until("> ")
            screen.type("talking function\n")
            await screen.until("one two ")
            child.signal(signal.SIGTERM)
            await screen.until("the connection is lost")
            held.go_on["talking function"].set()
            assert await child.ended() == 0
            await start()
            await screen.until("three")
            await screen.until("> ")
            screen.type("/quit\n")
            assert await screen.ended() == 0
    assert answer(screen, "talking function") == "one two three"
