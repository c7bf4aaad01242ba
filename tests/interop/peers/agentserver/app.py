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
from azure.ai.agentserver.responses._id_generator import IdGenerator
from starlette.responses import PlainTextResponse
from starlette.routing import Route

MODES = {
    "plain": {},
    "resilient": {"resilient_background": True, "sse_keep_alive_interval_seconds": 1},
    "steerable": {"steerable_conversations": True},
}
app = ResponsesAgentServerHost(
    options=ResponsesServerOptions(default_model="m", **MODES[os.environ["AGENTSERVER_MODE"]])
)


CONSENTED = set()
"""Who said yes on the page of the third party."""


async def consent(request):
    CONSENTED.add(request.query_params["user"])
    return PlainTextResponse("Thank you.")


app.router.routes.append(Route("/consent", consent))


@app.response_handler
async def answer(request: CreateResponse, context: ResponseContext, cancellation_signal: asyncio.Event):
    """Answers "slow" in 40 ticks, "weather" with a tool call, "boom" with a crash, anything else with an echo.

    What was ever told "mail as USER" answers with a request for consent, until USER has opened its page.
    """
    text = await context.get_input_text()
    kinds = [str(item.get("type")) for item in await context.get_input_items()]
    history = await context.get_history()
    unwilling = await _unwilling(text, context, history)
    stream = ResponseEventStream(response_id=context.response_id, request=request)

    async def events():
        yield stream.emit_created()
        yield stream.emit_in_progress()
        if unwilling:
            for event in _asks_for_consent(stream, unwilling):
                yield event
            # As Microsoft's own hosting does: with `emit_completed` their front ends show no button.
            yield stream.emit_completed() if "complete" in unwilling else stream.emit_incomplete()
            return
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


async def _unwilling(text, context, history):
    """The user whose consent is missing."""
    said = [part.get("text", "") for item in history for part in item.get("content") or [] if isinstance(part, dict)]
    users = [each.rpartition(" ")[2] for each in (*said, text) if each.startswith("mail as ")]
    return next((user for user in users if user not in CONSENTED), None)


def _asks_for_consent(stream, user):
    item_id = IdGenerator.new_id("oauthreq")
    link = f"{os.environ['AGENTSERVER_ORIGIN']}/consent?user={user}"
    item = {"type": "oauth_consent_request", "id": item_id, "consent_link": link, "server_label": "mail"}
    builder = stream.add_output_item(item_id)
    yield builder.emit_added(item)
    yield builder.emit_done(item)


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
