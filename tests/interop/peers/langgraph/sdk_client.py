"""The official client in front of one server: `sdk_client.py URL`. Prints one JSON object of what it has seen."""
# mypy: ignore-errors
# The package it imports is absent from the project's environment on purpose.

import asyncio
import json
import sys

from langgraph_sdk import get_client
from langgraph_sdk.errors import ConflictError, NotFoundError

_MODES = ["messages-tuple", "updates"]


def _said(text):
    return {"messages": [{"role": "user", "content": text}]}


async def _read(stream):
    text, interrupts = "", []
    async for part in stream:
        if part.event == "messages" and part.data[0]["type"] == "AIMessageChunk":
            text += part.data[0]["content"]
        if part.event == "updates":
            interrupts += part.data.get("__interrupt__", ())
    return text, interrupts


async def _failure(asked):
    try:
        await asked
    except (ConflictError, NotFoundError) as error:
        return type(error).__name__
    return None


async def main(url, key):
    client = get_client(url=url, api_key=key)
    seen = {}
    thread = await client.threads.create()
    name = thread["thread_id"]
    runs = []

    def begun(run):
        runs.append(run["run_id"])

    text, _ = await _read(
        client.runs.stream(
            name, "agent", input=_said("hi"), stream_mode=_MODES, stream_resumable=True, on_run_created=begun
        )
    )
    seen["text"] = text
    joined, _ = await _read(client.runs.join_stream(name, runs[0], last_event_id="-1"))
    seen["joined"] = joined
    seen["status"] = (await client.runs.get(name, runs[0]))["status"]
    seen["messages"] = [each["type"] for each in (await client.threads.get(name))["values"]["messages"]]
    _, asked = await _read(client.runs.stream(name, "agent", input=_said("pay"), stream_mode=_MODES))
    seen["asked"] = asked[0]["value"]["action_requests"][0]["name"]
    seen["interrupted"] = (await client.threads.get(name))["status"]
    resume = {asked[0]["id"]: {"decisions": [{"type": "approve"}]}}
    seen["resumed"], _ = await _read(client.runs.stream(name, "agent", command={"resume": resume}, stream_mode=_MODES))
    slow = client.runs.stream(name, "agent", input=_said("slow"), stream_mode=_MODES, on_run_created=begun)
    await anext(slow)
    again = client.runs.stream(name, "agent", input=_said("hi"), stream_mode=_MODES, multitask_strategy="reject")
    seen["busy"] = await _failure(anext(again))
    await client.runs.cancel(name, runs[-1], wait=True)
    seen["cancelled"] = (await client.runs.get(name, runs[-1]))["status"]
    seen["history"] = len(await client.threads.get_history(name, limit=100, metadata={"run_id": runs[0]})) > 1
    await client.threads.delete(name)
    seen["deleted"] = await _failure(client.threads.get(name))
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
