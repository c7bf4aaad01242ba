"""Events of A2A 1.0 as the JSON that an emulated agent sends, without the ids of its task."""

import json
from collections.abc import Iterable

from gateway.a2a.tool_calls import URI
from tests.emulators.scripts import Ask, Json

ENDED = frozenset(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})


def ends(event: Json) -> bool:
    """Whether no listener gets anything behind it."""
    return event.get("statusUpdate", {}).get("status", {}).get("state") in ENDED | WAITING


def status(state: str, words: str = "") -> Json:
    status: Json = {"state": state}
    if words:
        status["message"] = {"messageId": f"status {words}", "role": "ROLE_AGENT", "parts": [{"text": words}]}
    return {"statusUpdate": {"status": status}}


def question(asked: list[Ask]) -> Json:
    """The question of a gateway for approval."""
    tools = [
        {"id": each.question or f"q-{each.name}", "name": each.name, "args": dict(each.arguments)} for each in asked
    ]
    found = status("TASK_STATE_INPUT_REQUIRED", "May these tools be used?")
    found["statusUpdate"]["status"]["message"]["metadata"] = {URI: {"approval": {"requestId": "r", "tools": tools}}}
    return found


def answers(part: Json) -> list[Json]:
    data = part.get("data")
    found: list[Json] = data.get("approvals", []) if isinstance(data, dict) else []
    return found


def decision(answer: Json) -> Json:
    return {"type": "mcp_approval_response", "approval_request_id": answer["id"], "approve": answer["approved"]}


def artifact(name: str, parts: list[Json], *, append: bool = False) -> Json:
    return {
        "artifactUpdate": {"artifact": {"artifactId": name, "parts": parts}, **({"append": True} if append else {})}
    }


def tool(name: str, arguments: Json, output: str) -> Iterable[Json]:
    """A call and its outcome as Google ADK shows them."""
    for label, member, value in (("call", "args", arguments), ("response", "response", {"result": output})):
        part = {"data": {"id": "call_1", "name": name, member: value}, "metadata": {"adk_type": f"function_{label}"}}
        message = {"messageId": label, "role": "ROLE_AGENT", "parts": [part]}
        yield {"statusUpdate": {"status": {"state": "TASK_STATE_WORKING", "message": message}}}


def apply(task: Json, event: Json) -> None:
    """Changes the stored task as the event says."""
    if (changed := event.get("statusUpdate")) is not None:
        if (said := task["status"].get("message")) is not None:
            task["history"].append(said)
        task["status"] = changed["status"]
        return
    if (update := event.get("artifactUpdate")) is None:
        return
    stored, new = task.setdefault("artifacts", []), update["artifact"]
    known = next((each for each in stored if each["artifactId"] == new["artifactId"]), None)
    if known is None:
        stored.append(json.loads(json.dumps(new)))
    elif update.get("append"):
        known["parts"] += new["parts"]
    else:
        known.update(json.loads(json.dumps(new)))
