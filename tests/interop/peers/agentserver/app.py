"""A Foundry hosted agent that speaks the Responses protocol, for the environment that .ci/peers.sh makes."""
# mypy: ignore-errors
# The package it imports is absent from the project's environment on purpose.

import asyncio
import json
import os

from azure.ai.agentserver.responses import (
    CreateResponse,
    ResponseContext,
    ResponseEventStream,
    ResponsesAgentServerHost,
    ResponsesServerOptions,
)

MODES = {
    "plain": {},
    "resilient": {"resilient_background": True, "sse_keep_alive_interval_seconds": 1},
    "steerable": {"steerable_conversations": True},
}
app = ResponsesAgentServerHost(
    options=ResponsesServerOptions(default_model="m", **MODES[os.environ["AGENTSERVER_MODE"]])
)


@app.response_handler
async def answer(request: CreateResponse, context: ResponseContext, cancellation_signal: asyncio.Event):
    """Answers "slow" in 40 ticks, "weather" with a tool call, "boom" with a crash, anything else with an echo."""
    text = await context.get_input_text()
    kinds = [str(item.get("type")) for item in await context.get_input_items()]
    history = await context.get_history()
    stream = ResponseEventStream(response_id=context.response_id, request=request)

    async def events():
        yield stream.emit_created()
        yield stream.emit_in_progress()
        if "slow" in text:
            async for event in _ticks(stream, cancellation_signal):
                yield event
            if cancellation_signal.is_set():
                return
        elif "weather" in text and "function_call_output" not in kinds:
            for event in stream.output_item_function_call("get_weather", "call_1", json.dumps({"city": "Oslo"})):
                yield event
        elif "boom" in text:
            raise RuntimeError("boom")
        else:
            said = f"echo {text!r} history={len(history)} conversation={context.conversation_id}"
            for event in stream.output_item_message(said):
                yield event
        yield stream.emit_completed()

    return events()


async def _ticks(stream: ResponseEventStream, cancellation_signal: asyncio.Event):
    message = stream.add_output_item_message()
    yield message.emit_added()
    part = message.add_text_content()
    yield part.emit_added()
    for number in range(40):
        if cancellation_signal.is_set():
            return
        await asyncio.sleep(0.025)
        yield part.emit_delta(f"tick{number} ")
    yield part.emit_text_done()
    yield part.emit_done()
    yield message.emit_done()
