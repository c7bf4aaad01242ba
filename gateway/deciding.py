"""What a caller's answers mean to the calls of its task. Law: pure; a decision is for a call that was asked about, once; an
equal one changes nothing, another one is an error.

Source: state-model, scenarios 113 to 115 and 119.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from gateway.answers import Answers, ClientResult, Decision
from gateway.commits.tools import AskedCall
from gateway.errors import InvalidParams, echo, invalid
from gateway.model import Json
from gateway.redaction import JsonPath, redacted_member
from gateway.tools import OPEN, parsed


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is new of the answers, by the id of the call."""

    decisions: dict[str, Decision]
    results: dict[str, ClientResult]

    def __bool__(self) -> bool:
        return bool(self.decisions or self.results)


def resolve(given: Answers, calls: Sequence[AskedCall], now: int, redact: tuple[JsonPath, ...] = ()) -> Resolution:
    """`calls` are those of the waiting round, and others of the task that its caller had to do with. `redact`: what of their
    arguments its caller was not shown, and so cannot repeat.

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
        asked = _known(result.field, result.call, known)
        if asked.call.executor != "client":
            raise invalid(result.field, f"{echo(result.call)} is not a call that its caller runs")
        before = results.get(result.call)
        if before is not None and (before.output, before.error) != (result.output, result.error):
            raise invalid(result.field, f"{echo(result.call)} has two results in one message")
        if asked.call.status in OPEN:
            results[result.call] = result
        elif asked.outcome != result.output:
            raise invalid(result.field, f"{echo(result.call)} has ended already ({asked.call.status})")
    return Resolution(decisions, results)


def refuse_always(given: Answers) -> None:
    """Raises: InvalidParams for a yes to more than the call that was asked about."""
    for decision in given.decisions:
        if decision.always:
            raise invalid(decision.field, "this agent asks about every call: leave out `always`")


def repeats(given: Answers, calls: Sequence[AskedCall], now: int, redact: tuple[JsonPath, ...] = ()) -> bool:
    """Whether all of it was answered before, in the same way."""
    if any(decision.call is None for decision in given.decisions):
        return False
    try:
        return not resolve(given, calls, now, redact)
    except InvalidParams:
        return False


def _meant(decision: Decision, known: dict[str, AskedCall]) -> list[AskedCall]:
    if decision.call is not None:
        return [_known(decision.field, decision.call, known)]
    open_ones = [asked for asked in known.values() if asked.call.status == "pending_approval"]
    meant = open_ones or [asked for asked in known.values() if asked.decision is not None]
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
        raise invalid(decision.field, f"{echo(call.id)} was asked about with other arguments")
    if decision.always and not (decision.approved and call.executor == "gateway"):
        raise invalid(
            decision.field, f"only a yes to a tool of the gateway can be for always, not that to {echo(call.id)}"
        )
    if asked.decision is not None:
        if (asked.decision == "approved") != decision.approved:
            raise invalid(decision.field, f"{echo(call.id)} is decided already ({asked.decision})")
        return False
    if call.status != "pending_approval":
        raise invalid(decision.field, f"{echo(call.id)} needs no decision ({call.status})")
    if asked.expires_at is not None and asked.expires_at <= now:
        raise invalid(decision.field, f"the time to decide {echo(call.id)} is over")
    return True


def _are_meant(args: Json, arguments: str, redact: tuple[JsonPath, ...]) -> bool:
    """The arguments themselves, or as they were shown: what is allowed is in either case the call that was asked about."""
    whole = parsed(arguments)
    return args == whole or (whole is not None and args == redacted_member("args", whole, redact)[0])
