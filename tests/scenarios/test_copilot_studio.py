"""A bot behind Direct Line, from a caller on the wire to the bot: two turns of a conversation, and what can go wrong in
either."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.emulators.direct_line import TOKEN_ENDPOINT, DirectLine
from tests.emulators.direct_line_bots import scripted
from tests.emulators.scripts import Conversation, Fail, Item, Pause, Say, ServerTool, Status, Step
from tests.running import AT_ONCE, StartLocal, child_gateways, local_gateway
from tests.support.polling import until
from tests.support.rows import everything

CANCELED = "TASK_STATE_CANCELED"
TURNS = pytest.mark.parametrize("turn", [1, 2])


class Bot:
    """A bot behind Direct Line. It repeats what it is told, unless the message has a script of its own."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Step]] = {}
        self.line = DirectLine(scripted(lambda: self._script))

    def _script(self, conversation: Conversation) -> list[Step]:
        return self.scripts.get(conversation.text) or [Say(f"{len(conversation.user_texts)}: {conversation.text}")]

    def heard(self) -> list[str]:
        return [activity["text"] for activity in self.line.requests]

    def agent(self, more: str = "") -> str:
        line = f"{{secret: '{self.line.secret}', url: '{self.line.url}', quiet: 200ms, typing: 400ms, poll: 100ms}}"
        return f"bot: {{type: copilot-studio, direct_line: {line}{more}}}"

    def agent_of_endpoint(self) -> str:
        endpoint = f"token_endpoint: '{self.line.origin}{TOKEN_ENDPOINT}'"
        return self.agent().replace(f"secret: '{self.line.secret}'", endpoint)


@pytest.fixture
async def bot() -> AsyncGenerator[Bot]:
    found = Bot()
    async with found.line.serve():
        yield found


@pytest.fixture
async def talk(bot: Bot, start_local: StartLocal) -> AsyncGenerator[A2A]:
    gateway = await start_local(bot.agent(), pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "bot")


@asynccontextmanager
async def talking(url: str) -> AsyncIterator[A2A]:
    async with a2a_http(url) as http:
        yield A2A(http, "bot")


async def context_of(talk: A2A, turn: int) -> str | None:
    """The context in which the next message is that of this turn."""
    context: str | None = (await talk.send("first"))["contextId"] if turn == 2 else None
    return context


async def test_two_turns_are_one_conversation_whose_id_no_caller_sees(bot: Bot, talk: A2A) -> None:
    first = await talk.send("one")
    second = await talk.send("two", first["contextId"])
    assert [text_of(task) for task in (first, second)] == ["1: one", "2: two"]
    [handle] = bot.line.conversations
    assert handle.encode() not in talk.seen


@TURNS
async def test_a_stream_that_is_cut_goes_on_without_a_sign(bot: Bot, talk: A2A, turn: int) -> None:
    context, go = await context_of(talk, turn), asyncio.Event()
    bot.scripts["slow"] = [Say("one "), Pause(go), Say("two")]
    async with talk.stream("slow", context) as stream:
        await stream.read_until(lambda frames: "one" in streamed_text(frames))
        bot.line.only.cut()
        go.set()
        frames = await stream.rest()
    assert streamed_text(frames) == "one two"
    assert frames[-1].event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@TURNS
async def test_a_caller_who_left_subscribes_again(bot: Bot, talk: A2A, turn: int) -> None:
    context, go = await context_of(talk, turn), asyncio.Event()
    bot.scripts["slow"] = [Say("one "), Pause(go), Say("two")]
    async with talk.stream("slow", context) as stream:
        seen = await stream.read_until(lambda frames: "one" in streamed_text(frames))
        task = seen[0].event["task"]["id"]
        after = seen[-1].number
    async with talk.subscribe(task, after) as stream:
        go.set()
        rest = await stream.rest()
    assert streamed_text(rest) == "two"
    assert text_of(await talk.get(task)) == "one two"


