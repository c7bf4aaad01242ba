"""A caller's answers to a waiting turn: decisions, and results of the tools that the client runs. Law: pure; only data can be
an answer, never text; an error names the field; a call is decided once, and an equal decision changes nothing.

The dialects: the gateway's and kagent's list, kagent's `decision_type`, Google ADK's and kagenti's; results as
function_response parts or as ag2 sends them. Source: docs/state-model.md, scenarios 113 to 115 and 119.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from gateway.a2a import nesting
from gateway.a2a.errors import InvalidParams, echo, invalid
from gateway.a2a.model import Json, Message, Part
from gateway.a2a.redaction import JsonPath, redacted_member
from gateway.a2a.tool_calls import URI
from gateway.core.tools import spellings
from gateway.core.tools.tool_call import parse_arguments
from gateway.ledger.states import OPEN, ToolCallStatus
from gateway.ledger.tool_calls import AskedCall

ADK_CONFIRMATION = "adk_request_confirmation"
"""The name of the call by which Google ADK asks for an approval."""

AG2_RESULTS = "application/vnd.ag2.tool-result+json"

_CONFIRMS = "confirm_"
_TYPES = ("adk_type", "type", "kagent_type")
_RESPONSE = frozenset({"id", "name", "response"})
_WORDS = {"approve": True, "reject": False}


class Decision(msgspec.Struct, frozen=True):
    """A caller's decision on tool calls that wait for an approval. When `call` is None, the decision applies to every
    waiting call. `field` is the place of the decision in the request.

    `args` are the arguments that the caller decided on, if the request repeats them. `always` extends the approval to
    all later calls of the tool.
    """

    field: str
    call: str | None
    approved: bool
    reason: str | None = None
    args: Json | UnsetType = UNSET
    always: bool = False

    def place(self, member: str) -> str:
        """The place of this member of the decision, which stands beside the id of its call."""
        return f"{self.field.removesuffix('.id')}.{member}"


class ClientResult(msgspec.Struct, frozen=True):
    """The result of a call that the client ran. `field` is the place of the whole result in the request. `name` is that of
    the tool, which the result may leave out."""

    field: str
    call: str
    output: Json
    error: bool = False
    name: str | None = None


class Answers(msgspec.Struct, frozen=True):
    """The answers in a message. `rest` are the other parts of the message."""

    decisions: tuple[Decision, ...]
    results: tuple[ClientResult, ...]
    rest: tuple[Part, ...]

    def __bool__(self) -> bool:
        return bool(self.decisions or self.results)


def confirmation_of(call: str) -> str:
    """The id of the call that asks for the approval of this one."""
    return f"{_CONFIRMS}{call}"


def answers(message: Message) -> Answers:
    """Raises: InvalidParams for data that looks like an answer but is malformed."""
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
            call, (output, error) = _text(f"{field}.id", data.get("id")), _outcome(_response(field, data))
            results.append(ClientResult(field, call, output, error, _name(field, data)))
    return Answers(tuple(decisions), tuple(results), tuple(rest))


def _entries(field: str, entries: Json, member: str, rest: str = "") -> Iterator[tuple[str, dict[str, Json]]]:
    """The entries of a list, with their places. `member` is the name of the member that an entry needs in addition to
    `id`."""
    if not isinstance(entries, list) or not entries:
        raise invalid(field, f"must be a list with an entry for each call{rest}")
    for index, entry in enumerate(entries):
        at = f"{field}[{index}]"
        if not isinstance(entry, dict):
            raise invalid(at, f"must be an object with id and {member}, not {echo(entry)}")
        yield at, entry


def _listed(field: str, entries: Json) -> Iterator[Decision]:
    for at, entry in _entries(field, entries, "approved", " that is decided"):
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
    call, response = _text(f"{field}.id", data.get("id")), _response(field, data)
    if isinstance(response, dict) and response.keys() == {"response"} and isinstance(response["response"], str):
        try:
            response = nesting.decode(response["response"])
        except msgspec.DecodeError:
            raise invalid(f"{field}.response.response", "must be JSON") from None
    if not isinstance(response, dict):
        raise invalid(f"{field}.response", f"must be an object with confirmed, not {echo(response)}")
    approved = _boolean(f"{field}.response.confirmed", response.get("confirmed"))
    return Decision(f"{field}.id", call.removeprefix(_CONFIRMS), approved)


def _is_response(part: Part, data: dict[str, Json]) -> bool:
    """Whether the part is meant as a response: the type in the metadata decides. When the metadata names no type, the name of
    Google ADK's confirmation does, or else the shape of the data."""
    marks = [part.metadata[name] for name in _TYPES if name in part.metadata] if part.metadata else []
    if marks:
        return "function_response" in marks
    if data.get("name") == ADK_CONFIRMATION:
        return "args" not in data
    shaped = data.keys() >= {"id", "response"} and isinstance(data["id"], str)
    return shaped and data.keys() <= _RESPONSE


def _response(field: str, data: dict[str, Json]) -> Json:
    if "response" not in data:
        raise invalid(f"{field}.response", "is missing: the answer to the call belongs there")
    return data["response"]


def _name(field: str, data: dict[str, Json]) -> str | None:
    name = data.get("name")
    if name is not None and not isinstance(name, str):
        raise invalid(f"{field}.name", f"must be the name of the tool, not {echo(name)}")
    return name or None


