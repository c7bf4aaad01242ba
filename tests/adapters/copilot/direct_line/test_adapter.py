"""Turns of a bot: what is sent, what is told, and when a turn is over."""

import asyncio
import base64
import json
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
from tests.adapters.copilot.direct_line.conftest import Adapt, echo
from tests.emulators.direct_line import DirectLine, LineConversation, Refused
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
    assert (error.kind, error.hint) == (ErrorClass.UNSENDABLE, "A file is no base64.")
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


async def test_a_file_that_is_gone_is_told_by_its_address_without_the_token(line: DirectLine, adapt: Adapt) -> None:
    url = line.link("gone.png")
    plays(line, message("here", attachments=[{"contentType": "image/png", "contentUrl": url}]))
    [file] = of_type(await collect(adapt(), request("Hi")), PartReady)
    assert file.part.url == url.partition("?")[0]


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


async def test_a_greeting_that_does_not_say_so_is_not_taken_for_the_answer(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    plays(line, message("Welcome!", replyToId=None, inputHint="expectingInput"), Delay(0.6), message("you said Hi"))
    adapter = adapt(typing="20s")
    done = await collect(adapter, request("Hi"))
    assert words(done) == ["Welcome!", "you said Hi"]
    assert completed(done).state["replies"] is True
    plays(line, message("By the way", replyToId=None), Delay(0.6), message("you said that"))
    assert words(await collect(adapter, following(completed(done)))) == ["By the way", "you said that"]


async def test_a_bot_that_never_says_what_it_answers_is_waited_for_longer_in_its_first_turn_only(
    line: DirectLine, adapt: Adapt
) -> None:
    plays(line, message("one", replyToId=None))
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    assert done.state["replies"] is False
    again = await collect(adapt(typing="20s"), following(done))
    assert words(again) == ["one"]


async def test_a_bot_that_never_answers_has_failed_and_is_not_waited_for_again(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Item({"type": "typing"}))
    assert (await failure(adapt(HURRIED), request("Hi"))).kind is ErrorClass.BACKEND_FAILED


async def test_a_message_in_pieces_that_never_ends_has_failed(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True
    plays(line, Say("Hel"), Pause(asyncio.Event()))
    assert (await failure(adapt(HURRIED), request("Hi"))).kind is ErrorClass.BACKEND_FAILED


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


async def ended(line: DirectLine, **more: Any) -> None:
    await line.only.add({"type": "endOfConversation", "from": {"id": "bot", "role": "bot"}, **more})


@pytest.mark.parametrize("sockets", [True, False])
async def test_a_conversation_that_the_bot_ends_between_two_turns_takes_no_message(
    line: DirectLine, adapt: Adapt, sockets: bool
) -> None:
    line.sockets = sockets
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    await ended(line, replyToId=done.state["last"])
    for _ in range(2):
        assert (await failure(adapter, following(done))).kind is ErrorClass.HANDLE_EXPIRED
    assert [activity["text"] for activity in line.requests] == ["Hi"]


async def test_a_conversation_that_the_bot_ends_while_it_refuses_a_message_has_expired(
    line: DirectLine, adapt: Adapt
) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))

    async def bot(_: DirectLine, conversation: LineConversation, __: Json) -> Any:
        await ended(line)
        joined = line.calls.count("GET /conversations/{id}")
        await conversation.disconnect()
        # It has read what came before the end of its connection.
        await until(lambda: line.calls.count("GET /conversations/{id}") > joined)
        raise Refused(400, "BadArgument", "It has ended")

    line.bot = bot
    assert (await failure(adapter, following(done))).kind is ErrorClass.HANDLE_EXPIRED


# --- what cannot be read


UNREADABLE: Json = {"type": "message", "text": {"a": 1}}


async def test_an_answer_that_cannot_be_read_costs_its_own_turn(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Item(UNREADABLE))
    adapter = adapt()
    assert (await failure(adapter, request("Hi"))).kind is ErrorClass.CONTRACT_BROKEN
    tail = await adapter.tail(request("Hi", handle=line.only.id))
    assert tail is not None
    assert (tail.held, text(tail.answer)) == (1, "")
    line.bot = scripted(lambda: echo)
    assert words(await collect(adapter, following(completed(tail.answer)))) == ["you said And now?"]


