"""Turns of a bot: what is sent, what is told, and when a turn is over."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    ConsentAsked,
    Ending,
    ErrorClass,
    MessageReady,
    PartReady,
    Progress,
    ServiceRequest,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import UserItem
from gateway.testing.adapter_scripts import collect, completed, of_type, request, text
from tests.adapters.copilot.direct_line.conftest import Adapt
from tests.emulators.direct_line import DirectLine
from tests.emulators.direct_line_bots import scripted
from tests.emulators.scripts import Conversation, Delay, Fail, Item, Json, Pause, Say, ServerTool, Step, Think
from tests.support.polling import until

PATIENT: dict[str, Any] = {"quiet": "20s", "typing": "20s"}
"""Silences that a test would notice."""
HURRIED: dict[str, Any] = {"timeouts": {"first_byte": "1s"}}


def plays(line: DirectLine, *steps: Step) -> None:
    line.bot = scripted(lambda: lambda _: steps)


def message(words: str = "", **more: Any) -> Item:
    return Item({"type": "message", "text": words, **more})


def following(done: CallCompleted, words: str = "And now?", **changes: Any) -> ServiceRequest:
    return request(words, handle=done.handle, state=done.state, **changes)


def sending(*parts: Part) -> ServiceRequest:
    given = Message(message_id="m", role=Role.USER, parts=parts)
    return request("", items=(UserItem(given),), message=given)


async def failure(adapter: Any, asked: ServiceRequest) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, asked)
    return caught.value


def words(events: Any) -> list[str]:
    return [event.text for event in of_type(events, MessageReady)]


# --- what is sent


async def test_a_message_is_sent_as_the_same_user_in_every_turn(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt({"locale": "de-DE"})
    done = completed(await collect(adapter, request("Hi")))
    await collect(adapter, following(done))
    first, second = line.requests
    assert first["from"] == second["from"] == {"id": done.state["user"]}
    assert first["from"]["id"].startswith("a2a_")
    assert (first["type"], first["text"], first["locale"]) == ("message", "Hi", "de-DE")
    assert line.only.user == done.state["user"]


async def test_each_context_is_another_user(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    one, other = [completed(await collect(adapter, request("Hi"))) for _ in range(2)]
    assert one.handle != other.handle
    assert one.state["user"] != other.state["user"]


async def test_files_are_uploaded_beside_the_words_and_the_data(line: DirectLine, adapt: Adapt) -> None:
    raw = base64.b64encode(b"hello").decode()
    file = Part(raw=raw, media_type="text/plain", filename="a.txt")
    link = Part(url="https://files.example/b.png", media_type="image/png")
    await collect(adapt(), sending(Part(text="look"), file, link, Part(data={"a": 1})))
    assert line.uploads == [("a.txt", "text/plain", b"hello")]
    [posted] = line.requests
    assert (posted["text"], posted["value"]) == ("look", {"a": 1})
    assert [attachment["contentType"] for attachment in posted["attachments"]] == ["image/png", "text/plain"]


async def test_a_file_that_is_no_base64_is_refused_before_anything_is_sent(line: DirectLine, adapt: Adapt) -> None:
    error = await failure(adapt(), sending(Part(raw="no!")))
    assert error.kind is ErrorClass.REJECTED
    assert line.calls == []


# --- what is told


async def test_all_that_a_bot_says_in_a_turn_is_told(line: DirectLine, adapt: Adapt) -> None:
    plays(
        line,
        Think("thinking"),
        Say("Let me see.", 2),
        ServerTool("mcp", "find", {"id": 7}, "found"),
        message("It is 7."),
    )
    events = await collect(adapt(), request("Hi"))
    assert words(events) == ["Let me see.", "It is 7."]
    assert of_type(events, Progress) == [Progress("thinking")]
    assert [event.output for event in of_type(events, ToolResultReady)] == ["found"]


async def test_a_file_that_the_service_keeps_comes_with_its_bytes(line: DirectLine, adapt: Adapt) -> None:
    line.files["a.png"] = b"picture", "image/png"
    attachments = [
        {"contentType": "image/png", "contentUrl": line.link("a.png"), "name": "a.png"},
        {"contentType": "image/png", "contentUrl": "https://files.example/b.png"},
    ]
    plays(line, message("here", attachments=attachments))
    kept, other = of_type(await collect(adapt(), request("Hi")), PartReady)
    raw = base64.b64encode(b"picture").decode()
    assert kept.part == Part(raw=raw, media_type="image/png", filename="a.png")
    assert other.part == Part(url="https://files.example/b.png", media_type="image/png")


async def test_a_file_that_is_gone_is_told_by_its_address(line: DirectLine, adapt: Adapt) -> None:
    url = line.link("gone.png")
    plays(line, message("here", attachments=[{"contentType": "image/png", "contentUrl": url}]))
    [file] = of_type(await collect(adapt(), request("Hi")), PartReady)
    assert file.part.url == url


async def test_a_file_at_what_is_no_address_is_told_as_it_is(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("here", attachments=[{"contentType": "image/png", "contentUrl": "https://[files/a.png"}]))
    [file] = of_type(await collect(adapt(), request("Hi")), PartReady)
    assert file.part.url == "https://[files/a.png"


async def test_a_question_ends_the_turn_and_is_answered_in_the_next(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("Sure?", suggestedActions={"actions": [{"type": "imBack", "title": "Yes", "value": "y"}]}))
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    assert done.ending is Ending.INPUT_REQUIRED
    await collect(adapter, following(done, "y"))
    assert [activity["text"] for activity in line.requests] == ["Hi", "y"]


async def test_a_bot_that_expects_input_ends_its_turn_by_that(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("Your name?", inputHint="expectingInput"))
    done = completed(await collect(adapt(**PATIENT), request("Hi")))
    assert done.message == (Part(text="Your name?"),)


async def test_consent_is_asked_for_with_its_page(line: DirectLine, adapt: Adapt) -> None:
    buttons = [{"type": "signin", "title": "Sign in", "value": "https://login.example/"}]
    content = {"text": "Please", "connectionName": "mail", "buttons": buttons}
    plays(line, message(attachments=[{"contentType": "application/vnd.microsoft.card.oauth", "content": content}]))
    events = await collect(adapt(), request("Hi"))
    assert of_type(events, ConsentAsked) == [ConsentAsked("https://login.example/", "oauth:mail", "Please")]


# --- when a turn is over


async def test_a_service_that_takes_a_message_at_once_is_listened_to(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    assert text(await collect(adapt(), request("Hi"))) == "you said Hi"


async def test_a_bot_that_works_longer_than_the_service_waits_is_listened_to(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    line.refuse_after("POST /conversations/{id}/activities", 504, "GatewayTimeout")
    assert text(await collect(adapt(), request("Hi"))) == "you said Hi"


async def test_a_bot_that_pauses_while_it_works_is_not_done(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("one"), Delay(0.6), message("two"))
    assert words(await collect(adapt(), request("Hi"))) == ["one", "two"]


async def test_a_greeting_is_told_and_is_not_taken_for_the_answer(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    plays(line, message("Welcome!", replyToId="start"), Delay(0.6), message("you said Hi"))
    assert words(await collect(adapt(), request("Hi"))) == ["Welcome!", "you said Hi"]


async def test_a_bot_that_never_answers_has_timed_out(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Item({"type": "typing"}))
    assert (await failure(adapt(HURRIED), request("Hi"))).kind is ErrorClass.TIMED_OUT


async def test_a_message_in_pieces_that_never_ends_has_timed_out(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    plays(line, Say("Hel"), Pause(asyncio.Event()))
    assert (await failure(adapt(HURRIED), request("Hi"))).kind is ErrorClass.TIMED_OUT


async def test_who_listens_again_to_a_bot_that_never_answers_hears_that_it_has_failed(
    line: DirectLine, adapt: Adapt
) -> None:
    adapter = adapt(HURRIED)
    handle = completed(await collect(adapter, request("Hi"))).handle
    with pytest.raises(AdapterError) as caught:
        async for _ in adapter.resume(request("Hi"), Ongoing(handle, "unknown")):
            pass
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


async def test_a_failing_bot_fails_the_turn_and_not_the_service(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Fail())
    error = await failure(adapt(), request("Hi"))
    assert (error.kind, error.backend_down) == (ErrorClass.BACKEND_FAILED, False)


async def test_a_conversation_that_the_bot_ends_is_over_at_once_and_for_good(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("Bye."), Item({"type": "endOfConversation", "code": "completedSuccessfully"}))
    adapter = adapt(**PATIENT)
    done = completed(await collect(adapter, request("Hi")))
    assert done.state["ended"] is True
    before = len(line.calls)
    assert (await failure(adapter, following(done))).kind is ErrorClass.HANDLE_EXPIRED
    assert len(line.calls) == before


async def test_a_conversation_that_ends_in_a_failure_without_a_word_has_failed(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Item({"type": "endOfConversation", "code": "botTimedOut"}))
    assert (await failure(adapt(**PATIENT), request("Hi"))).kind is ErrorClass.BACKEND_FAILED


# --- what belongs to another turn


async def test_what_a_bot_says_behind_the_end_of_its_turn_begins_the_next(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    await line.only.add(
        {"type": "message", "text": "One more thing.", "from": {"id": "bot"}, "replyToId": done.state["last"]}
    )
    assert words(await collect(adapter, following(done))) == ["One more thing.", "you said And now?"]


async def test_the_answer_to_a_message_that_was_given_up_is_left_out(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    mine = {"id": done.state["user"], "role": "user"}
    given_up = await line.only.add({"type": "message", "text": "Slow", "from": mine})
    await line.only.add({"type": "message", "text": "slow answer", "from": {"id": "bot"}, "replyToId": given_up})
    assert words(await collect(adapter, following(done))) == ["you said And now?"]


async def test_messages_of_several_conversations_at_once_do_not_meet(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()

    async def asked(words: str) -> str:
        return text(await collect(adapter, request(words)))

    assert await asyncio.gather(*(asked(f"m{number}") for number in range(10))) == [
        f"you said m{number}" for number in range(10)
    ]


# --- a call of unknown outcome


async def cut_off(line: DirectLine, adapter: Any, asked: ServiceRequest) -> None:
    """A call whose listener leaves after the first text; its bot goes on to its end."""
    go = asyncio.Event()
    done = asyncio.Event()

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        try:
            yield Say("Hel")
            yield Pause(go)
            yield Say("lo")
        finally:
            done.set()

    line.bot = scripted(lambda: script)
    events = adapter.call(asked)
    async for event in events:
        if isinstance(event, TextDelta):
            break
    await events.aclose()
    go.set()
    await done.wait()


@pytest.mark.parametrize("turn", [1, 2])
async def test_the_tail_of_a_conversation_has_the_message_and_its_answer(
    line: DirectLine, adapt: Adapt, turn: int
) -> None:
    adapter, asked = adapt(), request("Hi")
    if turn == 2:
        asked = following(completed(await collect(adapter, asked)))
    await cut_off(line, adapter, asked)
    await until(lambda: len(line.only.log) == 2 * turn)
    asked = request(asked.message.parts[0].text or "", handle=line.only.id, state=asked.state)
    tail = await adapter.tail(asked)
    assert tail is not None
    assert (tail.held, text(tail.answer)) == (1, "Hello")
    done = completed(tail.answer)
    assert (done.handle, done.state["watermark"]) == (line.only.id, str(2 * turn - 1))


async def test_a_message_that_did_not_arrive_is_not_in_the_tail(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    tail = await adapter.tail(following(done))
    assert tail is not None
    assert (tail.held, tail.answer) == (0, ())


async def test_a_message_without_an_answer_is_held(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    plays(line, Pause(asyncio.Event()))
    adapter = adapt(HURRIED)
    asked = request("Hi")
    await failure(adapter, asked)
    tail = await adapter.tail(request("Hi", handle=line.only.id))
    assert tail is not None
    assert (tail.held, tail.answer) == (1, ())


async def test_a_conversation_that_never_began_holds_nothing(adapt: Adapt) -> None:
    tail = await adapt().tail(request("Hi"))
    assert tail is not None
    assert tail.held == 0


async def test_a_call_without_a_name_cannot_be_listened_to_again(adapt: Adapt) -> None:
    with pytest.raises(AdapterError) as caught:
        async for _ in adapt().resume(request("Hi"), Ongoing("c1", None)):
            pass
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


async def test_a_conversation_without_a_state_goes_on(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    handle = completed(await collect(adapter, request("Hi"))).handle
    assert text(await collect(adapter, request("And now?", handle=handle))) == "you said And now?"


@pytest.mark.parametrize("state", [[], "text", {"watermark": 5}])
async def test_a_state_of_another_form_is_not_taken_for_none(line: DirectLine, adapt: Adapt, state: Json) -> None:
    error = await failure(adapt(), request("And now?", handle="c1", state=state))
    assert error.kind is ErrorClass.CONTRACT_BROKEN
    assert line.calls == []
