"""Tool calls as clients see them, over HTTP, by what the agent's settings and the request's extensions say."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.agent import ToolCall, ToolResult
from gateway.client.client import Client
from gateway.client.discovery import discover
from gateway.client.transport import open_http
from tests.running import Local, local_gateway
from tests.support.core import query
from tests.tool_call_vectors import faults, valid

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"
SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


async def reply(_: Any) -> AsyncIterator[Any]:
    """The agent: it looks something up, fails to look up something else, and says what it knows."""
    yield ToolCall("c1", "weather", {"city": "Paris", "key": "s3cret"})
    yield ToolResult("c1", {"sky": "blue", "token": "t0ken"})
    yield ToolCall("c2", "news", {})
    yield ToolResult("c2", "no paper today", error=True)
    yield "Blue "
    yield "sky."


@dataclass(frozen=True)
class Seen:
    """What one message led to: all its events, the Task as GetTask has it, the card and the headers."""

    events: list[dict[str, Any]]
    task: dict[str, Any]
    card: dict[str, Any]
    activated: str | None

    @property
    def parts(self) -> list[tuple[str, str, Any]]:
        """(channel, kind, data) of each part of a tool call, as it was streamed."""
        found = []
        for event in self.events:
            message = event.get("statusUpdate", {}).get("status", {}).get("message", {})
            artifact = event.get("artifactUpdate", {}).get("artifact", {})
            for channel, parts in (("status", message.get("parts", ())), ("artifact", artifact.get("parts", ()))):
                found += [(channel, part["metadata"]["adk_type"], part["data"]) for part in parts if "data" in part]
        return found

    @property
    def phases(self) -> list[str]:
        found: list[str] = []
        for event in self.events:
            update = event.get("statusUpdate") or event.get("artifactUpdate") or {}
            parts = [
                *update.get("status", {}).get("message", {}).get("parts", ()),
                *update.get("artifact", {}).get("parts", ()),
            ]
            found += [owner["metadata"][URI]["phase"] for owner in (update, *parts) if URI in owner.get("metadata", {})]
        return found

    @property
    def kept(self) -> list[str]:
        """Where the task's record has parts of calls, for clients that did not stream."""
        message_parts = [part for message in self.task.get("history", ()) for part in message["parts"]]
        artifact_parts = [part for artifact in self.task["artifacts"] for part in artifact["parts"]]
        return [f"history {part['metadata']['type']}" for part in message_parts if "data" in part] + [
            f"artifact {part['metadata']['type']}" for part in artifact_parts if "data" in part
        ]

    @property
    def answer(self) -> str:
        return "".join(part.get("text", "") for artifact in self.task["artifacts"] for part in artifact["parts"])


@asynccontextmanager
async def gateway_with(settings: str, folder: Path) -> AsyncIterator[Local]:
    async with local_gateway(f"a: {{type: python, ref: '{__name__}:reply'{settings}}}", folder) as gateway:
        yield gateway


async def seen(settings: str, folder: Path, *extensions: str) -> Seen:
    headers = {"A2A-Extensions": ", ".join(extensions)} if extensions else {}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_with(settings, folder))
        http = await stack.enter_async_context(open_http(gateway.url, headers))
        client = Client(http, await discover(http, gateway.url, "a"))
        events = [event async for event in client.stream(SEND)]
        task = await client.get_task(events[0]["task"]["id"])
        base = f"{gateway.url}/a2a/a"
        card = (await http.get(f"{base}/.well-known/agent-card.json")).json()
        activated = (await http.get(f"{base}/tasks/{task['id']}")).headers.get("a2a-extensions")
    assert [fault for event in events for fault in faults(event)] == []
    return Seen(events, task, card, activated)


def declared(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in card["capabilities"].get("extensions", ()) if entry["uri"] == URI]


CALL = {"name": "weather", "args": {"city": "Paris", "key": "s3cret"}}
FAILURE = {"error": {"code": "failed", "message": "no paper today"}}
RESULT = {"name": "weather", "response": {"sky": "blue", "token": "t0ken"}}
ALL = [phase for end in ("succeeded", "failed") for phase in ("args-delta", "requested", "executing", end)]


