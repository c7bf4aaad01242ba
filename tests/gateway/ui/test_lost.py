"""A conversation that its backend has lost, on the pages that show it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http, text_of
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.gateway.ui.test_pages import links
from tests.gateway.ui.visitor import Visitor, states_in_headings, visiting
from tests.running import AT_ONCE, Local, StartLocal


@dataclass
class Forgetful:
    """A backend that has forgotten a conversation before its second message, which stands at `context`."""

    server: ResponsesServer
    url: str
    gateway: Local
    context: str = ""

    def agent(self, more: str = "") -> str:
        return f"desk: {{type: openai-responses, model: m, base_url: '{self.url}/v1'{more}}}"


@pytest.fixture
async def forgetful(start_local: StartLocal) -> AsyncIterator[Forgetful]:
    server = ResponsesServer(lambda _: [Say("Hello.")])
    async with serve(server.app) as url:
        agent = f"desk: {{type: openai-responses, model: m, base_url: '{url}/v1'}}"
        made = Forgetful(server, url, await start_local(agent, pace=AT_ONCE))
        async with a2a_http(made.gateway.url) as http, visiting(made.gateway) as visitor:
            caller = A2A(http, "desk")
            await caller.send("one", "c-1")
            server.forget_everything()
            await caller.send("two", "c-1")
            await visitor.open("/ui/contexts")
            [made.context] = set(links(visitor, "/ui/contexts/"))
        yield made


@pytest.fixture
async def visitor(forgetful: Forgetful) -> AsyncIterator[Visitor]:
    async with visiting(forgetful.gateway) as visitor:
        yield visitor


async def test_the_next_message_of_a_lost_conversation_is_said_to_fail(forgetful: Forgetful, visitor: Visitor) -> None:
    page = await visitor.open(f"{forgetful.context}/next?agent=desk")
    assert "The backend has lost this conversation" in page
    assert "the next message fails, and nothing is sent" in page
    assert "the next request names" not in page


async def test_a_conversation_that_is_told_again_is_shown_as_the_next_request_then_carries_it(
    start_local: StartLocal, forgetful: Forgetful
) -> None:
    gateway = await start_local(forgetful.agent(", on_lost_handle: rebuild"), pace=AT_ONCE)
    async with visiting(gateway) as visitor, a2a_http(gateway.url) as http:
        page = await visitor.open(f"{forgetful.context}/next?agent=desk")
        assert "in epoch 2 and without a handle, and tells it again: it carries 3 items" in page
        assert text_of(await A2A(http, "desk").send("three", "c-1")) == "Hello."
    assert len(forgetful.server.requests[-1]["input"]) == 3 + 1


async def test_a_conversation_of_another_owner_is_said_to_be_refused(
    start_local: StartLocal, forgetful: Forgetful
) -> None:
    async with visiting(await start_local(forgetful.agent(", conversation: true"))) as visitor:
        page = await visitor.open(f"{forgetful.context}/next?agent=desk")
    assert "The next message is refused, and nothing is sent. This context goes on from an id" in page


async def test_the_heading_of_a_lost_conversation_says_that_it_is_lost(forgetful: Forgetful, visitor: Visitor) -> None:
    await visitor.open(forgetful.context)
    assert states_in_headings(visitor.html) == ["lost", "lost"]


async def test_a_lost_conversation_says_what_the_agent_is_set_to_and_what_to_do(
    start_local: StartLocal, forgetful: Forgetful, visitor: Visitor
) -> None:
    assert "messages fail until it is set to rebuild" in await visitor.open(forgetful.context)
    gateway = await start_local(forgetful.agent(", on_lost_handle: rebuild"), pace=AT_ONCE)
    async with visiting(gateway) as other:
        assert "the next message tells it the conversation again" in await other.open(forgetful.context)


async def test_a_handle_is_lost_once_however_many_messages_fail_for_it(forgetful: Forgetful, visitor: Visitor) -> None:
    async with a2a_http(forgetful.gateway.url) as http:
        await A2A(http, "desk").send("three", "c-1")
    page = await visitor.open(forgetful.context)
    moves = page.partition("Where its handle went")[2]
    assert (moves.count("lost : "), moves.count("failed : handle-expired")) == (1, 1)
