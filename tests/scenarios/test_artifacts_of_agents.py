"""The artifacts of another A2A agent as callers see them: those of the agent's own task, in every turn of it, behind one
gateway or more, also where a stream was cut or the agent does not stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gateway.a2a.tool_calls import URI
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, why
from tests.emulators import a2a_events
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.scripts import Conversation, Cut, Item, Json, Pause, Raw, ServerTool, Step
from tests.running import AT_ONCE, local_gateway

FILE = {"raw": "AAEC", "filename": "x.bin", "mediaType": "image/png"}
AGENTS: dict[str, tuple[dict[str, Any], str]] = {
    "1.0": ({}, ""),
    "HTTP+JSON": ({}, ", transport: HTTP+JSON"),
    "0.3": ({"version": "0.3"}, ""),
    "1.0, looked at": ({"streaming": False}, ""),
    "0.3, looked at": ({"version": "0.3", "streaming": False}, ""),
}
STREAMING = {name: AGENTS[name] for name in ("1.0", "HTTP+JSON", "0.3")}

Fronts: TypeAlias = Callable[..., Awaitable[list[A2A]]]


@pytest.fixture
async def fronts(tmp_path: Path) -> AsyncGenerator[Fronts]:
    """Serves an agent, and gives callers of so many gateways in front of it, each in front of the one before."""
    async with AsyncExitStack() as stack:

        async def run(agent: A2AAgent, count: int = 1, more: str = "") -> list[A2A]:
            url, found = await stack.enter_async_context(serve(agent.app)), []
            for number in range(count):
                folder = tmp_path / str(number)
                folder.mkdir()
                settings = f"front: {{type: a2a, url: '{url}', poll: 100ms{more if not number else ''}}}"
                gateway = await stack.enter_async_context(local_gateway(settings, folder, pace=AT_ONCE))
                found.append(A2A(await stack.enter_async_context(a2a_http(gateway.url)), "front"))
                url = f"{gateway.url}/a2a/front"
            return found

        yield run


def piece(name: str, *parts: str | Json, append: bool = False, title: str = "") -> Item:
    content = [{"text": each} if isinstance(each, str) else each for each in parts]
    update = a2a_events.artifact(name, content, append=append)
    if title:
        update["artifactUpdate"]["artifact"]["name"] = title
    return Item(update)


def asks(words: str = "And now?") -> Item:
    return Item(a2a_events.status("TASK_STATE_INPUT_REQUIRED", words))


def turns(*scripts: Iterable[Step]) -> Callable[[Conversation], Iterable[Step]]:
    """A script for each message of a conversation."""
    return lambda conversation: scripts[len(conversation.user_texts) - 1]


def artifacts(task: Json) -> list[tuple[str, list[Any]]]:
    """Names, and the parts with neighbouring texts as one: to 1.0 and 0.3, pieces of a text are parts."""
    found = []
    for artifact in task.get("artifacts", ()):
        parts: list[Any] = []
        for part in artifact["parts"]:
            text = part.get("text")
            if text is not None and parts and isinstance(parts[-1], str):
                parts[-1] += text
            else:
                parts.append(part if text is None else text)
        found.append((artifact.get("name", ""), parts))
    return found


def folded(task: Json, frames: list[Frame]) -> Json:
    """The artifacts of a caller who knows the task, and follows the stream."""
    known = {"artifacts": list(task.get("artifacts", ()))}
    for frame in frames:
        a2a_events.apply(known, {name: each for name, each in frame.event.items() if name == "artifactUpdate"})
    return known


# --- the second turn of a task ----------------------------------------------------------------------------------------

SECOND: dict[str, tuple[list[Step], list[Step], list[tuple[str, list[Any]]]]] = {
    "replaced": ([piece("a", "first")], [piece("a", "second")], [("", ["second"])]),
    "continued": ([piece("a", "first ")], [piece("a", "second", append=True)], [("", ["first second"])]),
    "replaced in pieces": (
        [piece("a", "first")],
        [piece("a", "sec"), piece("a", "ond", append=True)],
        [("", ["second"])],
    ),
    "said again in pieces": (
        [piece("a", "first")],
        [piece("a", "fir"), piece("a", "st", append=True)],
        [("", ["first"])],
    ),
    "given a file": ([piece("a", "see:")], [piece("a", FILE, append=True)], [("", ["see:", FILE])]),
    "replaced behind an artifact": (
        [piece("a", "first"), piece("r", "v1", title="report")],
        [piece("r", "v2", title="report"), piece("a", "second")],
        [("", ["second"]), ("report", ["v2"])],
    ),
    "left alone beside a new one": (
        [piece("a", "first")],
        [piece("b", "second")],
        [("", ["first"]), ("", ["second"])],
    ),
}


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("kind", AGENTS)
async def test_the_answer_of_an_earlier_turn_is_what_the_agent_makes_of_it(
    fronts: Fronts, kind: str, case: str
) -> None:
    (card, more), (first, second, found) = AGENTS[kind], SECOND[case]
    [front] = await fronts(A2AAgent(turns([*first, asks()], second), **card), more=more)
    asked = await front.send("one")
    async with front.stream("two", asked["contextId"], taskId=asked["id"]) as stream:
        frames = await stream.rest()
    done = await front.get(asked["id"])
    assert (why(done), artifacts(done)) == (COMPLETED, found)
    assert artifacts(folded(asked, frames)) == found


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("place", ["before", "amid"])
@pytest.mark.parametrize("kind", STREAMING)
async def test_a_cut_in_a_later_turn_loses_nothing_of_its_answer(
    fronts: Fronts, kind: str, place: str, case: str
) -> None:
    (card, more), (first, second, found), goes_on = STREAMING[kind], SECOND[case], asyncio.Event()
    cut: list[Step] = [Cut(), Pause(goes_on)]
    script = [*cut, *second] if place == "before" else [second[0], *cut, *second[1:]]
    agent = A2AAgent(turns([*first, asks()], script), **card)
    [front] = await fronts(agent, more=more)
    asked = await front.send("one")
    agent.left.clear()
    async with front.stream("two", asked["contextId"], taskId=asked["id"]) as stream:
        await agent.left.wait()
        goes_on.set()
        await stream.rest()
    done = await front.get(asked["id"])
    assert (why(done), artifacts(done)) == (COMPLETED, found)


async def test_every_turn_of_a_task_may_change_the_answers_of_all_before_it(fronts: Fronts) -> None:
    scripts = [
        [piece("a", "one"), asks("1")],
        [piece("b", "two"), asks("2")],
        [piece("a", "uno"), piece("b", " due", append=True), piece("c", "three"), asks("3")],
        [piece("c", "tre")],
    ]
    [front] = await fronts(A2AAgent(turns(*scripts)))
    task = await front.send("1")
    for number in (2, 3, 4):
        task = await front.send(str(number), task["contextId"], taskId=task["id"])
    assert artifacts(task) == [("", ["uno"]), ("", ["two due"]), ("", ["tre"])]


@pytest.mark.parametrize("kind", STREAMING)
async def test_a_task_that_still_says_the_old_question_does_not_ask_it_again(fronts: Fronts, kind: str) -> None:
    """Nothing tells its status from a new one: it has neither a message nor a time."""
    card, more = STREAMING[kind]
    waits = Item({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}})
    [front] = await fronts(A2AAgent(turns([waits], [piece("a", "done")]), **card), more=more)
    asked = await front.send("one")
    done = await front.send("two", asked["contextId"], taskId=asked["id"])
    assert (why(done), artifacts(done)) == (COMPLETED, [("", ["done"])])


# --- within one turn --------------------------------------------------------------------------------------------------


async def test_events_of_another_task_do_not_end_this_one(fronts: Fronts) -> None:
    stray = {**a2a_events.status("TASK_STATE_COMPLETED")["statusUpdate"], "taskId": "other", "contextId": "other"}
    line = json.dumps({"jsonrpc": "2.0", "id": "1", "result": {"statusUpdate": stray}})
    [front] = await fronts(A2AAgent(turns([Raw(f"data: {line}\n\n".encode()), piece("a", "mine")])))
    done = await front.send("one")
    assert (why(done), artifacts(done)) == (COMPLETED, [("", ["mine"])])


REPLACED: dict[str, list[Step]] = {
    "two parts": [piece("a", "t1", "t2"), piece("a", "NEW")],
    "a part of data": [piece("a", "t1", {"data": {"k": 1}}), piece("a", "NEW")],
    "another artifact": [piece("a", "t1"), piece("n", "aside", title="note"), piece("a", "NEW")],
    "a tool": [piece("a", "t1"), ServerTool("mcp", "look", {}, "3"), piece("a", "NEW")],
}


@pytest.mark.parametrize("case", REPLACED)
@pytest.mark.parametrize("kind", AGENTS)
async def test_an_answer_that_is_replaced_is_replaced_as_a_whole(fronts: Fronts, kind: str, case: str) -> None:
    card, more = AGENTS[kind]
    [front, outer] = await fronts(A2AAgent(turns(REPLACED[case]), **card), 2, more)
    for caller in (front, outer):
        assert artifacts(await caller.send("one"))[0] == ("", ["NEW"])


def working(part: Json) -> Item:
    found = a2a_events.status("TASK_STATE_WORKING", "see")
    found["statusUpdate"]["status"]["message"]["parts"] = [part]
    return Item(found)


INTERRUPTED: dict[str, tuple[list[Step], list[str]]] = {
    "an artifact": ([piece("n", "aside", title="note")], ["one", "two", " three"]),
    "a file": ([piece("n", FILE, title="file")], ["one", "two", " three"]),
    "a file of a line on the work": ([working(FILE)], ["one", "two", " three"]),
    "a tool": ([ServerTool("mcp", "look", {}, "3")], ["one", "two", " three"]),
    "two of them": ([ServerTool("mcp", "look", {}, "3"), piece("n", FILE, title="f")], ["one ", "two ", "three"]),
}


def shown(frames: list[Frame]) -> list[Any]:
    """The artifacts and the phases of calls, without ids."""
    found: list[Any] = []
    for frame in frames:
        match frame.event:
            case {"artifactUpdate": {"artifact": artifact, **update}}:
                found.append((artifact.get("name"), update.get("append", False), artifact["parts"]))
            case {"statusUpdate": {"metadata": dict(facts)}} if URI in facts:
                found.append(facts[URI]["phase"])
    return found


@pytest.mark.parametrize("case", INTERRUPTED)
async def test_an_answer_that_is_interrupted_is_the_same_behind_every_gateway(fronts: Fronts, case: str) -> None:
    between, [one, two, three] = INTERRUPTED[case]
    again = [piece("a", two, append=True), *between, piece("a", three, append=True)]
    done: Json = {}
    callers = await fronts(A2AAgent(turns([piece("a", one), *between, *again])), 3)
    seen: list[Any] = []
    for caller in callers:
        async with caller.stream("go") as stream:
            frames = await stream.rest()
        done = (await caller.call("ListTasks", includeArtifacts=True))["tasks"][0]
        seen.append((shown(frames), artifacts(done)))
    assert seen[1:] == seen[:-1]
    [(_, [text]), *_] = artifacts(done)
    assert text.replace("\n\n", "") == f"{one}{two}{three}"