@TURNS
async def test_a_cancelled_turn_ends_and_its_late_answer_is_not_taken_for_the_next(
    bot: Bot, talk: A2A, turn: int
) -> None:
    context, go = await context_of(talk, turn), asyncio.Event()
    bot.scripts["slow"] = [Say("one "), Pause(go), Say("two")]
    async with talk.stream("slow", context) as stream:
        seen = await stream.read_until(lambda frames: "one" in streamed_text(frames))
        task = seen[0].event["task"]
        cancelled = await talk.call("CancelTask", id=task["id"])
    assert cancelled["status"]["state"] == CANCELED
    go.set()
    following = await talk.send("next", task["contextId"])
    assert why(following) == COMPLETED
    assert text_of(following).endswith("next")
    assert "two" not in text_of(following)


async def test_messages_to_one_context_at_once_take_their_turns(bot: Bot, talk: A2A) -> None:
    context = (await talk.send("first"))["contextId"]
    tasks = await asyncio.gather(*(talk.send(f"m{n}", context, messageId=f"m{n}") for n in range(3)))
    assert sorted(text_of(task).partition(": ")[0] for task in tasks) == ["2", "3", "4"]
    assert len(bot.line.conversations) == 1


async def test_contexts_at_once_do_not_meet(bot: Bot, talk: A2A) -> None:
    tasks = await asyncio.gather(*(talk.send(f"m{n}", messageId=f"m{n}") for n in range(5)))
    assert [text_of(task) for task in tasks] == [f"1: m{n}" for n in range(5)]
    assert len(bot.line.conversations) == 5


async def test_two_steps_of_a_plan_are_two_tool_calls_of_the_agent(bot: Bot, talk: A2A) -> None:
    steps = [ServerTool("mcp", name, {"q": name}, f"found {name}") for name in ("a", "b")]
    bot.scripts["plan"] = [*steps, Say("Done")]
    async with talk.stream("plan") as stream:
        frames = await stream.rest()
    task = await talk.get(frames[0].event["task"]["id"])
    assert (why(task), text_of(task)) == (COMPLETED, "Done")


async def test_a_step_without_an_outcome_does_not_hold_the_turn_up(bot: Bot, talk: A2A) -> None:
    value = {"stepId": "s", "taskDialogId": "find"}
    ended = Item({"type": "endOfConversation", "code": "completedSuccessfully"})
    triggered = Item({"type": "event", "name": "DynamicPlanStepTriggered", "value": value})
    bot.scripts["plan"] = [triggered, Say("Done"), ended]
    task = await talk.send("plan")
    assert (why(task), text_of(task)) == (COMPLETED, "Done")


async def test_a_question_is_answered_in_its_task(bot: Bot, talk: A2A) -> None:
    actions = [{"type": "imBack", "title": "Yes", "value": "y"}]
    bot.scripts["ask"] = [Item({"type": "message", "text": "Sure?", "suggestedActions": {"actions": actions}})]
    asked = await talk.send("ask")
    assert why(asked) == ("TASK_STATE_INPUT_REQUIRED", "Sure?")
    done = await talk.send("y", asked["contextId"], taskId=asked["id"])
    assert (done["id"], why(done), text_of(done)) == (asked["id"], COMPLETED, "2: y")


async def test_a_fault_before_the_message_is_sent_is_no_fault_of_the_turn(bot: Bot, talk: A2A) -> None:
    context = (await talk.send("first"))["contextId"]
    bot.line.refuse("GET /conversations/{id}", 503, "ServiceError")
    assert text_of(await talk.send("next", context)) == "2: next"
    assert bot.heard() == ["first", "next"]


