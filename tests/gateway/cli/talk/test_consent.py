"""Tasks that need consent given elsewhere, on a terminal and in a pipe, against a real gateway."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Item, Say, Step
from tests.gateway.cli.conftest import Typing
from tests.gateway.cli.pseudo_terminal import terminal
from tests.running import Local, local_gateway

Json = Any

PAGE = "https://login.example/consent?state=1"
WORDS = "Your consent for mcp:mail is needed at a third party. Open this page, then answer on this task to go on:"
PROMPT = "press Enter when that is done, or type a message: "
WAITING = "TASK_STATE_AUTH_REQUIRED"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def script(conversation: Conversation) -> Iterable[Step]:
    """Accepts the consent with the third message."""
    if len(conversation.user_texts) < 3:
        yield Item({"type": "oauth_consent_request", "consent_link": PAGE, "server_label": "mail"})
    else:
        yield Say(" | ".join(conversation.user_texts))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Local]:
    async with serve(ResponsesServer(script).app) as backend:
        agent = f"mail: {{type: openai-responses, model: m, base_url: '{backend}/v1'}}"
        async with local_gateway(agent, tmp_path_factory.mktemp("gateway")) as gateway:
            yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def mail(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "mail")


async def test_stream_shows_the_page_and_goes_on_with_enter_or_with_words(gateway: Local) -> None:
    async with terminal("stream", "Read my mail", "-u", gateway.url) as screen:
        await screen.until(f"{WORDS}\n")
        await screen.until(f"{PAGE}\n{PROMPT}")
        screen.type("\n")
        await screen.until(f"{PAGE}\n{PROMPT}")
        screen.type("now\n")
        await screen.until("Read my mail | That is done. Please go on. | now\n")
        assert await screen.ended() == 0


async def test_ctrl_d_leaves_the_task_waiting_and_says_how_to_go_on(gateway: Local) -> None:
    async with terminal("stream", "Read my mail", "-u", gateway.url) as screen:
        await screen.until(PROMPT)
        screen.type("\x04")
        await screen.until("  auth required\n")
        await screen.until("next: ")
        await screen.until(" 'your next message'\n")
        assert await screen.ended() == 14
    assert " --task " in screen.shown


async def test_watch_shows_the_page_of_a_task_that_waits_and_goes_on_with_it(gateway: Local, mail: A2A) -> None:
    task = await mail.send("Read my mail")
    async with terminal("tasks", "watch", task["id"], "-u", gateway.url) as screen:
        for _ in range(2):
            await screen.until(f"{PAGE}\n{PROMPT}")
            screen.type("\n")
        await screen.until("Read my mail | That is done.")
        assert await screen.ended() == 0


async def test_chat_shows_the_page_and_goes_on_with_enter_or_with_words(gateway: Local) -> None:
    async with terminal("chat", "mail", "-u", gateway.url) as screen:
        await screen.until("> ")
        screen.type("Read my mail\n")
        await screen.until(f"{PAGE}\n{PROMPT}")
        screen.type("\x04")
        await screen.until("(auth required: the next line goes to the same task)\n> ")
        screen.type("/answer\n")
        await screen.until(f"{PAGE}\n{PROMPT}")
        screen.type("\n")
        await screen.until(f"{PAGE}\n{PROMPT}")
        screen.type("now\n")
        await screen.until("Read my mail | That is done. Please go on. | now\n> ")
        screen.type("\x04")
        assert await screen.ended() == 0


async def test_the_next_line_of_a_pipe_goes_on_with_a_chat(gateway: Local, typing: Typing) -> None:
    ended = await typing("Read my mail\ndone\nreally\n", "chat", "mail", "-u", gateway.url)
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "Read my mail | done | really"


@pytest.mark.parametrize("more", [(), ("--approve", "yes")])
async def test_in_a_pipe_consent_is_not_assumed(
    gateway: Local, mail: A2A, typing: Typing, more: tuple[str, ...]
) -> None:
    ended = await typing("", "stream", "Read my mail", "-u", gateway.url, *more)
    assert (ended.code, ended.out.splitlines()[-1]) == (14, PAGE)
    [line] = [line for line in ended.err.splitlines() if line.startswith("context ")]
    [context] = [word for word in line.split() if len(word) > 20][:1]
    [task] = await mail.tasks(context)
    assert task["status"]["state"] == WAITING
