"""How contexts and their threads stand, in words. Law: pure; the list of contexts and the page of one say the same."""

from collections.abc import Iterable, Sequence

from gateway.a2a.model import INTERRUPTED
from gateway.ledger.admin.contexts import ContextMap, Standing, ThreadMap, ThreadTurn
from gateway.ledger.states import TurnStatus
from gateway.ui.words import Tone, state

STANDINGS: dict[str, tuple[str, Tone]] = {
    Standing.LOST: ("lost", "bad"),
    Standing.UNSYNCED: ("outcome unknown", "bad"),
    Standing.FAILED: ("failed", "bad"),
    Standing.WAITING: ("waits", "wait"),
    Standing.WORKING: ("running", "busy"),
    Standing.IDLE: ("idle", "good"),
    Standing.ENDED: ("ended", "off"),
}
"""The words and tones of how contexts stand, the worst first."""

_OVER = frozenset({"closed", "expired", "deleted"})
_OF_THREADS = {"lost": Standing.LOST, "unsynced": Standing.UNSYNCED}
_OF_TURNS = {
    TurnStatus.WAITING: Standing.WAITING,
    TurnStatus.RUNNING: Standing.WORKING,
    TurnStatus.ACCEPTED: Standing.WORKING,
}


def of_thread(thread: ThreadMap, latest: Sequence[ThreadTurn]) -> tuple[str, Tone]:
    """`latest` are its latest turns, the last one first."""
    if thread.state in _OVER:
        return state(thread.state)
    return _worst(_said(thread, latest, has_failed=_has_failed(latest[:1])))


def of_context(context: ContextMap, threads: Sequence[tuple[ThreadMap, Sequence[ThreadTurn]]]) -> tuple[str, Tone]:
    """`threads` are the live ones with their latest turns."""
    if context.state != "open":
        return state(context.state)
    last = max([turns[0] for _, turns in threads if turns], key=lambda turn: turn.id, default=None)
    has_failed = _has_failed([] if last is None else [last])
    return _worst([each for thread, turns in threads for each in _said(thread, turns, has_failed=has_failed)])


def _said(thread: ThreadMap, latest: Sequence[ThreadTurn], *, has_failed: bool) -> list[str]:
    said: list[str] = [_OF_TURNS[turn.status] for turn in latest if turn.status in _OF_TURNS]
    said += [Standing.WAITING] if _has_question(latest) else []
    said += [_OF_THREADS[thread.state]] if thread.state in _OF_THREADS else []
    return said + ([Standing.FAILED] if has_failed else [])


def _has_question(latest: Sequence[ThreadTurn]) -> bool:
    """Whether a task waits for its caller, and no turn has taken an answer."""
    answered = {turn.task for turn in latest if turn.ended_at is None}
    return any(turn.task_state in INTERRUPTED and turn.task not in answered for turn in latest)


def _has_failed(turns: Iterable[ThreadTurn]) -> bool:
    return any(turn.status is TurnStatus.FAILED for turn in turns)


def _worst(said: Iterable[str]) -> tuple[str, Tone]:
    return STANDINGS[min(said, key=[*STANDINGS].index, default=Standing.IDLE)]
