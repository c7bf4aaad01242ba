"""A backend that fails in the middle of a conversation, on every wire and with every owner of the history: the turn fails
with the reason, the chain stays where it was, and the next turn sends everything once."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.emulators.scripts import (
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    Incomplete,
    NoTerminal,
    Raw,
    Say,
    Status,
    Step,
    rate_limited,
)
from tests.faults.agent_kinds import KINDS, services
from tests.invariants import violations
from tests.running import AT_ONCE, StartLocal

FAULTS: dict[str, tuple[Sequence[Step], str]] = {
    "a cut": ([Say("I "), Cut()], "I "),
    "an end without a last event": ([Say("I "), NoTerminal()], "I "),
    "a failure": ([Say("I "), Fail()], "I "),
    "an error in the stream": ([Say("I "), ErrorEvent()], "I "),
    "what is no JSON": ([Say("I "), Raw(b"data: {\n\n")], "I "),
    "500": ([Status(500, {"error": {"message": "no"}})], ""),
    "a page": ([Html(502)], ""),
    "429": ([rate_limited()], ""),
}
"""What the backend does, and what a caller has heard of it."""

_GOES_ON = {("background", "a cut")}
"""Who can listen again hears the rest."""

_NEVER_ENDS = {("background", "an end without a last event")}
"""The service says for ever that it is at work: a matter of the turn's deadline."""


@pytest.mark.fault("B3", "B5", "B6", "B7", "B13")
@pytest.mark.parametrize(("kind", "name"), [row for row in product(KINDS, FAULTS) if row not in _NEVER_ENDS])
async def test_a_fault_in_a_conversation_leaves_its_chain_where_it_was_and_is_told_once(
    start_local: StartLocal, kind: str, name: str
) -> None:
    steps, heard = FAULTS[name]

    def script(conversation: Conversation) -> Iterator[Step]:
        if conversation.text == "two":
            yield from steps
        yield Say(" | ".join(conversation.user_texts))

    async with services(script) as made:
        gateway = await start_local(f"agent: {{{made.settings[kind]}}}", pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "agent")
            first = await caller.send("one", "c")
            second = await caller.send("two", "c")
            third = await caller.send("three", "c")
            fourth = await caller.send("four", "c")
        assert (why(first), why(third), why(fourth)) == (COMPLETED, COMPLETED, COMPLETED)
        if (kind, name) in _GOES_ON:
            assert why(second) == COMPLETED
        else:
            assert (second["status"]["state"], text_of(second)) == ("TASK_STATE_FAILED", heard)
        assert (text_of(third), text_of(fourth)) == ("one | two | three", "one | two | three | four")
        assert violations(gateway.database) == []
    if kind == "conversation":
        [conversation] = made.responses.conversations.values()
        said = [item["content"] for item in conversation.items if item.get("role") == "user"]
        assert [content[0]["text"] if isinstance(content, list) else content for content in said] == [
            "one", "two", "three", "four"
        ]  # fmt: skip


@pytest.mark.fault("B13")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_a_limit_has_cut_says_so_and_the_conversation_goes_on_from_it(
    start_local: StartLocal, kind: str
) -> None:
    def script(conversation: Conversation) -> Iterator[Step]:
        yield Say(" | ".join(conversation.user_texts))
        if conversation.text == "one":
            yield Incomplete()

    async with services(script) as made:
        gateway = await start_local(f"agent: {{{made.settings[kind]}}}", pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            async with A2A(http, "agent").stream("one", "c") as stream:
                *_, last = await stream.rest()
            ended = last.event["statusUpdate"]
            first = await A2A(http, "agent").call("GetTask", id=ended["taskId"])
            second = await A2A(http, "agent").send("two", "c")
        words = {"chat": "length", "messages": "max_tokens"}
        reason = {"finishReason": words.get(kind, "max_output_tokens")}
        assert ended["metadata"] == reason | first["metadata"]
        assert first["status"]["message"]["metadata"] == reason
        assert (why(second), text_of(second)) == (COMPLETED, "one | two")
        assert violations(gateway.database) == []
