"""The columns of the contract matrix. Each plays one situation and gives the word of its cell; an outcome that no backend may
have is an error."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from gateway.core.failures import TURN_TIMEOUT, UNKNOWN_TOOL
from gateway.ports.adapter import ErrorClass
from tests.a2a_client import streamed_text, text_of
from tests.contract.bench import Bench, Caller, first, plays, state_of
from tests.emulators.scripts import Ask, Call, Conversation, Cut, NoTerminal, Pause, Say, Status, Step, in_rounds
from tests.faults.conversation_sweep import sweep

Situation = Callable[[Bench], Awaitable[str]]

NO = "-"
"""The service has no such thing."""


async def first_turn(bench: Bench) -> str:
    bench.script = plays(Say("Hello", chunks=2))
    async with bench.caller() as caller:
        async with caller.agent.stream("one") as stream:
            frames = await stream.rest()
        assert streamed_text(frames) == "Hello"
    assert bench.seen == [("one",)]
    return "yes"


async def second_turn(bench: Bench) -> str:
    bench.script = plays(Say("Hello"))
    async with bench.caller() as caller:
        task = await caller.say("one")
        again = await caller.say("two", task)
        other = await caller.say("three")
    assert [state_of(each) for each in (task, again, other)] == ["COMPLETED"] * 3
    assert bench.seen == [("one",), ("one", "two"), ("three",)]
    return "yes"


async def unknown_handle(bench: Bench) -> str:
    """The service has lost everything; `history.on_lost_handle` is at its default."""
    bench.script = plays(Say("Hello"))
    async with bench.caller() as caller:
        task = await caller.say("one")
        bench.server.forget_everything()
        again = await caller.say("two", task)
    told = state_of(again)
    if told == "COMPLETED":
        assert bench.seen[-1] == ("one", "two")
        return "goes on"
    assert told.removeprefix("FAILED: ") in {ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED}, told
    return "told"


async def cut_in_mid_stream(bench: Bench) -> str:
    bench.script = first([Say("par"), Say("tial"), Cut()], [Say("Hello")])
    async with bench.caller() as caller:
        task = await caller.say("one")
        again = await caller.say("two", task)
    assert state_of(again) == "COMPLETED", again
    bench.check_nothing_is_doubled()
    assert bench.seen[-1] == ("one", "two")
    assert state_of(task) in {"COMPLETED", f"FAILED: {ErrorClass.INTERRUPTED}"}
    return "goes on" if state_of(task) == "COMPLETED" else "told"


async def listened_to_again(bench: Bench) -> str:
    """The answer goes on at the service while the stream is away."""
    go = asyncio.Event()
    played = _played_once([Say("one "), Say("two "), Cut(), Pause(go), Say("three")])
    bench.script = played
    async with bench.caller() as caller, caller.agent.stream("one") as stream:
        await stream.read_until(lambda frames: "two" in streamed_text(frames))
        go.set()
        frames = await stream.rest()
        last = frames[-1].event["statusUpdate"]["status"]["state"]
    if last != "TASK_STATE_COMPLETED":
        return NO
    assert streamed_text(frames) == "one two three"
    assert bench.seen == [("one",)]
    return "yes"


async def cancelled(bench: Bench) -> str:
    bench.script = first([Say("one "), Pause(asyncio.Event())], [Say("Hello")])
    async with bench.caller() as caller:
        async with caller.agent.stream("one") as stream:
            frames = await stream.read_until(lambda frames: "one" in streamed_text(frames))
            task = frames[0].event["task"]
            await caller.agent.call("CancelTask", id=task["id"])
            last = (await stream.rest())[-1].event["statusUpdate"]
        assert last["status"]["state"] == "TASK_STATE_CANCELED"
        stored = await caller.agent.get(task["id"])
        assert (stored["status"], stored.get("metadata")) == (last["status"], last.get("metadata"))
        again = await caller.say("two", task)
    assert state_of(again) == "COMPLETED", again
    bench.check_nothing_is_doubled()
    confirmed = (last.get("metadata") or {}).get("backendCancelled")
    assert confirmed is not False
    return "confirmed" if confirmed else "by closing"


async def at_once(bench: Bench) -> str:
    """Two messages of one context: the second waits for the first."""
    bench.script = plays(Say("Hello"))
    async with bench.caller() as caller:
        task = await caller.say("one")
        both = await asyncio.gather(caller.say("two", task), caller.say("three", task))
    assert [state_of(each) for each in both] == ["COMPLETED"] * 2
    assert [len(texts) for texts in bench.seen] == [1, 2, 3]
    bench.check_nothing_is_doubled()
    return "one by one"


TWO_CALLS = (Call("weather", {"city": "Oslo"}, "call_1_weather"), Call("height", {"city": "Rome"}, "call_2_height"))


async def two_tool_calls(bench: Bench) -> str:
    if not bench.row.calls:
        return NO
    bench.script = in_rounds(TWO_CALLS, [Say("Done")])
    async with bench.caller() as caller:
        task = await caller.say("one")
    assert (state_of(task), text_of(task)) == ("COMPLETED", "Done")
    assert sorted(bench.outputs[-1].values()) == ["fine in Oslo", "high in Rome"]
    return "yes"


async def missing_output(bench: Bench) -> str:
    """The turn ends with open calls, and a message follows."""
    if not bench.row.calls:
        return NO
    bench.script = first([Call("nonesuch", {}, "call_1_nonesuch")], [Say("Hello")])
    async with bench.caller(unknown_tool="fail") as caller:
        task = await caller.say("one")
        again = await caller.say("two", task)
    assert (state_of(task), state_of(again)) == (f"FAILED: {UNKNOWN_TOOL}", "COMPLETED"), (task, again)
    bench.check_nothing_is_doubled()
    return "answered"


async def approved(bench: Bench) -> str:
    return await _decided(bench, approved=True)


async def rejected(bench: Bench) -> str:
    return await _decided(bench, approved=False)


async def _decided(bench: Bench, *, approved: bool) -> str:
    if not bench.row.asks:
        return NO

    def script(conversation: Conversation) -> list[Step]:
        if not conversation.decisions:
            return [Ask("weather", {"city": "Oslo"})]
        return [Say("It rains." if all(conversation.decisions.values()) else "Then not.")]

    bench.script = script
    async with bench.caller() as caller:
        asked = await caller.say("one")
        assert state_of(asked) == "INPUT_REQUIRED", asked
        metadata = asked["status"]["message"]["metadata"]["https://a2a-gateway.dev/extensions/tool-calls/v1"]
        [tool] = metadata["approval"]["tools"]
        decision = {"data": {"approvals": [{"id": tool["id"], "approved": approved}]}}
        done = await _answer(caller, asked, decision)
    assert (state_of(done), text_of(done)) == ("COMPLETED", "It rains." if approved else "Then not.")
    return "yes"


async def _answer(caller: Caller, task: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    message = {
        "messageId": "answer",
        "role": "ROLE_USER",
        "parts": [part],
        "taskId": task["id"],
        "contextId": task["contextId"],
    }
    answered: dict[str, Any] = (await caller.agent.call("SendMessage", message=message))["task"]
    return answered


async def too_many_requests(bench: Bench) -> str:
    bench.script = first([Status(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})], [Say("Hello")])
    async with bench.caller() as caller:
        task = await caller.say("one")
        again = await caller.say("two", task)
    assert (state_of(task), text_of(task), state_of(again)) == ("COMPLETED", "Hello", "COMPLETED")
    bench.check_nothing_is_doubled()
    return "tried again"


async def truncated(bench: Bench) -> str:
    """The stream ends in good order, and neither it nor the service says anything of an end."""
    bench.script = first([Say("par"), NoTerminal()], [Say("Hello")])
    async with bench.caller(limits="turn_timeout: 1s") as caller:
        task = await caller.say("one")
        again = await caller.say("two", task)
    assert state_of(again) == "COMPLETED", again
    bench.check_nothing_is_doubled()
    return _TRUNCATED[state_of(task)]


_TRUNCATED = {
    f"FAILED: {ErrorClass.INTERRUPTED}": "told",
    f"FAILED: {ErrorClass.BACKEND_FAILED}": "told",
    f"FAILED: {TURN_TIMEOUT}": "told at the time limit",
}


async def restarted(bench: Bench) -> str:
    """The service stops between two turns and comes back with what it keeps."""
    bench.script = plays(Say("Hello"))
    async with bench.caller() as caller:
        task = await caller.say("one")
        await bench.stop_backend()
        await bench.start_backend()
        again = await caller.say("two", task)
    assert state_of(again) == "COMPLETED", again
    assert bench.seen == [("one",), ("one", "two")]
    return "yes"


async def killed(bench: Bench) -> str:
    """The gateway dies around each call of a conversation: at its beginning, at its first event, at each commit of its end."""
    doubled = False
    for pattern in ("call.[pf]*", "*complete*"):
        points, twice = await sweep(bench.folder / "killed", bench.row.name, pattern)
        doubled |= twice
        phases = {point.rpartition(".")[2] for point in points}
        assert phases == ({"prepared", "first"} if pattern.startswith("call") else _PHASES_OF_AN_END)
    assert doubled == bench.row.doubles
    return "nothing lost, may be said twice" if doubled else "nothing lost or doubled"


_PHASES_OF_AN_END = {"completed", "before", "stored", "shown"}


def _played_once(steps: list[Step]) -> Callable[[Conversation], AsyncGenerator[Step]]:
    left = [steps]

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        for step in left.pop() if left else [Say("Hello")]:
            yield step

    return script


SITUATIONS: dict[str, Situation] = {
    "turn 1": first_turn,
    "turn 2": second_turn,
    "unknown handle": unknown_handle,
    "cut in mid-stream": cut_in_mid_stream,
    "re-attached": listened_to_again,
    "cancelled": cancelled,
    "parallel turns": at_once,
    "two tool calls": two_tool_calls,
    "missing output": missing_output,
    "approval: yes": approved,
    "approval: no": rejected,
    "429": too_many_requests,
    "truncated stream": truncated,
    "restart of the server": restarted,
    "kill -9 of the gateway": killed,
}