@pytest.mark.parametrize("more", [{}, {"replyToId": "another"}])
async def test_what_cannot_be_read_and_is_not_the_answer_is_passed_over(
    line: DirectLine, adapt: Adapt, more: Json
) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    await line.only.add({**UNREADABLE, "from": {"id": "bot"}, **more})
    plays(line, Item({**UNREADABLE, "replyToId": None, **more}), message("fine"))
    assert words(await collect(adapter, following(done))) == ["fine"]


async def test_a_conversation_whose_past_cannot_be_read_goes_on(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    line.broken_lists = 1
    again = completed(await collect(adapter, following(done)))
    assert again.state["watermark"] == "3"


@pytest.mark.parametrize("escape", ["\\ud83d", "\\uDE00x"])
async def test_half_a_character_is_replaced(line: DirectLine, adapt: Adapt, escape: str) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        activity = {"type": "message", "id": "odd", "from": {"id": "bot"}, "text": "TEXT"}
        frame = {"activities": [activity], "watermark": "1"}
        await line.only.send_raw(json.dumps(frame).replace("TEXT", escape))
        yield Item({"type": "event", "name": "done"})

    line.bot = scripted(lambda: script)
    [word] = words(await collect(adapt(), request("Hi")))
    assert word.startswith("\ufffd")


# --- what belongs to another turn


@pytest.mark.parametrize("names", [True, False], ids=["numbered", "unnumbered"])
async def test_a_service_that_obeys_no_watermark_has_nothing_told_twice(
    line: DirectLine, adapt: Adapt, names: bool
) -> None:
    line.obeys_watermarks, line.numbers_activities = False, names
    adapter = adapt()
    done = completed(await collect(adapter, request("1")))
    for number in "234":
        events = await collect(adapter, following(done, number))
        assert words(events) == [f"you said {number}"]
        done = completed(events)


async def test_a_message_that_was_given_up_is_not_answered_in_a_later_turn(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    mine = {"id": done.state["user"], "role": "user"}
    given_up = await line.only.add({"type": "message", "text": "Slow", "from": mine})
    done = completed(await collect(adapter, following(done)))
    await line.only.add({"type": "message", "text": "slow answer", "from": {"id": "bot"}, "replyToId": given_up})
    assert words(await collect(adapter, following(done, "3"))) == ["you said 3"]


async def test_what_follows_the_answer_of_a_tail_is_told_in_no_turn(line: DirectLine, adapt: Adapt) -> None:
    adapter, asked = adapt(), request("Hi")
    await cut_off(line, adapter, asked)
    await until(lambda: len(line.only.log) == 2)
    tail = await adapter.tail(request("Hi", handle=line.only.id))
    assert tail is not None
    name = line.only.log[0]["id"]
    await line.only.add({"type": "message", "text": "and more", "from": {"id": "bot"}, "replyToId": name})
    line.bot = scripted(lambda: echo)
    assert words(await collect(adapter, following(completed(tail.answer)))) == ["you said And now?"]


async def test_an_adopted_conversation_is_not_told(line: DirectLine, adapt: Adapt) -> None:
    line.sockets = False
    handle = completed(await collect(adapt(), request("Hi"))).handle
    assert words(await collect(adapt(), request("And now?", handle=handle))) == ["you said And now?"]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
@pytest.mark.parametrize("turn", [1, 2])
async def test_a_refusal_of_a_request_without_the_message_is_not_about_the_message(
    line: DirectLine, adapt: Adapt, status: int, turn: int
) -> None:
    adapter, asked = adapt(), request("Hi")
    if turn == 2:
        asked = following(completed(await collect(adapter, asked)))
    line.refuse("POST /conversations" if turn == 1 else "GET /conversations/{id}", status)
    assert (await failure(adapter, asked)).kind is ErrorClass.NOT_SERVED


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
    assert (tail.held, text(tail.answer)) == (1, "")
    assert list(completed(tail.answer).state["given_up"]) == [line.only.log[0]["id"]]


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
    assert error.kind is ErrorClass.NOT_SERVED
    assert line.calls == []
