"""Numbers, times and states in words. Law: pure, and the same words on every page."""

from typing import Literal

Tone = Literal["good", "bad", "busy", "wait", "off"]
"""How a state is coloured, beside its word."""

_STATES: dict[str, tuple[str, Tone]] = {
    "TASK_STATE_SUBMITTED": ("accepted", "busy"),
    "TASK_STATE_WORKING": ("working", "busy"),
    "TASK_STATE_COMPLETED": ("completed", "good"),
    "TASK_STATE_FAILED": ("failed", "bad"),
    "TASK_STATE_CANCELED": ("cancelled", "off"),
    "TASK_STATE_INPUT_REQUIRED": ("waits for its caller", "wait"),
    "TASK_STATE_AUTH_REQUIRED": ("waits for consent", "wait"),
    "TASK_STATE_REJECTED": ("rejected", "bad"),
    "accepted": ("queued", "busy"),
    "running": ("running", "busy"),
    "waiting": ("waits", "wait"),
    "completed": ("completed", "good"),
    "failed": ("failed", "bad"),
    "cancelled": ("cancelled", "off"),
    "rejected": ("rejected", "bad"),
    "prepared": ("prepared", "busy"),
    "sent": ("sent", "busy"),
    "started": ("answering", "busy"),
    "emitting": ("answering", "busy"),
    "incomplete": ("incomplete", "bad"),
    "unknown": ("outcome unknown", "bad"),
    "announced": ("announced", "busy"),
    "pending_approval": ("waits for a yes", "wait"),
    "pending_consent": ("waits for consent", "wait"),
    "approved": ("allowed", "busy"),
    "not_found": ("no such tool", "bad"),
    "interrupted": ("outcome unknown", "bad"),
    "external": ("left to others", "off"),
    "open": ("open", "good"),
    "busy": ("at work", "busy"),
    "unsynced": ("unsynced", "bad"),
    "lost": ("lost", "bad"),
    "closed": ("closed", "off"),
    "expired": ("expired", "off"),
    "deleted": ("deleted", "off"),
    "revoked": ("revoked", "off"),
    "in force": ("in force", "good"),
    "ok": ("ok", "good"),
    "left-alone": ("left alone", "bad"),
    "down": ("not there", "bad"),
    "silent": ("calls hang", "bad"),
    "active": ("delivering", "busy"),
    "stopped": ("stopped", "bad"),
    "gone": ("refused for good", "bad"),
    "done": ("delivered", "good"),
}

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def state(name: str) -> tuple[str, Tone]:
    """The word for a state, and its tone. An unknown one is its own word."""
    return _STATES.get(name, (name, "off"))


def took(milliseconds: float | None) -> str:
    """As `85 ms`, `1.3 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`. None: a time that is not known."""
    if milliseconds is None:
        return "–"
    whole = max(0, round(milliseconds))
    if whole < _SECOND:
        return f"{whole} ms"
    if whole < _MINUTE:
        return f"{whole / _SECOND:.1f} s"
    for unit, name, lower, below in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", _SECOND, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // lower
            return f"{whole // unit} {name}" + (f" {rest} {below}" if rest else "")
    raise AssertionError(whole)


def size(count: int) -> str:
    """Bytes, as `820 B`, `14.2 KiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def many(count: int, one: str, more: str = "") -> str:
    """As `1 task`, `3 tasks`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
