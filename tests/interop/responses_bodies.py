"""What requests of a Responses adapter look like, and what is read from the answers that a recording proxy saw."""

from typing import Any

from tests.interop.recording_proxy import Exchange, RecordingProxy


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def response_id(exchange: Exchange) -> str:
    """The id that the answer's last event names, completed or not."""
    found: str = next(event["response"]["id"] for event in reversed(exchange.events) if "response" in event)
    return found


def response_ids(proxy: RecordingProxy) -> list[str]:
    """Of each response that was asked for, in order; not of those that were looked up."""
    return [response_id(exchange) for exchange in proxy.exchanges if exchange.method == "POST"]


def steps(proxy: RecordingProxy) -> list[tuple[str | None, list[Any]]]:
    """Of each request in order: the handle that it continues, and its input."""
    bodies = [exchange.body for exchange in proxy.exchanges if exchange.method == "POST"]
    return [(body.get("previous_response_id"), body["input"]) for body in bodies]
