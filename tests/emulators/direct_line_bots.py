"""Bots behind the emulator of Direct Line: one that plays a script, and any that speaks the Activity protocol.

`python -m tests.emulators.direct_line_bots URL PORT` serves the emulator in front of the bot at this address.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial

import aiohttp
from aiohttp import web

from tests.emulators.bot_activities import BotAnswer, user_items
from tests.emulators.direct_line import USER, Answering, Bot, DirectLine, LineConversation, Refused
from tests.emulators.scripts import (
    Conversation,
    Cut,
    Delay,
    Fail,
    Json,
    NoTerminal,
    Pause,
    Script,
    Status,
    Step,
    greeting,
    steps_of,
)


class ScriptedLine(DirectLine):
    """Its bot plays `script`, which may be replaced; `api_key` is the secret."""

    def __init__(self, script: Script = greeting, *, api_key: str = "line-secret-0123456789") -> None:
        super().__init__(scripted(lambda: self.script), secret=api_key)
        self.script = script


def scripted(script: Callable[[], Script]) -> Bot:
    """A bot that plays the script of the moment. A status as its first step is the refusal of the message."""

    async def bot(_: DirectLine, conversation: LineConversation, activity: Json) -> web.Response | Answering:
        said = [each for each in conversation.log if each["from"].get("role") == USER]
        items = user_items(each.get("text", "") for each in (*said, activity))
        steps = steps_of(script(), Conversation(items, activity))
        first = await anext(steps, None)
        if isinstance(first, Status):
            await steps.aclose()
            return web.json_response(first.body or None, status=first.status, headers=dict(first.headers))
        return partial(_play, conversation, first, steps)

    return bot


async def _play(
    conversation: LineConversation, first: Step | None, steps: AsyncGenerator[Step], name: str
) -> web.Response | None:
    answer = BotAnswer(name, deltas=False)
    step = first
    while step is not None:
        match step:
            case Fail():
                message = "Failed to send activity: bot returned an error"
                return Refused(502, "BotRejectedActivity", message).response
            case Cut():
                conversation.cut()
            case NoTerminal():
                return None
            case Pause() | Delay():
                await _wait(step)
            case _:
                await _say(conversation, answer.take(step))
        step = await anext(steps, None)
    await _say(conversation, answer.finish())
    return None


async def _say(conversation: LineConversation, activities: Iterable[Json | Pause | Delay]) -> None:
    for each in activities:
        if isinstance(each, Pause | Delay):
            await _wait(each)
        else:
            await conversation.add(each)


async def _wait(step: Pause | Delay) -> None:
    match step:
        case Pause(until):
            await until.wait()
        case Delay(seconds):
            await asyncio.sleep(seconds)


def remote(url: str) -> Bot:
    """A bot that speaks the Activity protocol itself, at this address."""

    async def bot(line: DirectLine, conversation: LineConversation, activity: Json) -> Answering:
        whole = activity | {
            "channelId": "directline",
            "serviceUrl": line.origin,
            "conversation": {"id": conversation.id},
            "recipient": {"id": "bot", "name": "Bot", "role": "bot"},
        }
        return partial(_forward, url, whole)

    return bot


async def _forward(url: str, activity: Json, name: str) -> web.Response | None:
    async with aiohttp.ClientSession() as session, session.post(url, json=activity | {"id": name}) as response:
        if response.status < 300:
            return None
    return Refused(502, "BotRejectedActivity", "Failed to send activity: bot returned an error").response


async def _serve(url: str, port: int) -> None:
    line = DirectLine(remote(url))
    async with line.serve(port):
        sys.stdout.write(f"Direct Line at {line.url}, secret {line.secret}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
