"""The `tool-calls/v1` extension: how the life of a tool call looks on the wire. Law: `data` is strictly
`{id, name, args}` or `{id, name, response}`, objects only; everything else is metadata.

Clients drop what has another key or a scalar there (Google ADK) and render the metadata below (ADK, kagent, trpc).
"""

from dataclasses import dataclass

import msgspec

from gateway.model import Json, Part

URI = "https://a2a-gateway.dev/extensions/tool-calls/v1"


@dataclass(frozen=True, slots=True)
class CallFacts:
    """`id` is the gateway's own key. `round` counts service calls, `index` the calls within one, both from 0."""

    id: str
    name: str
    round: int
    index: int
    origin: str
    server: str | None
    started_at: str


def metadata(call: CallFacts, phase: str, **more: Json) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "phase": phase,
        "callId": call.id,
        "name": call.name,
        "round": call.round,
        "index": call.index,
        "origin": call.origin,
        "startedAt": call.started_at,
        "exposure": "full",
        "redacted": [],
        **more,
    }
    if call.server is not None:
        facts["server"] = call.server
    return facts


def _part(kind: str, data: Json, facts: dict[str, Json]) -> Part:
    return Part(data=data, metadata={"adk_type": kind, "type": kind, "kagent_type": kind, URI: facts})


def requested(call: CallFacts, arguments: str) -> Part:
    """The one part with all arguments. Arguments that are no JSON object are shown under one key."""
    return _part(
        "function_call", {"id": call.id, "name": call.name, "args": _as_object(arguments)}, metadata(call, "requested")
    )


def answered(call: CallFacts, output: Json, phase: str) -> Part:
    """The part of a terminal phase: `succeeded`, `failed`, `rejected`, `cancelled` or `interrupted`."""
    response = _response(output) if phase == "succeeded" else {"error": {"code": phase, "message": _text(output)}}
    return _part("function_response", {"id": call.id, "name": call.name, "response": response}, metadata(call, phase))


def _as_object(arguments: str) -> dict[str, Json]:
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"raw": arguments}
    return value if isinstance(value, dict) else {"value": value}


def _response(output: Json) -> dict[str, Json]:
    if isinstance(output, str):
        try:
            value = msgspec.json.decode(output)
        except msgspec.DecodeError:
            return {"result": output}
        return value if isinstance(value, dict) else {"result": output}
    return output if isinstance(output, dict) else {"result": output}


def _text(output: Json) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
