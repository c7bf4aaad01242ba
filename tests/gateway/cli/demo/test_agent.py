"""The Python agent of the demo."""

from typing import Any

from gateway.agent import Status, ToolCall, ToolResult, Turn
from gateway.cli.demo.agent import reply


async def said(text: str, *earlier: tuple[str, str]) -> list[Any]:
    history = [{"role": role, "parts": [{"text": words}]} for role, words in earlier]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return [value async for value in reply(Turn(message=message, first_message=message, history=history))]


async def test_it_counts_words_with_a_tool_of_its_own() -> None:
    assert await said("Hello") == [
        Status("counting the words"),
        ToolCall("count", "count_words", {"text": "Hello"}),
        ToolResult("count", {"words": 1}),
        "Your message has 1 word.",
    ]


async def test_it_knows_the_first_message_from_the_second_one_on() -> None:
    answer = await said("And now?", ("ROLE_USER", "My name is Ada."), ("ROLE_AGENT", "Hello"), ("ROLE_USER", "Hm."))
    assert "".join(answer[3:]) == (
        'Your message has 2 words. It is message 3 of our conversation. You first said: "My name is Ada.".'
    )
