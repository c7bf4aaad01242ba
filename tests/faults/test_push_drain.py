"""Notifications that are due when a gateway stops: it does not wait for receivers, and the next process continues at once."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.a2a_client import A2A, Json, a2a_http, user_message
from tests.receiver import LOOPBACK, STALL, Answer, Letter, Receiver, receiving
from tests.running import StartChild, child_gateways
from tests.support.core import query

pytestmark = pytest.mark.xdist_group("drain")

_BOUND_SECONDS = 60
_AGENT = "long: {type: python, ref: 'tests.interop.echo_agent:reply'}"
_WORDS = 400
# Who posts keeps the others away for longer than this test lasts, unless it gives the delivery back.
_SETTINGS = f"push: {{timeout: 5m, {LOOPBACK}}}"


async def _stopped_in_the_midst(start: StartChild, receiver: Receiver, arrived: int, words: int = _WORDS) -> None:
    """A gateway that gets SIGTERM once its task has ended and this many events have arrived."""
    child = await start()
    async with a2a_http(child.url) as http:
        config = {"id": "config-1", "url": f"{receiver.url}/hook"}
        answer: Json = await A2A(http, "long").call(
            "SendMessage",
            message=user_message(" ".join(f"w{number}" for number in range(words))),
            configuration={"taskPushNotificationConfig": config},
        )
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        await receiver.until(lambda letters: len(letters) >= arrived)
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


def _log(folder: Path) -> list[bytes]:
    stored = query(folder / "gateway.db", "SELECT payload FROM event ORDER BY last")
    return [line.encode() for (payload,) in stored for line in payload.split("\n")]


def _bodies(letters: list[Letter]) -> list[bytes]:
    return [letter.body for letter in letters]


async def test_what_is_due_when_a_gateway_stops_is_sent_by_the_next_one(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        receiving() as receiver,
        child_gateways(_AGENT, tmp_path, settings=_SETTINGS) as start,
    ):
        await _stopped_in_the_midst(start, receiver, arrived=20)
        before = len(receiver.letters)
        await start()
        letters = await receiver.ended(_BOUND_SECONDS)
    log = _log(tmp_path)
    assert before < len(log)
    assert list(dict.fromkeys(_bodies(letters))) == log
    # Only the one whose answer nobody has heard.
    assert len(letters) - len(log) <= 1


async def test_a_receiver_that_does_not_answer_holds_up_neither_the_end_nor_the_next_process(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        receiving() as receiver,
        child_gateways(_AGENT, tmp_path, settings=_SETTINGS) as start,
    ):
        receiver.answers.extend([*[Answer()] * 4, STALL])
        await _stopped_in_the_midst(start, receiver, arrived=5)
        assert len(receiver.letters) == 5
        await start()
        letters = await receiver.ended(_BOUND_SECONDS)
    log = _log(tmp_path)
    assert _bodies(letters) == [*log[:5], *log[4:]]
    assert [letter.headers["webhook-id"] for letter in letters[4:6]] == [letters[4].headers["webhook-id"]] * 2


async def test_what_was_to_be_tried_again_later_is_tried_by_the_next_process(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(_BOUND_SECONDS),
        receiving() as receiver,
        child_gateways(_AGENT, tmp_path, settings=_SETTINGS) as start,
    ):
        receiver.answers.extend([Answer(), Answer(503)])
        # It has ended before the next try is due.
        await _stopped_in_the_midst(start, receiver, arrived=2, words=20)
        assert [letter.accepted for letter in receiver.letters] == [True, False]
        await start()
        letters = await receiver.ended(_BOUND_SECONDS)
    log = _log(tmp_path)
    assert _bodies(letters) == [*log[:2], *log[1:]]
