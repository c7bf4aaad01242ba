"""Failures of PostgreSQL as errors of the port. Law: `trouble` is a word of the gateway; no text has a credential.

Source: PostgreSQL's manual, appendix "PostgreSQL Error Codes".
"""

from gateway.ledger.errors import LedgerUnavailable


class Failure(Exception):
    """A call has failed; the connection goes on. `state` is the code, '' where a call before it has failed."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class Lost(Exception):
    """The connection is gone, or was never there."""


class Behind(Lost):
    """The server lacks a group that was committed: a standby that had not received all has become the server."""

    def __init__(self) -> None:
        super().__init__(
            "the database lacks what it has confirmed: a standby took over that had not received all. Nothing is read or "
            "written; let the server catch up, or restart the gateway to go on without what is lost"
        )


class Silent(Lost):
    """The server did not answer in time."""

    def __init__(self) -> None:
        super().__init__("the server did not answer in time")


class Unconfirmed(Lost):
    """The server waits for a synchronous standby, so nothing that it is given can be acknowledged."""

    def __init__(self) -> None:
        super().__init__(
            "no synchronous standby confirms what the server commits: start the standby, or take it out of "
            "synchronous_standby_names"
        )


class Standby(Lost):
    """The server follows another one: what is confirmed there comes here later."""

    def __init__(self) -> None:
        super().__init__(
            "the server is a standby, where nothing is read: name the one that takes writes, or target_session_attrs=read-write"
        )


class Claimed(Lost):
    """No gateway has the ledger open meanwhile."""

    def __init__(self) -> None:
        super().__init__("it is being copied or restored: wait for the end of that")


class ReadOnly(Lost):
    """The server takes no writes on this connection. On a new one it may again."""

    def __init__(self) -> None:
        super().__init__("the server takes no writes: it is read-only")


class Unfit(Exception):
    """A value that no column can hold."""


_TROUBLES = {
    "25006": "read-only",
    "40001": "locked",
    "40P01": "locked",
    "55P03": "locked",
    "57014": "locked",
    "53100": "full",
    "58030": "failing",
    "XX001": "failing",
    "XX002": "failing",
}

_LOSSES: dict[type[Failure | Lost], str] = {
    Behind: "behind",
    Claimed: "locked",
    ReadOnly: "read-only",
    Unconfirmed: "unconfirmed",
}

_INTEGRITY = "23"
_UNFIT = ("22", "54")
"""Classes of what a value is to blame for: that no column holds it, or that it is longer than an index takes."""

_TRANSIENT = frozenset({"40001", "40P01"})
"""What one of two transactions gets that wait for each other."""


_NOT_AVAILABLE = "55P03"


def conflicts(failure: Failure) -> bool:
    return failure.state.startswith(_INTEGRITY)


def unfit(failure: Failure) -> bool:
    return failure.state.startswith(_UNFIT)


def transient(failure: Failure) -> bool:
    return failure.state in _TRANSIENT


def only_reads(error: Failure | Lost) -> bool:
    return trouble(error) == "read-only"


def waited_in_vain(failure: Failure) -> bool:
    """For a row that somebody holds."""
    return failure.state == _NOT_AVAILABLE


def unavailable(what: str, error: Failure | Lost) -> LedgerUnavailable:
    failure = LedgerUnavailable(f"{what}: {error}", trouble(error))
    failure.__cause__ = error
    return failure


def trouble(error: Failure | Lost) -> str:
    """A word of `LedgerUnavailable`."""
    if isinstance(error, Failure):
        return _TROUBLES.get(error.state, "unavailable")
    return _LOSSES.get(type(error), "unavailable")
