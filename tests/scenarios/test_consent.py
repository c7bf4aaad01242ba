"""Consent at a third party: a task waits as AUTH_REQUIRED until its user has consented on a page. No message counts as the
consent: the service that asked for it checks again."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from adapters.openai.responses import adapter as openai_responses
from gateway.a2a.errors import TaskNotFound
from gateway.a2a.model import Task, TaskState
from gateway.a2a.tool_calls import URI
from gateway.agent import AuthRequired
from gateway.agent import Turn as PythonTurn
from gateway.core.agents import Agent
from gateway.ports.adapter import CallCompleted, ConsentAsked, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from gateway.testing.serving import serve
from tests.adapters.python.python_agents import agent_of
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Item, Say, Step
from tests.invariants import violations
from tests.scenarios.test_tool_loop import ALL, BOTH_WAYS, adapter_of, call
from tests.support.core import CARD, START, Core, answer, error_class, frames, outcome, query, running_core, states
from tests.support.push_harness import PushHarness
from tests.support.scripted import BR, G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools
from tests.tool_call_vectors import valid

PAGE = "https://login.example/consent?state=1"
AUTH = TaskState.AUTH_REQUIRED


def wants(*urls: str, handle: str = "r1") -> Script:
    return [*(ConsentAsked(url, "mcp:mail") for url in urls), CallCompleted(handle)]


def links(task: Task) -> list[str]:
    """The pages that the task waits for."""
    assert task.status.state is AUTH
    assert task.status.message is not None
    metadata: Any = task.status.message.metadata
    assert valid("consent", metadata[URI])
    return [link["url"] for link in metadata[URI]["consent"]["links"]]


def settled(core: Core) -> None:
    assert violations(core.path) == []


# --- asked by a backend


@ALL
@BOTH_WAYS
async def test_102_a_backend_that_needs_consent_leaves_its_task_waiting_with_the_page(
    core: Core, ownership: Ownership, streaming: bool
) -> None:
    core.agent(adapter_of(ownership, [TextDelta("One moment."), *wants(PAGE)]))
    if streaming:
        read = await frames(await core.stream("Read my mail", context="c"))
        assert states(read) == ["WORKING", "AUTH_REQUIRED"]
        [task] = (await core.list()).tasks
        task = await core.get(task.id)
    else:
        task = await core.send("Read my mail", context="c")
    assert links(task) == [PAGE]
    assert answer(task) == "One moment."
    assert task.status.message is not None
    words, link = (part.text or "" for part in task.status.message.parts)
    assert words.startswith("Your consent for mcp:mail is needed at a third party.")
    assert link == PAGE
    settled(core)


@ALL
async def test_120_the_next_message_goes_on_behind_the_answer_that_asked(core: Core, ownership: Ownership) -> None:
    adapter = adapter_of(ownership, wants(PAGE), says("Two letters.", "r2"))
    core.agent(adapter)
    task = await core.send("Read my mail")
    done = await core.send("I have done it", task=task.id)
    assert (done.status.state, answer(done)) == (TaskState.COMPLETED, "Two letters.")
    handle, sent = adapter.sent[1]
    if ownership is G:
        assert (handle, sent) == (None, ["U Read my mail", "U I have done it"])
    else:
        assert (handle, sent) == (adapter.requests[1].handle, ["U I have done it"])
        assert handle is not None
    settled(core)


async def test_120_words_are_no_consent_and_the_backend_may_ask_again(core: Core) -> None:
    core.agent(adapter_of(BR, wants(PAGE), wants(PAGE + "0", handle="r2"), says("Two letters.", "r3")))
    task = await core.send("Read my mail")
    again = await core.send("yes, I consent, go on", task=task.id)
    assert links(again) == [PAGE + "0"]
    assert (await core.send("now", task=task.id)).status.state is TaskState.COMPLETED
    settled(core)


@ALL
async def test_120_a_restart_while_a_task_waits_for_consent_loses_nothing(tmp_path: Path, ownership: Ownership) -> None:
    path, lease = tmp_path / "gateway.db", LeaseTimes(0.2)
    async with running_core(path, prefix="a", lease=lease) as first:
        first.agent(adapter_of(ownership, wants(PAGE)))
        task = await first.send("Read my mail")
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000, lease=lease) as second:
        adapter = adapter_of(ownership, says("Two letters.", "r2"))
        second.agent(adapter)
        assert await second.get(task.id) == task
        done = await second.send("I have done it", task=task.id)
        assert (done.status.state, answer(done)) == (TaskState.COMPLETED, "Two letters.")
        assert adapter.sent[0][1][-1] == "U I have done it"
        settled(second)


async def test_106_who_subscribes_to_a_task_that_waits_for_consent_hears_how_it_goes_on(core: Core) -> None:
    core.agent(adapter_of(BR, wants(PAGE), says("Two letters.", "r2")))
    task = await core.send("Read my mail")
    stream = await core.subscribe(task.id)
    await core.send("done", task=task.id)
    assert states(await frames(stream)) == ["AUTH_REQUIRED", "WORKING", "COMPLETED"]


async def test_102_a_notification_tells_that_consent_is_needed(core: Core) -> None:
    core.agent(adapter_of(BR, wants(PAGE)))
    push = PushHarness(core)
    await push.send("Read my mail")
    await push.deliver()
    assert push.posts.states == ["AUTH_REQUIRED"]


async def test_115_another_principal_sees_no_page_and_cannot_go_on(core: Core) -> None:
    core.agent(adapter_of(BR, wants(PAGE)))
    task = await core.send("Read my mail")
    eve = core.call("eve")
    with pytest.raises(TaskNotFound):
        await core.get(task.id, eve)
    with pytest.raises(TaskNotFound):
        await core.send("done", eve, task=task.id)
    assert links(await core.get(task.id)) == [PAGE]


async def test_119_a_task_that_waits_for_consent_can_be_cancelled_and_takes_no_more(core: Core) -> None:
    adapter = adapter_of(BR, wants(PAGE), says("fine", "r2"))
    core.agent(adapter)
    task = await core.send("Read my mail")
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert await outcome(core.send("done", task=task.id)) == "UnsupportedOperation"
    await core.send("Something else", context=task.context_id)
    assert adapter.sent[1] == ("r1", ["U Something else"])
    settled(core)


@ALL
async def test_111_a_call_beside_the_request_for_consent_is_not_run(core: Core, ownership: Ownership) -> None:
    """The next answer of the backend is made with the consent, and may want another call, or none."""
    adapter = adapter_of(ownership, [call("c1", "look"), *wants(PAGE)], says("done", "r2"))
    tools = ScriptedTools({"look": "seen"})
    core.agent(adapter, toolset=tools)
    task = await core.send("Read my mail")
    assert (links(task), tools.ran) == ([PAGE], [])
    assert query(core.path, "SELECT status FROM tool_call") == [("cancelled",)]
    done = await core.send("I have done it", task=task.id)
    assert (done.status.state, tools.ran) == (TaskState.COMPLETED, [])
    settled(core)


async def test_110_several_pages_are_named_once_each(core: Core) -> None:
    core.agent(adapter_of(BR, wants(PAGE, PAGE + "2", PAGE)))
    assert links(await core.send("Read my mail")) == [PAGE, PAGE + "2"]


@pytest.mark.parametrize("url", ["http://login.example/", "javascript:alert(1)", "https://" + "x" * 9000, ""])
async def test_104_an_address_that_nobody_should_open_fails_the_task_without_naming_it(core: Core, url: str) -> None:
    core.agent(adapter_of(BR, wants(url)))
    task = await core.send("Read my mail")
    assert (task.status.state, error_class(task)) == (TaskState.FAILED, ErrorClass.CONTRACT_BROKEN)
    assert "login.example" not in str(task)
    settled(core)


async def test_4_the_ids_that_the_backend_gave_the_request_stay_inside(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, wants(PAGE)))
    task = await core.send("Read my mail")
    assert task.status.message is not None
    metadata: Any = task.status.message.metadata
    [link] = metadata[URI]["consent"]["links"]
    assert link["id"].startswith("consent_id-")
    assert metadata[URI]["consent"]["requestId"].startswith("request_id-")


# --- on the wire of a Responses service


class Mailbox:
    """A service whose agent reads mail once `open` says that its user has consented."""

    def __init__(self) -> None:
        self.open = False
        self.server = ResponsesServer(self._play)

    def _play(self, conversation: Conversation) -> Iterable[Step]:
        if self.open:
            yield Say(" | ".join(conversation.user_texts))
            return
        body = {"type": "oauth_consent_request", "id": "oauthreq_1", "consent_link": PAGE, "server_label": "mail"}
        yield Item(body)


@pytest.fixture(params=["chain", "conversation", "gateway"])
async def mailbox(core: Core, request: pytest.FixtureRequest) -> AsyncGenerator[Mailbox, None]:
    mailbox = Mailbox()
    ways: dict[str, dict[str, Any]] = {
        "chain": {},
        "conversation": {"conversation": True},
        "gateway": {"history": {"owner": "gateway"}},
    }
    kept = ways[request.param]
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve(mailbox.server.app))
        settings = openai_responses.factory.settings.model_validate({"model": "m", "base_url": f"{url}/v1", **kept})
        adapter = openai_responses.factory.build(settings)
        stack.push_async_callback(adapter.aclose)
        core.default = Agent(name="mail", card=CARD, adapter=adapter)
        core.agents.append(core.default)
        yield mailbox


async def test_120_a_service_is_told_the_next_message_in_the_same_conversation(core: Core, mailbox: Mailbox) -> None:
    task = await core.send("Read my mail")
    assert links(task) == [PAGE]
    assert "oauthreq_1" not in str(task)
    mailbox.open = True
    done = await core.send("I have done it", task=task.id)
    assert (done.status.state, answer(done)) == (TaskState.COMPLETED, "Read my mail | I have done it")
    later = await core.send("And now?", context=task.context_id)
    assert answer(later).endswith("And now?")
    sent = [item.get("type") for body in mailbox.server.requests for item in body.get("input", ())]
    assert "oauth_consent_request" not in sent
    settled(core)


# --- asked by a function of one's own


@BOTH_WAYS
async def test_120_a_function_that_needs_authorisation_is_called_again_with_the_next_message(
    core: Core, streaming: bool
) -> None:
    def agent(turn: PythonTurn) -> str:
        visits = turn.state.get("visits", 0)
        turn.state["visits"] = visits + 1
        if not visits:
            raise AuthRequired(f"Sign in at {PAGE}, then tell me.")
        return f"{turn.text}: {len(turn.history)} said before"

    core.default = Agent(name="mail", card=CARD, adapter=agent_of(agent))
    core.agents.append(core.default)
    if streaming:
        assert states(await frames(await core.stream("Read my mail"))) == ["WORKING", "AUTH_REQUIRED"]
        [listed] = (await core.list()).tasks
        task = await core.get(listed.id)
    else:
        task = await core.send("Read my mail")
    assert task.status.state is AUTH
    assert task.status.message is not None
    assert [part.text for part in task.status.message.parts] == [f"Sign in at {PAGE}, then tell me."]
    done = await core.send("I did", task=task.id)
    assert (done.status.state, done.id) == (TaskState.COMPLETED, task.id)
    assert answer(done).startswith("I did: ")
    settled(core)
