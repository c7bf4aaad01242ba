"""CopilotKit's @ag-ui/a2a in front of a gateway, through the A2A client in examples/ag-ui.

By itself it speaks A2A 0.3 and shows only status messages, with tool calls in parts of its own.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peer_processes import ag_ui
from tests.interop.tool_agents import ANSWER, CALLS, RESULTS
from tests.running import local_gateway


async def talk(settings: str, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The AG-UI events, and the messages that the run led to."""
    agent = f"a: {{type: python, ref: 'tests.interop.tool_agents:reply'{settings}}}"
    async with local_gateway(agent, folder) as gateway:
        *lines, last = await ag_ui(folder, f"{gateway.url}/a2a/a", "one")
    return [line["event"] for line in lines], last["newMessages"]


@pytest.mark.parametrize("settings", ["", ", repeat_answer: always, tool_calls: {channel: artifact}"])
async def test_every_call_and_result_appears_once_and_the_answer_is_right(tmp_path: Path, settings: str) -> None:
    events, messages = await talk(settings, tmp_path)
    said, *tools = messages
    called = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in said["toolCalls"]]
    assert called == CALLS
    assert [message["role"] for message in tools] == ["tool"] * 3
    assert [json.loads(message["content"]) for message in tools] == [response for _, response in RESULTS]
    assert [message["toolCallId"] for message in tools] == [call["id"] for call in said["toolCalls"]]
    assert said["content"] == ANSWER.format(1)
    kinds = [event["type"] for event in events]
    assert [kinds.count(f"TOOL_CALL_{kind}") for kind in ("START", "ARGS", "END", "RESULT")] == [3, 3, 3, 3]
    assert "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT") == ANSWER.format(1)
    assert kinds[-1] == "RUN_FINISHED"