def _outcome(response: Json) -> tuple[Json, bool]:
    """The client's result without the wrappers of the wire, and whether it is an error."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key == "error":
            return value, True
        if key == "result":
            return value, False
    return response, False


def _ag2(field: str, data: dict[str, Json]) -> Iterator[ClientResult]:
    for at, entry in _entries(f"{field}.results", data.get("results"), "content"):
        call, error = _text(f"{at}.id", entry.get("id")), entry.get("error")
        if not error and "content" not in entry:
            raise invalid(f"{at}.content", "is missing: the result of the call belongs there")
        yield ClientResult(at, call, error or entry.get("content"), bool(error), _name(at, entry))


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


class Resolution(msgspec.Struct, frozen=True):
    """The new answers, by the id of the call."""

    decisions: dict[str, Decision]
    results: dict[str, ClientResult]

    def __bool__(self) -> bool:
        return bool(self.decisions or self.results)


def resolve(given: Answers, calls: Sequence[AskedCall], now: int, redact: tuple[JsonPath, ...] = ()) -> Resolution:
    """Assigns the answers to the calls. `calls` are the calls of the waiting round, and other calls of the task that
    the caller was asked about. `redact` holds the paths of arguments that the caller was not shown and therefore cannot
    repeat.

    Raises: InvalidParams.
    """
    known = {asked.call.id: asked for asked in calls}
    decisions: dict[str, Decision] = {}
    for decision in given.decisions:
        for asked in _meant(decision, known):
            earlier = decisions.get(asked.call.id)
            if earlier is not None and earlier.approved != decision.approved:
                raise invalid(decision.field, f"{echo(asked.call.id)} is approved and rejected in one message")
            if _is_new(decision, asked, now, redact):
                decisions[asked.call.id] = decision
    results: dict[str, ClientResult] = {}
    for result in given.results:
        at = f"{result.field}.id"
        asked = _known(at, result.call, known)
        if asked.call.executor != "client":
            raise invalid(at, f"{echo(result.call)} is not a call that its caller runs")
        if result.name is not None and result.name != asked.call.name:
            why = f"{echo(result.call)} is a call of {echo(asked.call.name)}, not of {echo(result.name)}"
            raise invalid(f"{result.field}.name", why)
        before = results.get(result.call)
        if before is not None and (before.output, before.error) != (result.output, result.error):
            raise invalid(at, f"{echo(result.call)} has two results in one message")
        if asked.call.status in OPEN:
            results[result.call] = result
        elif asked.outcome != result.output:
            raise invalid(at, f"{echo(result.call)} has ended already ({asked.call.status})")
    return Resolution(decisions, results)


def refuse_standing(given: Answers) -> None:
    """Raises: InvalidParams for an approval of more than one call."""
    for decision in given.decisions:
        if decision.always:
            raise invalid(decision.place("always"), "this agent asks about every call: leave out `always`")


def is_repetition(given: Answers, calls: Sequence[AskedCall], now: int, redact: tuple[JsonPath, ...] = ()) -> bool:
    """Whether all of it was answered before in the same way."""
    if any(decision.call is None for decision in given.decisions):
        return False
    try:
        return not resolve(given, calls, now, redact)
    except InvalidParams:
        return False


def _meant(decision: Decision, known: dict[str, AskedCall]) -> list[AskedCall]:
    if decision.call is not None:
        return [_known(decision.field, decision.call, known)]
    waiting = [asked for asked in known.values() if asked.call.status is ToolCallStatus.PENDING_APPROVAL]
    meant = waiting or [asked for asked in known.values() if asked.decision is not None]
    if not meant:
        raise invalid(decision.field, "no call waits for a decision")
    return meant


def _known(field: str, call: str, known: dict[str, AskedCall]) -> AskedCall:
    asked = known.get(call)
    if asked is None:
        raise invalid(field, f"{echo(call)} is no call that this task asks about")
    return asked


def _is_new(decision: Decision, asked: AskedCall, now: int, redact: tuple[JsonPath, ...]) -> bool:
    call = asked.call
    if decision.args is not UNSET and not _are_meant(decision.args, call.arguments, redact):
        raise invalid(decision.place("args"), f"{echo(call.id)} was asked about with other arguments")
    if decision.always and not (decision.approved and call.executor == "gateway"):
        why = f"only a yes to a tool of the gateway can be for always, not that to {echo(call.id)}"
        raise invalid(decision.place("always"), why)
    if asked.decision is not None:
        if (asked.decision == "approved") != decision.approved:
            raise invalid(decision.field, f"{echo(call.id)} is decided already ({asked.decision})")
        return False
    if call.status is not ToolCallStatus.PENDING_APPROVAL:
        raise invalid(decision.field, f"{echo(call.id)} needs no decision ({call.status})")
    if asked.expires_at is not None and asked.expires_at <= now:
        raise invalid(decision.field, f"the time to decide {echo(call.id)} is over")
    return True


def _are_meant(args: Json, arguments: str, redact: tuple[JsonPath, ...]) -> bool:
    """The arguments themselves, or as they were shown: both mean the call that waits."""
    whole = parse_arguments(arguments)
    if whole is None or not isinstance(args, dict):
        return whole is None and args is None
    # Values that Python finds equal may be of two kinds: 1 and true.
    return spellings.plain(args) in (spellings.plain(whole), spellings.plain(redacted_member("args", whole, redact)[0]))