def without_ids(parts: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    return [
        (channel, kind, {key: value for key, value in data.items() if key != "id"}) for channel, kind, data in parts
    ]


async def test_tool_calls_go_out_by_themselves_in_the_default_shape(tmp_path: Path) -> None:
    found = await seen("", tmp_path)
    assert found.phases == ALL
    assert without_ids(found.parts) == [
        ("status", "function_call", CALL),
        ("status", "function_response", RESULT),
        ("status", "function_call", {"name": "news", "args": {}}),
        (
            "status",
            "function_response",
            {"name": "news", "response": FAILURE},
        ),
    ]
    ids = [data["id"] for _, _, data in found.parts]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert found.kept == ["history function_call", "history function_response"] * 2
    assert found.answer == "Blue sky."
    assert found.activated is None


@pytest.mark.parametrize(("extensions", "phases"), [((), []), ((ADK,), []), ((URI,), ALL)])
async def test_negotiated_shows_nothing_to_who_does_not_ask(
    tmp_path: Path, extensions: tuple[str, ...], phases: list[str]
) -> None:
    found = await seen(", tool_calls: {when: negotiated}", tmp_path, *extensions)
    assert found.phases == phases
    assert found.answer == "Blue sky."
    assert found.activated == (URI if URI in extensions else None)
    assert declared(found.card)[0]["params"] == {"exposure": "full", "approvals": False, "clientTools": False}


async def test_never_shows_nothing_and_the_card_does_not_speak_of_it(tmp_path: Path) -> None:
    found = await seen(", tool_calls: {when: never}", tmp_path, URI)
    assert (found.phases, found.kept, found.activated, declared(found.card)) == ([], [], None, [])


async def test_what_is_not_shown_is_nowhere_in_the_log_and_whole_in_the_ledger(tmp_path: Path) -> None:
    await seen(", tool_calls: {redact: ['$..key', '$.response.token']}", tmp_path)
    log = "\n".join(payload for (payload,) in query(tmp_path / "gateway.db", "SELECT payload FROM event"))
    assert "[redacted]" in log
    assert "s3cret" not in log
    assert "t0ken" not in log
    kept = query(tmp_path / "gateway.db", "SELECT arguments, outcome FROM tool_call ORDER BY sequence")
    assert "s3cret" in str(kept[0][0])
    assert "t0ken" in str(kept[0][1])


@pytest.mark.parametrize(("settings", "extension"), [("", ADK), (", tool_calls: {channel: artifact}", URI)])
async def test_calls_travel_as_artifacts_where_the_client_reads_those(
    tmp_path: Path, settings: str, extension: str
) -> None:
    found = await seen(settings, tmp_path, extension)
    assert {channel for channel, _, _ in found.parts} == {"artifact"}
    assert without_ids(found.parts)[:2] == [
        ("artifact", "function_call", CALL),
        ("artifact", "function_response", RESULT),
    ]
    assert found.phases == ALL
    assert found.kept == ["artifact function_call", "artifact function_response"] * 2
    assert found.answer == "Blue sky."


@pytest.mark.parametrize(
    ("exposure", "call", "result"),
    [("names", {}, {}), ("args", CALL["args"], {}), ("full", CALL["args"], RESULT["response"])],
)
async def test_exposure_is_the_agents(tmp_path: Path, exposure: str, call: Any, result: Any) -> None:
    found = await seen(f", tool_calls: {{exposure: {exposure}}}", tmp_path)
    data = [data for _, _, data in found.parts]
    assert (data[0]["args"], data[1]["response"]) == (call, result)
    [extension] = declared(found.card)
    assert extension["params"]["exposure"] == exposure
    assert "required" not in extension or extension["required"] is False
    assert valid("declaration", extension["params"])


async def test_a_rule_is_for_the_callers_that_it_names(tmp_path: Path) -> None:
    rules = "rules: [{principals: ['team-*'], exposure: full}, {principals: ['*'], exposure: names}]"
    found = await seen(f", tool_calls: {{{rules}}}", tmp_path)
    assert [data.get("args", data.get("response")) for _, _, data in found.parts][:2] == [{}, {}]


@pytest.mark.parametrize(("settings", "extension"), [(", repeat_answer: always", URI), ("", ADK)])
async def test_an_answer_comes_whole_at_its_end_to_clients_that_remember_only_that(
    tmp_path: Path, settings: str, extension: str
) -> None:
    found = await seen(settings, tmp_path, extension)
    updates = [event["artifactUpdate"] for event in found.events if "artifactUpdate" in event]
    texts = [update for update in updates if "text" in update["artifact"]["parts"][0]]
    assert [(u["artifact"]["parts"][0]["text"], u.get("append"), u.get("lastChunk")) for u in texts] == [
        ("Blue ", None, None),
        ("sky.", True, None),
        ("Blue sky.", None, True),
    ]
    assert len({update["artifact"]["artifactId"] for update in texts}) == 1
    assert found.answer == "Blue sky."


async def test_a_path_that_is_none_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="must be a JSON path such as"):
        async with gateway_with(", tool_calls: {redact: ['args.key']}", tmp_path):
            pass
