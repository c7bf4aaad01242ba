"""The same unit in fewer statements. Law: what is left behind is what the whole list would have left.

Commit points that go together change a row twice, one right behind the other; then the second change is made with the
first. A statement costs what it takes to find its row, and a turn has two such units.
"""

from storage import compiled as do
from storage.statement import Step, Values

Once = dict[int, Values | None]
"""The parameters of each statement; None where there are several such statements, and no pairs to be told."""

# By identity: a statement is a long text to compare.
_NEW_THREAD, _TAKE_LEASE = id(do.NEW_THREAD), id(do.TAKE_LEASE)
_NEW_TURN, _RUN_TURN = id(do.NEW_TURN), id(do.RUN_TURN)
_CALL_STARTED, _CALL_COMPLETED, _CALL_FAILED = id(do.CALL_STARTED), id(do.CALL_COMPLETED), id(do.CALL_FAILED)
_FORGET_CALLS = id(do.FORGET_CALLS)


def shortened(steps: list[Step]) -> list[Step]:
    """`steps` are those of one unit; parameters of theirs are changed in place."""
    if len(steps) == 1:  # as what a running turn says: nothing to pair
        return steps
    once: dict[int, Values | None] = {}
    for statement, values in steps:
        once[id(statement)] = None if id(statement) in once else values
    needless = {*_begun(once), *_ended(once)}
    return [step for step in steps if id(step[0]) not in needless] if needless else steps


def _begun(steps: Once) -> list[int]:
    """A turn that begins when it is accepted, on a thread that is as new: nobody can hold that, or wait there."""
    thread, lease = steps.get(_NEW_THREAD), steps.get(_TAKE_LEASE)
    turn, run = steps.get(_NEW_TURN), steps.get(_RUN_TURN)
    if thread is None or lease is None or turn is None or run is None:
        return []
    turn["turn_status"], turn["base_generation"] = "running", run["base_generation"]
    thread["lease_holder"], thread["lease_until"] = lease["holder"], lease["lease_until"]
    thread["generation"] = run["base_generation"]
    return [_TAKE_LEASE, _RUN_TURN]


def _ended(steps: Once) -> list[int]:
    """A service call that is over when its pending handle is written, or its turn ends."""
    call = steps.get(_CALL_COMPLETED) or steps.get(_CALL_FAILED)
    if call is None:
        return []
    needless = []
    started = steps.get(_CALL_STARTED)
    if started is not None and started["service_call"] == call["service_call"]:
        call["pending_handle"] = started["pending_handle"]
        needless.append(_CALL_STARTED)
    forget = steps.get(_FORGET_CALLS)
    if forget is not None and forget["turn"] == call["turn"]:
        needless.append(_FORGET_CALLS)
    return needless