@pytest.mark.parametrize("by", ["secret", "token_endpoint"])
async def test_a_limit_of_requests_is_waited_for(bot: Bot, start_local: StartLocal, by: str) -> None:
    gateway = await start_local(bot.agent() if by == "secret" else bot.agent_of_endpoint(), pace=AT_ONCE)
    bot.line.refuse("POST /conversations/{id}/activities", 429, Retry_After="0")
    async with talking(gateway.url) as talk:
        assert text_of(await talk.send("one")) == "1: one"
    assert bot.heard() == ["one"]
    assert len(bot.line.conversations) == 1


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([Fail()], ErrorClass.BACKEND_FAILED),
        ([Status(400, {"error": {"code": "BadArgument", "message": "No."}})], ErrorClass.REJECTED),
        ([Status(403, {"error": {"code": "BadArgument", "message": "No."}})], ErrorClass.UNAUTHORISED),
    ],
    ids=["bot", "content", "credentials"],
)
async def test_a_failure_is_told_by_its_class_and_the_conversation_goes_on(
    bot: Bot, talk: A2A, script: list[Step], kind: ErrorClass
) -> None:
    context = (await talk.send("first"))["contextId"]
    bot.scripts["bad"] = script
    bad = await talk.send("bad", context)
    assert bad["status"]["message"]["metadata"]["errorClass"] == kind
    assert why(await talk.send("next", context)) == COMPLETED
    assert len(bot.line.conversations) == 1


async def test_a_conversation_that_is_gone_is_an_error_of_its_own(bot: Bot, talk: A2A) -> None:
    context = (await talk.send("first"))["contextId"]
    bot.line.conversations.clear()
    assert why(await talk.send("next", context)) == failed(ErrorClass.HANDLE_NOT_FOUND)


async def test_a_conversation_that_is_gone_is_told_again_where_the_agent_says_so(
    bot: Bot, start_local: StartLocal
) -> None:
    gateway = await start_local(bot.agent(", on_lost_handle: rebuild"), pace=AT_ONCE)
    async with talking(gateway.url) as talk:
        context = (await talk.send("first"))["contextId"]
        bot.line.conversations.clear()
        assert why(await talk.send("next", context)) == COMPLETED
    assert bot.heard()[-1] == "Earlier in this conversation:\n\nUser: first\n\nYou: 1: first\n\nNow:\n\nnext"


END = {"type": "endOfConversation", "from": {"id": "bot", "role": "bot"}}


@TURNS
async def test_an_answer_that_cannot_be_read_costs_one_turn_and_its_message_is_not_sent_again(
    bot: Bot, talk: A2A, turn: int
) -> None:
    context = await context_of(talk, turn)
    bot.scripts["odd"] = [Item({"type": "message", "text": {"a": 1}})]
    odd = await talk.send("odd", context)
    assert why(odd) == failed(ErrorClass.CONTRACT_BROKEN)
    for number, words in enumerate(("next", "last"), turn + 1):
        assert text_of(await talk.send(words, odd["contextId"])) == f"{number}: {words}"
    assert bot.heard() == [*(["first"] if turn == 2 else []), "odd", "next", "last"]
    assert len(bot.line.conversations) == 1


@TURNS
async def test_a_conversation_that_cannot_be_read_at_all_takes_no_message_twice(bot: Bot, talk: A2A, turn: int) -> None:
    context = await context_of(talk, turn)
    bot.scripts["odd"] = [Item({"type": "message", "text": {"a": 1}})]
    odd = await talk.send("odd", context)
    # That of the look at the call, and that before the next message.
    bot.line.broken_lists = 2
    assert why(await talk.send("next", odd["contextId"])) == COMPLETED
    assert bot.heard()[-2:] == ["odd", "next"]
    assert len(bot.line.conversations) == 1


@pytest.mark.parametrize("rebuilds", [False, True])
async def test_a_conversation_that_the_bot_has_ended_between_two_turns_is_lost(
    bot: Bot, start_local: StartLocal, rebuilds: bool
) -> None:
    gateway = await start_local(bot.agent(", on_lost_handle: rebuild" if rebuilds else ""), pace=AT_ONCE)
    async with talking(gateway.url) as talk:
        context = (await talk.send("first"))["contextId"]
        await bot.line.only.add(END)
        for words in ("next", "last"):
            assert why(await talk.send(words, context)) == (
                COMPLETED if rebuilds else failed(ErrorClass.HANDLE_EXPIRED)
            )
    told = ["Earlier in this conversation:\n\nUser: first\n\nYou: 1: first\n\nNow:\n\nnext", "last"]
    assert bot.heard() == ["first", *(told if rebuilds else [])]


