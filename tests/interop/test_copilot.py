"""The gateway in front of a bot on Microsoft's 365 Agents SDK, behind the emulator of Direct Line; and the emulators in
front of Microsoft's own clients."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.adapters.emulator_support import KEY
from tests.emulators.copilot_engine import GREETING, CopilotEngine
from tests.emulators.direct_line import DirectLine
from tests.emulators.direct_line_bots import remote, scripted
from tests.emulators.scripts import Conversation, Say, Step, Think
from tests.interop.peer_processes import Peer, copilotstudio_client, directlinejs
from tests.running import Local, StartLocal

_ANSWER = "part0 part1 part2 part3 "
_WAITS = "TASK_STATE_INPUT_REQUIRED"


@pytest.fixture(params=[True, False], ids=["by WebSocket", "by polling"])
async def line(m365_peer: Peer, request: pytest.FixtureRequest) -> AsyncIterator[DirectLine]:
    found = DirectLine(remote(m365_peer.url))
    found.sockets = request.param
    async with found.serve():
        yield found


@pytest.fixture
async def gateway(line: DirectLine, start_local: StartLocal) -> Local:
    settings = f"{{secret: '{line.secret}', url: '{line.url}', quiet: 400ms, poll: 100ms}}"
    return await start_local(f"bot: {{type: copilot-studio, direct_line: {settings}}}")


@pytest.fixture
async def bot(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "bot")


def _choices(task: dict[str, Any]) -> list[dict[str, Any]]:
    [data] = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    found: list[dict[str, Any]] = data["choices"]
    return found


async def test_each_turn_goes_on_in_the_conversation_and_each_context_has_its_own(line: DirectLine, bot: A2A) -> None:
    first = await bot.send("one")
    second = await bot.send("two", first["contextId"])
    other = await bot.send("three")
    assert [text_of(task) for task in (first, second, other)] == ["1: one", "2: two", "1: three"]
    assert len(line.conversations) == 2
    assert not any(name.encode() in bot.seen for name in line.conversations)


async def test_an_answer_in_pieces_is_streamed_where_there_is_a_socket(line: DirectLine, bot: A2A) -> None:
    async with bot.stream("stream") as stream:
        frames = await stream.rest()
    assert streamed_text(frames) == _ANSWER
    updates = [frame for frame in frames if "artifactUpdate" in frame.event]
    assert (len(updates) > 1) == line.sockets


async def test_several_messages_are_one_answer(bot: A2A) -> None:
    assert text_of(await bot.send("several")) == "one\n\ntwo"


async def test_suggested_actions_are_a_question_with_choices(bot: A2A) -> None:
    asked = await bot.send("suggest")
    assert why(asked) == (_WAITS, "Which colour?")
    assert _choices(asked) == [{"title": "Red", "value": "red"}, {"title": "Blue", "value": "blue"}]
    done = await bot.send("red", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done)) == (COMPLETED, "2: red")


async def test_the_choice_of_a_card_goes_back_as_data(bot: A2A) -> None:
    asked = await bot.send("hero")
    assert why(asked) == (_WAITS, "Order 7\n12 EUR")
    [choice] = _choices(asked)
    parts = [{"data": choice["value"]}]
    done = await bot.send("", asked["contextId"], taskId=asked["id"], parts=parts)
    assert text_of(done) == "you chose {'pay': True}"


async def test_an_oauth_card_asks_for_consent(bot: A2A) -> None:
    asked = await bot.send("sign in")
    assert asked["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    [link] = asked["status"]["message"]["metadata"][URI]["consent"]["links"]
    assert (link["url"], link["server"], link["text"]) == (
        "https://login.example/sign-in",
        "oauth:mail",
        "Please sign in",
    )
    done = await bot.send("123456", asked["contextId"], taskId=asked["id"])
    assert text_of(done) == "2: 123456"


async def test_files_go_both_ways(line: DirectLine, bot: A2A) -> None:
    parts = [{"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"}]
    sent = await bot.send("", parts=parts)
    assert text_of(sent) == "a.txt (text/plain) hello"
    assert line.uploads == [("a.txt", "text/plain", b"hello")]
    given = await bot.send("picture", sent["contextId"])
    [text, picture] = given["artifacts"][0]["parts"]
    assert text == {"text": "here"}
    assert picture == {"raw": "aGVsbG8=", "mediaType": "image/png", "filename": "a.png"}


async def test_a_conversation_that_the_bot_has_ended_is_expired(bot: A2A) -> None:
    ended = await bot.send("goodbye")
    assert (why(ended), text_of(ended)) == (COMPLETED, "Bye.")
    assert why(await bot.send("one", ended["contextId"])) == failed(ErrorClass.HANDLE_EXPIRED)


async def test_a_conversation_is_told_again_where_the_agent_says_so(line: DirectLine, start_local: StartLocal) -> None:
    direct_line = f"{{secret: '{line.secret}', url: '{line.url}', quiet: 400ms, poll: 100ms}}"
    gateway = await start_local(f"bot: {{type: copilot-studio, direct_line: {direct_line}, on_lost_handle: rebuild}}")
    async with a2a_http(gateway.url) as http:
        bot = A2A(http, "bot")
        ended = await bot.send("goodbye")
        again = await bot.send("one", ended["contextId"])
    assert why(again) == COMPLETED
    assert line.requests[-1]["text"] == "Earlier in this conversation:\n\nUser: goodbye\n\nYou: Bye.\n\nNow:\n\none"


@pytest.mark.parametrize("sockets", [True, False], ids=["by WebSocket", "by polling"])
async def test_microsofts_client_of_direct_line_talks_to_the_emulator(tmp_path: Path, sockets: bool) -> None:
    def script(_: Conversation) -> AsyncIterator[Step]:
        return answer()

    async def answer() -> AsyncIterator[Step]:
        if sockets:
            # The client sends before it listens, and signs of typing are not kept.
            await served.only.listened.wait()
        yield Think("thinking")
        yield Say("Hello", 2)

    served = DirectLine(scripted(lambda: script))
    async with served.serve():
        # With the secret in the place of a token, the client starts a conversation of its own.
        seen = await directlinejs(tmp_path, served.url, served.secret, "hi", count=4 if sockets else 1, sockets=sockets)
    said = [(each["type"], each["text"]) for each in seen if "posted" not in each]
    pieces = [("typing", "thinking"), ("typing", "Hel"), ("typing", "Hello")] if sockets else []
    assert said == [*pieces, ("message", "Hello")]


async def test_microsofts_client_of_copilot_studio_talks_to_the_emulator(tmp_path: Path) -> None:
    engine = CopilotEngine(lambda conversation: [Say(f"you said {conversation.text}", 2)], api_key=KEY)
    async with serve(engine.app) as origin:
        url = f"{origin}/copilotstudio/dataverse-backed/authenticated/bots/agent/conversations"
        seen = await copilotstudio_client(tmp_path, url, KEY, "one", "two")
    assert len({each["id"] for each in seen}) == 1
    shown = [(each["turn"], each["type"], each["text"]) for each in seen]
    assert shown == [
        (0, "message", GREETING),
        (1, "typing", "you sa"),
        (1, "typing", "id one"),
        (1, "message", "you said one"),
        (2, "typing", "you sa"),
        (2, "typing", "id two"),
        (2, "message", "you said two"),
    ]
