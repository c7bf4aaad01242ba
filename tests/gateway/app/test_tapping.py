"""Conversations with every type of agent, recorded and then replayed when the service is gone."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from gateway.app.tapping import TappedRegistry, secrets_of, sharing
from gateway.config.agents import AgentConfig
from gateway.config.tools import ToolCallsConfig
from gateway.foundation.clock import Clock
from gateway.ports.adapter import ErrorClass
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings
from tests.a2a_client import A2A, a2a_http, failed, why
from tests.contract.backends import KEY, ROWS, Row
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Cut, Say, Step, Think
from tests.gateway.recording.support import written
from tests.running import AT_ONCE, Local, local_gateway

MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=correlation id )\w+")
TWO = ("What is the answer?", "And the question?")
TOOLS = """
async def look(what: str) -> dict:
    "Looks."
    with open("LOOKED", "a") as file:
        file.write(what)
    return {"found": what.upper()}
"""


def talks(conversation: Conversation) -> Sequence[Step]:
    return [Say(f"You have said: {conversation.text}", chunks=4)]


def calls(conversation: Conversation) -> Sequence[Step]:
    if "ORANGE" in json.dumps(conversation.items):
        return [Say("It is an orange.", chunks=2)]
    return [Think("Hm.", encrypted="gAAAA" * 20), Call("look", {"what": "orange"}, call_id="call_1", chunks=3)]


def plain(frames: Sequence[Any]) -> list[str]:
    """The events without ids and times."""
    return [MADE.sub("-", json.dumps(frame.event)) for frame in frames]


async def heard(local: Local, *texts: str) -> list[list[str]]:
    """The events of one stream for each of these messages, which are one conversation."""
    found, context = [], None
    async with a2a_http(local.url) as http:
        for text in texts:
            async with A2A(http, "a").stream(text, context) as stream:
                frames = await stream.rest()
            context = json.loads(re.search(r'"contextId": ("[^"]+")', json.dumps(frames[0].event))[1])  # type: ignore[index]
            found.append(plain(frames))
    return found


async def recorded(agent: str, folder: Path, *texts: str, settings: str = "") -> list[list[str]]:
    (folder / "first").mkdir()
    with Recording(folder / "taken", Clock()) as recording:
        tapped = lambda config: TappedRegistry(recording, frozenset, config)  # noqa: E731
        async with local_gateway(agent, folder / "first", settings=settings, tapped=tapped, pace=AT_ONCE) as local:
            return await heard(local, *texts)


async def replayed(agent: str, folder: Path, *texts: str, settings: str = "") -> tuple[list[list[str]], Replay]:
    (folder / "second").mkdir(exist_ok=True)
    replay = Replay(folder / "taken", 0)
    tapped = lambda config: TappedRegistry(replay, frozenset, config)  # noqa: E731
    async with local_gateway(agent, folder / "second", settings=settings, tapped=tapped, pace=AT_ONCE) as local:
        return await heard(local, *texts), replay


def agent_of(row: Row, url: str) -> str:
    return f"a: {json.dumps({'type': row.type, **row.settings(url), **row.more})}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_callers_hear_the_same_when_the_service_is_gone(row: Row, tmp_path: Path) -> None:
    async with row.emulator(talks, api_key=KEY).serve() as url:
        agent = agent_of(row, url)
        first = await recorded(agent, tmp_path, *TWO)
    second, replay = await replayed(agent, tmp_path, *TWO)
    assert second == first
    assert "COMPLETED" in first[1][-1]
    assert (replay.missing, replay.unused) == ([], ())
    assert KEY not in written(tmp_path / "taken")


@pytest.mark.parametrize(("type_", "emulator"), [("openai-responses", ResponsesServer), ("openai-chat", ChatServer)])
async def test_tools_do_not_run_in_a_replay(type_: str, emulator: Any, tmp_path: Path) -> None:
    (tmp_path / "fruit.py").write_text(TOOLS.replace("LOOKED", str(tmp_path / "looked")))
    settings = f"tools: {{fruit: {{type: python, ref: '{tmp_path}/fruit.py:look'}}}}"
    async with emulator(calls, api_key=KEY).serve() as url:
        agent = f"a: {{type: {type_}, model: m, api_key: {KEY}, base_url: '{url}/v1', tools: [fruit]}}"
        first = await recorded(agent, tmp_path, "Look!", settings=settings)
    second, _ = await replayed(agent, tmp_path, "Look!", settings=settings)
    assert second == first
    assert (tmp_path / "looked").read_text() == "orange"
    assert "gAAAA" not in written(tmp_path / "taken")
    exchanges = list(Recordings(tmp_path / "taken").all())
    [run] = [each for each in exchanges if each.url == "tool:fruit/look"]
    assert run.ids.tool
    assert {each.method for each in Recordings(tmp_path / "taken").of_call(run.ids.context, run.ids.call)} == {
        "POST",
        "CALL",
    }


async def test_what_one_agent_masks_of_a_shared_tool_replays_for_the_other(tmp_path: Path) -> None:
    (tmp_path / "fruit.py").write_text(TOOLS.replace("LOOKED", str(tmp_path / "looked")))
    settings = f"tools: {{fruit: {{type: python, ref: '{tmp_path}/fruit.py:look'}}}}"
    script = lambda talk: (  # noqa: E731
        [Say("Well.")] if "call_1" in json.dumps(talk.items) else [Call("look", {"what": "orange"}, call_id="call_1")]
    )
    async with ChatServer(script, api_key=KEY).serve() as url:
        common = f"type: openai-chat, model: m, api_key: {KEY}, base_url: '{url}/v1', tools: [fruit]"
        agents = f"{{a: {{{common}}}, b: {{{common}, tool_calls: {{redact: [$..found]}}}}}}"
        first = await recorded(agents, tmp_path, "Look!", settings=settings)
    second, replay = await replayed(agents, tmp_path, "Look!", settings=settings)
    assert "ORANGE" in "".join(first[0])
    assert "ORANGE" not in written(tmp_path / "taken")
    assert "COMPLETED" in second[0][-1]
    assert (replay.missing, replay.unused) == ([], ())


@pytest.mark.parametrize(
    ("tools", "agents"),
    [("x", "ab"), ("y", "ab"), ("z", "ab"), ("v", "c"), ("xv", "abc"), ("w", ""), ("", "")],
)
def test_agents_share_masks_by_the_tools_that_lead_from_one_to_another(tools: str, agents: str) -> None:
    of = {"a": "xy", "b": "yz", "c": "v", "d": ""}
    known = [
        AgentConfig(type="python", name=name, settings=ToolCallsConfig(), tools=tuple(each))
        for name, each in of.items()
    ]
    assert "".join(agent.name for agent in sharing(known, tools)) == agents


async def test_a_call_that_broke_off_and_was_repeated_breaks_off_and_is_repeated(tmp_path: Path) -> None:
    scripts: list[Sequence[Step]] = [[Cut()], [Say("At last.")]]
    async with ChatServer(lambda _: scripts.pop(0), api_key=KEY).serve() as url:
        agent = f"a: {{type: openai-chat, model: m, api_key: {KEY}, base_url: '{url}/v1'}}"
        first = await recorded(agent, tmp_path, "Hello")
    second, replay = await replayed(agent, tmp_path, "Hello")
    assert second == first
    assert (replay.unused, len(list(Recordings(tmp_path / "taken").all()))) == ((), 2)


async def test_a_message_that_was_never_said_fails_at_once_and_says_where_it_differs(tmp_path: Path) -> None:
    async with ChatServer(talks, api_key=KEY).serve() as url:
        agent = f"a: {{type: openai-chat, model: m, api_key: {KEY}, base_url: '{url}/v1'}}"
        await recorded(agent, tmp_path, "Hello")
    (tmp_path / "second").mkdir()
    replay = Replay(tmp_path / "taken", 0)
    tapped = lambda config: TappedRegistry(replay, frozenset, config)  # noqa: E731
    async with local_gateway(agent, tmp_path / "second", tapped=tapped) as local, a2a_http(local.url) as http:
        task = await A2A(http, "a").send("Hallo")
    state, text = failed(ErrorClass.REPLAY_MISSING)
    nearest = "The nearest recording, a/c01/0001.yaml, differs at $.messages[0].content."
    assert why(task) == (state, f"{text} {nearest}")
    assert task["status"]["message"]["metadata"]["errorClass"] == "replay-missing"
    assert len(replay.missing) == 1
    assert len(list((tmp_path / "taken" / "unmatched").iterdir())) == 1


async def test_an_agent_that_prefers_grpc_is_spoken_to_as_a_recording_can_hear_it(tmp_path: Path) -> None:
    emulator = A2AAgent(talks, api_key=KEY)
    async with emulator.serve() as url:
        offered = [("127.0.0.1:1", "GRPC"), (f"{url}/rpc", "JSONRPC")]
        emulator.card["supportedInterfaces"] = [
            {"url": address, "protocolBinding": binding, "protocolVersion": "1.0"} for address, binding in offered
        ]
        [events] = await recorded(f"a: {{type: a2a, url: '{url}', api_key: {KEY}}}", tmp_path, "Hello")
    assert "COMPLETED" in events[-1]
    assert [each.url.endswith("/rpc") for each in Recordings(tmp_path / "taken").all() if each.method == "POST"]


async def test_a_python_agent_is_recorded_at_its_port(tmp_path: Path) -> None:
    agent = "a: {type: python, ref: 'gateway.cli.demo.agent:reply'}"
    first = await recorded(agent, tmp_path, *TWO)
    second, replay = await replayed(agent, tmp_path, *TWO)
    assert second == first
    assert (replay.missing, replay.unused) == ([], ())


async def test_a_secret_that_the_backend_repeats_is_in_no_file(tmp_path: Path) -> None:
    async with ChatServer(lambda _: [Say(f"Your key is {KEY}.")], api_key=KEY).serve() as url:
        agent = (
            f"a: {{type: openai-chat, model: m, api_key: {KEY}, base_url: '{url}/v1', headers: {{X: 'Bearer {KEY}2'}}}}"
        )
        await recorded(agent, tmp_path, f"My key is {KEY}")
    assert KEY not in written(tmp_path / "taken")


def test_every_secret_of_the_settings_is_known() -> None:
    class Inner(BaseModel):
        headers: dict[str, SecretStr] = {"a": SecretStr("Bearer abc")}
        keys: tuple[SecretStr, ...] = (SecretStr(" one "),)

    class Outer(BaseModel):
        inner: Inner = Inner()
        name: str = "n"

    assert set(secrets_of(Outer())) == {"Bearer abc", "abc", "one"}