async def test_a_cancelled_answer_is_told_in_no_later_turn(bot: Bot, talk: A2A) -> None:
    context, go = await context_of(talk, 2), asyncio.Event()
    bot.line.answers_at_once = True
    bot.scripts["slow"] = [Pause(go), Item({"type": "message", "text": "late"})]
    async with talk.stream("slow", context) as stream:
        seen, *_ = await stream.read_until(bool)
        await until(lambda: bot.heard()[-1] == "slow")
        await talk.call("CancelTask", id=seen.event["task"]["id"])
    assert text_of(await talk.send("next", context)) == "3: next"
    before = len(bot.line.only.log)
    go.set()
    await until(lambda: len(bot.line.only.log) > before)
    assert text_of(await talk.send("last", context)) == "4: last"


@pytest.mark.parametrize("status", [400, 413, 415, 422])
@TURNS
async def test_a_message_that_was_not_sent_is_not_refused(bot: Bot, talk: A2A, status: int, turn: int) -> None:
    context = await context_of(talk, turn)
    bot.line.refuse("POST /conversations" if turn == 1 else "GET /conversations/{id}", status)
    refused = await talk.send("one", context)
    assert why(refused) == failed(ErrorClass.NOT_SERVED)
    assert why(await talk.send("two", refused["contextId"])) == COMPLETED
    assert bot.heard()[-1] == "one\n\ntwo"


@TURNS
async def test_a_turn_outlives_its_gateway(bot: Bot, tmp_path: Path, turn: int) -> None:
    go = asyncio.Event()
    bot.scripts["slow"] = [Say("one "), Pause(go), Say("two")]
    async with child_gateways(bot.agent(), tmp_path) as start:
        first = await start()
        async with talking(first.url) as talk:
            context = await context_of(talk, turn)
            async with talk.stream("slow", context) as stream:
                seen = await stream.read_until(lambda frames: "one" in streamed_text(frames))
                await first.kill()
        task = seen[0].event["task"]
        second = await start()
        go.set()
        async with talking(second.url) as talk:
            await until(lambda: _ended(talk, task["id"]))
            assert text_of(await talk.get(task["id"])) == "one two"
            assert why(await talk.send("next", task["contextId"])) == COMPLETED
    assert bot.heard() == [*(["first"] if turn == 2 else []), "slow", "next"]


async def test_a_restart_between_two_turns_changes_nothing(bot: Bot, tmp_path: Path) -> None:
    async with child_gateways(bot.agent(), tmp_path) as start:
        first = await start()
        async with talking(first.url) as talk:
            context = (await talk.send("one"))["contextId"]
        await first.kill()
        async with talking((await start()).url) as talk:
            assert text_of(await talk.send("two", context)) == "2: two"
    assert len(bot.line.conversations) == 1


async def _ended(talk: A2A, task: str) -> bool:
    return (await talk.get(task))["status"]["state"] not in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")


async def test_no_secret_is_stored(bot: Bot, start_local: StartLocal) -> None:
    gateway = await start_local(bot.agent())
    async with talking(gateway.url) as talk:
        await talk.send("one")
    dump = everything(gateway.database)
    assert bot.line.only.id in dump
    assert bot.line.secret not in dump
    assert "eyJ" not in dump


async def test_the_token_of_a_conversation_is_sealed_and_not_exported(
    bot: Bot, start_local: StartLocal, tmp_path: Path
) -> None:
    agent = bot.agent_of_endpoint()
    gateway = await start_local(agent)
    async with talking(gateway.url) as talk:
        context = (await talk.send("one"))["contextId"]
        assert text_of(await talk.send("two", context)) == "2: two"
        exported = (await talk.http.get(f"/admin/api/v1/contexts/{context}")).text
    assert bot.line.only.id in exported
    assert "eyJ" not in exported
    assert "eyJ" not in everything(gateway.database)
    (tmp_path / "other").mkdir()
    async with local_gateway(agent, tmp_path / "other") as other, talking(other.url) as talk:
        taken = await talk.http.post("/admin/api/v1/contexts:import", content=exported)
        assert taken.status_code in {200, 201}
        assert why(await talk.send("three", context)) == failed(ErrorClass.HANDLE_EXPIRED)
