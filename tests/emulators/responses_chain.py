"""The stored responses of a Responses server, and the continuations of them that OpenAI accepts; pure.

Source of the error texts: public threads that quote them (openai-agents-python#2020, bifrost#2441, ai#7543), and code
that looks for them (for questions without an answer). An answer to no question has no source.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from tests.emulators.responses_dialects import ResponsesDialect
from tests.emulators.scripts import Json
from tests.emulators.server import Refused, refused


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response (`body`, which changes while it is in progress), its own input, and everything before."""

    body: Json
    input: tuple[Json, ...]
    earlier: tuple[Json, ...]

    @property
    def history(self) -> tuple[Json, ...]:
        return (*self.earlier, *self.input, *self.body["output"])


def check_shape(body: Mapping[str, Any]) -> None:
    """Raises: Refused for a body that OpenAI refuses whatever it has stored."""
    for name in ("model", "input"):
        if body.get(name) is None:
            raise refused(400, f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if body.get("previous_response_id") and body.get("conversation"):
        message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
        raise refused(400, message, code="mutually_exclusive_parameters")
    given = body["input"]
    if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(item, dict) for item in given)):
        message = f"Invalid type for 'input': expected one of an array of objects or string, but got {given!r} instead."
        raise refused(400, message, param="input", code="invalid_type")


def find_previous(
    stored: Mapping[str, StoredResponse], name: str | None, dialect: ResponsesDialect
) -> StoredResponse | None:
    """The response that the request continues, None for a new chain. Raises: Refused when it cannot be continued."""
    previous = stored.get(name) if name else None
    if name is None or (previous is None and dialect.unknown_previous == "ignored"):
        return None
    if previous is None and dialect.unknown_previous == "detail":
        raise Refused(404, {"detail": f"Response '{name}' not found."})
    if previous is None:
        message = f"Previous response with id '{name}' not found."
        raise refused(400, message, param="previous_response_id", code="previous_response_not_found")
    status = previous.body["status"]
    if status not in ("completed", "incomplete"):
        message = f"Previous response with id '{name}' cannot be continued: its status is '{status}'."
        raise refused(400, message, param="previous_response_id")
    return previous


def input_items(given: str | list[Json]) -> tuple[Json, ...]:
    """The input in its stored form: items of a known type, each with an id."""
    if isinstance(given, str):
        given = [{"role": "user", "content": [{"type": "input_text", "text": given}]}]
    return tuple(_with_id({"type": "message", **item} if "role" in item else item) for item in given)


def _with_id(item: Json) -> Json:
    return item if item.get("id") else item | {"id": f"{_PREFIXES.get(item.get('type', ''), 'item')}_{token_hex(24)}"}


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_approval_response": "mcpa",
    "reasoning": "rs",
}


def resolve_ids(
    given: str | list[Json], kept: Mapping[str, Json], truncated: Iterable[str], *, stores: bool
) -> str | list[Json]:
    """The input with item references replaced by the items `kept`.

    Raises: Refused for an id that the server does not have, except of reasoning with its encrypted content.
    """
    if isinstance(given, str):
        return given
    resolved = []
    for item in given:
        name = item.get("id")
        encrypted = item.get("encrypted_content") if item.get("type") == "reasoning" else None
        if encrypted is not None and encrypted in truncated:
            message = f"The encrypted content {encrypted[:8]}... could not be verified."
            raise refused(400, message, param="input", code="invalid_encrypted_content")
        # A decision names the id of its question, so the question comes back with that id.
        asked = item.get("type") == "mcp_approval_request"
        if name is not None and name not in kept and encrypted is None and not asked:
            advice = "" if stores else _NOT_PERSISTED
            raise refused(404, f"Item with id '{name}' not found.{advice}", param="input")
        reference = item.get("type", "item_reference") == "item_reference" and "role" not in item
        resolved.append(kept[name] if reference and name is not None else item)
    return resolved


_NOT_PERSISTED = (
    " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item "
    "from your input."
)


def check_calls(items: Iterable[Mapping[str, Any]]) -> None:
    """Raises: Refused unless every function call has an output and every output a call, and so with questions."""
    pending: dict[str, bool] = {}
    asked: dict[str, bool] = {}
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            pending[call_id] = True
        elif item.get("type") == "function_call_output":
            if call_id not in pending:
                message = f"No tool call found for function call output with call_id {call_id}."
                raise refused(400, message, param="input")
            pending[call_id] = False
        elif item.get("type") == "mcp_approval_request":
            asked[str(item.get("id"))] = True
        elif item.get("type") == "mcp_approval_response":
            question = str(item.get("approval_request_id"))
            if question not in asked:
                raise refused(400, f"Approval request with id '{question}' not found.", param="input")
            asked[question] = False
    undecided = ", ".join(question for question, open_ in asked.items() if open_)
    if undecided:
        message = f"The following MCP approval requests do not have an approval: {undecided}"
        raise refused(400, message, param="input")
    unanswered = next((call_id for call_id, open_ in pending.items() if open_), None)
    if unanswered is not None:
        raise refused(400, f"No tool output found for function call {unanswered}.", param="input")
