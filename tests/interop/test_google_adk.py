"""Google ADK's `RemoteA2aAgent` in front of a gateway: every tool call appears, once, and the answer is remembered."""

from pathlib import Path
from typing import Any

import pytest

from tests.interop.peer_processes import google_adk
from tests.interop.tool_agents import ANSWER, CALLS, RESULTS
from tests.running import local_gateway

Lines = list[dict[str, Any]]


async def talk(settings: str, folder: Path, *texts: str, streaming: bool = True) -> tuple[Lines, Lines]:
    """The output of the runner, and the memory of the session."""
    agent = f"a: {{type: python, ref: 'tests.interop.tool_agents:reply'{settings}}}"
    async with local_gateway(agent, folder) as gateway:
        card = f"{gateway.url}/a2a/a/.well-known/agent-card.json"
        lines = await google_adk(folder, card, *texts, streaming=streaming)
    assert [line["error"] for line in lines if line["error"]] == []
    return [line for line in lines if line["where"] == "stream"], [line for line in lines if line["where"] == "session"]


def calls(lines: Lines) -> list[tuple[str, Any]]:
    return [(call["name"], call["args"]) for line in lines for call in line["calls"]]


def results(lines: Lines) -> list[tuple[str, Any]]:
    return [(one["name"], one["response"]) for line in lines for one in line["responses"]]


def texts(lines: Lines) -> list[str]:
    return [line["text"] for line in lines if line["text"] and line["author"] != "user"]


@pytest.mark.parametrize("channel", ["status", "artifact"])
async def test_every_call_and_result_appears_once_and_the_answer_is_remembered(tmp_path: Path, channel: str) -> None:
    settings = f", repeat_answer: always, tool_calls: {{channel: {channel}}}"
    told, kept = await talk(settings, tmp_path, "one", "two")
    assert calls(told) == calls(kept) == CALLS * 2
    assert results(told) == results(kept) == RESULTS * 2
    called = [call["id"] for line in told for call in line["calls"]]
    assert called == [one["id"] for line in told for one in line["responses"]]
    assert len(set(called)) == 6
    assert texts(kept) == [ANSWER.format(1), ANSWER.format(2)]
    assert texts([line for line in told if not line["partial"]]) == texts(kept)


async def test_progress_is_a_thought_and_no_part_of_the_answer(tmp_path: Path) -> None:
    told, _ = await talk("", tmp_path, "one")
    assert [thought for line in told for thought in line["thoughts"]] == ["looking it up"]
    assert "looking" not in "".join(texts(told))


async def test_without_repetition_the_answer_is_shown_and_not_remembered(tmp_path: Path) -> None:
    """Why `repeat_answer` is there: fails as soon as ADK remembers an answer that came in pieces."""
    told, kept = await talk("", tmp_path, "one")
    assert "".join(texts(told)) == ANSWER.format(1)
    assert texts(kept) == []


async def test_who_does_not_stream_gets_calls_results_and_answer_from_the_artifacts(tmp_path: Path) -> None:
    told, kept = await talk(", tool_calls: {channel: artifact}", tmp_path, "one", streaming=False)
    assert (calls(told), results(told)) == (CALLS, RESULTS)
    assert (calls(kept), results(kept)) == (CALLS, RESULTS)
    assert texts(kept) == [ANSWER.format(1)]


async def test_names_only_are_calls_and_results_without_content(tmp_path: Path) -> None:
    told, _ = await talk(", tool_calls: {exposure: names}", tmp_path, "one")
    assert calls(told) == [(name, {}) for name, _ in CALLS]
    assert [name for name, _ in results(told)] == [name for name, _ in RESULTS]
    assert "noon" not in str(told)
