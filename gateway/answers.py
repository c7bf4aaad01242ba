"""What a caller's message answers to a turn that waits: approvals, and results of the tools that the client runs.

Law: pure; only data that says so is an answer, words never are; whoever is not understood is told which field it is.
The dialects: ours and kagent's list, kagent's `decision_type`, Google ADK's and kagenti's; results as function_response
parts or as ag2 sends them.
"""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from gateway.errors import echo, invalid
from gateway.model import Json, Message, Part
from gateway.tool_calls import URI

ADK_CONFIRMATION = "adk_request_confirmation"
"""The name of the call by which Google ADK asks for a yes."""

AG2_RESULTS = "application/vnd.ag2.tool-result+json"

_CONFIRMS = "confirm_"
_TYPES = ("adk_type", "type", "kagent_type")
_RESPONSE = frozenset({"id", "name", "response"})
_WORDS = {"approve": True, "reject": False}


class Decision(msgspec.Struct, frozen=True):
    """A yes or no. `call` None: to every call that is asked about. `field` is where it stands in the request.

    `args`, where they are given: the arguments that it is about. `always`: the yes is for every later call of the tool, too.
    """

    field: str
    call: str | None
    approved: bool
    reason: str | None = None
    args: Json | UnsetType = UNSET
    always: bool = False


class ClientResult(msgspec.Struct, frozen=True):
    """What came of a call that the client ran."""

    field: str
    call: str
    output: Json
    error: bool = False


class Answers(msgspec.Struct, frozen=True):
    """`rest`: the parts of the message that are no answers."""

    decisions: tuple[Decision, ...]
    results: tuple[ClientResult, ...]
    rest: tuple[Part, ...]

    def __bool__(self) -> bool:
        return bool(self.decisions or self.results)


def confirmation_of(call: str) -> str:
    """The id of the call that asks whether this one may run."""
    return f"{_CONFIRMS}{call}"


def answers(message: Message) -> Answers:
    """Raises: InvalidParams for what begins as an answer and is none."""
    decisions: list[Decision] = []
    results: list[ClientResult] = []
    rest: list[Part] = []
    ours = (message.metadata or {}).get(URI)
    if isinstance(ours, dict) and "approvals" in ours:
        decisions += _listed(f"message.metadata[{URI!r}].approvals", ours["approvals"])
    for index, part in enumerate(message.parts):
        field = f"message.parts[{index}].data"
        data = part.data
        if not isinstance(data, dict):
            rest.append(part)
        elif part.media_type == AG2_RESULTS:
            results += _ag2(field, data)
        elif "approvals" in data:
            decisions += _listed(f"{field}.approvals", data["approvals"])
        elif "decision_type" in data:
            decisions += _typed(field, data)
        elif "decision" in data:
            decisions.append(_word(f"{field}.decision", data["decision"], None, data.get("reason")))
        elif not _is_response(part, data):
            rest.append(part)
        elif data.get("name") == ADK_CONFIRMATION:
            decisions.append(_confirmation(field, data))
        else:
            output, error = _outcome(data["response"])
            results.append(ClientResult(f"{field}.id", data["id"], output, error))
    return Answers(tuple(decisions), tuple(results), tuple(rest))


def _listed(field: str, entries: Json) -> Iterator[Decision]:
    if not isinstance(entries, list) or not entries:
        raise invalid(field, "must be a list with an entry for each call that is decided")
    for index, entry in enumerate(entries):
        at = f"{field}[{index}]"
        if not isinstance(entry, dict):
            raise invalid(at, f"must be an object with id and approved, not {echo(entry)}")
        yield Decision(
            f"{at}.id",
            _text(f"{at}.id", entry.get("id")),
            _boolean(f"{at}.approved", entry.get("approved")),
            _reason(f"{at}.reason", entry.get("reason")),
            entry.get("args", UNSET),
            _boolean(f"{at}.always", entry.get("always", False)),
        )


def _typed(field: str, data: dict[str, Json]) -> Iterator[Decision]:
    if data["decision_type"] != "batch":
        yield _word(f"{field}.decision_type", data["decision_type"], None, data.get("rejection_reason"))
        return
    decisions, reasons = data.get("decisions"), data.get("rejection_reasons")
    if not isinstance(decisions, dict) or not decisions:
        raise invalid(f"{field}.decisions", "must be an object from the ids of calls to approve or reject")
    for call, word in decisions.items():
        reason = reasons.get(call) if isinstance(reasons, dict) else None
        yield _word(f"{field}.decisions[{echo(call)}]", word, call, reason)


def _word(field: str, word: Json, call: str | None, reason: Json) -> Decision:
    approved = _WORDS.get(word) if isinstance(word, str) else None
    if approved is None:
        raise invalid(field, f"must be approve or reject, not {echo(word)}")
    return Decision(field, call, approved, _reason(field, reason))


def _confirmation(field: str, data: dict[str, Json]) -> Decision:
    """Source: google-adk 2.13, ToolConfirmation: plain, or as JSON under `response`."""
    response = data["response"]
    if isinstance(response, dict) and response.keys() == {"response"} and isinstance(response["response"], str):
        try:
            response = msgspec.json.decode(response["response"])
        except msgspec.DecodeError:
            raise invalid(f"{field}.response.response", "must be JSON") from None
    if not isinstance(response, dict):
        raise invalid(f"{field}.response", f"must be an object with confirmed, not {echo(response)}")
    approved = _boolean(f"{field}.response.confirmed", response.get("confirmed"))
    return Decision(f"{field}.id", data["id"].removeprefix(_CONFIRMS), approved)


def _is_response(part: Part, data: dict[str, Json]) -> bool:
    """By its mark, or by its very shape where nothing says that it is something else."""
    shaped = data.keys() >= {"id", "response"} and isinstance(data["id"], str)
    marks = [part.metadata[name] for name in _TYPES if name in part.metadata] if part.metadata else []
    if marks:
        return shaped and "function_response" in marks
    return shaped and data.keys() <= _RESPONSE


def _outcome(response: Json) -> tuple[Json, bool]:
    """The client's result as a tool would have given it: wrappers that the wire asks for are taken off."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key == "error":
            return value, True
        if key == "result":
            return value, False
    return response, False


def _ag2(field: str, data: dict[str, Json]) -> Iterator[ClientResult]:
    entries = data.get("results")
    if not isinstance(entries, list) or not entries:
        raise invalid(f"{field}.results", "must be a list with an entry for each call")
    for index, entry in enumerate(entries):
        at = f"{field}.results[{index}]"
        if not isinstance(entry, dict):
            raise invalid(at, f"must be an object with id and content, not {echo(entry)}")
        call, error = _text(f"{at}.id", entry.get("id")), entry.get("error")
        yield ClientResult(f"{at}.id", call, error or entry.get("content"), bool(error))


def _text(field: str, value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise invalid(field, f"must be the id of a call, not {echo(value)}")
    return value


def _boolean(field: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise invalid(field, f"must be true or false, not {echo(value)}")
    return value


def _reason(field: str, value: Json) -> str | None:
    if value is not None and not isinstance(value, str):
        raise invalid(field, f"must be text, not {echo(value)}")
    return value or None
